"""Who may write the labels of a ring, on a real API server: every writer is a row of one table."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.cluster.policy_mutants import BROKEN, Broken, break_policy
from tests.cluster.policy_rows import ROWS, Row, read_labels
from tests.cluster.policy_world import SHARDER, PolicyWorld, changed, make_policy, make_ring, told
from tests.cluster.world import Cluster, make_namespace

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
