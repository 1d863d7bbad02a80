"""What is to be written next on which family: only those that something touched are looked at again. Pure.

Every family is decided by `plan_pass`. What is remembered between two looks: whose Leases a family needs, and which
moves wait for room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from itertools import islice

from poise.decide.ring import Ring
from poise.jobs.sharder.homes import balanced_homes
from poise.jobs.sharder.instances import Instances
from poise.jobs.sharder.kin import Touched
from poise.jobs.sharder.view import View
from poise.model.shard_ring import ShardRingSpec
from poise.model.sharding import Standing, Step
from poise.move.sharding.decide import Outlook
from poise.move.sharding.families import Family, Relatives
from poise.move.sharding.passes import DrainClock, overdue, plan_pass

_GONE = (Standing.LOST, Standing.HELD)


class Deciding:
    """The decisions of one ring over one view of its objects."""

    def __init__(self, spec: ShardRingSpec, view: View, instances: Instances) -> None:
        """Begin with nothing decided."""
        self.spec, self.view, self.instances = spec, view, instances
        self.touched: dict[str, None] = {}
        self.delayed: dict[str, None] = {}
        self.withheld: set[str] = set()
        self.starting: set[str] = set()
        self.unplanned = True
        self.needs_changed = False
        self._due: dict[str, float] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._needs: dict[str, frozenset[str]] = {}
        self._needed: dict[str, int] = {}
        self._tokens: dict[str, int] = {}
        self._ring = Ring({})
        self._homes: dict[str, str | None] = {}

    def touch(self, touched: Touched) -> None:
        """Look at families again that changed; other keys, or other roots, are planned anew."""
        self.touched.update(dict.fromkeys(touched.roots))
        if touched.moved:
            self.unplanned = True

    def touch_all(self) -> None:
        """Look at every family again."""
        self.touched.update(dict.fromkeys(self.view.kin.roots()))

    def touch_named(self, names: Iterable[str]) -> None:
        """Look at the families again of which something is held by one of these."""
        for name in names:
            for uid in self.view.named.get(name, ()):
                root = self.view.kin.root_of(uid)
                if root is not None:
                    self.touched[root] = None

    def judged(self, changed: Mapping[str, Standing | None], braked: bool) -> None:
        """Take how instances stand now, given how those who changed stood before, and whether the brake did."""
        tokens = self.instances.tokens(self.spec.tokens)
        now = self.instances.standings
        only_gone = all(old in _GONE and now.get(name) in _GONE for name, old in changed.items())
        if tokens == self._tokens and braked == self.instances.braked and only_gone:
            self.touch_named(changed)
            return
        if tokens != self._tokens:
            self._tokens, self._ring = tokens, Ring(tokens)
        self.unplanned = True
        self.touch_all()

    def plan(self) -> None:
        """Plan the homes of all keys anew where the policy is balanced; the families that get another are touched."""
        self.unplanned = False
        if self.spec.policy != "balanced":
            return
        before, self._homes = self._homes, self._balanced()
        for uid in self.view.kin.roots():
            key = self.view.kin.objects[uid].key
            if before.get(key) != self._homes.get(key):
                self.touched[uid] = None

    def _balanced(self) -> dict[str, str | None]:
        return balanced_homes(self.view, self.instances.standings, self.instances.orders.drained)

    @property
    def in_flight(self) -> int:
        """Count the roots that are asked for, those included of which the request is being written."""
        return len(self.view.moving) + len(self.starting - self.view.moving)

    def make_room(self) -> None:
        """Look at moves again that waited for room, as many as there is room for."""
        most = self.spec.guards.moves_in_flight_max
        room = len(self.delayed) if most is None else most - self.in_flight
        for root in list(islice(self.delayed, max(room, 0))):
            del self.delayed[root]
            self.touched[root] = None

    def decide(self, root: str, now_s: float, drain_until: int) -> tuple[Step, ...]:
        """Decide on one family by what is seen now, and remember what it waits for."""
        self.touched.pop(root, None)
        self.delayed.pop(root, None)
        self.withheld.discard(root)
        if not self.view.kin.is_root(root):
            self._need(root, frozenset())
            return ()
        family = self.view.family(root)
        clocks = self._clocks(family)
        decided = plan_pass(
            Relatives((family,)),
            {root: self._wanted(family)},
            self._outlook(clocks, now_s, drain_until),
            clocks,
            moves_max=self.spec.guards.moves_in_flight_max,
            in_flight=self.in_flight,
        )
        self._need(root, decided.work)
        self._time(root, clocks, now_s)
        if decided.delayed:
            self.delayed[root] = None
        return decided.steps

    def _wanted(self, family: Family) -> str | None:
        """Give whom the planner chose, unless a pause lets the family stay; a hand-over that was begun goes on.

        A pause only changes who is wanted, and the protocol was explored with plans that change at any moment.
        """
        home, root, orders = self._home(family), family.root, self.instances.orders
        if not orders.paused or not root.selected:
            return home
        standings, shard, aim = self.instances.standings, root.marks.shard, root.marks.drain
        if shard is not None and standings.get(shard, Standing.LATE) not in _GONE:
            stays: str | None = aim if aim and aim not in orders.drained else shard
        else:
            stays = home if orders.paused == "moves" else None
        if stays != home and standings.get(home or "") is Standing.READY:
            self.withheld.add(root.uid)
        return stays

    def _home(self, family: Family) -> str | None:
        """Give whom the planner chose."""
        if not family.root.selected:
            return None
        if self.spec.policy == "balanced":
            self.unplanned = self.unplanned or family.root.key not in self._homes
            return self._homes.get(family.root.key)
        return self._ring.owner(family.root.key)

    def _clocks(self, family: Family) -> dict[str, DrainClock]:
        clocks = self.view.clocks
        return {uid: clocks[uid] for each in (family.root, *family.children) if (uid := each.uid) in clocks}

    def _outlook(self, clocks: Mapping[str, DrainClock], now_s: float, drain_until: int) -> Outlook:
        return Outlook(
            standings=self.instances.standings,
            drain_until=drain_until,
            overdue=overdue(clocks, self.spec.drain_timeout_seconds, now_s) if clocks else frozenset(),
            force=self.spec.on_drain_timeout == "force" and not self.instances.orders.paused,
            braked=self.instances.braked,
        )

    def _time(self, root: str, clocks: Mapping[str, DrainClock], now_s: float) -> None:
        """Remember when the next drain of a family is overdue."""
        ends = (clock.since_s + self.spec.drain_timeout_seconds for clock in clocks.values())
        due_s = min((end_s for end_s in ends if end_s > now_s), default=None)
        if due_s is not None and self._due.get(root) != due_s:
            self._due[root] = due_s
            heappush(self._deadlines, (due_s, root))

    @property
    def next_s(self) -> float:
        """Give when the next drain is overdue."""
        return self._deadlines[0][0] if self._deadlines else float("inf")

    def touch_overdue(self, now_s: float) -> None:
        """Look at the families again of which a drain has become overdue."""
        while self._deadlines and self._deadlines[0][0] <= now_s:
            due_s, root = heappop(self._deadlines)
            if self._due.get(root) == due_s:
                del self._due[root]
                self.touched[root] = None

    def _need(self, root: str, names: frozenset[str]) -> None:
        """Remember whose Leases a family needs."""
        before = self._needs.pop(root, frozenset())
        if names:
            self._needs[root] = names
        for name in names - before:
            self._needed[name] = self._needed.get(name, 0) + 1
            self.needs_changed = True
        for name in before - names:
            self._needed[name] -= 1
            if not self._needed[name]:
                del self._needed[name]
                self.needs_changed = True

    def works_for(self, name: str) -> bool:
        """Say whether holding the Lease of an instance would let something be written."""
        return name in self._needed
