"""Handlers, daemons, timers, retries and deletions of a kopf operator while its objects move between two instances."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.cluster.kopf_world import EMBEDDED, D, Instances, Ring, hold, play
from tests.cluster.world import Cluster, make_namespace

from poise.hold.guard import EXIT_CODE
from poise.kube import NAMESPACES, ObjectRef, Partial

pytestmark = pytest.mark.usefixtures("definitions")


class Pair(NamedTuple):
    """Two instances, a and b, and whose the objects should be."""

    cluster: Cluster
    namespace: str
    ring: str
    instances: Instances
    owners: dict[str, str]

    def play(self, scenario: Callable[[Ring], Awaitable[None]]) -> None:
        """Play a scenario; whatever it did, no two instances were called for one object at once."""
        play(self.cluster, lambda client: scenario(Ring(client, self.namespace, self.ring, self.owners)))
        assert not self.instances.findings()


@pytest.fixture(scope="module")
def pair(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, definitions: None) -> Iterator[Pair]:  # noqa: ARG001
    """Two instances for all tests of this file; each test has its own objects."""
    namespace, ring = f"poise-kopf-{uuid.uuid4().hex[:8]}", f"kopf-{uuid.uuid4().hex[:8]}"
    made = cluster.run(lambda client: make_namespace(client, namespace))
    instances = Instances(cluster, namespace, ring, tmp_path_factory.mktemp("kopf"))
    pair = Pair(cluster, namespace, ring, instances, {})

    async def begin(world: Ring) -> None:
        await world.make_ring(D)
        instances.start("a")
        instances.start("b")
        await hold(world, "ab")

    try:
        pair.play(begin)
        yield pair
    finally:
        instances.stop()
        cluster.run(lambda client: client.delete(ObjectRef(NAMESPACES, namespace), uid=made.metadata.uid))


def test_a_drain_waits_for_the_running_handler_and_the_next_owner_resumes(pair: Pair) -> None:
    async def scenario(world: Ring) -> None:
        notes = pair.instances
        await world.give("x", "a", slow="1")
        await notes.noted(lambda: notes.whats("x") == [("a", "create-0")])
        await world.change("x", touched="once")
        await notes.noted(lambda: bool(notes.notes("x", "update")))
        await world.move("x", "b")
        assert (await world.marks(world.secret("x"))).shard == "a", "its handler still runs"
        await world.is_with("x", "b")
        await notes.noted(lambda: notes.whats("x")[2:] == [("b", "resume")])
        assert notes.notes("x", "update")[0].end_s is not None
        await world.change("x", checked="wanted")
        await notes.noted(lambda: notes.whats("x")[3:] == [("b", "update"), ("b", "update")])
        assert (await world.meta(world.secret("x"))).annotations["checked"] == "done", "a handler writes what is fenced"

    pair.play(scenario)


def test_daemons_and_timers_end_before_their_object_is_handed_over(pair: Pair) -> None:
    async def scenario(world: Ring) -> None:
        notes = pair.instances
        await world.give("d", "a", daemon="yes", timer="yes")
        await _make_child(world, "d-child", "d")
        await world.share(world.owners.get)
        await notes.noted(lambda: all(map(notes.notes, ("d", "d-child"), ("daemon", "daemon"))))
        await notes.noted(lambda: len(notes.notes("d", "timer")) > 2)
        await world.move("d", "b")
        await world.is_with("d", "b")
        for name in ("d", "d-child"):
            await notes.noted(lambda name=name: len(notes.notes(name, "daemon")) == 2)  # type: ignore[misc]  # A default.
            first, second = notes.notes(name, "daemon")
            assert (first.instance, second.instance) == ("a", "b")
            assert first.end_s is not None
            assert first.end_s < second.start_s
        await notes.noted(lambda: notes.notes("d", "timer")[-1].instance == "b")

    pair.play(scenario)


def test_many_objects_that_are_busy_move_to_a_third_instance(pair: Pair) -> None:
    names = [f"m{number:02}" for number in range(18)]

    async def scenario(world: Ring) -> None:
        notes = pair.instances
        notes.start("c", EMBEDDED)
        for number, name in enumerate(names):
            await world.give(name, "ab"[number % 2], daemon="yes", timer="yes")
        await hold(world, "c")
        await notes.noted(lambda: all(notes.notes(name, "timer") for name in names))
        world.owners.update(dict.fromkeys(names[::3], "c"))
        await world.share(world.owners.get, "abc")
        for name in names[::3]:
            await world.is_with(name, "c")
        await notes.noted(lambda: all(notes.notes(name, "timer")[-1].instance == "c" for name in names[::3]))
        assert all([each.instance for each in notes.notes(name, "daemon")][1:] == ["c"] for name in names[::3])
        assert all(len(notes.notes(name, "daemon")) == 1 for name in names if name not in names[::3]), "they stay"
        notes.signal("c", signal.SIGTERM)
        assert await notes.ended("c") == 0
        assert all(notes.notes(name, "daemon")[1].end_s is not None for name in names[::3])
        assert not await world.holder("c")

    pair.play(scenario)


def test_what_outlasts_a_drain_is_cancelled_and_a_thread_ends_the_process(pair: Pair) -> None:
    async def scenario(world: Ring) -> None:
        notes = pair.instances
        notes.start("t")
        await hold(world, "t")
        await world.change_ring(drainTimeoutSeconds=1)
        await world.give("o", "a", slow="600")
        await world.give("t", "t", "abt", slow="0", thread="yes")
        await notes.noted(lambda: all(map(notes.notes, "ot", ("create", "create"))))
        for name in "ot":
            await world.change(name, touched="once")
        await notes.noted(lambda: bool(notes.notes("o", "update") and notes.notes("t", "thread")))
        await world.move("o", "b")
        await world.is_with("o", "b")
        await notes.noted(lambda: ("b", "update") in notes.whats("o"))
        cancelled = notes.notes("o", "update")[0]
        assert (cancelled.instance, cancelled.end_s is None) == ("a", False), "its next owner tries it again"

        await world.move("t", "b", "abt")
        assert await notes.ended("t") == EXIT_CODE
        marks = await world.marks(world.secret("t"))
        assert (marks.shard, marks.drain) == ("t", "b"), "nobody else may begin before its Lease is over"
        await world.change_ring(drainTimeoutSeconds=60)
        world.owners["t"] = "t"

    pair.play(scenario)


def test_an_instance_whose_lease_is_taken_stops_all_it_does_and_ends(pair: Pair) -> None:
    async def scenario(world: Ring) -> None:
        notes = pair.instances
        notes.start("l")
        await hold(world, "l")
        await world.give("l", "l", "abl", daemon="yes")
        await notes.noted(lambda: bool(notes.notes("l", "daemon")))
        await world.hold("l", "somebody-else", 60)
        assert await notes.ended("l") == 1, notes.said("l")
        assert notes.notes("l", "daemon")[0].end_s is not None
        assert "kopf.ends reason=the Lease l is held by somebody-else" in notes.said("l")
        assert await world.holder("l") == "somebody-else"

    pair.play(scenario)


def test_one_that_waits_for_its_ring_can_be_stopped_and_one_with_wrong_resources_says_so(
    pair: Pair, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text('import os\nfrom poise.hold.kopf import join_ring\njoin_ring(os.environ["RING"], ["pods"])\n')

    async def scenario(_world: Ring) -> None:
        notes = pair.instances
        notes.start("w", RING="nowhere")
        notes.start("v", wrong)
        await notes.noted(lambda: "waits_for_ring reason=there is no ring nowhere" in notes.said("w"))
        notes.signal("w", signal.SIGTERM)
        await notes.ended("w")
        assert await notes.ended("v") == 1
        assert "$.resources[0]: expected one that the ring names (configmaps, secrets), got 'pods'" in notes.said("v")

    pair.play(scenario)


async def _make_child(world: Ring, name: str, owner: str) -> None:
    meta = await world.meta(world.secret(owner))
    reference = {"apiVersion": "v1", "kind": "Secret", "name": owner, "uid": meta.uid, "controller": True}
    body = {"metadata": {"name": name, "annotations": {"daemon": "yes"}, "ownerReferences": [reference]}}
    await world.client.create(world.config(name), body, Partial)


def test_a_daemon_lives_again_when_the_request_is_taken_back(pair: Pair) -> None:
    async def scenario(world: Ring) -> None:
        notes = pair.instances
        await world.give("u", "a", daemon="yes")
        await notes.noted(lambda: bool(notes.notes("u", "daemon")))
        await world.move("u", "b")
        await world.move("u", "a")  # The daemon takes a moment to end: the request is gone before it has.
        await notes.noted(lambda: len(notes.notes("u", "daemon")) == 2)
        await world.is_with("u", "a")
        assert [each.instance for each in notes.notes("u", "daemon")] == ["a", "a"]

    pair.play(scenario)


def test_the_next_owner_goes_on_with_the_attempts_of_a_handler(pair: Pair) -> None:
    async def scenario(world: Ring) -> None:
        notes = pair.instances
        await world.give("f", "a", fails="3", delay="1")
        await notes.noted(lambda: len(notes.notes("f", "create")) == 2)
        await world.move("f", "b")  # In the pause before the next attempt, which must not delay the hand-over.
        await world.is_with("f", "b")
        await notes.noted(lambda: len(notes.notes("f", "create")) == 4)
        whats = notes.whats("f")
        assert [what for _, what in whats] == [f"create-{number}" for number in range(4)]
        assert whats[0][0] == "a"
        assert whats[-1][0] == "b"

    pair.play(scenario)


def test_a_deleted_object_that_moves_is_finished_by_its_next_owner(pair: Pair) -> None:
    async def scenario(world: Ring) -> None:
        notes = pair.instances
        await world.give("z", "a", finalizer="yes", slow="1")
        await notes.noted(lambda: ("a", "create-0") in notes.whats("z"))
        await world.change("z", touched="once")
        await notes.noted(lambda: bool(notes.notes("z", "update")))
        await world.move("z", "b")
        await world.remove("z")
        await world.is_gone("z")
        assert [each.instance for each in notes.notes("z", "delete")] == ["b"]
        await notes.noted(lambda: bool(notes.notes("z", "event-DELETED")))
        assert [each.instance for each in notes.notes("z", "event-DELETED")] == ["b"], "a only lost it"

    pair.play(scenario)


def test_an_object_that_comes_back_is_resumed_and_its_labels_are_no_update(pair: Pair) -> None:
    async def scenario(world: Ring) -> None:
        notes = pair.instances
        await world.give("r", "a", daemon="yes")
        await notes.noted(lambda: bool(notes.notes("r", "daemon")))
        for owner in ("b", "a"):
            await world.move("r", owner)
            await world.is_with("r", owner)
            await notes.noted(lambda owner=owner: notes.whats("r")[-1] == (owner, "daemon"))  # type: ignore[misc]
        await asyncio.sleep(0.5)
        whats = [what for what in notes.whats("r") if what[1] != "daemon"]
        assert whats == [("a", "create-0"), ("b", "resume"), ("a", "resume")]
        assert not notes.notes("r", "event-DELETED")
        events = [each for each in notes.notes("r", "event") if each.object != "r/event-MODIFIED"]
        shown = [(each.instance, each.object) for each in events]
        assert shown == [("a", "r/event-ADDED"), ("b", "r/event-None"), ("a", "r/event-None")], "new, then not new"

    pair.play(scenario)
