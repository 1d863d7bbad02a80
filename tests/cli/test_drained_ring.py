"""A ring of a server with a drained instance: the command line plans and explains with it, now and at other times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.serve.live_server import LiveServer
from tests.serve.talking_member import TalkingMember

from poise.cli.main import CHANGES, OK, USAGE, run

WEB = {
    "kind": "ShardRing",
    "metadata": {"name": "web"},
    "spec": {"policy": "balanced", "leaseSeconds": 600, "objects": list("abcdef")},
}
LATER = ("--at", "2026-01-01T00:00:00Z")


@pytest.fixture
def live() -> Iterator[LiveServer]:
    """Serve a ring of three instances, of which one has been drained and is empty."""
    with LiveServer() as made, made.client() as client:
        made.put(WEB, client)
        members = [TalkingMember(client, name, "web") for name in ("w1", "w2", "w3")]
        client.post("/v1/jobs/ShardRing/web/members/w2/drain", json={})
        for _ in range(8):
            made.cycle("web")
            for member in members:
                member.beat()
        yield made


@pytest.mark.parametrize("at", [(), LATER])
def test_a_drained_instance_stays_empty_in_the_plan(
    live: LiveServer, at: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    server = ("--server", live.url, *at)
    assert run(["plan", "web", "--detailed-exitcode", *server]) == OK, "nothing is planned onto it"
    assert run(["plan", "web", "--undrain", "w2", "--detailed-exitcode", *server]) == CHANGES
    assert "-> w2" in capsys.readouterr().out
    assert run(["explain", "web", "a", *server]) == 0
    assert "w1 holds 3 of its share 3" in capsys.readouterr().out, "two share six"
    assert run(["explain", "web", "a", "--undrain", "w2", *server]) == 0
    assert "w1 over its share (3 of 2)" in capsys.readouterr().out, "three share six"
    assert run(["plan", "web", "--undrain", "w1", *server]) == USAGE
    assert "$.undrain['w1']: w1 is in service already" in capsys.readouterr().err
