"""Every refusal has one shape and names its place; nothing is changed by what is refused."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import httpx2
import msgspec
import pytest
from tests.serve.live_server import KEYS, ORDERS, AwayStore, LiveServer
from tests.serve.talking_member import TalkingMember

from poise.serve.settings import ServeSettings

PATH = "/v1/jobs/PartitionSet/orders"
SPEAKER = "/v1/sets/orders/members/n1"
JSON = {"Content-Type": "application/json"}


def problem(response: httpx2.Response, status: int) -> Mapping[str, object]:
    """See that an answer is a problem of that status, in the one shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    told = response.json()
    assert {"type", "title", "status", "detail", "errors"} <= set(told)
    assert told["status"] == status
    assert told["detail"]
    assert all(set(error) == {"path", "message"} for error in told["errors"])
    assert isinstance(told, dict)
    return told


def paths(response: httpx2.Response) -> list[str]:
    return [error["path"] for error in response.json()["errors"]]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nope", b"kind: PartitionSet", b"\xff\xfe", b'{"a": NaN}', b"[" * 100_000, b'{"kind": "Part', b"\x00"],
    ids=["empty", "cut", "word", "yaml", "no utf-8", "nan", "deep", "text cut", "zero"],
)
def test_malformed_json_is_refused_everywhere(client: httpx2.Client, body: bytes) -> None:
    for method, path in (("PUT", PATH), ("POST", f"{PATH}/plan"), ("PUT", SPEAKER), ("POST", SPEAKER)):
        response = client.request(method, path, content=body, headers=JSON)
        problem(response, 400)
        assert paths(response) == ["$"]


def test_every_fault_of_a_document_is_named_at_once(client: httpx2.Client) -> None:
    wrong = {"kind": "PartitionSet", "metadata": {"name": "orders"}, "spec": {"partitions": -1, "leaseSecond": 3}}
    response = client.put(PATH, json=wrong)
    problem(response, 400)
    assert paths(response) == ["$.spec.partitions", "$.spec.leaseSecond"]
    assert client.get(PATH).json()["spec"] == {"partitions": 4}


@pytest.mark.parametrize("body", [[], 1, "text", None, True, [ORDERS]])
def test_a_body_of_another_type_is_refused(client: httpx2.Client, body: object) -> None:
    for method, path in (("PUT", PATH), ("POST", f"{PATH}/plan"), ("PUT", SPEAKER), ("POST", f"{PATH}/pause")):
        response = client.request(method, path, content=msgspec.json.encode(body), headers=JSON)
        problem(response, 400)
        assert paths(response) == ["$"]


def test_a_document_must_be_the_one_that_the_address_names(client: httpx2.Client) -> None:
    other = client.put("/v1/jobs/PartitionSet/other", json=ORDERS)
    problem(other, 400)
    assert paths(other) == ["$.metadata.name"]
    kind = client.put("/v1/jobs/ShardRing/orders", json=ORDERS)
    assert paths(kind) == ["$.kind"]


def test_a_name_of_another_kind_is_a_conflict(client: httpx2.Client) -> None:
    ring = {**KEYS, "metadata": {"name": "orders"}}
    problem(client.put("/v1/jobs/ShardRing/orders", json=ring), 409)


def test_unknown_kinds_paths_and_things_are_not_found(client: httpx2.Client) -> None:
    for path in (
        "/v1/jobs/Deployment/orders",
        "/v1/jobs/PartitionSet/none",
        "/v1/jobs/PartitionSet/none/plan",
        f"{PATH}/items/99",
        f"{PATH}/items/99/explain",
        f"{PATH}/members/ghost/stoppable",
        f"{PATH}/",
        "/v2/jobs",
        "/v1//jobs",
    ):
        problem(client.get(path), 404)
    problem(client.post("/v1/sets/none/members/n1", json={"process": "p"}), 404)
    problem(client.delete("/v1/jobs/PartitionSet/none"), 404)


