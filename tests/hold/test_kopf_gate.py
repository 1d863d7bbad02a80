"""The gate before kopf's handlers, without a cluster: what is processed, when, as what, and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

import httpx2
import kopf
import pytest
from kopf._cogs.aiokits.aiotoggles import Toggle, ToggleSet
from kopf._cogs.structs.bodies import RawBody
from kopf._cogs.structs.ephemera import AnyMemo
from kopf._core.engines.indexing import OperatorIndexers
from kopf._core.reactor import processing
from kopf._core.reactor.inventory import ResourceMemories
from tests.hold.test_shard_view import entry

from poise.errors import InvalidSpec, NotHeld, PoiseError
from poise.hold import kopf as adapter
from poise.hold import kopf_gate, kopf_inside
from poise.hold.kopf import held, join_ring
from poise.hold.kopf_gate import Gate
from poise.hold.kopf_inside import Call
from poise.hold.shard import Held, Shard
from poise.hold.shard_core import Core
from poise.hold.shard_runs import Run
from poise.hold.shard_view import View
from poise.kube.client import Client
from poise.model.sharding import Marks, label_names

SECRETS = kopf.Resource("", "v1", "secrets", kind="Secret", namespaced=True)
PODS = kopf.Resource("", "v1", "pods", kind="Pod", namespaced=True)
SHARD, EPOCH, DRAIN, _ = label_names("web")
Labels = Mapping[str, str]
PATIENCE_S = 10.0


class Stage(Shard):
    """A shard that holds what the test says, and reconciles when it is woken."""

    def __init__(self) -> None:
        super().__init__(ring="web", resources=["secrets"], name="me")
        self.epoch: int | None = None
        self.seen = True
        self.run_now: Run | None = None
        self.runs: list[asyncio.Task[None]] = []
        self.gate: Gate | None = None

    @property
    def holding(self) -> bool:
        return True

    def holds(self, uid: str) -> bool:  # noqa: ARG002  # There is one object.
        return self.epoch is not None

    def sees(self, uid: str) -> bool:  # noqa: ARG002
        return self.seen

    def wake(self, uid: str) -> None:  # noqa: ARG002
        if self.epoch is not None and (self.run_now is None or self.run_now.over):
            self.runs.append(asyncio.create_task(self._run(self.epoch)))

    async def _run(self, epoch: int) -> None:
        one = entry("x", Marks("me", epoch))
        self.run_now = Run(one, one, epoch)
        assert self.gate is not None
        try:
            # A held object is only asked for what it is here: its shard and its view are never needed.
            await self.gate.reconcile(Held(self.run_now, "web", View("me"), cast(Client, None), cast(Core, None)))
        finally:
            self.run_now.over = True


class Bench:
    """A gate, and a kopf that notes what it is asked to process."""

    def __init__(self) -> None:
        self.shard = Stage()
        client = Client(httpx2.AsyncClient())
        chosen = {"resources": {"secrets"}, "everywhere": set[str]()}
        self.gate = Gate(self.process, self.shard, client, "web", **chosen)
        self.shard.gate = self.gate
        self.done: list[Call] = []
        self.epochs: list[int] = []
        self.act: Callable[[Call], Awaitable[str | None]] = self.nothing
        self.registry, self.memories = kopf.OperatorRegistry(), ResourceMemories()
        kopf.on.update("secrets", registry=self.registry)(_handler)

    async def process(self, **call: object) -> str | None:
        known = cast(Call, call)
        self.done.append(known)
        self.epochs.append(held().epoch)
        return await self.act(known)

    async def nothing(self, _call: Call) -> None:
        return None

    def show(
        self, type_: str | None, epoch: int, version: str = "1", *, more: Labels | None = None
    ) -> asyncio.Task[str | None]:
        """Let kopf's watch show the object."""
        labels = {"app": "x", SHARD: "me", EPOCH: str(epoch)}
        return asyncio.create_task(self.gate.process(**self.call(type_, labels, version, more)))

    def call(self, type_: str | None, labels: Labels, version: str, notes: Labels | None = None) -> Call:
        meta = {"uid": "x", "name": "x", "namespace": "n", "resourceVersion": version}
        found: dict[str, object] = {**meta, "labels": dict(labels), "annotations": dict(notes or {})}
        call: Call = {
            "lifecycle": kopf.lifecycles.all_at_once,
            "indexers": OperatorIndexers(),
            "registry": self.registry,
            "settings": kopf.OperatorSettings(),
            "memories": self.memories,
            "memobase": AnyMemo(kopf.Memo()),
            "resource": SECRETS,
            "raw_event": {"type": type_, "object": cast(RawBody, {"metadata": found})},  # type: ignore[typeddict-item]
            "event_queue": asyncio.Queue(),
            "stream_pressure": asyncio.Event(),
            "operator_paused": None,
            "resource_indexed": None,
            "operator_indexed": None,
            "consistency_time": None,
        }
        return call

    def types(self) -> list[str | None]:
        return [call["raw_event"]["type"] for call in self.done]

    def versions(self) -> list[str]:
        return [kopf_inside.version_of(call) for call in self.done]


