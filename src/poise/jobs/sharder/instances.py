"""The instances of a ring by their Leases, timed by this process's own clock. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from poise.hold.ring_leases import TOKENS_MAX, read_lease
from poise.jobs.sharder.orders import Orders
from poise.jobs.sharder.report import InstanceSeen
from poise.kube import Lease
from poise.model.sharding import (
    LABEL_MAX,
    TOKENS_LABEL,
    LeaseFact,
    LeaseWrite,
    Standing,
    is_older,
    is_process_of,
)
from poise.observe.brake import is_braked
from poise.observe.leases import (
    LeaseTerms,
    WatchedLease,
    doubt_hold,
    judge,
    next_lease_write,
    next_look_s,
    standing,
    vanished_together,
    watch_lease,
    wrote_lease,
)


class Instances:
    """What is known of every instance that has a Lease, or that labels of objects name.

    `leaving` are those of whose Lease the own hold is just being ended: nothing is moved by it any more.
    """

    def __init__(self, terms: LeaseTerms) -> None:
        """Begin with no Lease seen."""
        self.terms = terms
        self.watched: dict[str, WatchedLease] = {}
        self.standings: dict[str, Standing] = {}
        self.leases: dict[str, Lease] = {}
        self.leaving: set[str] = set()
        self.notes: dict[str, str] = {}
        self.vanished: tuple[str, ...] = ()
        self.orders = Orders()
        self.released_s = float("-inf")
        self.next_s = float("-inf")

    def see(self, lease: Lease, now_s: float) -> None:
        """Take a Lease as a watch shows it."""
        name, fact = lease.metadata.name, read_lease(lease)
        if len(name) > LABEL_MAX:
            return
        self._keep(watch_lease(self.watched.get(name), name, fact, self.terms, now_s), lease, now_s)

    def miss(self, gone: Lease, now_s: float) -> None:
        """Take the news that a Lease is gone, unless another of its name is known already."""
        name = gone.metadata.name
        known = self.watched.get(name)
        if known is not None and known.fact is not None and known.fact.uid == gone.metadata.uid:
            self._keep(watch_lease(known, name, None, self.terms, now_s), None, now_s)

    def wrote(self, sent: WatchedLease, answer: Lease | None, sent_at_s: float, now_s: float) -> None:
        """Take the answer to an own write, unless a watch has shown meanwhile what came after it."""
        known = self.watched.get(sent.name)
        fact = None if answer is None else read_lease(answer)
        if known is None or (known is not sent and _came_later(known, fact)):
            return
        self._keep(wrote_lease(known, fact, sent_at_s, self.terms), answer, now_s)

    def doubt(self, name: str, now_s: float) -> None:
        """Take the news that an own write failed: whether the Lease is still held is not known."""
        known = self.watched.get(name)
        if known is not None and known.held_from_s is not None:
            self._keep(doubt_hold(known), self.leases.get(name), now_s)
            self.next_s = now_s

    def _keep(self, watched: WatchedLease, lease: Lease | None, now_s: float) -> None:
        if watched is self.watched.get(watched.name):
            return
        self.watched[watched.name] = watched
        self.notes.pop(watched.name, None)
        if lease is None:
            self.leases.pop(watched.name, None)
        else:
            self.leases[watched.name] = lease
        look_s = next_look_s(watched, self.terms, now_s)
        if look_s is not None:
            self.next_s = min(self.next_s, look_s)

    def said(self, name: str) -> tuple[str, str, int | None] | None:
        """Give what a Lease says apart from being renewed."""
        known = self.watched.get(name)
        fact = None if known is None else known.fact
        return None if fact is None else (fact.uid, fact.holder, fact.tokens)

    def is_current(self, name: str, now_s: float) -> bool:
        """Say whether an instance still stands as it was last judged."""
        return self.standings.get(name) is standing(self.watched.get(name), self.terms, now_s)

    def judge_all(self, named: Collection[str], percent: int, now_s: float) -> dict[str, Standing | None]:
        """Judge every instance and the brake now; gives those who stand otherwise, with how they stood before."""
        for name in named:
            if name not in self.watched:
                self.watched[name] = watch_lease(None, name, None, self.terms, now_s)
        for name in [name for name, each in self.watched.items() if each.fact is None and name not in named]:
            del self.watched[name]
        before = self.standings
        self.standings = {name: standing(each, self.terms, now_s) for name, each in self.watched.items()}
        gone = vanished_together(self.watched.values(), named, self.terms, now_s, self.released_s)
        self.vanished = tuple(sorted(gone)) if is_braked(len(gone), len(named), percent) else ()
        looks = (next_look_s(each, self.terms, now_s) for each in self.watched.values())
        self.next_s = min((look_s for look_s in looks if look_s is not None), default=float("inf"))
        return {
            name: before.get(name)
            for name in before.keys() | self.standings.keys()
            if before.get(name) is not self.standings.get(name)
        }

    @property
    def braked(self) -> bool:
        """Say whether the brake holds."""
        return bool(self.vanished)

    def next_write(self, name: str, now_s: float, *, work: bool, named: bool) -> LeaseWrite | None:
        """Decide the next write of one Lease."""
        watched = self.watched.get(name)
        if watched is None:
            return None
        return next_lease_write(watched, self.terms, now_s, work=work, named=named, braked=self.braked)

    def tokens(self, usual: int) -> dict[str, int]:
        """Give the tokens of the members, without those who are drained: they hold nothing in the end."""
        return {name: count for name, count in self.members(usual).items() if name not in self.orders.drained}

    def members(self, usual: int) -> dict[str, int]:
        """Give the tokens of who is ready, and of who is late and keeps its place in case it returns.

        Whoever is late because it has no Lease, or because a stranger holds that, has no place: keys would wait for it.
        """
        counts: dict[str, int] = {}
        for name, stands in self.standings.items():
            fact = self.watched[name].fact
            own = fact is not None and (not fact.holder or is_process_of(fact.holder, name))
            if stands in (Standing.READY, Standing.LATE) and own:
                counts[name] = usual if fact is None or fact.tokens is None else fact.tokens
        return counts

    def shown(self, usual: int, objects: Mapping[str, Collection[str]], now_s: float) -> tuple[InstanceSeen, ...]:
        """Tell of every instance."""
        return tuple(
            InstanceSeen(
                name=name,
                state=judge(each, self.terms, now_s),
                tokens=usual if each.fact is None or each.fact.tokens is None else each.fact.tokens,
                objects=len(objects.get(name, ())),
                note=self.notes.get(name) or _oddity(each, self.leases.get(name), self.terms),
                drained=name in self.orders.drained,
            )
            for name, each in sorted(self.watched.items())
        )


def _came_later(known: WatchedLease, answer: LeaseFact | None) -> bool:
    """Say whether what a watch showed meanwhile is newer than the answer to an own write."""
    if known.fact is None or answer is None or known.fact.uid != answer.uid:
        return True
    return known.fact.version != answer.version and not is_older(known.fact.version, answer.version)


def _oddity(watched: WatchedLease, lease: Lease | None, terms: LeaseTerms) -> str:
    """Say what is odd about a Lease; nothing where it is as it should be."""
    fact = watched.fact
    if fact is None or lease is None:
        return "objects name it, and it has no Lease"
    if fact.holder and fact.holder != terms.me and not is_process_of(fact.holder, fact.name):
        return f"its Lease is held by {fact.holder[:100]!r}, which is no process of it"
    if fact.holder and fact.duration_s <= 0:
        return "its Lease says no duration"
    said = lease.metadata.labels.get(TOKENS_LABEL)
    if said is not None and fact.tokens is None:
        return f"its label {TOKENS_LABEL} is no number from 1 to {TOKENS_MAX}: {said!r}"
    return ""
