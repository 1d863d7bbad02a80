"""Nothing a client sends can stop a job loop, or the others' requests."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from tests.serve.live_server import ORDERS, LiveServer
from tests.serve.talking_member import TalkingMember, settle

from poise.serve.settings import ServeSettings

_SECONDS = 4.0


def slow(server: LiveServer) -> None:
    """Open a connection and hardly use it."""
    with server.raw() as connection:
        connection.sendall(b"PUT /v1/jobs/ShardRing/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999")
        time.sleep(0.5)


def rubbish(server: LiveServer) -> None:
    with server.raw() as connection:
        connection.sendall(bytes(range(256)) * 50)


def torn(server: LiveServer) -> None:
    """Ask, and go away before the answer."""
    with server.raw() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(b"GET /v1/jobs/PartitionSet/orders/plan HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)


def deaf(server: LiveServer) -> None:
    with server.raw() as connection:
        connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 0\r\n\r\n")
        time.sleep(0.3)


def large(server: LiveServer) -> None:
    with server.client() as client:
        body = b'{"kind": "ShardRing", "kind": "ShardRing", "x": [' + b"0," * 500_000 + b"0]}"
        client.put("/v1/jobs/ShardRing/a", content=body, headers={"Content-Type": "application/json"})


def lies(server: LiveServer) -> None:
    """Heartbeats of a member that says what cannot be."""
    with server.client() as client:
        path = "/v1/sets/orders/members/liar"
        known = client.post(path, json={"process": "p"}).json()
        strange = [
            {"item": "x" * 1000, "epoch": 2**63 - 1, "state": "held"},
            {"item": "0", "epoch": 2**62, "state": "released"},
        ]
        for seq, holds in ((1, strange), (2**62, []), (3, [{"item": "0", "epoch": 0, "state": "releasing"}])):
            client.put(path, json={"incarnation": known.get("incarnation", 0), "seq": seq, "holds": holds, "weight": 0})


def storm(server: LiveServer, attack: Callable[[LiveServer], None], ended: threading.Event) -> None:
    while not ended.is_set():
        with contextlib.suppress(OSError, Exception):
            attack(server)
        ended.wait(0.02)


@pytest.mark.slow
def test_nothing_that_a_client_sends_stops_a_job_loop() -> None:
    with LiveServer(ServeSettings(request_s=2.0)) as server, server.client() as client:
        server.put({**ORDERS, "spec": {"partitions": 4, "leaseSeconds": 2, "graceSeconds": 1}}, client)
        ended = threading.Event()
        cycles: list[float] = []

        def loop() -> None:
            while not ended.is_set():
                server.cycle()
                cycles.append(time.monotonic())
                ended.wait(0.01)

        attacks = (slow, slow, rubbish, torn, deaf, large, lies)
        threads = [threading.Thread(target=storm, args=(server, attack, ended)) for attack in attacks]
        threads.append(threading.Thread(target=loop))
        for thread in threads:
            thread.start()
        lived = set()
        for _ in range(20):
            lived.add(client.get("/livez").status_code)
            time.sleep(_SECONDS / 20)
        ended.set()
        for thread in threads:
            thread.join(30)
        gaps = [after - before for before, after in pairwise(cycles)]
        assert len(cycles) > 50
        assert max(gaps) < 2.0
        assert lived == {200}
        member = TalkingMember(client, "n1")
        end_s = time.monotonic() + 15
        while len(member.reply.granted) < 4 and time.monotonic() < end_s:
            settle(server, member, rounds=1)
            time.sleep(0.2)
        assert len(member.reply.granted) == 4, "the set is served as before"
