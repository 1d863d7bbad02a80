"""Every row of the contract's table, called on a real server."""

from __future__ import annotations

from urllib.parse import quote

import httpx2
import msgspec
import pytest
from tests.serve.live_server import DIVISION, KEYS, ORDERS, POOL, SHOP, STRANGE, LiveServer
from tests.serve.talking_member import TalkingMember, settle

from poise.jobs.pool.sources import LISTED, LastList
from poise.jobs.stored import TARGETS
from poise.model.target_pool import Target
from poise.move.executor import put_set, register_member
from poise.stores.base import Transaction

ORDERS_PATH = "/v1/jobs/PartitionSet/orders"


def test_jobs_are_listed_with_their_health(client: httpx2.Client) -> None:
    jobs = client.get("/v1/jobs").json()["items"]
    assert [(job["kind"], job["name"]) for job in jobs] == [
        ("CapacitySplit", "shop"),
        ("PartitionSet", "orders"),
        ("ShardRing", "web"),
    ]
    assert jobs[1]["unowned"] == jobs[1]["items"] == 4
    assert jobs[1]["health"]


def test_a_job_is_created_read_changed_and_deleted(server: LiveServer) -> None:
    with server.client() as client:
        made = client.put(ORDERS_PATH, json=ORDERS)
        assert (made.status_code, made.headers["etag"], made.headers["location"]) == (201, '"1"', ORDERS_PATH)
        read = client.get(ORDERS_PATH)
        assert read.headers["etag"] == '"1"'
        assert read.json()["spec"] == {"partitions": 4}
        assert len(read.json()["status"]["partitions"]) == 4
        changed = client.put(ORDERS_PATH, json={**ORDERS, "spec": {"partitions": 6}})
        assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
        assert client.delete(ORDERS_PATH).status_code == 204
        assert client.get(ORDERS_PATH).status_code == 404


@pytest.mark.parametrize("document", [ORDERS, KEYS, SHOP, POOL, DIVISION], ids=lambda one: str(one["kind"]))
def test_every_kind_can_be_put_planned_listed_and_shown(server: LiveServer, document: dict[str, object]) -> None:
    assert isinstance(document["metadata"], dict)
    path = f"/v1/jobs/{document['kind']}/{document['metadata']['name']}"
    with server.client() as client:
        server.put(document, client)
        assert client.get(path).json()["kind"] == document["kind"]
        for below in ("/plan", "/items", "/members"):
            assert client.get(path + below).status_code == 200, below
        assert client.get("/metrics").status_code == 200


def test_a_dry_run_answers_with_the_plan_and_changes_nothing(server: LiveServer) -> None:
    with server.client() as client:
        path = "/v1/jobs/CapacitySplit/shop"
        tried = client.put(
            path, params={"dryRun": "true"}, json={**SHOP, "status": {"workloads": {"api": {"spot": 10}}}}
        )
        assert tried.status_code == 200
        assert "etag" not in tried.headers
        assert tried.json()["workloads"]["api"]["desired"] == {"spot": 7, "onDemand": 3}
        assert client.get(path).status_code == 404


def test_a_plan_that_was_overtaken_is_refused_by_the_tag_of_its_dry_run(client: httpx2.Client) -> None:
    changed = {**ORDERS, "spec": {"partitions": 5}}
    tried = client.put(ORDERS_PATH, params={"dryRun": "true"}, json=changed)
    assert tried.json()["certificate"] == {"moves": 0, "movesMin": 0, "spread": 0}
    client.put(ORDERS_PATH, json={**ORDERS, "spec": {"partitions": 7}})
    late = client.put(ORDERS_PATH, json=changed, headers={"If-Match": tried.headers["etag"]})
    assert late.status_code == 412
    again = client.put(ORDERS_PATH, params={"dryRun": "true"}, json=changed, headers={"If-Match": '"1"'})
    assert again.status_code == 412