async def _handler(**_: object) -> None:
    """Handle nothing."""


def play(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def played() -> None:
        bench = Bench()
        async with asyncio.timeout(PATIENCE_S):
            await scenario(bench)

    asyncio.run(played())


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


HANDLED = {"kopf.zalando.org/last-handled-configuration": "{}"}


@pytest.mark.parametrize(
    ("epoch", "more", "shown"),
    [(1, {}, "ADDED"), (1, HANDLED, None), (2, {}, None), (2, HANDLED, None)],
    ids=["new", "handled before there was a ring", "unfinished elsewhere", "handled elsewhere"],
)
def test_what_was_there_before_is_shown_as_a_list_shows_it(epoch: int, more: Labels, shown: str | None) -> None:
    async def scenario(bench: Bench) -> None:
        bench.shard.epoch = epoch
        await bench.show("ADDED", epoch, more=more)
        await bench.show("MODIFIED", epoch, "2", more=more)
        assert bench.types() == [shown, "MODIFIED"]
        assert bench.epochs == [epoch, epoch]

    play(scenario)


def test_what_is_not_held_waits_and_does_not_stop_kopf() -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.show("ADDED", 1) is None
        assert await bench.show("MODIFIED", 1, "2") is None
        assert not bench.done
        bench.shard.epoch = 1
        bench.shard.wake("x")
        await settle()
        assert bench.versions() == ["2"], "the newest one is processed, without kopf"

    play(scenario)


def test_an_event_of_an_earlier_owner_is_dropped_and_a_later_one_waits() -> None:
    async def scenario(bench: Bench) -> None:
        bench.shard.epoch = 3
        assert await bench.show("MODIFIED", 2) is None
        assert not bench.done
        later = bench.show("MODIFIED", 4, "2")
        await settle()
        assert not bench.done
        bench.shard.epoch = 4
        bench.shard.wake("x")
        await later
        assert bench.versions() == ["2"]

    play(scenario)


def test_an_own_fence_is_no_new_owner() -> None:
    async def scenario(bench: Bench) -> None:
        async def fence(_call: Call) -> str | None:
            assert bench.shard.run_now is not None
            bench.shard.run_now.epoch = bench.shard.epoch = 4
            return None

        bench.act = fence
        bench.shard.epoch = 3
        await bench.show("ADDED", 3)
        assert await bench.show("MODIFIED", 3, "2") is None, "an older one"
        await bench.show("MODIFIED", 4, "3")
        assert bench.types() == [None, "MODIFIED"]
        bench.shard.epoch = 5
        await bench.show("MODIFIED", 5, "4")
        assert bench.types() == [None, "MODIFIED", None], "it was with somebody else"

    play(scenario)


def test_a_newer_event_cuts_the_pause_short_of_one_that_kopf_does_not_wait_for() -> None:
    async def scenario(bench: Bench) -> None:
        async def pause(call: Call) -> str | None:
            assert call["stream_pressure"] is not None
            await call["stream_pressure"].wait()
            return None

        bench.act = pause
        await bench.show("ADDED", 1)
        bench.shard.epoch = 1
        bench.shard.wake("x")
        await settle()
        newer = bench.show("MODIFIED", 1, "2")
        await settle()
        assert bench.versions() == ["1", "2"]
        pressure = bench.done[1]["stream_pressure"]
        assert pressure is not None
        assert not pressure.is_set(), "nothing is newer than this one"
        newer.cancel()
        await asyncio.gather(*bench.shard.runs)

    play(scenario)


def test_a_request_cuts_pauses_short_and_its_event_is_processed_again_if_the_request_is_gone() -> None:
    async def scenario(bench: Bench) -> None:
        async def pause(call: Call) -> str | None:
            assert call["stream_pressure"] is not None
            await call["stream_pressure"].wait()
            return "7"

        bench.act = pause
        bench.shard.epoch = 1
        answer = bench.show("ADDED", 1)
        await settle()
        assert bench.shard.run_now is not None
        bench.shard.run_now.asked.set()
        assert await answer == "7"
        await asyncio.gather(*bench.shard.runs)
        bench.act = bench.nothing
        bench.shard.wake("x")
        await settle()
        assert bench.versions() == ["1", "1"]
        assert bench.done[1]["consistency_time"] is not None, "kopf's own write was not shown yet"
        assert bench.types() == ["ADDED", "ADDED"], "it did not leave: nothing is resumed"

    play(scenario)


def test_a_cancelled_run_ends_only_when_the_handler_has() -> None:
    async def scenario(bench: Bench) -> None:
        over = asyncio.Event()

        async def stubborn(_call: Call) -> str | None:
            while not over.is_set():
                try:
                    await over.wait()
                except asyncio.CancelledError:
                    continue
            return None

        bench.act = stubborn
        bench.shard.epoch = 1
        answer = bench.show("ADDED", 1)
        await settle()
        try:
            for _ in range(2):
                bench.shard.runs[0].cancel()
                await settle()
            assert not bench.shard.runs[0].done()
        finally:
            over.set()
        assert await answer is None
        await asyncio.wait(bench.shard.runs)
        assert bench.shard.runs[0].cancelled()

    play(scenario)


def test_a_fault_of_kopf_reaches_kopf() -> None:
    async def scenario(bench: Bench) -> None:
        async def fail(_call: Call) -> str | None:
            raise RuntimeError("broken")

        bench.act = fail
        bench.shard.epoch = 1
        with pytest.raises(RuntimeError, match="broken"):
            await bench.show("ADDED", 1)

    play(scenario)


def test_kopf_ends_and_the_running_handler_with_it() -> None:
    async def scenario(bench: Bench) -> None:
        async def sleep(_call: Call) -> str | None:
            await asyncio.sleep(60)
            return None

        bench.act = sleep
        bench.shard.epoch = 1
        answer = bench.show("ADDED", 1)
        await settle()
        answer.cancel()
        await asyncio.gather(*bench.shard.runs)
        assert answer.cancelled()

    play(scenario)


def test_labels_of_rings_are_hidden_and_others_are_not() -> None:
    async def scenario(bench: Bench) -> None:
        bench.shard.epoch = 1
        await bench.show("ADDED", 1)
        assert kopf_inside.labels_of(bench.done[0]) == {"app": "x"}
        plain = bench.call("ADDED", {"app": "x"}, "1")
        assert kopf_gate.without_ring_labels(plain) is plain
        bare = kopf_gate.without_ring_labels(bench.call("ADDED", {SHARD: "me", "drain-until.poise.dev/b": "1"}, "1"))
        assert "labels" not in bare["raw_event"]["object"]["metadata"]

    play(scenario)


def test_indices_hold_what_carries_the_own_name_also_before_it_is_held() -> None:
    async def scenario(bench: Bench) -> None:
        kopf.index("secrets", registry=bench.registry, id="names")(_named)
        indexers, call = OperatorIndexers(), bench.call("ADDED", {SHARD: "me", EPOCH: "1"}, "1")
        indexers.ensure(bench.registry._indexing.get_all_handlers())
        indexed, others = Toggle(), ToggleSet(all)
        call |= {"indexers": indexers, "operator_indexed": others, "resource_indexed": indexed}
        others._toggles.add(indexed)
        await bench.gate.process(**call)
        assert list(indexers.indices["names"]) == ["x"]
        assert others.is_on(), "nobody waits for it"
        assert not bench.done
        gone: Call = {**call, "raw_event": {"type": "DELETED", "object": call["raw_event"]["object"]}}
        await bench.gate.process(**gone)
        assert not indexers.indices["names"]
        assert not bench.memories._items

    play(scenario)


async def _named(name: str | None, **_: object) -> dict[str, str]:
    return {str(name): "seen"}


def test_what_left_while_no_watch_told_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_gate, "SWEEP_S", 0.0)

    async def scenario(bench: Bench) -> None:
        async def remember(call: Call) -> str | None:
            await call["memories"].recall(call["raw_event"]["object"])
            return None

        bench.act, bench.shard.epoch = remember, 1
        await bench.show("ADDED", 1)
        assert bench.memories._items
        sweep = asyncio.create_task(bench.gate.sweep_on())
        await settle()
        assert bench.memories._items, "it is still seen"
        bench.shard.seen = False
        await settle()
        sweep.cancel()
        assert not bench.memories._items

    play(scenario)


