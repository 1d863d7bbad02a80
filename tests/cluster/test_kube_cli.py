"""The verbs for rings of a cluster, against a real operator and instances that answer: what is told is what happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from tests.cluster.operator_process import OperatorProcess, awaited, change_ring, event, put_ring, read_ring, shown
from tests.cluster.puppet import LASTING_S, Puppet
from tests.cluster.ring_world import make_families, make_family, read_families
from tests.cluster.world import Cluster, grant

from poise.cli.main import run
from poise.kube import Client, Resource
from poise.model.sharding import Marks, read_marks

D = 3
pytestmark = pytest.mark.usefixtures("definitions")


class Answer(NamedTuple):
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:  # What JSON holds is looked at key by key.
        """The printed JSON."""
        return json.loads(self.out)


class Desk:
    """Somebody at a shell: commands run in a thread, so that the world goes on."""

    def __init__(self, kubeconfig: Path, namespace: str, capsys: pytest.CaptureFixture[str], *more: str) -> None:
        """Sit down."""
        self._place = ["--kube", "--kubeconfig", str(kubeconfig), "--namespace", namespace, *more]
        self._capsys = capsys

    def say(self, verb: str, *words: str) -> Answer:
        """Run one command."""
        self._capsys.readouterr()
        code = run([verb, *self._place, *words])
        return Answer(code, *self._capsys.readouterr())

    async def ask(self, verb: str, *words: str) -> Answer:
        """Run one command beside everything else; it must succeed."""
        answer = await asyncio.to_thread(self.say, verb, *words)
        assert answer.code == 0, answer
        return answer


@pytest.fixture
def desk(cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]) -> Desk:
    """A shell of the administrator, in the namespace of the test: others have rings of that name, too."""
    return Desk(cluster.kubeconfig(), namespace, capsys, "--scoped")


async def owners(client: Client, namespace: str) -> dict[str, Marks]:
    """Read the labels of every root."""
    families = await read_families(client, namespace)
    return {name: read_marks(root.metadata.labels, "web") for name, (root, _) in families.items()}


async def holders(client: Client, namespace: str) -> dict[str, str | None]:
    return {name: marks.shard for name, marks in (await owners(client, namespace)).items()}


Story = Callable[[Client, AsyncExitStack], Awaitable[None]]


def play(cluster: Cluster, namespace: str, story: Story, *names: str, families: int = 12, **spec: object) -> None:
    """Play a story beside an operator and instances of these names."""

    async def scenario(client: Client) -> None:
        await make_families(client, namespace, [f"s{number:02}" for number in range(families)])
        await put_ring(client, namespace, "web", leaseSeconds=D, **spec)
        async with AsyncExitStack() as stack:
            # All are there before anybody looks: nothing moves before the story begins.
            for name in names:
                await stack.enter_async_context(instance(client, namespace, name))
            process = stack.enter_context(OperatorProcess(cluster.kubeconfig(), "--namespace", namespace))
            await process.ready(50.0)
            await shown(client, namespace, "web", "Balanced", "True", "Settled", within_s=50.0)
            await story(client, stack)

    cluster.run(scenario)


def instance(client: Client, namespace: str, name: str) -> AbstractAsyncContextManager[Puppet]:
    """Give an instance that answers."""
    return Puppet(client, namespace, name, duration_s=LASTING_S).playing()


def test_what_is_planned_is_what_happens_when_an_instance_joins(cluster: Cluster, namespace: str, desk: Desk) -> None:
    async def story(client: Client, stack: AsyncExitStack) -> None:
        before = await holders(client, namespace)
        (now,) = (await desk.ask("plan", "web", "-o", "json")).data
        assert now["moves"] == []
        assert now["loads"] == {name: list(before.values()).count(name) for name in ("a", "b")}
        changes = await asyncio.to_thread(desk.say, "plan", "web", "--add", "c", "-o", "json", "--detailed-exitcode")
        assert changes.code == 2
        (joined,) = changes.data
        assert joined["certificate"]["moves"] == joined["certificate"]["movesMin"] == len(joined["moves"]) > 0
        text = (await desk.ask("plan", "web", "--add", "c")).out
        assert text.startswith("ShardRing web   2 -> 3 instances   policy ring\n")
        assert f"Plan: {len(joined['moves'])} move" in text
        assert f"Fewest possible: {len(joined['moves'])}." in text
        assert "12 more objects are controlled by these, which go where their owners go" in text
        assert (await holders(client, namespace)) == before, "planning changes nothing"

        await stack.enter_async_context(instance(client, namespace, "c"))
        moves = {move["item"].rpartition("/")[2]: move["target"] for move in joined["moves"]}
        after = await become(client, namespace, before | moves)

        # Labels are there at once; the status, by which instances are judged, about a second later.
        while "c" not in (await desk.ask("plan", "web", "-o", "json")).data[0]["loads"]:
            await asyncio.sleep(0.2)
        (gone,) = (await desk.ask("plan", "web", "--remove", "a", "-o", "json")).data
        heirs = {move["item"]: move["target"] for move in gone["moves"]}
        for name in [name for name, who in after.items() if who == "a"][:2]:
            told = (await desk.ask("explain", "web", "secret", f"{namespace}/{name}", "-o", "json")).data
            assert (told["shard"], told["member"]) == ("a", "a")
            assert told["heir"] == heirs[f"/Secret/{namespace}/{name}"]

    play(cluster, namespace, story, "a", "b")


async def become(client: Client, namespace: str, wanted: dict[str, str | None]) -> dict[str, str | None]:
    """Wait until exactly these have exactly these objects: a status may still tell of what was before."""
    seen: list[dict[str, str | None]] = []

    async def holds() -> bool:
        seen[:] = [await holders(client, namespace)]
        return {name: who for name, who in seen[0].items() if name in wanted} == wanted

    await awaited(holds, lambda: (wanted, seen), 50.0)
    return seen[0]


def test_rings_are_listed_shown_and_explained(cluster: Cluster, namespace: str, desk: Desk) -> None:
    async def story(client: Client, _stack: AsyncExitStack) -> None:
        listed = (await desk.ask("get")).out.splitlines()
        assert listed[0].split() == ["NAME", "POLICY", "READY", "OBJECTS", "NO", "OWNER", "DRAINS", "HOW", "IT", "IS"]
        assert listed[1].split(None, 7) == ["web", "balanced", "2", "of", "2", "8", "0", "0        as it should be"]
        one = (await desk.ask("get", "web")).out
        assert one.startswith(f"ShardRing {namespace}/web   as it should be\n")
        assert "  a          ready   4         100" in one
        assert "  Balanced      True Settled" in one
        everywhere = (await desk.ask("get", "-A")).out
        assert any(line.split()[:2] == [namespace, "web"] for line in everywhere.splitlines())
        (members,) = (await desk.ask("get", "members", "web", "-o", "json")).data
        assert [(each["name"], each["state"], each["objects"]) for each in members["members"]] == [
            ("a", "ready", 4),
            ("b", "ready", 4),
        ]
        assert {each["type"] for each in members["conditions"]} == {"Ready", "Balanced", "Progressing"}
        objects = (await desk.ask("get", "objects", "web")).out
        assert objects.startswith(f"ShardRing {namespace}/web   4 objects on 2 instances\n")
        assert f"Secret {namespace}/s00 (+1)" in objects

        document = (await desk.ask("get", "web", "-o", "json")).data
        held = await holders(client, namespace)
        assert document["status"]["assignment"] == {f"/Secret/{namespace}/{name}": who for name, who in held.items()}

        child = (await desk.ask("explain", "web", f"ConfigMap/{namespace}/s01")).out
        assert child.startswith(f"ShardRing {namespace}/web   /ConfigMap/{namespace}/s01   {held['s01']}\n")
        assert f"it follows /Secret/{namespace}/s01, which controls it" in child
        assert f"its labels give it to {held['s01']}, epoch 1" in child
        other = "b" if held["s01"] == "a" else "a"
        assert f"if {held['s01']} failed, {other} would take it over" in child

    play(cluster, namespace, story, "a", "b", families=4, policy="balanced")


def test_a_drain_empties_an_instance_that_goes_on_running(cluster: Cluster, namespace: str, desk: Desk) -> None:
    async def story(client: Client, _stack: AsyncExitStack) -> None:
        before = await holders(client, namespace)
        drained = await desk.ask("drain", "web", "a", "--yes")
        mine = [name for name, who in before.items() if who == "a"]
        assert f"Plan: {len(mine)} move{'' if len(mine) == 1 else 's'}," in drained.out, "the plan comes first"
        assert "a is draining" in drained.out
        assert drained.err.splitlines()[0] == f"a is being drained of {namespace}/web"
        assert drained.err.splitlines()[-1] == "a has no object and may be stopped"
        after = await holders(client, namespace)
        assert "a" not in after.values()
        assert {name: who for name, who in after.items() if name not in mine} == {
            name: who for name, who in before.items() if name not in mine
        }, "only its own move"
        ring = await read_ring(client, namespace, "web")
        assert ring.metadata.annotations["poise.dev/drained"] == "a"
        assert (ring.status.of("Drained").status, ring.status.of("Drained").reason) == ("True", "Empty")
        assert {each["name"]: each["state"] for each in ring.status.instances}["a"] == "ready", "it runs on"
        await make_family(client, namespace, "new-1")
        await make_family(client, namespace, "new-2")
        await awaited(lambda: _are_held(client, namespace, "new-1", "new-2"), lambda: "new ones find an owner", 50.0)
        assert "a" not in (await holders(client, namespace)).values(), "it gets nothing new"
        assert "  a          ready, drained   0" in (await desk.ask("get", "web")).out
        again = await desk.ask("drain", "web", "a", "--yes")
        assert again.err.splitlines()[0] == "a is drained already"
        story = (await desk.ask("history", "web", "a")).out
        assert "InstanceDraining" in story
        assert "a is drained and has no object: it may be stopped" in story
        told = (await desk.ask("history", "web", "-o", "json")).data
        assert {"InstanceDraining", "InstanceDrained", "Drained=True"} <= {each["reason"] for each in told}

        back = await desk.ask("undrain", "web", "a", "--yes")
        assert back.err.splitlines() == [f"a takes part in {namespace}/web again"]
        await event(client, namespace, "InstanceUndrained", "a")
        await become(client, namespace, before)
        assert "poise.dev/drained" not in (await read_ring(client, namespace, "web")).metadata.annotations

    play(cluster, namespace, story, "a", "b", "c")


def test_a_pause_holds_until_somebody_resumes(cluster: Cluster, namespace: str, desk: Desk) -> None:
    async def story(client: Client, stack: AsyncExitStack) -> None:
        before = await holders(client, namespace)
        paused = await desk.ask("pause", "web", "--yes")
        assert paused.err.startswith(f"{namespace}/web is paused: only what nobody holds is given to somebody")
        await stack.enter_async_context(instance(client, namespace, "c"))
        ring = await shown(client, namespace, "web", "Balanced", "False", "Paused", within_s=60.0)
        assert ring.status.of("Paused").reason == "MovesPaused"
        assert "would move" in ring.status.of("Paused").message
        assert (await holders(client, namespace)) == before
        (plan,) = (await desk.ask("plan", "web", "-o", "json")).data
        assert {move["waits"]["code"] for move in plan["moves"]} == {"pause"}
        await make_family(client, namespace, "new")
        await awaited(lambda: _are_held(client, namespace, "new"), lambda: "what is new finds an owner", 50.0)
        assert {name: who for name, who in (await holders(client, namespace)).items() if name in before} == before
        assert (await desk.ask("pause", "web", "--yes")).err == f"{namespace}/web is paused already\n"
        assert "paused" in (await desk.ask("get")).out

        resumed = await desk.ask("resume", "web", "--yes")
        assert f"Plan: {len(plan['moves'])} move" in resumed.out
        assert resumed.err == f"{namespace}/web goes on\n"
        await become(
            client, namespace, before | {move["item"].rpartition("/")[2]: move["target"] for move in plan["moves"]}
        )
        reasons = {each["reason"] for each in (await desk.ask("history", "web", "-o", "json")).data}
        assert {"Paused", "Resumed", "InstanceReady"} <= reasons

    play(cluster, namespace, story, "a", "b")


async def _are_held(client: Client, namespace: str, *names: str) -> bool:
    held = await holders(client, namespace)
    return all(held.get(name) is not None for name in names)


# What goes wrong is one line.


def lines(answer: Answer) -> list[str]:
    assert "Traceback" not in answer.err
    return answer.err.splitlines()


def test_names_that_are_not_there(cluster: Cluster, namespace: str, desk: Desk) -> None:
    async def make(client: Client) -> None:
        await make_families(client, namespace, ["s1"])
        await put_ring(client, namespace, "web", leaseSeconds=D)

    cluster.run(make)
    rows = [
        (("get", "wab"), f"poise: there is no ring 'wab' in the namespace {namespace}; there is web"),
        (("plan", f"nowhere-{namespace}/web"), f"poise: there is no ring 'web' in the namespace nowhere-{namespace}"),
        (("drain", "web", "x", "--yes"), f"poise: the ring {namespace}/web has no instance 'x'"),
        (("undrain", "web", "x", "--yes"), "poise: x is not drained"),
        (("plan", "web", "--remove", "x"), "poise: $.remove['x']: no instance of that name; there are none"),
        (("explain", "web", "secret", "s2"), f"poise: the ring web has no object secret {namespace}/s2"),
        (
            ("explain", "web", "pod", "s1"),
            "poise: the ring web has no object of the kind 'pod'; there are ConfigMap, Secret",
        ),
        (
            ("explain", "web", "a/b/c/d/e"),
            "poise: expected an object as [GROUP/]KIND/NAMESPACE/NAME or KIND NAMESPACE/NAME, got 'a/b/c/d/e'",
        ),
        (("history", "web", "x"), "poise: nothing is told of 'x'; Events are kept for about an hour"),
    ]
    for words, told in rows:
        answer = desk.say(*words)
        assert (answer.code, lines(answer)) == (64, [told])
    assert desk.say("get").out.splitlines()[1].endswith("no operator has looked at it yet")
    assert "no operator has looked at this ring yet" in desk.say("plan", "web").out
    unasked = desk.say("pause", "web")
    assert unasked.code == 64
    assert "nobody can be asked here: say --yes" in unasked.err


def test_a_namespace_without_a_ring(desk: Desk) -> None:
    assert desk.say("get").out == "There is no ring in this namespace (all of them: -A)\n"
    none = desk.say("plan")
    assert (none.code, lines(none)) == (
        64,
        ["poise: there is no ring in this namespace: name another with --namespace"],
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["get", "--context", "x"], "--kubeconfig, --context, --namespace and --scoped need --kube"),
        (["get", "-A"], "--all-namespaces needs --kube"),
        (["get", "--kube", "--server", "http://x"], "--server and --kube exclude each other: ask one of them"),
        (["plan", "web", "--tokens", "3"], "--tokens needs --kube"),
        (["plan", "--kube", "web", "--tokens", "3"], "--tokens says how many tokens an instance of --add would have"),
        (["plan", "--kube", "--add", "x"], "a what-if needs one ring: name it"),
        (["plan", "--kube", "web", "--at", "2026-01-01T00:00:00Z"], "-f, --only and --at are for documents"),
        (["explain", "web", "a", "b"], "KIND and NAME apart need --kube"),
        (["drain", "web", "a"], "a RING before its instance needs --kube"),
        (["drain", "--kube", "a"], "with --kube a RING and one of its instances are needed"),
        (["drain", "a", "--yes"], "--yes and --output need --kube: a server is told at once"),
        (["history", "--kube", "web", "--db", "x"], "--db and --kube exclude each other: ask one of them"),
    ],
)
def test_flags_that_make_no_sense_together(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 64
    assert told in capsys.readouterr().err


def test_a_preview_that_nobody_agrees_to_changes_nothing(
    cluster: Cluster, namespace: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.run(lambda client: put_ring(client, namespace, "web", leaseSeconds=D))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked: list[str] = []

    def answer(told: str, **_how: object) -> bool:
        asked.append(told)
        return False

    monkeypatch.setattr(click, "confirm", answer)
    refused = desk.say("pause", "web", "--all")
    assert (refused.code, lines(refused)) == (1, ["poise: nothing was changed"])
    assert asked == [f"Pause {namespace}/web?"]
    assert refused.out.startswith("ShardRing web")

    def change(_told: str, **_how: object) -> bool:
        spec = {"spec": {"drainTimeoutSeconds": 77}}
        cluster.run(lambda client: change_ring(client, namespace, "web", spec))
        return True

    monkeypatch.setattr(click, "confirm", change)
    moved = desk.say("pause", "web")
    assert moved.code == 3
    assert "has changed meanwhile; nothing was done" in moved.err
    ring = cluster.run(lambda client: read_ring(client, namespace, "web"))
    assert "poise.dev/paused" not in ring.metadata.annotations


def test_no_cluster_no_definitions_no_rights(
    cluster: Cluster, namespace: str, desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.run(lambda client: put_ring(client, namespace, "web", leaseSeconds=D))
    away = Desk(cluster.kubeconfig(url="https://127.0.0.1:1"), namespace, capsys).say("get")
    assert away.code == 4
    assert len(lines(away)) == 1
    assert away.err.startswith("poise: the cluster cannot be asked: list shardrings.poise.dev")

    alice = Desk(cluster.kubeconfig("alice"), namespace, capsys)
    refused = alice.say("get", "web")
    assert refused.code == 1
    assert len(lines(refused)) == 1
    assert f'may not get shardrings of the group "poise.dev" in the namespace {namespace}' in refused.err

    rights = [
        {"apiGroups": ["poise.dev"], "resources": ["shardrings"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["list"]},
    ]
    cluster.run(lambda client: grant(client, "alice", namespace, rights))
    seen = alice.say("plan", "web")
    assert seen.code == 0, "whoever may see only a namespace is told so"
    assert f"only secrets of the namespace {namespace} were looked at: you may not list secrets" in seen.out
    assert "the Leases of instances are not known: you may not list leases" in seen.out
    assert alice.say("plan", "web", "--scoped").code == 0
    assert "may not patch shardrings" in alice.say("pause", "web", "--yes").err

    nowhere = Resource("nowhere.poise.dev", "v1", "shardrings", "ShardRing")
    monkeypatch.setattr("poise.kube.crds.custom_resource", lambda _kind: nowhere)
    unknown = desk.say("get")
    assert (unknown.code, len(lines(unknown))) == (64, 1)
    assert "the cluster does not know ShardRings; install the definitions first: poise operator" in unknown.err