def test_a_plan_and_a_what_if_are_shown_as_the_command_line_prints_them(
    server: LiveServer, client: httpx2.Client
) -> None:
    members = [TalkingMember(client, "n1"), TalkingMember(client, "n2")]
    settle(server, *members)
    now = client.get(f"{ORDERS_PATH}/plan").json()
    assert (now["kind"], now["name"], now["moves"], now["loads"]) == ("PartitionSet", "orders", [], {"n1": 2, "n2": 2})
    assert now["certificate"] == {"moves": 0, "movesMin": 0, "spread": 0}
    assert now["pending"] is False
    drained = client.post(f"{ORDERS_PATH}/plan", json={"drain": ["n2"]}).json()
    assert [move["source"] for move in drained["moves"]] == ["n2", "n2"]
    assert drained["moves"][0]["step"] == "release"
    assert drained["pending"] is True
    weighted = client.post(f"{ORDERS_PATH}/plan", json={"add": ["n3"], "remove": ["n1"], "weights": {"n3": 3}})
    assert weighted.json()["loads"] == {"n2": 1, "n3": 3}
    assert client.get(f"{ORDERS_PATH}/plan").json() == now, "nothing was changed"


def test_a_what_if_of_replicas(client: httpx2.Client) -> None:
    client.put("/v1/jobs/ReplicaDivision/shop", json=DIVISION)
    imagined = client.post("/v1/jobs/ReplicaDivision/shop/plan", json={"replicas": {"cart": 9}}).json()
    assert sum(imagined["divisions"]["cart"]["replicas"].values()) == 9


def test_items_say_who_holds_them_since_when_and_at_which_epoch(server: LiveServer, client: httpx2.Client) -> None:
    members = [TalkingMember(client, "n1"), TalkingMember(client, "n2")]
    settle(server, *members)
    listed = client.get(f"{ORDERS_PATH}/items").json()["items"]
    assert [item["item"] for item in listed] == ["0", "1", "2", "3"]
    assert {item["member"] for item in listed} == {"n1", "n2"}
    mine = client.get(f"{ORDERS_PATH}/items", params={"member": "n1"}).json()["items"]
    assert len(mine) == 2
    assert client.get(f"{ORDERS_PATH}/items", params={"state": "Unassigned"}).json() == {"items": []}
    one = client.get(f"{ORDERS_PATH}/items/{mine[0]['item']}").json()
    assert (one["member"], one["state"], one["epoch"], one["confirmed"]) == ("n1", "Assigned", 1, True)
    assert one["since"].startswith("20")


def test_an_item_is_explained_and_has_a_story(server: LiveServer, client: httpx2.Client) -> None:
    settle(server, TalkingMember(client, "n1"))
    told = client.get(f"{ORDERS_PATH}/items/0/explain").json()
    assert told["item"] == "0"
    assert "n1" in " ".join(told["because"])
    story = client.get(f"{ORDERS_PATH}/items/0/history").json()["items"]
    assert [line["transition"] for line in story] == ["assigned", "confirmed"]
    assert story[0]["member"] == "n1"


@pytest.mark.parametrize("name", STRANGE)
def test_any_printable_name_of_an_item_can_be_asked_for(client: httpx2.Client, name: str) -> None:
    path = f"/v1/jobs/ShardRing/web/items/{quote(name, safe='')}"
    response = client.get(path)
    assert response.json()["item"] == name
    assert response.headers["content-type"] == "application/json"
    assert client.get(f"{path}/explain").json()["item"] == name
    assert client.get(f"{path}/history").status_code == 200


@pytest.mark.parametrize("name", ["%00", "%0A", "%7F", "%3Cscript%3E", "no%20such", "%E2%80%AE", "a" * 5_000])
def test_a_name_that_is_none_is_not_found_and_never_obeyed(client: httpx2.Client, name: str) -> None:
    for path in (f"/v1/jobs/ShardRing/web/items/{name}", f"/v1/jobs/ShardRing/{name}"):
        response = client.get(path)
        assert response.status_code == 404
        assert response.headers["content-type"] == "application/problem+json"


