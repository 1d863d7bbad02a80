"""A set or a ring on a store in memory, with members that run the real state machine on a clock of the test."""

from __future__ import annotations

from collections.abc import Iterable

from poise.hold.holding import Finish, Holding, Phase, Start, Stop, hear, speak, stopped
from poise.jobs.coordinator import Coordinator
from poise.model.ownership import Reply, SetRow, Terms
from poise.model.partition_set import PartitionGuards
from poise.move.executor import Snapshot, put_set, register_member, snapshot, take_heartbeat
from poise.move.verify import verify
from poise.stores.memory import MemoryStore

TERMS = Terms(lease_s=10, grace_s=2, release_s=30)
FREE = PartitionGuards(moves_in_flight_max=None, per_source_max=None, per_target_max=None)


class World:
    """A set on a store in memory, a clock that the test moves, members that work honestly, and one coordinator."""

    def __init__(self, count: int, *members: str, guards: PartitionGuards = FREE, terms: Terms = TERMS) -> None:
        self.now_s = 1000.0
        self.store = MemoryStore(lambda: self.now_s)
        self.coordinator = Coordinator(self.store, "leader-1")
        self.members: dict[str, Holding] = {}
        self.put(self.job(count, guards, terms))
        for name in members:
            self.join(name)

    def put(self, job: SetRow, keys: Iterable[str] | None = None) -> None:
        """Create or change the set."""
        self.store.transact("orders", lambda tx: put_set(tx, job, keys))

    @staticmethod
    def job(count: int, guards: PartitionGuards = FREE, terms: Terms = TERMS) -> SetRow:
        return SetRow(name="orders", count=count, terms=terms, guards=guards)

    def join(self, name: str, process: str = "first") -> None:
        row = self.store.transact("orders", lambda tx: register_member(tx, "orders", name, process))
        self.members[name] = Holding(process=process, incarnation=row.incarnation, margin_s=1)

    def beat(self, name: str) -> None:
        """Let a member speak and hear at once, start what it gains and stop what it loses."""
        holding, said = speak(self.members[name])
        answer = self.store.transact("orders", lambda tx: take_heartbeat(tx, "orders", name, said))
        assert isinstance(answer, Reply)
        holding, orders = hear(holding, answer, self.now_s, self.now_s)
        for order in orders:
            if isinstance(order, Finish | Stop):
                holding = stopped(holding, order.item, order.epoch)
            else:
                assert isinstance(order, Start)
        self.members[name] = holding

    def sound(self) -> bool:
        return verify(self.store.journal("orders", most=10_000)) is None

    def settle(self, rounds: int = 12, *, step_s: float = 1.0) -> None:
        for _ in range(rounds):
            self.coordinator.cycle("orders")
            for name in sorted(self.members):
                self.beat(name)
            self.now_s += step_s

    def kill(self, name: str) -> None:
        del self.members[name]

    def facts(self) -> Snapshot:
        return self.store.transact("orders", lambda tx: snapshot(tx, "orders"))

    def loads(self) -> dict[str | None, int]:
        loads: dict[str | None, int] = {}
        for row in self.facts().rows.values():
            loads[row.owner] = loads.get(row.owner, 0) + 1
        return loads

    def acting(self) -> dict[str, list[str]]:
        """List who acts on what, by the members' own account."""
        found: dict[str, list[str]] = {}
        for name, holding in self.members.items():
            for item, piece in holding.pieces.items():
                if piece.phase in (Phase.ACTING, Phase.FINISHING, Phase.STOPPING):
                    found.setdefault(item, []).append(name)
        return found
