"""The OpenAPI document and the routes are one: what is served is described, and what is described is served."""

from __future__ import annotations

import re
from typing import cast

import msgspec
import pytest
from starlette.routing import Route
from tests.serve.live_server import LiveServer

from poise.serve.call import Call
from poise.serve.calls import CALLS
from poise.serve.openapi import Json, describe
from poise.serve.routing import Resource

DOCUMENT = describe(CALLS)
PATHS = cast("dict[str, dict[str, Json]]", DOCUMENT["paths"])  # What the generator writes under this key.
CONTRACT = {
    ("GET", "/v1/jobs"),
    ("GET", "/v1/jobs/{kind}/{name}"),
    ("PUT", "/v1/jobs/{kind}/{name}"),
    ("DELETE", "/v1/jobs/{kind}/{name}"),
    ("GET", "/v1/jobs/{kind}/{name}/plan"),
    ("POST", "/v1/jobs/{kind}/{name}/plan"),
    ("GET", "/v1/jobs/{kind}/{name}/items"),
    ("GET", "/v1/jobs/{kind}/{name}/items/{item}"),
    ("GET", "/v1/jobs/{kind}/{name}/items/{item}/explain"),
    ("GET", "/v1/jobs/{kind}/{name}/items/{item}/history"),
    ("GET", "/v1/jobs/{kind}/{name}/members"),
    ("POST", "/v1/jobs/{kind}/{name}/members/{member}/drain"),
    ("POST", "/v1/jobs/{kind}/{name}/members/{member}/undrain"),
    ("GET", "/v1/jobs/{kind}/{name}/members/{member}/stoppable"),
    ("POST", "/v1/jobs/{kind}/{name}/pause"),
    ("POST", "/v1/jobs/{kind}/{name}/resume"),
    ("PUT", "/v1/sets/{set}/members/{id}"),
    ("POST", "/v1/sets/{set}/members/{id}"),
    ("GET", "/v1/pools/{name}/pods/{pod}/targets"),
    ("GET", "/v1/events"),
    ("GET", "/livez"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/version"),
    ("GET", "/openapi.json"),
}


def described() -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, methods in PATHS.items() for method in methods}


def test_every_row_of_the_contract_is_described() -> None:
    assert described() >= CONTRACT
    assert described() - CONTRACT == {
        ("PUT", "/v1/jobs/{kind}/{name}/status"),
        ("GET", "/v1/jobs/{kind}/{name}/summary"),
        ("GET", "/v1/jobs/{kind}/{name}/history"),
        ("GET", "/v1/jobs/{kind}/{name}/series"),
        ("GET", "/v1/sets/{set}"),
        ("POST", "/v1/jobs/{kind}/{name}/items/{item}/explain"),
        ("POST", "/login"),
        ("POST", "/logout"),
    }


def test_what_is_routed_is_described_and_the_other_way_round(server: LiveServer) -> None:
    routed = {
        (method, route.path)
        for route in server.app.routes
        if isinstance(route, Route) and isinstance(resource := route.app, Resource)
        for method in resource._calls
    }
    assert routed == described()
    assert len(routed) == len(CALLS), "no row hides another"


def test_the_served_document_is_this_one(server: LiveServer) -> None:
    with server.client() as client:
        assert client.get("/openapi.json").json() == msgspec.to_builtins(DOCUMENT, str_keys=True)


def test_every_reference_leads_somewhere() -> None:
    components = cast("dict[str, dict[str, object]]", DOCUMENT["components"])  # As above.
    found = set(re.findall(r"#/components/schemas/([^\"]+)\"", msgspec.json.encode(DOCUMENT).decode()))
    assert found <= components["schemas"].keys()
    assert {"PartitionSet", "TargetPool", "Problem", "ItemView", "SaidHeartbeat", "Reply"} <= found


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_every_call_names_its_parameters_answers_and_refusals(call: object) -> None:
    row = next(each for each in CALLS if each is call)
    operation = PATHS[row.path][row.method.lower()]
    parameters = cast("list[Json]", operation["parameters"])  # As above.
    named = {parameter["name"] for parameter in parameters}
    assert set(re.findall(r"{(\w+)}", row.path)) | {each.name for each in row.query} <= named
    responses = cast("dict[str, Json]", operation["responses"])  # As above.
    assert {"400", "408", "413", "421", "431", "503"} <= responses.keys()
    assert ("401" in responses) is True
    assert ("415" in responses) is (row.body is not None)
    assert ("requestBody" in operation) is (row.body is not None)
    assert all("application/problem+json" in str(responses[status]) for status in responses if status[0] in "45")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_every_call_names_its_role(call: Call) -> None:
    operation = PATHS[call.path][call.method.lower()]
    assert operation["x-poise-role"] == call.role
    assert ("x-poise-members" in operation) is (call.members is not None)
    if call.role == "open":
        assert operation["security"] == [{}]
    else:
        assert operation["security"] == [{"token": [call.role]}, {"session": [call.role]}, {}]


def test_the_ways_to_show_a_token_are_described() -> None:
    components = cast("dict[str, dict[str, Json]]", DOCUMENT["components"])  # As above.
    schemes = components["securitySchemes"]
    assert (schemes["token"]["type"], schemes["token"]["scheme"]) == ("http", "bearer")
    assert (schemes["session"]["in"], schemes["session"]["name"]) == ("cookie", "poise_session")


def test_no_pattern_is_one_of_python_alone() -> None:
    assert "\\\\Z" not in msgspec.json.encode(DOCUMENT).decode()


def test_operation_ids_are_unique() -> None:
    names = [operation["operationId"] for methods in PATHS.values() for operation in methods.values()]
    assert len(names) == len(set(map(str, names)))