def test_a_path_that_is_no_text_is_refused(client: httpx2.Client) -> None:
    refused = client.get("/v1/jobs/ShardRing/web/items/%FF")
    assert refused.status_code == 400
    assert refused.json()["errors"] == [{"path": "path", "message": "expected UTF-8 in percent-encoding"}]


def test_members_drain_come_back_and_say_whether_they_may_stop(server: LiveServer, client: httpx2.Client) -> None:
    members = [TalkingMember(client, "n1"), TalkingMember(client, "n2")]
    settle(server, *members)
    shown = client.get(f"{ORDERS_PATH}/members").json()["items"]
    assert [(one["name"], one["state"], one["load"]) for one in shown] == [("n1", "active", 2), ("n2", "active", 2)]
    assert 0 < shown[0]["leaseS"] <= 10
    verdict = client.get(f"{ORDERS_PATH}/members/n2/stoppable").json()
    assert verdict["ok"] is False
    assert verdict["reasons"] == ["it holds 2 items", "it is not draining: nothing leaves it"]
    # Both may leave at once, and a hand-over takes two heartbeats, three of which are in a lease of 10 s.
    assert verdict["estimateS"] == pytest.approx(2 * 10 / 3)
    drained = client.post(f"{ORDERS_PATH}/members/n2/drain")
    assert (drained.json()["state"], drained.json()["load"]) == ("draining", 2)
    settle(server, *members)
    assert client.get(f"{ORDERS_PATH}/members/n2/stoppable").json() == {"ok": True, "reasons": [], "estimateS": 0.0}
    back = client.post(f"{ORDERS_PATH}/members/n2/undrain", json={})
    assert (back.json()["state"], back.json()["draining"]) == ("active", False)
    assert client.post(f"{ORDERS_PATH}/members/ghost/drain").status_code == 404


def test_pause_is_kept_and_resume_ends_it(client: httpx2.Client) -> None:
    assert client.post(f"{ORDERS_PATH}/pause").status_code == 200
    assert client.get("/v1/jobs").json()["items"][1]["paused"] is True
    assert client.post(f"{ORDERS_PATH}/resume").status_code == 200
    assert client.get("/v1/jobs").json()["items"][1]["paused"] is False
    assert client.post(f"{ORDERS_PATH}/pause", json={"all": True}).status_code == 200
    refused = client.post(f"{ORDERS_PATH}/pause", json={"al": True})
    assert refused.json()["errors"] == [{"path": "$.al", "message": 'unknown field; did you mean "all"?'}]


def test_a_plan_says_what_a_pause_holds_back(server: LiveServer, client: httpx2.Client) -> None:
    settle(server, TalkingMember(client, "n1"))
    TalkingMember(client, "n2")
    client.post(f"{ORDERS_PATH}/pause")
    moves = client.get(f"{ORDERS_PATH}/plan").json()["moves"]
    assert moves
    assert {move["waits"]["code"] for move in moves} <= {"pause", "budget"}
    reasons = client.get(f"{ORDERS_PATH}/members/n1/stoppable").json()["reasons"]
    assert "the job is paused: nothing moves" in reasons


def test_a_paused_set_goes_on_with_recovery_unless_all_is_said(server: LiveServer, client: httpx2.Client) -> None:
    client.post(f"{ORDERS_PATH}/pause", json={"all": True})
    member = TalkingMember(client, "n1")
    settle(server, member)
    assert member.reply.granted == ()
    client.post(f"{ORDERS_PATH}/pause", json={"all": False})
    settle(server, member)
    assert len(member.reply.granted) == 4


