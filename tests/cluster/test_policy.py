"""Who may write the labels of a ring, on a real API server: every writer is a row of one table."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.cluster.policy_mutants import BROKEN, Broken, break_policy
from tests.cluster.policy_rows import CHOSEN, ROWS, Chosen, Row, read_labels
from tests.cluster.policy_world import SHARDER, PolicyWorld, changed, make_policy, make_ring, told
from tests.cluster.world import Cluster, make_namespace

from poise.jobs.sharder import policy
from poise.kube import NAMESPACES, Client, ObjectRef

RING, HOOKED = "guarded", "hooked"


@pytest.fixture(scope="module")
def namespaces(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """The namespace of the rings, and another one."""
    names = (f"poise-policy-{uuid.uuid4().hex[:8]}", f"poise-policy-{uuid.uuid4().hex[:8]}")

    async def make(client: Client) -> list[str]:
        return [(await make_namespace(client, name)).metadata.uid for name in names]

    async def remove(client: Client) -> None:
        for name, uid in zip(names, uids, strict=True):
            await client.delete(ObjectRef(NAMESPACES, name), uid=uid)

    uids = cluster.run(make)
    yield names
    cluster.run(remove)


@pytest.fixture(scope="module")
def world(cluster: Cluster, namespaces: tuple[str, str]) -> Iterator[PolicyWorld]:
    """The policies of two rings, one of them with the webhook, in force."""
    with PolicyWorld(cluster.plane, *namespaces) as world:
        namespace = namespaces[0]
        world.install(
            [make_policy(make_ring(RING, namespace)), make_policy(make_ring(HOOKED, namespace), webhook=True)]
        )
        yield world


@pytest.mark.parametrize("row", ROWS, ids=map(str, ROWS))
def test_every_writer(world: PolicyWorld, row: Row) -> None:
    ring = HOOKED if row.webhook else RING
    name = world.make(ring, row.on, shared=False)
    before = world.labels(row.on, name)
    answer = world.write(row, ring, name, dry=False)
    if row.allowed:
        assert answer.is_success, told(answer)
        wanted = before if row.how == "create" else changed(before, read_labels(row.change, ring))
        assert world.labels(row.on, name) == wanted
    else:
        assert answer.status_code == 403, answer.text
        assert f"the ring {ring} " in told(answer)
        assert f"the sharder ({SHARDER})" in told(answer)
        assert ("kubectl apply" in told(answer)) == (row.how == "put" and row.who != "web-0")
        assert ("leave them out" in told(answer)) == (row.how in ("create", "bind"))
        assert world.labels(row.on, name) == before


@pytest.fixture(scope="module")
def chosen_world(world: PolicyWorld) -> PolicyWorld:
    """A ring for each selector of namespaces, all with the webhook and in force at once."""
    rings = [make_ring(f"c{number}", world.namespace, each.spec(world.namespace)) for number, each in enumerate(CHOSEN)]
    world.install([make_policy(ring, webhook=True) for ring in rings])
    return world


def sent(world: PolicyWorld, path: str, ring: str, **more: str) -> bool:
    """Say whether a person may send labels of a ring with a new object."""
    labels = {**read_labels("shard=web-0 epoch=1", ring), **more}
    body = {"metadata": {"name": f"{ring}-sent", "labels": labels}}
    answer = world.ask("POST", path, body, who="a person", dry=True)
    assert answer.is_success or (answer.status_code == 403 and f"the ring {ring} " in told(answer)), answer.text
    return answer.is_success


@pytest.mark.parametrize(("number", "row"), list(enumerate(CHOSEN)), ids=map(str, CHOSEN))
def test_labels_are_sent_only_where_the_webhook_is_asked(chosen_world: PolicyWorld, number: int, row: Chosen) -> None:
    world, ring = chosen_world, f"c{number}"
    assert sent(world, world.path("configmaps"), ring) == row.chosen
    # It is asked about all that is in no namespace; about a Namespace, by its own labels.
    assert sent(world, "/apis/rbac.authorization.k8s.io/v1/clusterroles", ring)
    if row.selector == {"matchLabels": {"team": "x"}}:
        assert sent(world, "/api/v1/namespaces", ring, team="x")
        assert not sent(world, "/api/v1/namespaces", ring, team="y")
        assert not sent(world, "/api/v1/namespaces", ring)


def test_a_selector_that_is_not_minded_is_seen(world: PolicyWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_rules", lambda _selector: [])
    row = CHOSEN[1]
    world.install([make_policy(make_ring("unminded", world.namespace, row.spec(world.namespace)), webhook=True)])
    assert sent(world, world.path("configmaps"), "unminded") != row.chosen


@pytest.fixture(scope="module")
def broken_world(world: PolicyWorld) -> PolicyWorld:
    """A ring for each broken policy, all in force at once: a policy minds the labels of its own ring alone."""
    world.install([break_policy(each, f"m{number}", world.namespace) for number, each in enumerate(BROKEN)])
    return world


@pytest.mark.parametrize(("number", "broken"), list(enumerate(BROKEN)), ids=map(str, BROKEN))
def test_a_broken_rule_fails_a_row(broken_world: PolicyWorld, number: int, broken: Broken) -> None:
    rows = [row for row in ROWS if row.webhook == broken.webhook]
    # Those that may notice it come first.
    rows.sort(key=lambda row: row.allowed == broken.loosens)
    assert any(misjudged(broken_world, row, f"m{number}") for row in rows), f"no row notices {broken}"


def misjudged(world: PolicyWorld, row: Row, ring: str) -> bool:
    """Say whether a policy judges a row otherwise than the table does."""
    name = f"{ring}-none" if row.how == "create" else world.make(ring, row.on, shared=True)
    answer = world.write(row, ring, name, dry=True)
    # A policy that fails refuses with another status: that is no verdict of its rules.
    return not answer.is_success if row.allowed else answer.status_code != 403
