"""What is kept in the store is there after a restart, and on every other server: pause, drain, revision, events."""

from __future__ import annotations

from pathlib import Path

import httpx2
import msgspec
import pytest
from tests.serve.live_server import ORDERS
from tests.serve.talking_member import TalkingMember
from tests.serve_process import ServerProcess, await_met, servers

PATH = "/v1/jobs/PartitionSet/orders"


def events_after(client: httpx2.Client, last: str, count: int) -> list[str]:
    """Read the ids of so many events after one."""
    found: list[str] = []
    with client.stream("GET", "/v1/events", params={"job": "orders"}, headers={"Last-Event-ID": last}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                found.append(str(msgspec.json.decode(line[6:], type=dict[str, object])["id"]))
                if len(found) == count:
                    return found
    raise AssertionError("the stream has ended")


@pytest.mark.slow
def test_a_restart_and_another_server_know_the_same(tmp_path: Path) -> None:
    first = ServerProcess(tmp_path, "--name", "s1")
    with servers(first), first.client() as one:
        first.ready()
        one.put(PATH, json=ORDERS)
        one.put(PATH, json={**ORDERS, "spec": {"partitions": 6}})
        member = TalkingMember(one, "n1")
        await_met(lambda: len(member.beat().granted) == 6)
        one.post(f"{PATH}/pause")
        one.post(f"{PATH}/members/n1/drain")
        before = told(one)
        assert (before["etag"], before["paused"], before["draining"]) == ('"2"', True, True)
        count = len(one.get(f"{PATH}/history", params={"limit": "1000"}).json()["items"])
        ids = events_after(one, "0", count)
        second = ServerProcess(tmp_path, "--name", "s2")
        with servers(second), second.client() as two:
            second.ready()
            assert told(two) == before, "it answers as the first one does, though it leads nothing"
            assert events_after(two, ids[3], count - 4) == ids[4:], "a stream goes on at another server"
        assert first.end() == 0
    again = ServerProcess(tmp_path, "--name", "s1")
    with servers(again), again.client() as client:
        again.ready()
        assert told(client) == before
        assert events_after(client, ids[3], count - 4) == ids[4:], "and after a restart"


def told(client: httpx2.Client) -> dict[str, object]:
    summary, read = client.get(f"{PATH}/summary").json(), client.get(PATH)
    draining = client.get(f"{PATH}/members").json()["items"][0]["draining"]
    return {
        "etag": read.headers["etag"],
        "paused": summary["paused"],
        "draining": draining,
        "spec": read.json()["spec"],
    }
