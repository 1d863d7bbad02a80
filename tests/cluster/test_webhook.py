"""New objects are assigned in the request that makes them, by two real operators that the real API server calls."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator

import msgspec
import pytest
from tests.cluster.control_plane import free_port
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.webhook_world import (
    APPLY,
    INSTANCES,
    RING,
    SHARDER,
    Beats,
    HookWorld,
    Service,
    configuration,
    hook_options,
    make_masters,
    operator,
    put_ring,
    read,
    unmake_masters,
    wait,
)
from tests.cluster.world import Cluster, make_namespace

from poise.kube import NAMESPACES, Meta, ObjectRef, Partial
from poise.model.sharding import Marks, label_names

pytestmark = pytest.mark.usefixtures("definitions")
SHARD, EPOCH, DRAIN, UNTIL = label_names(RING)


class Pair:
    """Two operators, one of which leads, and the address by which both are reached."""

    def __init__(self, cluster: Cluster, world: HookWorld) -> None:
        """Start both."""
        self._cluster, self.world = cluster, world
        self.ports = (free_port(), free_port())
        self.service = Service(self.ports).__enter__()
        self.beats = Beats(cluster, world.namespace).__enter__()
        self.processes: dict[int, OperatorProcess] = {}
        self.handed = 0  # How often the webhook was asked about hand-overs by a PUT.
        for port in self.ports:
            self.start(port)
            wait(lambda: self.leads() is not None, lambda: "a leader")
        wait(world.assigns, self.said)
        wait(world.lets_be, self.said)

    def start(self, port: int) -> None:
        """Start the operator of a port."""
        self.processes[port] = operator(
            self._cluster, self.world.namespace, *hook_options(port, self.service), "--lease-seconds", "5"
        )

    def leads(self) -> int | None:
        """Give the port of the one that leads."""
        return next((port for port, each in self.processes.items() if "leads as" in each.said), None)

    def other(self) -> int:
        """Give the port of the one that stands by."""
        return next(port for port in self.ports if port != self.leads())

    def unchanged(self) -> int:
        """Count the answers of both that left an object as it was."""

        async def numbers(_client: object) -> float:
            each = [await one.numbers() for one in self.processes.values()]
            return sum(one.get("poise_webhook_answers_total unchanged", 0.0) for one in each)

        return round(self._cluster.run(numbers))

    def said(self) -> str:
        """All that both have said."""
        return "\n".join(each.said for each in self.processes.values())

    def end(self) -> None:
        """End everything."""
        for each in self.processes.values():
            each.__exit__(None, None, None)
        self.beats.__exit__(None, None, None)
        self.service.__exit__(None, None, None)


@pytest.fixture(scope="module")
def pair(cluster: Cluster, definitions: None) -> Iterator[Pair]:  # noqa: ARG001  # It must be there before.
    """Two operators for all tests of this file; those at its end kill them."""
    namespace = f"poise-hook-{uuid.uuid4().hex[:8]}"
    made = cluster.run(lambda client: make_namespace(client, namespace))
    cluster.run(lambda client: make_masters(client, SHARDER))
    cluster.run(lambda client: put_ring(client, namespace))
    world = HookWorld(cluster.plane, namespace)
    read(world.ask("POST", world.path(), {"metadata": {"name": "probe"}}))
    pair = Pair(cluster, world)
    try:
        yield pair
    finally:
        pair.end()
        world.close()
        cluster.run(unmake_masters)
        cluster.run(lambda client: client.delete(ObjectRef(NAMESPACES, namespace), uid=made.metadata.uid))


def test_the_answer_shows_the_assignment(pair: Pair) -> None:
    world = pair.world
    for sent in (None, {"app": "a"}, {SHARD: "web-9", EPOCH: "7", DRAIN: "x", UNTIL: "9", "app": "a"}):
        made = world.make(sent)
        assert world.marks(made) == Marks(world.home(made.name), 1)
        assert made.labels.get("app") == (sent or {}).get("app")


def test_a_name_that_was_used_before_begins_anew(pair: Pair) -> None:
    """The epochs of an object that is gone say nothing: whoever acts by them names its uid, too, and is refused."""
    world = pair.world
    first = world.make()
    assert world.patch(first.name, {EPOCH: "9"}, who=SHARDER).is_success
    assert world.ask("DELETE", world.path(name=first.name)).is_success
    again = world.make(first.labels, name=first.name)
    assert again.uid != first.uid
    assert world.marks(again) == Marks(world.home(first.name), 1)


def test_both_processes_answer_alike_whoever_leads(pair: Pair) -> None:
    world = pair.world
    for port in pair.ports:
        pair.service.lead_to(port)
        wait(world.assigns, pair.said)
        made = [world.make() for _ in range(10)]
        assert {world.marks(each) for each in made} == {Marks(world.home(each.name), 1) for each in made}
        # It knows the objects, too, whose labels children get.
        wait(lambda: _childs(world, made[0]) == world.marks(made[0]), pair.said)  # noqa: B023  # Within this turn.
    pair.service.lead_to(*pair.ports)


def test_nothing_is_left_to_write_for_the_sharder(pair: Pair) -> None:
    world = pair.world
    made = [world.make() for _ in range(20)]
    time.sleep(1.5)
    for each in made:
        assert world.get(each.name).resource_version == each.resource_version, "somebody wrote it again"


def test_a_child_has_the_labels_of_its_root_and_none_while_that_is_drained(pair: Pair) -> None:
    world = pair.world
    root = world.make()
    marks = world.marks(root)
    # The mirror of the process that answers must have seen the root.
    wait(lambda: _childs(world, root) == marks, lambda: _childs(world, root))
    child = world.make({SHARD: "web-9", EPOCH: "7"}, resource="configmaps", owner=root)
    assert world.marks(child) == marks
    stray = world.make({SHARD: "web-9"}, resource="configmaps")
    assert world.marks(stray) == Marks(), "nobody shares stray ConfigMaps out"
    moved = drained(pair)
    wait(lambda: _childs(world, moved) == Marks(), lambda: _childs(world, moved))
    assert {_childs(world, moved) for _ in range(10)} == {Marks()}
    wait(lambda: world.marks(world.get(stray.name, "configmaps")) == Marks(), pair.said)


def drained(pair: Pair) -> Meta:
    """Make a root that the sharder asks for, and that nobody hands over: another instance than its own has it."""
    world = pair.world
    made = world.make()
    home = world.home(made.name)
    other = next(name for name in INSTANCES if name != home)
    assert world.patch(made.name, {SHARD: other, EPOCH: "5"}, who=SHARDER).is_success
    wait(lambda: world.marks(world.get(made.name)).drain == home, pair.said)
    return world.get(made.name)


def wait_for_epoch(pair: Pair, name: str, epoch: int) -> None:
    """Wait until an object has an epoch."""
    wait(lambda: pair.world.marks(pair.world.get(name)).epoch == epoch, pair.said)


def _childs(world: HookWorld, root: Meta) -> Marks:
    return world.marks(world.make(resource="configmaps", owner=root, dryRun="All"))


def test_a_name_that_the_server_chooses_is_left_to_the_watch(pair: Pair) -> None:
    world = pair.world
    answer = world.ask("POST", world.path(), {"metadata": {"generateName": "gen-", "labels": {SHARD: "web-9"}}})
    made = read(answer)
    assert made.name.startswith("gen-")
    assert world.marks(made) == Marks()
    wait(lambda: world.marks(world.get(made.name)).shard is not None, pair.said)
    assert world.marks(world.get(made.name)) == Marks(world.home(made.name), 1)
    root = world.make()
    marks = world.marks(root)
    wait(lambda: _childs(world, root) == marks, lambda: _childs(world, root))
    owner = {"apiVersion": "v1", "kind": "Secret", "name": root.name, "uid": root.uid, "controller": True}
    body = {"metadata": {"generateName": "gen-", "ownerReferences": [owner]}}
    assert world.marks(read(world.ask("POST", world.path("configmaps"), body))) == marks


def test_what_is_applied_is_assigned_and_stays_when_it_is_applied_again(pair: Pair) -> None:
    world, name = pair.world, f"applied-{uuid.uuid4().hex[:6]}"
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": {"app": "a"}}}
    forced = {"fieldManager": "kubectl", "force": "true"}
    made = read(world.ask("PATCH", world.path(name=name), body, kind=APPLY, **forced))
    assert world.marks(made) == Marks(world.home(name), 1)
    for value in ("YQ==", "Yg=="):
        again = read(world.ask("PATCH", world.path(name=name), {**body, "data": {"a": value}}, kind=APPLY, **forced))
        assert world.marks(again) == world.marks(made)


def test_a_put_without_the_labels_gets_them_back(pair: Pair) -> None:
    world = pair.world
    made = world.make()
    for labels in (None, {"app": "a"}):
        replaced = read(world.put(made.name, labels))
        assert world.marks(replaced) == world.marks(made)
        assert replaced.labels.get("app") == (labels or {}).get("app")
    assert world.put(made.name, {SHARD: "web-9", EPOCH: "1"}).status_code == 403
    # The API server does not tell a webhook that it was a patch, so that this is undone as well.
    assert world.marks(read(world.patch(made.name, {SHARD: None, EPOCH: None}, who="carol"))) == world.marks(made)
    assert world.marks(world.get(made.name)) == world.marks(made)


def test_the_writes_of_the_sharder_and_of_instances_pass_unchanged(pair: Pair) -> None:
    world = pair.world
    made = world.make()
    # The sharder may leave labels out by a PUT.
    assert read(world.put(made.name, {EPOCH: "1"}, who=SHARDER)).labels == {EPOCH: "1"}
    wait(lambda: world.marks(world.get(made.name)) == Marks(world.home(made.name), 2), pair.said)
    account = f"system:serviceaccount:{world.namespace}:shards"
    for short in (True, False):
        root = drained(pair)
        holder, home = world.marks(root).shard or "", world.home(root.name) or ""
        # An object that its holder made anew, without a label: that is no hand-over.
        kept = read(world.put(root.name, {"app": "a"}, who=account, pod=holder))
        assert kept.labels == {**root.labels, "app": "a"}
        sent = {SHARD: home, EPOCH: "6"} if short else {EPOCH: "5"}
        before = pair.unchanged()
        assert read(world.put(root.name, sent, who=account, pod=holder)).labels == sent
        asked = pair.unchanged() - before
        assert asked >= 1, "it is asked for; again where what the API server remembered was out of date"
        pair.handed += asked
        wait_for_epoch(pair, root.name, 6)
        assert world.marks(world.get(root.name)) == Marks(home, 6)


def test_a_malformed_review_is_allowed_and_other_paths_are_not_there(pair: Pair) -> None:
    import httpx2

    with httpx2.Client(base_url=f"https://127.0.0.1:{pair.service.port}", verify=False) as client:
        path = f"/assign/{pair.world.namespace}/{RING}/0"
        for content in (
            b"",
            b"{",
            b"[]",
            b'{"request": {"uid": 7}}',
            b'{"request": {"uid": "7", "operation": "CREATE"}}',
        ):
            answer = client.post(path, content=content)
            assert answer.status_code == 200
            assert answer.json()["response"]["allowed"] is True
        assert client.post("/elsewhere", content=b"{}").status_code == 404
        assert client.get(path).status_code == 405
        assert client.post(path, content=b"x" * (17 << 20)).status_code == 413


def test_numbers_and_the_configuration_tell_what_is_done(cluster: Cluster, pair: Pair) -> None:
    found = cluster.run(lambda client: configuration(client, pair.world.namespace))
    (hook,) = found.webhooks
    assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["sideEffects"]) == ("Ignore", 1, "None")
    again = cluster.run(lambda client: configuration(client, pair.world.namespace))
    assert again.metadata.resource_version == found.metadata.resource_version

    async def numbers(_client: object) -> list[dict[str, float]]:
        return [await each.numbers() for each in pair.processes.values()]

    each = cluster.run(numbers)
    for outcome in ("assigned", "left", "restored", "malformed"):
        assert sum(one[f"poise_webhook_answers_total {outcome}"] for one in each) > 0, outcome
    # Who leaves no label out, and the sharder, is not asked for: every such answer was about a hand-over by a PUT.
    assert sum(one["poise_webhook_answers_total unchanged"] for one in each) == pair.handed > 0
    for one in each:
        assert one["poise_webhook_trouble"] == 0
        assert one["poise_webhook_certificate_seconds"] > 80 * 86400
        assert one["poise_policy_trouble"] == 0


# From here on processes are killed.


def test_one_process_killed_changes_nothing_for_those_who_make_objects(pair: Pair) -> None:
    world, killed = pair.world, pair.leads()
    assert killed is not None
    pair.service.lead_to(killed, pair.other())
    wait(world.assigns, pair.said)
    pair.processes[killed].process.kill()
    pair.processes[killed].process.wait(10)
    made = [world.make() for _ in range(10)]
    assert all(world.marks(each) == Marks(world.home(each.name), 1) for each in made[1:]), "only one may meet the end"
    wait(lambda: world.marks(world.get(made[0].name)).shard is not None, pair.said)


def test_a_hung_process_delays_by_a_second_and_the_watch_assigns_later(pair: Pair) -> None:
    world = pair.world
    (alive,) = [port for port, each in pair.processes.items() if each.process.poll() is None]
    pair.service.lead_to(alive)
    wait(lambda: "leads as" in pair.processes[alive].said, pair.said)
    wait(world.assigns, pair.said)
    pair.processes[alive].process.send_signal(signal.SIGSTOP)
    began_s = time.monotonic()
    made = world.make({SHARD: "web-0", "app": "a"})
    took_s = time.monotonic() - began_s
    assert took_s > 0.9, "the API server waits for a second"
    assert made.labels == {SHARD: "web-0", "app": "a"}, "nobody was there to overwrite it; the policy lets it be"
    bare = world.make()
    assert world.marks(bare) == Marks()
    pair.processes[alive].process.send_signal(signal.SIGCONT)
    wait(lambda: world.marks(world.get(bare.name)) == Marks(world.home(bare.name), 1), pair.said)


def test_what_is_made_while_all_are_down_is_assigned_by_the_watch(pair: Pair) -> None:
    world = pair.world
    for each in pair.processes.values():
        each.process.kill()
        each.process.wait(10)
    made = [world.make() for _ in range(5)]
    assert {world.marks(each) for each in made} == {Marks()}
    pair.service.lead_to(*pair.ports)
    pair.start(pair.ports[0])
    homes = {each.name: Marks(world.home(each.name), 1) for each in made}
    wait(lambda: {name: world.marks(world.get(name)) for name in homes} == homes, pair.said)
    wait(world.assigns, pair.said)


def test_a_ring_that_is_removed_leaves_no_label_behind(pair: Pair) -> None:
    """Objects are made all the time; the instances here never hand over, so somebody takes the labels off for them."""
    world, made = pair.world, list[str]()
    ring = f"/apis/poise.dev/v1alpha1/namespaces/{world.namespace}/shardrings/{RING}"
    wait(world.assigns, pair.said)
    assert world.ask("DELETE", ring).is_success

    def gone() -> bool:
        made.extend(world.make().name for _ in range(3))
        for name in [each.metadata.name for each in listed() if SHARD in each.metadata.labels]:
            world.patch(name, {SHARD: None, DRAIN: None, UNTIL: None}, who=SHARDER)
        return world.ask("GET", ring).status_code == 404

    def listed() -> list[Partial]:
        path = world.path()
        return msgspec.json.decode(world.ask("GET", path).content, type=Listed).items

    wait(gone, pair.said)
    made.extend(world.make().name for _ in range(3))
    assert not [each.metadata.name for each in listed() if SHARD in each.metadata.labels]
    wait(lambda: "webhook.removed" in pair.said(), pair.said)


class Listed(msgspec.Struct):
    """A list of objects."""

    items: list[Partial]
