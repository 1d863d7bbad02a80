"""Deliveries: what is sent, what is read back, and that credentials go over the wire and nowhere else."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from tests.pool.served import Served, collectors, courier_to

from poise.jobs.pool.delivery import Courier, Packet, PodFault, open_client, pack
from poise.jobs.pool.references import Unresolved, look_up, resolve
from poise.jobs.pool.settings import pace_of
from poise.jobs.pool.steps import Sight
from poise.model.target_pool import Delivery, Target

GNMIC = Delivery("gnmic", subscriptions={"s1": {"paths": ["/interfaces"]}}, outputs={"o1": {"type": "file"}})
HTTP = Delivery("http")
ROUTERS = [
    Target("ns/router1", "10.0.0.1:57400", {"site": "par"}, {"insecure": True, "timeout": "10s"}),
    Target("router2", "10.0.0.2:57400", config={"password": {"env": "ROUTER_PASSWORD"}}),
]
SECRET = "correct horse battery"


def on_a_pod(
    folder: Path, work: Callable[[Courier, Served], Awaitable[None]], kind: str = "gnmic", teardown_s: float = 0.0
) -> None:
    async def run() -> None:
        async with collectors(folder, "p1", teardown_s=teardown_s) as [served], courier_to(served, kind) as courier:
            await work(courier, served)

    asyncio.run(run())


def test_a_gnmic_document_has_sections_by_name() -> None:
    packet = pack(GNMIC, ROUTERS[:1])
    assert packet.body == {
        "targets": {
            "ns/router1": {
                "name": "ns/router1",
                "address": "10.0.0.1:57400",
                "event-tags": {"site": "par"},
                "insecure": True,
                "timeout": "10s",
            }
        },
        "subscriptions": GNMIC.subscriptions,
        "outputs": GNMIC.outputs,
    }
    assert packet.content.shape == {"ns/router1": "10.0.0.1:57400"}
    assert pack(GNMIC, []).body == {}


def test_the_digest_is_of_the_content_and_of_nothing_else() -> None:
    first = pack(GNMIC, ROUTERS).content.digest
    assert pack(GNMIC, reversed(ROUTERS)).content.digest == first
    assert pack(GNMIC, ROUTERS[:1]).content.digest != first
    other = msgspec.structs.replace(GNMIC, subscriptions={"s1": {"paths": ["/system"]}})
    assert pack(other, ROUTERS).content.digest != first
    moved = msgspec.structs.replace(ROUTERS[0], address="10.9.9.9:57400")
    assert pack(GNMIC, [moved, ROUTERS[1]]).content.digest != first


def test_gnmic_is_driven_with_its_four_calls(tmp_path: Path) -> None:
    async def work(courier: Courier, served: Served) -> None:
        assert await courier.look() == Sight({}, frozenset())
        await courier.apply(pack(GNMIC, ROUTERS[:1]))
        assert await courier.look() == Sight({"ns/router1": "10.0.0.1:57400"}, frozenset({"ns/router1"}))
        served.pod.teardown_s = 0.2
        await courier.apply(pack(GNMIC, []))
        assert await courier.look() == Sight({}, frozenset({"ns/router1"})), "it answers before streams have ended"
        await asyncio.sleep(0.3)
        assert await courier.look() == Sight({}, frozenset())
        assert set(served.pod.requests) == {
            "GET /api/v1/healthz", "GET /api/v1/config/targets", "GET /api/v1/targets", "POST /api/v1/config/apply",
        }  # fmt: skip

    on_a_pod(tmp_path, work)


def test_any_collector_is_driven_by_two_calls(tmp_path: Path) -> None:
    async def work(courier: Courier, served: Served) -> None:
        await courier.apply(pack(HTTP, ROUTERS[:1]))
        assert await courier.look() == Sight({"ns/router1": "10.0.0.1:57400"}, frozenset({"ns/router1"}))
        assert served.pod.configured["ns/router1"]["labels"] == {"site": "par"}
        await courier.apply(pack(HTTP, []))
        assert await courier.look() == Sight({}, frozenset())
        assert set(served.pod.requests) == {"GET /targets", "PUT /targets"}

    on_a_pod(tmp_path, work, "http")


@pytest.mark.parametrize(
    ("order", "told", "refused"),
    [
        ({"status": 500}, "answered 500", True),
        ({"hang": True}, "was not answered within 1 s", False),
    ],
    ids=["500", "hangs"],
)
def test_a_look_that_fails_is_one_reason(order: dict[str, object], told: str, refused: bool, tmp_path: Path) -> None:
    async def work(courier: Courier, served: Served) -> None:
        served.pod.control(order)
        with pytest.raises(PodFault, match=told) as found:
            await courier.look()
        assert (found.value.refused, found.value.broken) == (refused, refused)

    on_a_pod(tmp_path, work)


def test_what_the_collector_says_is_quoted(tmp_path: Path) -> None:
    async def work(courier: Courier, served: Served) -> None:
        with pytest.raises(PodFault, match="at least one subscription is required") as found:
            await courier.apply(pack(Delivery("gnmic"), ROUTERS[:1]))
        assert (found.value.refused, found.value.broken) == (True, False)
        served.pod.control({"acceptThenHang": True})
        with pytest.raises(PodFault, match="not answered within 1 s") as late:
            await courier.apply(pack(GNMIC, ROUTERS[:1]))
        assert not late.value.refused, "nobody knows what became of it"
        assert (await courier.look()).configured == {"ns/router1": "10.0.0.1:57400"}

    on_a_pod(tmp_path, work)


@pytest.mark.parametrize("answer", ["<html>", "[1]", '{"r1": 7}', "null", '{"r1": {"address": "x"}}', "\x00"])
def test_an_answer_that_is_no_list_is_one_reason(answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def garbled(*_: object) -> tuple[int, str]:
        return 200, answer

    monkeypatch.setattr("tests.pool.collector.answer", garbled)

    async def work(courier: Courier, served: Served) -> None:
        del served
        with pytest.raises(PodFault, match="not what a collector answers") as found:
            await courier.look()
        assert "\n" not in str(found.value)

    on_a_pod(tmp_path, work)


def test_nobody_listens_is_one_reason(tmp_path: Path) -> None:
    async def run() -> None:
        async with collectors(tmp_path, "p1") as [served], courier_to(Served(served.pod, 9)) as courier:
            with pytest.raises(PodFault, match="GET /api/v1/healthz failed: ConnectError"):
                await courier.look()

    asyncio.run(run())


@pytest.mark.parametrize("url", ["http://[", "http://x:99999999", "http://user:hunter2@127.0.0.1:9", "http://\u00ad"])
def test_a_bad_address_is_one_reason_that_does_not_show_it(url: str) -> None:
    async def look() -> None:
        async with open_client(ssl.create_default_context()) as client:
            with pytest.raises(PodFault) as found:
                await Courier(client, "gnmic", url, pace_of(3)).look()
            assert "hunter2" not in str(found.value)

    asyncio.run(look())


def test_credentials_go_over_the_wire_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTER_PASSWORD", SECRET)
    packet = pack(GNMIC, ROUTERS)

    async def work(courier: Courier, served: Served) -> None:
        await courier.apply(packet)
        assert served.pod.configured["router2"]["password"] == SECRET
        assert SECRET not in repr(packet)
        assert SECRET not in packet.content.digest + packet.seal()

    on_a_pod(tmp_path, work)


def test_a_collector_that_quotes_a_credential_is_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTER_PASSWORD", SECRET)

    async def quoting(*_: object) -> tuple[int, str]:
        return 400, json.dumps({"errors": [f"bad password {SECRET}"]})

    monkeypatch.setattr("tests.pool.collector.answer", quoting)

    async def work(courier: Courier, served: Served) -> None:
        del served
        with pytest.raises(PodFault, match="answered 400") as found:
            await courier.apply(pack(GNMIC, ROUTERS))
        assert SECRET not in str(found.value)

    on_a_pod(tmp_path, work)


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ({"env": "POISE_NOT_SET"}, "the environment variable POISE_NOT_SET is not set"),
        ({"file": "nowhere/password"}, "the file nowhere/password cannot be read: No such file"),
        ({"secret": "routers"}, "known on Kubernetes only"),
    ],
)
def test_a_credential_that_is_not_there_is_one_reason(reference: dict[str, object], told: str, tmp_path: Path) -> None:
    async def work(courier: Courier, served: Served) -> None:
        packet = pack(GNMIC, [Target("r1", "r1:1", config={"password": reference})])
        with pytest.raises(PodFault, match=told):
            await courier.apply(packet)
        assert served.writes == 0, "nothing is sent without its credentials"

    on_a_pod(tmp_path, work)


def test_references_are_found_at_any_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("t0ken\n")
    monkeypatch.setenv("ROUTER_PASSWORD", SECRET)
    value = {"tls": [{"key": {"file": str(path)}}, 1, None], "env": {"env": "ROUTER_PASSWORD"}, "file": "a", "x": {}}
    assert resolve(value) == {"tls": [{"key": "t0ken"}, 1, None], "env": SECRET, "file": "a", "x": {}}
    assert resolve({"env": "A", "file": "B"}) == {"env": "A", "file": "B"}, "only a single key is a reference"


def test_a_credential_that_is_no_text_is_named_by_its_place_only(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"\xff\xfe secret")
    with pytest.raises(Unresolved, match="it is not UTF-8") as found:
        look_up("file", str(path))
    assert "secret" not in str(found.value)
    assert found.value.__cause__ is None


def test_a_changed_credential_changes_the_seal(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("one")
    packet: Packet = pack(GNMIC, [Target("r1", config={"password": {"file": str(path)}})])
    first = packet.seal()
    assert packet.seal() == first
    path.write_text("two")
    assert packet.seal() != first
    assert pack(GNMIC, ROUTERS[:1]).seal() == ""
