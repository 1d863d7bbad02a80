"""Deciding only on what was touched is deciding on everything, and what was written is not written again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from tests.jobs_sharder.sharder_events import FOLLOWING, RING, SHARED, Drop, Put, events, known_of, labels_of

from poise.jobs.sharder.deciding import Deciding
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.kin import Touched
from poise.jobs.sharder.view import Known, View
from poise.kube import Lease, Meta
from poise.kube.objects import LeaseSpec
from poise.model.shard_ring import RingGuards, ShardRingSpec
from poise.model.sharding import Marks, SeenObject, Standing, Step
from poise.move.sharding.families import Relatives
from poise.move.sharding.passes import plan_pass
from poise.observe.leases import LeaseTerms

TERMS = LeaseTerms(me="poise-sharder-x_1", duration_s=2.0, margin_s=1.0)
NOW_S, UNTIL = 100.0, 1_800_000_000
SPEC = ShardRingSpec(on_drain_timeout="force", drain_timeout_seconds=5, guards=RingGuards(moves_in_flight_max=None))
Told = list[tuple[str, list[list[tuple[str, Marks]]], str | None, str | None]]
standings = st.fixed_dictionaries({f"x-{number}": st.sampled_from(Standing) for number in range(3)})
policies = st.sampled_from(("ring", "balanced"))


def lease(name: str, holder: str) -> Lease:
    """Make a Lease as a mirror shows it."""
    return Lease(Meta(name, "ns", name, "1"), LeaseSpec(holder, 2 if holder != TERMS.me else 4))


def instances(wanted: dict[str, Standing]) -> Instances:
    """Make instances that stand so at this moment."""
    ages = {Standing.READY: 0.0, Standing.LATE: 2.5, Standing.LOST: 5.0, Standing.HELD: 5.0}
    made = Instances(TERMS)
    for name, stands in wanted.items():
        seen = lease(name, f"{name}_1")
        made.see(seen, NOW_S - ages[stands])
        if stands is Standing.HELD:
            held = msgspec.structs.replace(seen, metadata=Meta(name, "ns", name, "2"), spec=LeaseSpec(TERMS.me, 4))
            made.wrote(made.watched[name], held, NOW_S, NOW_S)
    made.judge_all(wanted, 100, NOW_S)
    assert {name: made.standings[name] for name in wanted} == wanted
    return made


def told(steps: Sequence[Step]) -> Told:
    """Tell steps without the versions that they were decided on."""
    return [
        (step.kind, [[(write.uid, write.marks) for write in group] for group in step.groups], step.needs, step.target)
        for step in steps
    ]


def deciding_on(view: View, stand: Instances, policy: str) -> Deciding:
    """Begin to decide on everything."""
    spec = msgspec.structs.replace(SPEC, policy=policy)
    made = Deciding(spec, view, stand)
    made.judged(dict.fromkeys(stand.standings), stand.braked)
    made.plan()
    made.touch_all()
    return made


def decide_touched(deciding: Deciding, pending: dict[str, Told]) -> None:
    for root in list(deciding.touched):
        pending[root] = told(deciding.decide(root, NOW_S, UNTIL))


def keys_of(view: View) -> list[tuple[str, str]]:
    """List the keys that are to be had."""
    objects = view.kin.objects
    return sorted((objects[uid].key, uid) for uid in view.kin.roots() if objects[uid].selected)


def work_of(deciding: Deciding) -> frozenset[str]:
    """Say whose Leases would let something be written, by one pass over everything."""
    families = tuple(map(deciding.view.family, deciding.view.kin.roots()))
    homes = {family.root.uid: deciding._home(family) for family in families}
    outlook = deciding._outlook(deciding.view.clocks, NOW_S, UNTIL)
    return plan_pass(Relatives(families), homes, outlook, deciding.view.clocks).work


def play(happened: Sequence[Put | Drop], wanted: dict[str, Standing], policy: str) -> None:
    """Play changes; after each, what was decided little by little is what is decided on all at once."""
    view, stand = View(RING, (SHARED, FOLLOWING)), instances(wanted)
    deciding = deciding_on(view, stand, policy)
    pending: dict[str, Told] = {}
    for number, event in enumerate(happened):
        keys = keys_of(view)
        if isinstance(event, Put):
            deciding.touch(view.take(known_of(event, number + 100), NOW_S - 4))
        else:
            deciding.touch(view.drop(event.uid, NOW_S - 4))
        assert deciding.unplanned or keys_of(view) == keys, "other keys are planned anew"
        deciding.plan()
        decide_touched(deciding, pending)
        full = deciding_on(view, stand, policy)
        for root in list(full.touched):
            assert pending.get(root, []) == told(full.decide(root, NOW_S, UNTIL)), f"{root} after {event}"
        assert {name for name in wanted if deciding.works_for(name)} == work_of(deciding)


@settings(max_examples=120, deadline=None)
@given(events, standings, policies)
def test_deciding_on_what_was_touched_is_deciding_on_everything(
    happened: list[Put | Drop], wanted: dict[str, Standing], policy: str
) -> None:
    play(happened, wanted, policy)


def answered(view: View, write_uid: str, marks: Marks, version: int) -> Known:
    """Make the answer of the API server to a write of labels."""
    known = view.known[write_uid]
    meta = msgspec.structs.replace(known.meta, resource_version=str(version), labels=labels_of(marks))
    return msgspec.structs.replace(known, meta=meta)


def carry_out(happened: Sequence[Put | Drop], wanted: dict[str, Standing], policy: str) -> None:
    """Write whatever is decided until nothing is; the end must come soon, and stay."""
    view, stand = View(RING, (SHARED, FOLLOWING)), instances(wanted)
    for number, event in enumerate(happened):
        if isinstance(event, Put):
            view.take(known_of(event, number + 100), NOW_S - 9)
        else:
            view.drop(event.uid, NOW_S - 9)
    deciding = deciding_on(view, stand, policy)
    version = 1000
    for _ in range(6):
        steps = [step for root in list(deciding.touched) for step in deciding.decide(root, NOW_S, UNTIL)]
        for write in (write for step in steps for write in step.writes):
            version += 1
            deciding.touch(view.take(answered(view, write.uid, write.marks, version), NOW_S))
        if deciding.unplanned:
            deciding.plan()
        if not steps and not deciding.touched:
            break
    again = deciding_on(view, stand, policy)
    left = {root: told(again.decide(root, NOW_S, UNTIL)) for root in list(again.touched)}
    assert not any(left.values()), left


@settings(max_examples=150, deadline=None)
@given(events, standings, policies)
def test_a_second_pass_over_what_was_written_decides_nothing(
    happened: list[Put | Drop], wanted: dict[str, Standing], policy: str
) -> None:
    carry_out(happened, wanted, policy)


Law = Callable[[Sequence[Put | Drop], dict[str, Standing], str], None]


def breaks(law: Law) -> Callable[[tuple[list[Put | Drop], dict[str, Standing], str]], bool]:
    def is_broken(case: tuple[list[Put | Drop], dict[str, Standing], str]) -> bool:
        try:
            law(*case)
        except (AssertionError, KeyError):
            return True
        return False

    return is_broken


def _untouched(_self: Deciding, _touched: Touched) -> None:
    return None


def _needs_nothing(_self: Deciding, _root: str, _names: frozenset[str]) -> None:
    return None


def _as_if_only_the_version_differed(before: SeenObject, now: SeenObject) -> bool:
    return before.marks.shard == now.marks.shard and before.parent == now.parent


def _always_another(self: Deciding, _family: object) -> str | None:
    self.turn = not getattr(self, "turn", False)  # type: ignore[attr-defined]
    ready = [name for name, stands in self.instances.standings.items() if stands is Standing.READY]
    return ready[0 if self.turn else -1] if ready else None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("law", "place", "mutant"),
    [
        pytest.param(play, (Deciding, "touch"), _untouched, id="a change touches nothing"),
        pytest.param(play, (Deciding, "_need"), _needs_nothing, id="nobody's Lease is ever needed"),
        pytest.param(
            play,
            ("poise.jobs.sharder.view", "_is_same"),
            _as_if_only_the_version_differed,
            id="other marks are the same",
        ),
        pytest.param(carry_out, (Deciding, "_home"), _always_another, id="the planner changes its mind"),
    ],
)
def test_a_sharder_that_decides_wrongly_is_found_out(
    law: Law, place: tuple[object, str], mutant: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(place[0], str):
        monkeypatch.setattr(f"{place[0]}.{place[1]}", mutant)
    else:
        monkeypatch.setattr(place[0], place[1], mutant)
    cases = st.tuples(events, standings, policies)
    how = settings(max_examples=2000, deadline=None, database=None, phases=(Phase.generate,))
    try:
        assert find(cases, breaks(law), settings=how)
    except NoSuchExample:
        pytest.fail("no case tells the mutant from the sharder")


def test_moves_in_flight_never_exceed_their_bound_and_go_on_when_there_is_room() -> None:
    view = View(RING, (SHARED, FOLLOWING))
    stand = instances({"x-0": Standing.READY, "x-1": Standing.READY})
    for number in range(40):
        view.take(known_of(Put(f"o{number}", None, Marks("x-0", 1)), number + 1), NOW_S)
    deciding = deciding_on(view, stand, "balanced")
    deciding.spec = msgspec.structs.replace(deciding.spec, guards=RingGuards(moves_in_flight_max=3))
    version, moved = 1000, 0
    while True:
        for root in list(deciding.touched):
            for step in deciding.decide(root, NOW_S, UNTIL):
                assert step.kind == "drain"
                version += 1
                deciding.touch(view.take(answered(view, root, step.writes[0].marks, version), NOW_S))
        assert deciding.in_flight <= 3
        if not view.moving:
            break
        # One instance answers one request.
        root = min(view.moving)
        version, moved = version + 1, moved + 1
        deciding.touch(view.take(answered(view, root, Marks("x-1", 2), version), NOW_S))
        deciding.make_room()
    assert (moved, len(deciding.delayed)) == (20, 0)


def test_only_the_families_of_the_gone_are_looked_at_when_one_of_them_is_held() -> None:
    view = View(RING, (SHARED, FOLLOWING))
    stand = instances({"x-0": Standing.READY, "x-1": Standing.LOST})
    for number in range(6):
        view.take(known_of(Put(f"o{number}", None, Marks(f"x-{number % 2}", 1)), number + 1), NOW_S)
    deciding = deciding_on(view, stand, "ring")
    decide_touched(deciding, {})
    assert deciding.works_for("x-1")
    held = Lease(Meta("x-1", "ns", "x-1", "2"), LeaseSpec(TERMS.me, 4))
    stand.wrote(stand.watched["x-1"], held, NOW_S, NOW_S)
    changed = stand.judge_all(view.named, 100, NOW_S)
    assert changed == {"x-1": Standing.LOST}
    deciding.judged(changed, False)
    assert set(deciding.touched) == {"o1", "o3", "o5"}
