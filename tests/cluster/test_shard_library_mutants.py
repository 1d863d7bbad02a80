"""Guards of the shard library, each taken away on purpose: the test that stands for it must then fail."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.cluster import (
    test_shard_library,
    test_shard_library_lease,
    test_shard_library_order,
)
from tests.cluster.world import Cluster

from poise.hold import shard_held, shard_lease, sharding
from poise.hold.shard_core import Core, Left
from poise.hold.shard_runs import Runs
from poise.hold.shard_steps import Steps
from poise.hold.shard_view import Entry, View, entry_of
from poise.hold.sharding import Grip, SeenOwnLease, Take, Verdict
from poise.kube import Deleted, Event, Partial, Resource, Synced
from poise.kube.patches import Operation
from poise.model.sharding import LeaseWrite, Step

pytestmark = pytest.mark.usefixtures("definitions")
Mutate = Callable[[pytest.MonkeyPatch], None]
FAILS = (AssertionError, pytest.fail.Exception)


def take_at_once(who: sharding.Claimant, lease: SeenOwnLease, now_s: float, *, named: bool) -> Take:
    del now_s, named
    fact = lease.fact
    version, uid = (None, None) if fact is None else (fact.version, fact.uid)
    return Take(LeaseWrite("hold", who.name, version, uid, who.me, who.duration_s), False)


async def wake_always(core: Core, left: Left) -> None:
    for owner in core.view.line(left.parent):
        core._wake(owner)


async def never_busy(runs: Runs, timeout_s: float, hurried: Callable[[], bool] = lambda: False) -> bool:
    del runs, timeout_s, hurried
    return True


def judge_the_root_alone(view: View, uid: str, grip: Grip | None, now_s: float, handing: frozenset[str]) -> Verdict:
    del handing
    root = view.root(uid) or view.entries.get(uid)
    if root is None:
        return Verdict.NOT_MINE
    return sharding.verdict(grip, root.seen, None, view.known.get(root.uid), now_s)


def in_turned_order(carry_out: Callable[[Steps, Entry, Step], object]) -> Callable[[Steps, Entry, Step], object]:
    def turned(steps: Steps, head: Entry, step: Step) -> object:
        return carry_out(steps, head, Step(step.kind, step.groups[::-1], step.needs, step.target))

    return turned


def see_at_once(core: Core, resource: Resource, event: Event[Partial]) -> None:
    if isinstance(event, Deleted):
        core._leave_filter(entry_of(resource, event.old.metadata, core._ring, core._kinds))
    elif not isinstance(event, Synced):
        core._take(entry_of(resource, event.object.metadata, core._ring, core._kinds))


def _listed(grip: Grip) -> Grip:
    return msgspec.structs.replace(grip, listed=True)


MUTANTS: list[tuple[str, Mutate, Callable[[Cluster, str], None]]] = [
    (
        "handed over while it runs",
        lambda patch: patch.setattr(Runs, "is_running", lambda _runs, _uids: False),
        test_shard_library.test_a_hand_over_waits_for_the_running_reconcile,
    ),
    (
        "the root before its children",
        lambda patch: patch.setattr(Steps, "_carry_out", in_turned_order(Steps._carry_out)),
        test_shard_library.test_a_hand_over_is_one_write_a_child_and_then_one_for_the_root,
    ),
    (
        "no test of the epoch",
        lambda patch: patch.setattr(
            shard_held, "same_label", lambda _name, _value: Operation("test", "/kind", "Secret")
        ),
        test_shard_library.test_patches_are_refused_to_whoever_began_at_another_epoch,
    ),
    (
        "no test of the uid",
        lambda patch: patch.setattr(shard_held, "same_uid", lambda _uid: Operation("test", "/metadata/name", "x")),
        test_shard_library.test_patches_are_refused_to_whoever_began_at_another_epoch,
    ),
    (
        "an object that left the filter is gone",
        lambda patch: patch.setattr(Core, "_look", wake_always),
        test_shard_library.test_a_child_that_is_gone_wakes_its_root_and_one_that_left_the_filter_does_not,
    ),
    (
        "a child is acted on with another epoch than its root's",
        lambda patch: patch.setattr(View, "judge", judge_the_root_alone),
        test_shard_library.test_labels_that_were_tampered_with_are_not_acted_on,
    ),
    (
        "nothing inherited is fenced first",
        lambda patch: patch.setattr(
            shard_lease, "grasp", lambda *given, eager: sharding.grasp(*given, eager=not eager)
        ),
        lambda cluster, namespace: test_shard_library.test_a_new_process_fences_what_it_inherits(
            cluster, namespace, True
        ),
    ),
    (
        "the Lease is given back while something runs",
        lambda patch: patch.setattr(Runs, "idle", never_busy),
        test_shard_library.test_a_shard_that_leaves_lets_reconciles_end_and_takes_nothing_new,
    ),
    (
        "an earlier hold is not waited for",
        lambda patch: patch.setattr(shard_lease, "claim", take_at_once),
        lambda cluster, namespace: test_shard_library_lease.test_a_restarted_process_and_the_hold_of_its_earlier_one(
            cluster, namespace, False
        ),
    ),
    (
        "it acts longer than its Lease",
        lambda patch: patch.setattr(Grip, "until_s", property(lambda grip: grip.sent_at_s + 2 * grip.duration_s)),
        test_shard_library_lease.test_it_stops_before_its_lease_ends_when_the_server_does_not_answer,
    ),
    (
        "whoever lost its Lease makes it again",
        lambda patch: patch.setattr(shard_lease, "read_again", lambda grip, _fact: grip),
        test_shard_library_lease.test_a_lease_that_somebody_else_took_ends_all_and_is_waited_out,
    ),
    (
        "a gain is not confirmed",
        lambda patch: patch.setattr(sharding, "_is_confirmed", lambda _grip, _known: True),
        test_shard_library_order.test_a_gain_is_acted_on_after_a_renewal_that_was_sent_since,
    ),
    (
        "no list after acquiring",
        lambda patch: patch.setattr(
            shard_lease, "grasp", lambda *given, eager: _listed(sharding.grasp(*given, eager=eager))
        ),
        test_shard_library_order.test_nothing_is_acted_on_before_everything_was_listed,
    ),
    (
        "a watch that outruns an answer is taken at once",
        lambda patch: patch.setattr(Core, "see", see_at_once),
        test_shard_library_order.test_a_watch_that_outruns_the_answer_to_an_own_write_cancels_nothing,
    ),
]


@pytest.mark.parametrize(("mutate", "broken"), [pytest.param(*each, id=name) for name, *each in MUTANTS])
def test_a_guard_that_is_taken_away_is_missed_by_its_test(
    cluster: Cluster,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Mutate,
    broken: Callable[[Cluster, str], None],
) -> None:
    mutate(monkeypatch)
    with pytest.raises(FAILS):
        broken(cluster, namespace)