def test_handlers_of_other_resources_are_refused_unless_they_may_run_everywhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(bench: Bench) -> None:
        async def tell(**call: object) -> str | None:
            told.append(cast(Call, call))
            return None

        told: list[Call] = []
        call: Call = {**bench.call("ADDED", {}, "1"), "resource": PODS}
        for everywhere, count in ((set[str](), 1), (set[str](), 1), ({"pods"}, 2)):
            gate = Gate(tell, bench.shard, Client(httpx2.AsyncClient()), "web", resources=(), everywhere=everywhere)
            await gate.process(**call)
            kopf.on.event("pods", registry=bench.registry)(_handler)  # From now on somebody acts on them.
            assert len(told) == count, everywhere

    play(scenario)
    assert "kopf.refused resource=pods" in caplog.text


@pytest.fixture
def unjoined(monkeypatch: pytest.MonkeyPatch) -> kopf.OperatorRegistry:
    """Let a test join a ring, and undo that."""
    monkeypatch.setattr(processing, "process_resource_event", processing.process_resource_event)
    monkeypatch.setattr(adapter, "_joined", [])
    return kopf.OperatorRegistry()


def test_a_process_joins_one_ring(unjoined: kopf.OperatorRegistry) -> None:
    for wrong in ((), "secrets"):
        with pytest.raises(InvalidSpec, match=r"\$\.resources"):
            join_ring("web", wrong, registry=unjoined)
    with pytest.raises(InvalidSpec, match=r"\$\.ring"):
        join_ring("Web!", ["secrets"], registry=unjoined)
    join_ring("web", ["secrets"], registry=unjoined)
    with pytest.raises(InvalidSpec, match="joined web"):
        join_ring("other", ["secrets"], registry=unjoined)
    with pytest.raises(NotHeld):
        held()


def test_an_operator_with_another_registry_acts_on_nothing(unjoined: kopf.OperatorRegistry) -> None:
    join_ring("web", ["secrets"], registry=unjoined)

    async def scenario(bench: Bench) -> None:
        with pytest.raises(PoiseError, match="another registry"):
            await processing.process_resource_event(**bench.call("ADDED", {}, "1"))

    play(scenario)


def test_a_kopf_that_works_in_another_way_is_refused(
    unjoined: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def other(resource: kopf.Resource) -> None:
        """Process events in another way."""

    monkeypatch.setattr(processing, "process_resource_event", other)
    with pytest.raises(PoiseError, match="raw_event"):
        join_ring("web", ["secrets"], registry=unjoined)
