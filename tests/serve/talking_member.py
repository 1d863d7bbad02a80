"""A member that speaks over HTTP as the contract says."""

from __future__ import annotations

from uuid import uuid4

import httpx2
import msgspec
from tests.serve.live_server import LiveServer

from poise.model.ownership import Reply


class TalkingMember:
    """Registers, and says what it holds; honest, and done with everything at once."""

    def __init__(self, client: httpx2.Client, name: str, set_name: str = "orders") -> None:
        self.path = f"/v1/sets/{set_name}/members/{name}"
        self.client, self.seq = client, 0
        self.process = str(uuid4())
        response = client.post(self.path, json={"process": self.process})
        assert response.status_code == 200, response.text
        self.incarnation: int = response.json()["incarnation"]
        self.reply = Reply(self.incarnation, 0)

    def say(self, **said: object) -> httpx2.Response:
        """Send one heartbeat, whatever is in it."""
        self.seq += 1
        body = {"incarnation": self.incarnation, "seq": self.seq, "weight": 1, "holds": [], "leaving": None, **said}
        return self.client.put(self.path, json=body)

    def beat(self) -> Reply:
        """Say honestly what it holds, and that it lets go of what it must."""
        holds = [{"item": one.item, "epoch": one.epoch, "state": "held"} for one in self.reply.granted]
        holds += [{"item": one.item, "epoch": one.epoch, "state": "released"} for one in self.reply.release]
        response = self.say(holds=holds)
        assert response.status_code == 200, response.text
        self.reply = msgspec.json.decode(response.content, type=Reply)
        return self.reply


def settle(server: LiveServer, *members: TalkingMember, rounds: int = 6) -> None:
    """Let the coordinator and the members speak until everything is where it should be."""
    for _ in range(rounds):
        server.cycle()
        for member in members:
            member.beat()
