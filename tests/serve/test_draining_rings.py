"""A drained instance of a ring: plan, explanation, what-if and page say what the coordinator then does."""

from __future__ import annotations

import pytest
from tests.serve.live_server import LiveServer
from tests.serve.talking_member import TalkingMember
from tests.serve.told_store import ToldStore

from poise.decide.explain import Explanation
from poise.errors import InvalidSpec
from poise.jobs.entries import ItemsEntry
from poise.jobs.what_if import WhatIf
from poise.model.ownership import RELEASING

Move = tuple[str, str | None, str | None]
NAMES = ("web-0", "web-1", "web-2")
WEB = ("ShardRing", "web")
PAGE = "/jobs/ShardRing/web"


def ring(policy: str) -> dict[str, object]:
    spec = {"policy": policy, "objects": [f"ns/{number}" for number in range(24)], "leaseSeconds": 600}
    return {"kind": "ShardRing", "metadata": {"name": "web"}, "spec": spec}


@pytest.fixture(params=["ring", "balanced"])
def told(request: pytest.FixtureRequest) -> ToldStore:
    """Run a ring with three instances, in order."""
    made = ToldStore()
    made.put(ring(request.param))
    made.join("web", *NAMES)
    made.settle("web", *NAMES, rounds=8)
    assert planned(made) == set()
    return made


def planned(told: ToldStore, what_if: WhatIf | None = None) -> set[Move]:
    entry = told.api.plan(*WEB, what_if).entry
    assert isinstance(entry, ItemsEntry)
    return {(move.item, move.source, move.target) for move in entry.moves}


def begun(told: ToldStore) -> set[Move]:
    """Let the coordinator decide, and read what it has asked for."""
    told.cycle("web")
    rows = told.store.view("web", lambda tx: tx.rows()).values()
    return {(row.id, row.owner, row.target) for row in rows if row.state in RELEASING}


def test_the_plan_of_a_drain_is_what_the_coordinator_does(told: ToldStore) -> None:
    what_if = planned(told, WhatIf(drain=["web-1"]))
    told.api.drain(*WEB, "web-1", True)
    moves = planned(told)
    assert moves == what_if, "what was imagined is so now"
    assert {source for _, source, _ in moves} == {"web-1"}
    assert begun(told) == moves
    told.settle("web", *NAMES, rounds=8)
    assert planned(told) == set(), "nothing is planned back onto it"
    assert told.store.view("web", lambda tx: tx.rows_for("web-1", ())) == {}


def test_the_explanation_of_a_drained_item_names_the_drain(told: ToldStore) -> None:
    told.api.drain(*WEB, "web-1", True)
    item, _, target = min(planned(told))
    why = told.api.explain(*WEB, item)
    assert isinstance(why, Explanation)
    assert (why.source, why.member) == ("web-1", target)
    assert "web-1 is draining" in " ".join([*why.because, *(each.verdict for each in why.alternatives)])


def test_a_member_taken_back_is_imagined_beside_those_that_stay_drained(told: ToldStore) -> None:
    for name in ("web-0", "web-1"):
        told.api.drain(*WEB, name, True)
    told.settle("web", *NAMES, rounds=8)
    moves = planned(told, WhatIf(undrain=["web-1"]))
    assert {target for _, _, target in moves} == {"web-1"}
    told.api.drain(*WEB, "web-1", False)
    assert planned(told) == moves == begun(told)


def test_a_document_is_tried_with_its_drained_members(told: ToldStore) -> None:
    told.api.drain(*WEB, "web-1", True)
    told.settle("web", *NAMES, rounds=8)
    tried = told.api.try_put(told.api.get(*WEB).document).entry
    assert isinstance(tried, ItemsEntry)
    assert tried.moves == []


def test_a_drained_member_that_is_late_keeps_what_it_holds(told: ToldStore) -> None:
    told.api.drain(*WEB, "web-1", True)
    for name in ("web-0", "web-2"):
        told.now_s += 350
        told.beat("web", name)
    told.beat("web", "web-0")
    assert told.api.get(*WEB).document.status.instances[1].state == "expired"  # type: ignore[union-attr]  # It is a ring.
    assert planned(told) == set()


@pytest.mark.parametrize(
    ("what_if", "path", "why"),
    [
        (WhatIf(undrain=["web-0"]), "$.undrain['web-0']", "web-0 is in service already"),
        (WhatIf(undrain=["web-9"]), "$.undrain['web-9']", "no instance of that name; there are web-0, web-1, web-2"),
        (WhatIf(undrain=["web-1"], drain=["web-1"]), "$.undrain['web-1']", "web-1 is drained at the same time"),
    ],
)
def test_an_undrain_that_makes_no_sense_is_refused(told: ToldStore, what_if: WhatIf, path: str, why: str) -> None:
    told.api.drain(*WEB, "web-1", True)
    with pytest.raises(InvalidSpec) as refused:
        told.api.plan(*WEB, what_if)
    assert [(fault.path, fault.message) for fault in refused.value.faults] == [(path, why)]


def test_the_page_shows_the_drain_and_the_way_back(server: LiveServer) -> None:
    with server.client() as client:
        server.put(ring("balanced"), client)
        members = [TalkingMember(client, name, "web") for name in NAMES]
        for _ in range(8):
            server.cycle("web")
            for member in members:
                member.beat()
        assert client.post(f"/v1{PAGE}/members/web-1/drain", json={}).status_code == 200
        moves = client.get(f"/v1{PAGE}/plan").json()["moves"]
        assert len(moves) == 8
        assert client.get(PAGE).text.count("web-1 is draining") >= 1, "the plan on the page has the same reason"
        assert "What if web-1 takes part again?" in client.get(f"{PAGE}?undrain=web-1").text
        assert "poise plan ShardRing/web --undrain web-1" in client.get(f"{PAGE}?undrain=web-1").text
        answer = client.post(f"/v1{PAGE}/plan", json={"undrain": ["web-1"]})
        assert answer.json()["moves"] == []