def test_unknown_parameters_and_fields_are_refused_with_their_path(client: httpx2.Client) -> None:
    response = client.get("/v1/jobs", params={"limi": "3", "x": "1"})
    problem(response, 400)
    assert response.json()["errors"] == [
        {"path": "?limi", "message": "unknown parameter; did you mean limit?"},
        {"path": "?x", "message": "unknown parameter"},
    ]
    assert paths(client.get("/v1/jobs?limit=1&limit=2")) == ["?limit"]
    assert paths(client.put(PATH, params={"dryRun": "yes"}, json=ORDERS)) == ["?dryRun"]
    assert paths(client.post(f"{PATH}/plan", json={"ad": ["n3"], "weights": {"n1": -1}})) == ["$.ad", "$.weights['n1']"]
    assert paths(client.put(SPEAKER, json={"incarnation": "1", "seq": 1, "hold": []})) == ["$.incarnation", "$.hold"]
    assert paths(client.post(SPEAKER, json={"process": ""})) == ["$.process"]
    assert paths(client.post(f"{PATH}/members/n1/drain", json={"now": True})) == ["$.now"]


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "x", "", "1.5", "9" * 40, "٣"])
def test_a_limit_out_of_range_is_refused(client: httpx2.Client, limit: str) -> None:
    assert paths(client.get("/v1/jobs", params={"limit": limit})) == ["?limit"]


@pytest.mark.parametrize("token", ["%", "!!!", "a", "_-8", "é"])
def test_a_continue_that_nobody_gave_is_refused(client: httpx2.Client, token: str) -> None:
    assert paths(client.get("/v1/jobs", params={"continue": token})) == ["?continue"]


def test_lists_page_with_limit_and_continue(client: httpx2.Client) -> None:
    client.put(PATH, json={**ORDERS, "spec": {"partitions": 25}})
    seen: list[str] = []
    params = {"limit": "10"}
    sizes = []
    while True:
        page = client.get(f"{PATH}/items", params=params).json()
        sizes.append(len(page["items"]))
        seen += [item["item"] for item in page["items"]]
        if "continue" not in page:
            break
        params["continue"] = page["continue"]
    assert sizes == [10, 10, 5]
    assert seen == [str(number) for number in range(25)]


def test_every_list_pages(client: httpx2.Client) -> None:
    for name in ("n1", "n2", "n3"):
        TalkingMember(client, name)
    for path, total in (("/v1/jobs", 3), (f"{PATH}/members", 3), ("/v1/jobs/ShardRing/web/items", 5)):
        first = client.get(path, params={"limit": "2"}).json()
        rest = client.get(path, params={"limit": "1000", "continue": first["continue"]}).json()
        assert (len(first["items"]), len(rest["items"])) == (2, total - 2)
        assert "continue" not in rest


@pytest.mark.parametrize("media", ["text/plain", "application/yaml", "application/x-www-form-urlencoded", ""])
def test_a_body_that_is_not_said_to_be_json_is_refused(client: httpx2.Client, media: str) -> None:
    headers = {"Content-Type": media} if media else {}
    response = client.put(PATH, content=msgspec.json.encode(ORDERS), headers=headers)
    problem(response, 415)
    fine = client.put(
        PATH, content=msgspec.json.encode(ORDERS), headers={"Content-Type": "application/json; charset=utf-8"}
    )
    assert fine.status_code == 200


def test_a_body_that_nobody_reads_is_refused(client: httpx2.Client) -> None:
    problem(client.request("GET", "/v1/jobs", content=b"{}", headers=JSON), 400)


def test_other_methods_are_refused_with_what_is_allowed(client: httpx2.Client) -> None:
    response = client.patch(PATH, json={})
    problem(response, 405)
    assert response.headers["allow"] == "GET, PUT, DELETE, HEAD, OPTIONS"
    for method in ("TRACE", "CONNECTED", "POST"):
        problem(client.request(method, "/v1/jobs"), 405)


def test_head_and_options_are_sane(client: httpx2.Client) -> None:
    head = client.head(PATH)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", '"1"')
    assert client.head("/v1/events").status_code == 200
    assert client.head("/v1/jobs/PartitionSet/none").status_code == 404
    options = client.options(f"{PATH}/plan")
    assert (options.status_code, options.headers["allow"]) == (204, "GET, POST, HEAD, OPTIONS")
    assert "access-control-allow-origin" not in options.headers


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ('"1"', 200),
        ("1", 200),
        ("*", 200),
        ('"3", "1"', 200),
        ('"2"', 412),
        ('"0"', 412),
        ('W/"1"', 412),
        ('"abc"', 412),
        ('"3", "4"', 412),
        ("no tag", 400),
        ("", 400),
    ],
)
def test_if_match_makes_a_write_conditional(client: httpx2.Client, condition: str, status: int) -> None:
    changed = {**ORDERS, "spec": {"partitions": 5}}
    response = client.put(PATH, json=changed, headers={"If-Match": condition})
    assert response.status_code == status, response.text
    assert client.get(PATH).headers["etag"] == ('"2"' if status == 200 else '"1"')


