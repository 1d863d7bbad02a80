"""The fair schedule: faults stop, who is gone starts again, everybody is heard, time passes. Does all settle?

Settled: every root is held by one process that may act on it, with its children at the same epoch (or, in a ring that
is removed, nobody holds anything), and neither the sharder nor a process has anything to write.
"""

from __future__ import annotations

from tests.model import sharding_party
from tests.model import sharding_sharder as chief
from tests.model.sharding_party import Process
from tests.model.sharding_server import Server, replace
from tests.model.sharding_sharder import Sharder
from tests.model.sharding_turns import later, moved
from tests.model.sharding_world import Done, Universe, World

from poise.hold.sharding import Verdict
from poise.model.sharding import Marks

ROUNDS_MAX = 40
STEPS_MAX = 80  # More than any party has to do between two ticks.


class FairSchedule:
    """Runs worlds on until they settle, and remembers how long each takes."""

    def __init__(self, universe: Universe) -> None:
        """Stand over a universe."""
        self._universe = universe
        self._rounds: dict[World, int] = {}
        self.longest = 0

    def judge(self, world: World) -> str:
        """Name the broken law if a world does not settle."""
        passed: list[World] = []
        current = self._calm(world)
        while current not in self._rounds:
            if len(passed) >= ROUNDS_MAX:
                return f"not settled after {ROUNDS_MAX} rounds of a fair schedule"
            passed.append(current)
            talked = self._talk(current)
            if talked is None:
                return f"a party writes without end: {STEPS_MAX} steps within a tick"
            if self.is_settled(talked):
                self._rounds[current] = 0
                break
            for who in range(len(talked.parties)):
                talked = later(self._universe, talked, who)
            current = self.revived(talked)
        least = self._rounds[current]
        for rounds, each in enumerate(reversed(passed)):
            self._rounds.setdefault(each, least + rounds)
        self.longest = max(self.longest, self._rounds[passed[0]] if passed else 0)
        return ""

    def _calm(self, world: World) -> World:
        """End the faults: nothing is under way that was forgotten, the paused look at their clocks, all can renew."""
        parties = tuple(self._universe.place(self._calmed(number)) for number in world.parties)
        return self.revived(World(world.server, parties, -1, (), ()))

    def _calmed(self, number: int) -> Process | Sharder:
        party = self._universe.parties.values[number]
        if not isinstance(party, Process):
            return party
        awake = replace(party, mode="", cut=False)
        return sharding_party.checked(awake, len(party.view)) if party.mode else awake

    def revived(self, world: World) -> World:
        """Start one process of every name that has none."""
        parties = [self._universe.parties.values[number] for number in world.parties]
        live = {each.name for each in parties if isinstance(each, Process) and each.state in ("waiting", "holding")}
        for who, each in enumerate(parties):
            if isinstance(each, Process) and each.name not in live:
                parties[who] = sharding_party.born(replace(each, life=each.life + 1), len(self._universe.scene.parents))
                live.add(each.name)
        return world._replace(parties=tuple(map(self._universe.place, parties)))

    def _talk(self, world: World) -> World | None:
        """Let everybody do what is to be done, in turn, until nobody has anything left."""
        for _ in range(STEPS_MAX):
            before = world
            for who in range(len(world.parties)):
                for _ in range(STEPS_MAX):
                    done = self.next_move(world, who)
                    if done is None:
                        break
                    world = moved(self._universe, world, who, done)
                else:
                    return None
            if world == before:
                return world
        return None

    def next_move(self, world: World, who: int) -> Done | None:
        """Choose what a party does next: whatever costs no fault, and begins no new reconcile."""
        moves = self._universe.moves(world.parties[who], world.server)
        return next(
            (done for done in moves if done.fault < 0 and not done.label.startswith(("begins", "writes late"))), None
        )

    def is_settled(self, world: World) -> bool:
        """Say whether everything is where it belongs, and nobody has anything to write."""
        server = self._universe.servers.values[world.server]
        parties = [self._universe.parties.values[number] for number in world.parties]
        processes = [each for each in parties if isinstance(each, Process)]
        for each in parties:
            if isinstance(each, Sharder):
                decided = chief.evaluate(each, server, self._universe.manner)
                places = range(len(each.leases))
                requests = [chief.lease_request(each, decided, place, self._universe.manner) for place in places]
                if decided.steps or any(requests):
                    return False
        return all(_is_placed(server, place, processes) for place in range(len(server.things)))


def _is_placed(server: Server, place: int, processes: list[Process]) -> bool:
    """Say whether one process, and no other, may act on an object; or nobody, where the ring is removed."""
    marks, root = server.things[place].marks, server.things[server.root(place)].marks
    if not server.selected:
        return marks.shard is None and marks.drain is None
    holders = [
        each for each in processes if each.state == "holding" and sharding_party.judged(each, place) is Verdict.ACT
    ]
    return len(holders) == 1 and marks == Marks(holders[0].name, root.epoch)