def test_a_heartbeat_is_answered_as_the_contract_says(server: LiveServer, client: httpx2.Client) -> None:
    registered = client.post("/v1/sets/orders/members/n1", json={"process": "p-1"}).json()
    assert (registered["incarnation"], registered["lease_s"], registered["grace_s"]) == (1, 10.0, 2.0)
    assert 0 < registered["period_s"] < 10
    server.cycle()
    body = {"incarnation": 1, "seq": 1, "weight": 1, "holds": [], "leaving": None}
    reply = client.put("/v1/sets/orders/members/n1", json=body).json()
    assert set(reply) == {"incarnation", "seq", "granted", "release"}
    assert [sorted(one) for one in reply["granted"]] == [["epoch", "item", "lease_s"]] * 4
    client.post(f"{ORDERS_PATH}/members/n1/drain")
    TalkingMember(client, "n2").beat()
    server.cycle()
    asked = client.put("/v1/sets/orders/members/n1", json={**body, "seq": 2}).json()
    assert [sorted(one) for one in asked["release"]] == [["deadline_s", "epoch", "item", "lease_s"]] * 4
    assert asked["granted"] == []


def test_a_superseded_process_gets_409_and_an_old_number_412(client: httpx2.Client) -> None:
    first = TalkingMember(client, "n1")
    first.beat()
    first.beat()
    first.seq = 0
    late = first.say()
    assert (late.status_code, late.json()["seq"]) == (412, 2)
    TalkingMember(client, "n1")
    superseded = first.say()
    assert (superseded.status_code, superseded.json()["incarnation"]) == (409, 2)
    assert superseded.headers["content-type"] == "application/problem+json"


def test_an_equal_number_is_answered_again(server: LiveServer, client: httpx2.Client) -> None:
    member = TalkingMember(client, "n1")
    server.cycle()
    first = member.beat()
    member.seq -= 1
    again = member.say().json()
    assert [one["item"] for one in again["granted"]] == [one.item for one in first.granted]


def test_a_pod_reads_its_targets_as_prometheus_does(server: LiveServer) -> None:
    with server.client() as client:
        server.put(POOL, client)
        path, where = "/v1/pools/core/pods/gnmic-0/targets", "TargetPool/core"
        server.store.transact(where, lambda tx: see_pool(tx, where))
        assert client.get(path).json() == []
        server.cycle(where)
        found = client.get(path).json()
        assert [each["targets"] for each in found] == [["10.0.0.1:57400"]]
        assert found[0]["labels"]["site"] == "par"
        assert client.get("/v1/pools/none/pods/gnmic-0/targets").status_code == 404


def see_pool(tx: Transaction, where: str) -> None:
    """Write what the engine of a pool writes once it has read the targets and seen the pod."""
    job = tx.job()
    assert job is not None
    put_set(tx, job, ["router/1"])
    target = Target(name="router/1", address="10.0.0.1:57400", labels={"site": "par"})
    tx.write_note(TARGETS, msgspec.json.encode(LastList([target], LISTED)).decode())
    register_member(tx, where, "gnmic-0", "pod")


def test_counts_are_reported(client: httpx2.Client) -> None:
    path = "/v1/jobs/CapacitySplit/shop"
    reported = client.put(f"{path}/status", json={"workloads": {"api": {"spot": 6, "onDemand": 4}}})
    assert reported.status_code == 200
    assert client.get(path).json()["status"]["workloads"]["api"]["spot"] == 6
    assert client.get(f"{path}/plan").json()["workloads"]["api"]["action"] == "migrate-to-spot"
    assert client.put(f"{ORDERS_PATH}/status", json={"workloads": {}}).status_code == 400


def test_health_version_and_description(server: LiveServer, client: httpx2.Client) -> None:
    assert client.get("/livez").json() == {"ok": True}
    assert client.get("/readyz").json() == {"ok": True}
    server.ready = False
    waiting = client.get("/readyz")
    assert (waiting.status_code, "retry-after" in waiting.headers) == (503, True)
    assert client.get("/livez").status_code == 200
    assert set(client.get("/version").json()) == {"version", "python"}
    assert client.get("/openapi.json").json()["openapi"] == "3.1.0"