def test_conditions_on_what_is_not_there(client: httpx2.Client) -> None:
    new = {**ORDERS, "metadata": {"name": "new"}}
    problem(client.put("/v1/jobs/PartitionSet/new", json=new, headers={"If-Match": "*"}), 412)
    problem(client.put("/v1/jobs/PartitionSet/new", json=new, headers={"If-Match": '"1"'}), 412)
    assert client.put("/v1/jobs/PartitionSet/new", json=new, headers={"If-None-Match": "*"}).status_code == 201
    problem(client.put("/v1/jobs/PartitionSet/new", json=new, headers={"If-None-Match": "*"}), 412)
    problem(client.delete("/v1/jobs/PartitionSet/new", headers={"If-Match": '"7"'}), 412)
    assert client.delete("/v1/jobs/PartitionSet/new", headers={"If-Match": '"1"'}).status_code == 204


def test_of_many_conditional_writes_at_once_exactly_one_wins(server: LiveServer, client: httpx2.Client) -> None:
    statuses: list[int] = []

    def write(partitions: int) -> None:
        with server.client() as own:
            changed = {**ORDERS, "spec": {"partitions": partitions}}
            statuses.append(own.put(PATH, json=changed, headers={"If-Match": '"1"'}).status_code)

    threads = [threading.Thread(target=write, args=(10 + each,)) for each in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] + [412] * 7
    assert client.get(PATH).headers["etag"] == '"2"'


@pytest.mark.parametrize("name", ["-n", "n/1", "n 1", "<b>", "n\n", "x" * 254, "ü"])
def test_a_member_must_have_a_name(client: httpx2.Client, name: str) -> None:
    response = client.post(f"/v1/sets/orders/members/{quoted(name)}", json={"process": "p"})
    problem(response, 400)
    assert paths(response) == ["{id}"]


def quoted(name: str) -> str:
    return "".join(f"%{byte:02X}" for byte in name.encode())


def test_html_and_control_characters_are_told_back_without_harm(client: httpx2.Client) -> None:
    evil = "<script>alert(1)</script>\u202e"
    response = client.put(PATH, json={**ORDERS, evil: 1, "spec": {"partitions": 4, "weights": {evil: 1}}})
    told = problem(response, 400)
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "\u202e" not in str(told)


def test_a_store_that_is_away_gives_503_and_all_is_well_again_by_itself(
    server: LiveServer, client: httpx2.Client
) -> None:
    member = TalkingMember(client, "n1")
    server.store.away = True
    for response in (client.get("/v1/jobs"), client.get(PATH), client.put(PATH, json=ORDERS), member.say()):
        problem(response, 503)
        assert int(response.headers["retry-after"]) >= 1
    assert client.get("/readyz").status_code == 503
    assert client.get("/livez").status_code == 200
    assert "poise_build_info" in client.get("/metrics").text
    server.store.away = False
    assert client.get(PATH).status_code == 200
    assert client.get("/readyz").status_code == 200
    member.beat()


def test_a_fault_of_ours_is_told_without_its_text(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[object]:
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr(server.api, "jobs", broken)
    with server.client() as client:
        response = client.get("/v1/jobs")
        told = problem(response, 500)
        assert "secret" not in str(told)
        assert client.get("/livez").status_code == 200


@pytest.mark.slow
def test_a_store_that_hangs_is_told_in_time_and_stops_nobody_else() -> None:
    store = AwayStore()
    with LiveServer(ServeSettings(request_s=1.0), store) as server, server.client() as client:
        server.put(ORDERS, client)
        store.slow_s = 3.0
        problem(client.get(PATH), 503)
        assert client.get("/livez").status_code == 200
        store.slow_s = 0.0
