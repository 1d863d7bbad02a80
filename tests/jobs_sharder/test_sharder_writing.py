"""What is sent, and when: nothing without the lead and the hold that it needs, and children before their root."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import httpx2
import msgspec
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from tests.jobs_sharder.sharder_events import FOLLOWING, RING, SHARED, Put, known_of
from tests.jobs_sharder.test_sharder_deciding import NOW_S, TERMS, instances
from tests.kube.fake_time import run

from poise.errors import Conflict, NotHeld, Unavailable
from poise.jobs.sharder.report import RingCounts
from poise.jobs.sharder.selecting import Keys, read_keys
from poise.jobs.sharder.view import Known, View
from poise.jobs.sharder.writing import Writer
from poise.kube import Client, Meta, ObjectRef, Partial
from poise.kube.client import Shape
from poise.model.sharding import Marks, Standing, Step, Write, label_names

CHILDREN = ("k0", "k1", "k2")
KEYS = read_keys("object")
NO_NETWORK = httpx2.AsyncClient()  # Nothing is ever sent by it.


class Told(Client):
    """Notes what would be sent, and answers as the API server does; each request takes its time."""

    def __init__(self, delays_s: list[float]) -> None:
        """Take so long for the first request, the second, and so on."""
        super().__init__(NO_NETWORK)
        self.now_s = NOW_S
        self.sent: list[tuple[str, float]] = []
        self._delays_s = delays_s

    async def merge(self, ref: ObjectRef, meta: Meta, change: Mapping[str, object], shape: type[Shape]) -> Shape:
        """Answer with the labels that the patch leaves."""
        self.sent.append((ref.name, self.now_s))
        self.now_s += self._delays_s[len(self.sent) % len(self._delays_s)] if self._delays_s else 0.0
        body = change["metadata"]
        assert isinstance(body, Mapping)
        labels = {name: value for name, value in {**meta.labels, **body["labels"]}.items() if value is not None}
        version = str(int(meta.resource_version) + 1000)
        answer = Partial(msgspec.structs.replace(meta, labels=labels, resource_version=version))
        return msgspec.convert(msgspec.to_builtins(answer), shape)


def take(view: View, known: Known) -> None:
    """Put an answer into the view that asked."""
    view.take(known, NOW_S)


def family(view: View) -> Step:
    """Put a family of a dead instance into a view, and decide to take it."""
    for number, uid in enumerate(("root", *CHILDREN)):
        parent = None if uid == "root" else "root"
        view.take(known_of(Put(uid, parent, Marks("x-1", 4), shared=parent is None), number + 1), NOW_S)
    goal = Marks("x-0", 5)
    writes = {uid: Write(uid, view.known[uid].meta.resource_version, goal) for uid in ("root", *CHILDREN)}
    return Step("take", (tuple(writes[uid] for uid in CHILDREN), (writes["root"],)), needs="x-1", target="x-0")


def play(delays_s: list[float], leads_s: float) -> None:
    """Take a family while time passes; every request must have been allowed at the moment it was sent."""
    client = Told(delays_s)
    stand = instances({"x-0": Standing.READY, "x-1": Standing.HELD})
    view = View(RING, (SHARED, FOLLOWING))
    step = family(view)
    writer = Writer(
        client,
        stand,
        RingCounts(),
        may_act=lambda: client.now_s < NOW_S + leads_s,
        now_s=lambda: client.now_s,
        told=take,
    )

    async def run() -> bool:
        try:
            await writer.carry_out((step,), view, KEYS)
        except NotHeld:
            return False
        return True

    done = asyncio.run(run())
    end_s = NOW_S + min(TERMS.hold_s - TERMS.margin_s, leads_s)
    assert all(sent_s < end_s for _, sent_s in client.sent), client.sent
    names = [name for name, _ in client.sent]
    assert names == [*CHILDREN, "root"][: len(names)]
    assert done == (len(names) == 4)
    assert all(view.kin.objects[name].marks == Marks("x-0", 5) for name in names)


delays = st.lists(st.sampled_from((0.0, 0.5, 1.0, 2.0)), max_size=4)
leading = st.sampled_from((0.0, 1.0, 2.0, 99.0))


@settings(max_examples=150, deadline=None)
@given(delays, leading)
def test_nothing_is_sent_without_the_lead_and_the_hold_that_it_needs(delays_s: list[float], leads_s: float) -> None:
    play(delays_s, leads_s)


def _breaks(case: tuple[list[float], float]) -> bool:
    try:
        play(*case)
    except AssertionError:
        return True
    return False


def _unchecked(_self: Writer, _step: Step) -> None:
    return None


def _checked_once(self: Writer, step: Step, check: Callable[[Writer, Step], None] = Writer._check) -> None:
    if not self._counts.writes:
        check(self, step)


def _only_the_lead(self: Writer, step: Step, check: Callable[[Writer, Step], None] = Writer._check) -> None:
    check(self, msgspec.structs.replace(step, needs=None))


async def _root_first(self: Writer, step: Step, view: View, keys: Keys) -> None:
    for group in reversed(step.groups):
        for write in group:
            await self._write(step, write, view, keys)


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        pytest.param("_check", _unchecked, id="nothing is checked"),
        pytest.param("_check", _checked_once, id="only the first write is checked"),
        pytest.param("_check", _only_the_lead, id="the hold is not checked"),
        pytest.param("_step", _root_first, id="the root before its children"),
    ],
)
def test_a_writer_that_sends_too_much_is_found_out(
    name: str, mutant: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Writer, name, mutant)
    how = settings(max_examples=500, deadline=None, database=None, phases=(Phase.generate,))
    try:
        assert find(st.tuples(delays, leading), _breaks, settings=how)
    except NoSuchExample:
        pytest.fail("no case tells the mutant from the writer")


def test_what_changed_since_it_was_decided_on_is_not_sent() -> None:
    client, view = Told([]), View(RING, (SHARED, FOLLOWING))
    step = family(view)
    stand = instances({"x-0": Standing.READY, "x-1": Standing.HELD})
    writer = Writer(client, stand, RingCounts(), may_act=lambda: True, now_s=lambda: NOW_S, told=take)
    view.take(known_of(Put("k1", "root", Marks("x-1", 4), shared=False), 77), NOW_S)
    with pytest.raises(Conflict):
        asyncio.run(writer.carry_out((step,), view, KEYS))
    # The others of its group were sent; the root, which is the commit, was not.
    assert [name for name, _ in client.sent] == ["k0", "k2"]


def test_while_a_hold_is_being_ended_nothing_is_moved_by_it() -> None:
    client, view = Told([]), View(RING, (SHARED, FOLLOWING))
    step = family(view)
    stand = instances({"x-0": Standing.READY, "x-1": Standing.HELD})
    writer = Writer(client, stand, RingCounts(), may_act=lambda: True, now_s=lambda: client.now_s, told=take)
    stand.leaving.add("x-1")
    with pytest.raises(NotHeld):
        asyncio.run(writer.carry_out((step,), view, KEYS))
    assert client.sent == []
    stand.leaving.clear()
    asyncio.run(writer.carry_out((step,), view, KEYS))
    assert len(client.sent) == 4


def test_what_is_there_already_is_not_sent() -> None:
    client, view = Told([]), View(RING, (SHARED, FOLLOWING))
    view.take(known_of(Put("root", None, Marks("x-0", 5)), 7), NOW_S)
    step = Step("repair", ((Write("root", "7", Marks("x-0", 5)),),))
    writer = Writer(
        client,
        instances({"x-0": Standing.READY}),
        RingCounts(),
        may_act=lambda: True,
        now_s=lambda: NOW_S,
        told=take,
    )
    asyncio.run(writer.carry_out((step,), view, KEYS))
    assert client.sent == []


def test_other_labels_and_other_rings_stay_as_they_are() -> None:
    client, view = Told([]), View(RING, (SHARED,))
    known = known_of(Put("root", None, Marks("x-1", 4)), 7)
    other = label_names("other")[0]
    meta = msgspec.structs.replace(known.meta, labels={**known.meta.labels, other: "y-0", "app": "shop"})
    view.take(msgspec.structs.replace(known, meta=meta), NOW_S)
    writer = Writer(
        client,
        instances({"x-0": Standing.READY}),
        RingCounts(),
        may_act=lambda: True,
        now_s=lambda: NOW_S,
        told=take,
    )
    step = Step("assign", ((Write("root", "7", Marks("x-0", 5)),),))
    asyncio.run(writer.carry_out((step,), view, KEYS))
    labels = view.known["root"].meta.labels
    assert (labels[other], labels["app"], labels[label_names(RING)[0]]) == ("y-0", "shop", "x-0")


class Hanging(Client):
    """Never answers, but notes the deadline of what is sent."""

    def __init__(self) -> None:
        super().__init__(httpx2.AsyncClient(transport=httpx2.MockTransport(self._hang), base_url="http://hangs"))
        self.told: list[str] = []

    async def _hang(self, request: httpx2.Request) -> httpx2.Response:
        self.told.append(request.url.params["timeout"])
        return await asyncio.Future()


@pytest.mark.parametrize(("needs", "told", "takes_s"), [("x-1", "800ms", 0.8), (None, "10s", 10.0)])
def test_a_write_that_needs_a_hold_is_given_up_before_the_margin_is_over(
    needs: str | None, told: str, takes_s: float
) -> None:
    """The server is told so, too: what it has not begun by then it does not begin."""
    view = View(RING, (SHARED, FOLLOWING))
    step = msgspec.structs.replace(family(view), needs=needs)
    stand = instances({"x-0": Standing.READY, "x-1": Standing.HELD})

    async def scenario() -> float:
        client = Hanging()
        writer = Writer(client, stand, RingCounts(), may_act=lambda: True, now_s=lambda: NOW_S, told=take)
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(Unavailable):
            await writer.carry_out((step,), view, KEYS)
        assert client.told == [told] * len(CHILDREN)
        return asyncio.get_running_loop().time() - began_s

    assert run(scenario()) == pytest.approx(takes_s)
