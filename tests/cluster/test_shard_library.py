"""The shard library on a real API server: what it reconciles, hands over and fences. The test plays the sharder."""

from __future__ import annotations

import asyncio

import pytest
from tests.cluster.faulty_proxy import FaultyProxy
from tests.cluster.shard_library_world import Living, Notes, World
from tests.cluster.world import Cluster, until

from poise.errors import Fenced, Hung, NotHeld
from poise.hold.shard import Held
from poise.kube import Client, Partial
from poise.kube.patches import Operation, pointer
from poise.kube.resources import CONFIG_MAPS
from poise.model.sharding import Marks

pytestmark = pytest.mark.usefixtures("definitions")
NOTED = Operation("add", pointer("metadata", "annotations"), {"seen": "yes"})


def test_it_reconciles_what_carries_its_name_and_nothing_else(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x", "y", "z")
        living = await Living(world.shard("a"), Notes()).holds()
        await asyncio.sleep(0.3)
        assert not living.notes.all, "what nobody gave it is not its own"
        await world.share({"x": "a", "y": "b"}.get)
        await until(lambda: bool(living.notes.of("x")))
        assert {note.epoch for note in living.notes.of("x")} == {1}
        assert living.shard.held == (world.secret("x"),)
        await living.end()
        assert {note.name for note in living.notes.all} == {f"/Secret/{namespace}/x"}

    cluster.run(scenario)


def test_a_hand_over_waits_for_the_running_reconcile(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x")
        await world.make_child("x-child", "x")
        first = await Living(world.shard("a"), Notes()).holds()
        second = await Living(world.shard("b"), Notes()).holds()
        first.notes.gate.clear()
        await world.share("a")
        await until(lambda: bool(first.notes.running))
        await world.share("b")
        assert (await world.marks(world.secret("x"))).drain == "b"
        await asyncio.sleep(0.5)
        assert (await world.marks(world.secret("x"))).shard == "a", "it is not given away while it is acted on"
        assert (await world.marks(world.config("x-child"))).shard == "a"
        first.notes.gate.set()
        await until(lambda: bool(second.notes.of("x")))
        assert await world.marks(world.secret("x")) == Marks("b", 2)
        assert await world.marks(world.config("x-child")) == Marks("b", 2)
        assert second.notes.of("x")[0].begun_s > (first.notes.of("x")[-1].ended_s or 0.0)
        assert not first.notes.running
        assert not any(note.cancelled for note in first.notes.all)
        await first.end()
        await second.end()

    cluster.run(scenario)


def test_a_hand_over_is_one_write_a_child_and_then_one_for_the_root(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x")
        await world.make_child("c1", "x")
        await world.make_child("c2", "x")
        await world.make_child("c3", "c1", of=CONFIG_MAPS)  # Children are those at any depth.
        between = FaultyProxy(cluster.plane.port, cluster.plane.ca_file)
        async with between, cluster.connect(url=between.url) as far:
            living = await Living(world.shard("a", client=far), Notes()).holds()
            await world.share("a")
            await until(lambda: bool(living.notes.of("x")))
            await world.share("b")
            await world.eventually(lambda: _is(world, "x", Marks("b", 2)))
            patches = [line.split("?")[0] for line in between.seen if line.startswith("PATCH")]
            assert len(patches) == 4
            assert patches[-1].endswith("/secrets/x"), "the root is the commit"
            assert sorted(line.rpartition("/")[2] for line in patches[:3]) == ["c1", "c2", "c3"]
            assert living.shard.counts.handed_over == 1
            await living.end()

    cluster.run(scenario)


async def _is(world: World, name: str, marks: Marks) -> bool:
    return await world.marks(world.secret(name)) == marks


def test_a_drain_to_nobody_lets_go_and_one_that_is_taken_back_does_not(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x", "y")
        living = await Living(world.shard("a"), Notes()).holds()
        await world.share("a")
        await until(lambda: {note.name[-1] for note in living.notes.all} == {"x", "y"})
        await world.mark(world.secret("x"), Marks("a", 1, "", 2_000_000_000))
        await world.eventually(lambda: _is(world, "x", Marks(None, 1)))
        living.notes.gate.clear()
        await world.client.patch(world.secret("y"), [NOTED], Partial)
        await until(lambda: bool(living.notes.running))
        await world.mark(world.secret("y"), Marks("a", 1, "b", 2_000_000_000))
        await asyncio.sleep(0.3)
        await world.mark(world.secret("y"), Marks("a", 1))
        begun = len(living.notes.of("y"))
        living.notes.gate.set()
        await until(lambda: len(living.notes.of("y")) > begun)
        assert await world.marks(world.secret("y")) == Marks("a", 1)
        await living.end()

    cluster.run(scenario)


def test_an_adopted_child_is_handed_over_like_a_root(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x")
        await world.make_child("c", "x")
        living = await Living(world.shard("a", resources=("secrets", "configmaps")), Notes()).holds()
        await world.share("a")
        await until(lambda: bool(living.notes.of("c")))
        living.notes.gate.clear()
        await client.patch(world.config("c"), [NOTED], Partial)
        await until(lambda: any(note.name.endswith("/c") for note in living.notes.running))
        await world.mark(world.config("c"), Marks("a", 1, "a", 2_000_000_000))  # Its root may have changed.
        await asyncio.sleep(0.5)
        assert (await world.marks(world.config("c"))).drain == "a", "its reconcile runs"
        living.notes.gate.set()
        await world.eventually(lambda: _child_is(world, Marks("a", 2)))
        assert await world.marks(world.secret("x")) == Marks("a", 1)
        await world.share("a")
        await world.share("a")
        assert await world.marks(world.secret("x")) == await world.marks(world.config("c")) == Marks("a", 2)
        begun = len(living.notes.of("c"))
        await until(lambda: len(living.notes.of("c")) > begun)
        await living.end()

    cluster.run(scenario)


async def _child_is(world: World, marks: Marks) -> bool:
    return await world.marks(world.config("c")) == marks


def test_two_rings_share_an_object_and_do_not_know_of_each_other(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        one, two = World(client, namespace), World(client, namespace)
        await one.make_ring()
        await two.make_ring()
        await one.make("x")
        first, second = Living(one.shard("a"), Notes()), Living(two.shard("b"), Notes())
        await first.holds()
        await second.holds()
        await one.share("a")
        await two.share("b")
        await until(lambda: bool(first.notes.all and second.notes.all))
        await one.share("b")
        await one.eventually(lambda: _is(one, "x", Marks("b", 2)))
        assert await two.marks(two.secret("x")) == Marks("b", 1)
        assert second.shard.held == (two.secret("x"),)
        assert first.shard.held == ()
        await first.end()
        await second.end()

    cluster.run(scenario)


def test_a_reconcile_that_outlasts_the_drain_is_cancelled_and_then_handed_over(
    cluster: Cluster, namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(drain_s=1)
        await world.make("x")
        living = await Living(world.shard("a"), Notes()).holds()
        living.notes.gate.clear()
        await world.share("a")
        await until(lambda: bool(living.notes.running))
        await world.share("b")
        await asyncio.sleep(0.7)
        assert living.notes.running, "it has its time"
        await world.eventually(lambda: _is(world, "x", Marks("b", 2)), 5.0)
        assert [note.cancelled for note in living.notes.all] == [True]
        await living.end()

    cluster.run(scenario)


def test_a_reconcile_that_ignores_its_cancellation_ends_all_and_nothing_is_given_back(
    cluster: Cluster, namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring(drain_s=1)
        await world.make("x")
        freed = asyncio.Event()

        async def deaf(held: Held) -> None:
            del held
            while not freed.is_set():
                try:
                    await freed.wait()
                except asyncio.CancelledError:
                    continue

        living = await Living(world.shard("a"), Notes(deaf)).holds()
        try:
            await world.share("a")
            await until(lambda: bool(living.notes.running))
            await world.share("b")
            with pytest.raises(Hung, match=r"Secret/.*/x did not stop within"):
                await living.task
            assert (await world.marks(world.secret("x"))).shard == "a"
            assert await world.holder("a") == living.shard.holder, "its Lease must lapse"
        finally:
            freed.set()

    cluster.run(scenario)


def test_a_shard_that_leaves_lets_reconciles_end_and_takes_nothing_new(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x", "y")
        living = await Living(world.shard("a"), Notes()).holds()
        living.notes.gate.clear()
        await world.share(lambda name: "a" if name == "x" else None)
        await until(lambda: bool(living.notes.running))
        living.shard.leave("restart")
        await world.share("a")
        await asyncio.sleep(0.7)
        assert await world.holder("a") == living.shard.holder, "the Lease is kept while anything runs"
        living.notes.gate.set()
        await living.task
        assert [note.name[-1] for note in living.notes.all] == ["x"]
        assert not living.notes.all[0].cancelled
        lease = await world.lease("a")
        assert lease is not None
        assert not lease.spec.holder_identity
        assert lease.metadata.annotations["poise.dev/released"] == "restart"

    cluster.run(scenario)


def test_labels_that_were_tampered_with_are_not_acted_on(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x", "y")
        await world.make_child("c", "x")
        living = await Living(world.shard("a", resources=("secrets", "configmaps")), Notes()).holds()
        await world.share("a")
        await until(lambda: bool(living.notes.of("c") and living.notes.of("x") and living.notes.of("y")))
        await asyncio.sleep(0.3)
        living.notes.all.clear()
        await world.mark(world.config("c"), Marks("a", 7))  # A child's own epoch.
        await world.mark(world.secret("y"), Marks("a", None))  # A root without one.
        await asyncio.sleep(1.5)
        assert not living.notes.of("c")
        assert not living.notes.of("y")
        await world.share("a")
        await world.share("a")
        await until(lambda: bool(living.notes.of("c") and living.notes.of("y")))
        living.notes.gate.clear()
        await world.client.patch(world.secret("x"), [NOTED], Partial)
        await until(lambda: bool(living.notes.running))
        await world.mark(world.secret("x"), Marks(None, 8))
        await until(lambda: not living.notes.running)
        assert living.notes.of("x")[-1].cancelled, "what is taken away is not gone on with"
        living.notes.all.clear()
        living.notes.gate.set()
        await client.patch(world.config("c"), [NOTED], Partial)
        await asyncio.sleep(1.2)
        assert not living.notes.of("c"), "a child whose root is not in sight is not acted on"
        await living.end()

    cluster.run(scenario)


def test_a_child_that_is_gone_wakes_its_root_and_one_that_left_the_filter_does_not(
    cluster: Cluster, namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x", "y")
        await world.make_child("x-child", "x")
        await world.make_child("y-child", "y")
        living = await Living(world.shard("a"), Notes()).holds()
        await world.share("a")
        await until(lambda: bool(living.notes.of("x") and living.notes.of("y")))
        await asyncio.sleep(1.0)
        living.notes.all.clear()
        await world.mark(world.config("y-child"), Marks("b", 9))
        meta = await world.meta(world.config("x-child"))
        await client.delete(world.config("x-child"), uid=meta.uid)
        await until(lambda: bool(living.notes.of("x")))
        await asyncio.sleep(0.5)
        assert not living.notes.of("y"), "it is there, only not its own"
        await living.end()

    cluster.run(scenario)


def test_patches_are_refused_to_whoever_began_at_another_epoch(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x")
        await world.make_child("c", "x")
        found: list[Held] = []

        async def keep(held: Held) -> None:
            found.append(held)
            await held.patch(NOTED)
            await held.patch(NOTED, on=world.config("c"))
            with pytest.raises(NotHeld):
                await held.patch(NOTED, on=world.config("other"))

        living = await Living(world.shard("a"), Notes(keep)).holds()
        await world.share("a")
        await until(lambda: bool(found) and not living.notes.running)
        assert living.shard.counts.failures == 0
        with pytest.raises(NotHeld):
            await found[-1].patch(NOTED)  # It is over.
        stale = found[-1]
        stale._run.over = False  # Like a process that was paused before its patch, and whose watch lags.
        living.shard._core.steps.writing.add(stale.meta.uid)
        await world.mark(world.secret("x"), Marks("b", 2))
        with pytest.raises(Fenced, match="epoch 1 is over, 2 has begun"):
            await stale.patch(Operation("add", pointer("metadata", "annotations"), {"late": "yes"}))
        assert "late" not in (await world.meta(world.secret("x"))).annotations
        await client.delete(world.secret("x"), uid=stale.meta.uid)
        await world.make("x")
        await world.mark(world.secret("x"), Marks("a", 1))
        with pytest.raises(NotHeld, match="another object of that name"):
            await stale.patch(Operation("add", pointer("metadata", "annotations"), {"late": "yes"}))
        await living.end()

    cluster.run(scenario)


def test_a_new_child_is_patched_once_the_sharder_has_given_it_along(cluster: Cluster, namespace: str) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x")
        done = asyncio.Event()

        async def act(held: Held) -> None:
            if not held.children and await held.find(world.config("x"), Partial) is None:
                await held.create(world.config("x"), {"data": {"a": "b"}})
            await held.patch(NOTED, on=world.config("x"))
            done.set()

        living = await Living(world.shard("a"), Notes(act)).holds()
        await world.share("a")
        await until(lambda: living.shard.counts.failures > 1)
        meta = await world.meta(world.config("x"))
        assert meta.controller is not None
        assert meta.controller.name == "x"
        assert not done.is_set()
        await world.share("a")
        await asyncio.wait_for(done.wait(), 5.0)
        await living.end()

    cluster.run(scenario)


@pytest.mark.parametrize("eager", [False, True], ids=["lazy", "eager"])
def test_a_new_process_fences_what_it_inherits(cluster: Cluster, namespace: str, eager: bool) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("x")
        await world.make_child("c", "x")
        kept: list[Held] = []

        async def keep(held: Held) -> None:
            kept.append(held)

        first = await Living(world.shard("a"), Notes(keep)).holds()
        await world.share("a")
        await until(lambda: bool(kept))
        await first.end()
        wish = asyncio.Event()
        epochs: list[int] = []

        async def act(held: Held) -> None:
            epochs.append(held.epoch)
            await wish.wait()
            if len(epochs) == 1:
                await held.patch(NOTED)
                epochs.append(held.epoch)

        second = Living(world.shard("a", fence_restarts="eager" if eager else "lazy"), Notes(act))
        await second.holds()
        await until(lambda: bool(epochs))
        raised = Marks("a", 2 if eager else 1)
        assert await world.marks(world.secret("x")) == raised
        wish.set()
        await until(lambda: len(epochs) > 1)
        assert epochs[:2] == ([2, 2] if eager else [1, 2])
        await world.eventually(lambda: _is(world, "x", Marks("a", 2)))
        assert await world.marks(world.config("c")) == Marks("a", 2), "the root first, then the children"
        kept[0]._run.over = False
        kept[0]._holder = second.shard._core  # Like a process that was paused, and wakes up late.
        with pytest.raises(Fenced):
            await kept[0].patch(NOTED)
        await second.end()
        assert second.shard.counts.cancelled == 0

    cluster.run(scenario)


def test_a_reconcile_that_fails_is_tried_again_later_each_time_and_others_go_on(
    cluster: Cluster, namespace: str
) -> None:
    async def scenario(client: Client) -> None:
        world = await World(client, namespace).make_ring()
        await world.make("bad", "good")

        async def act(held: Held) -> None:
            if held.meta.name == "bad":
                raise ZeroDivisionError("a fault of the user's code")

        living = await Living(world.shard("a"), Notes(act)).holds()
        await world.share("a")
        await until(lambda: len(living.notes.of("bad")) >= 4)
        assert len(living.notes.of("good")) <= 2
        begun = [note.begun_s for note in living.notes.of("bad")]
        assert begun[3] - begun[2] > begun[1] - begun[0]
        await living.end()

    cluster.run(scenario)
