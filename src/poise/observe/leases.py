"""A lease seen at a time: ready, expired, uncertain, dead or orphaned.

Every lease is timed by the observer's own clock, from the moment it saw the lease change: clock skew between machines
changes nothing. Let D be the lease's duration. Nothing moves before 2·D, and then only after the lease was acquired.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum

import msgspec

from poise.model.sharding import LeaseFact, LeaseWrite, Standing, is_older, is_process_of

ORPHANED_AFTER = 10


class Health(StrEnum):
    """What an observer may conclude about the holder of a lease."""

    READY = "ready"
    EXPIRED = "expired"
    UNCERTAIN = "uncertain"
    DEAD = "dead"
    ORPHANED = "orphaned"


class SeenLease(msgspec.Struct, frozen=True):
    """One lease as its observer knows it: when it last changed in the observer's eyes, and who has it now.

    `acquired` means that this observer itself holds it, which proves that the store answers and the holder is fenced.
    """

    seen_at_s: float
    duration_s: float
    vanished: bool = False
    acquired: bool = False


def health(lease: SeenLease, now_s: float) -> Health:
    """Judge one lease at one instant, by the observer's own clock."""

    def silent(durations: int) -> bool:
        # The very sums that `next_change_s` gives: a difference would be rounded in another way.
        return now_s >= lease.seen_at_s + durations * lease.duration_s

    if lease.acquired:
        return Health.ORPHANED if silent(ORPHANED_AFTER) else Health.DEAD
    if silent(2):
        return Health.UNCERTAIN
    return Health.EXPIRED if lease.vanished or silent(1) else Health.READY


def next_change_s(lease: SeenLease, now_s: float) -> float | None:
    """Give the next instant at which the judgement changes if nothing is heard; None where none does."""
    steps = (ORPHANED_AFTER,) if lease.acquired else (2,) if lease.vanished else (1, 2)
    changes = (lease.seen_at_s + step * lease.duration_s for step in steps)
    return next((change_s for change_s in changes if change_s > now_s), None)


class LeaseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a sharder goes by: who it is, D of the ring, and how much sooner than its hold ends it stops moving.

    The margin covers the longest request: what was sent inside the hold has also arrived inside it.
    """

    me: str
    duration_s: float
    margin_s: float
    restart_grace_s: float = 0.0

    @property
    def hold_s(self) -> float:
        """How long a sharder holds the Lease of a dead instance."""
        return 2 * self.duration_s


class WatchedLease(msgspec.Struct, frozen=True, kw_only=True):
    """What one sharder process remembers of one Lease, all by its own clock; `fact` is None while there is no Lease.

    `seen_at_s`: when it last changed in its eyes (at its first sight it counts as changed: a full D is granted).
    `alive_at_s`: the same, but no write of a sharder counts. `held_from_s`: when the last write by which this process
    surely holds the Lease was sent. `left`: what its instance said as it left, also after the Lease itself is gone.
    `said_s`: D by the last Lease that a process of its instance wrote, which may still go by it after that is gone.
    """

    name: str
    seen_at_s: float
    alive_at_s: float
    fact: LeaseFact | None = None
    held_from_s: float | None = None
    left: str = ""
    said_s: float = 0.0


def watch_lease(
    known: WatchedLease | None, name: str, fact: LeaseFact | None, terms: LeaseTerms, now_s: float
) -> WatchedLease:
    """Take what a watch shows. Any change starts the waiting again, and so does a Lease that vanishes or returns."""
    if known is None:
        return WatchedLease(
            name=name, seen_at_s=now_s, alive_at_s=now_s, fact=fact, left=_left(fact), said_s=_said_s(fact)
        )
    if _same(known.fact, fact) or _lags(known.fact, fact):
        return known
    alive_at_s = now_s if fact is not None and _is_sign_of_life(fact) else known.alive_at_s
    # The own hold is known from the answer to the own write. A watch that shows it again, or for the first time because
    # the answer was lost, does not say when that write was sent: then the hold is renewed before anything moves.
    kept = known.held_from_s if fact is not None and _is_mine(known.fact, terms) and _is_mine(fact, terms) else None
    left = known.left if fact is None else _left(fact)
    said_s = _said_s(fact) or known.said_s
    return msgspec.structs.replace(
        known, seen_at_s=now_s, alive_at_s=alive_at_s, fact=fact, held_from_s=kept, left=left, said_s=said_s
    )


def wrote_lease(known: WatchedLease, fact: LeaseFact | None, sent_at_s: float, terms: LeaseTerms) -> WatchedLease:
    """Take the answer to an own write: what the Lease is now (None: deleted), and since when it is surely held."""
    held_from_s = sent_at_s if fact is not None and _is_mine(fact, terms) else None
    left = "" if fact is None else _left(fact)
    return msgspec.structs.replace(known, fact=fact, seen_at_s=sent_at_s, held_from_s=held_from_s, left=left)


def doubt_hold(known: WatchedLease) -> WatchedLease:
    """Take the news that an own write failed, or that its end is not known: the hold is renewed before it is used."""
    return msgspec.structs.replace(known, held_from_s=None)


def _same(known: LeaseFact | None, fact: LeaseFact | None) -> bool:
    if known is None or fact is None:
        return known is fact
    return (known.uid, known.version) == (fact.uid, fact.version)


def _lags(known: LeaseFact | None, fact: LeaseFact | None) -> bool:
    """Say whether a watch shows what an own write has replaced."""
    return known is not None and fact is not None and known.uid == fact.uid and is_older(fact.version, known.version)


def _is_mine(fact: LeaseFact | None, terms: LeaseTerms) -> bool:
    return fact is not None and fact.holder == terms.me


def _is_sign_of_life(fact: LeaseFact) -> bool:
    """Say whether its instance wrote it: it renewed, or said that it leaves."""
    return is_process_of(fact.holder, fact.name) or bool(not fact.holder and fact.released)


def _waiting_s(watched: WatchedLease, terms: LeaseTerms) -> float:
    """Give D of whoever may still act by it: what the Lease says, where that makes sense.

    Of one that is gone, or that a stranger holds, no less than its instance said: that may not have noticed yet.
    """
    fact = watched.fact
    if fact is None:
        return max(watched.said_s, terms.duration_s)
    said_s = fact.duration_s if is_process_of(fact.holder, watched.name) else max(fact.duration_s, watched.said_s)
    return said_s if said_s > 0 else terms.duration_s


def _said_s(fact: LeaseFact | None) -> float:
    """Give D as a process of the instance wrote it."""
    return fact.duration_s if fact is not None and is_process_of(fact.holder, fact.name) else 0.0


def _held_s(watched: WatchedLease, terms: LeaseTerms) -> float:
    """Give how long the own hold lasts: by what the Lease says, since its instance waits so long and no longer."""
    return terms.hold_s if watched.fact is None else min(terms.hold_s, watched.fact.duration_s)


def judge(watched: WatchedLease, terms: LeaseTerms, now_s: float) -> Health:
    """Judge one Lease by the table. Whoever holds it and is no process of its instance never makes it ready."""
    fact = watched.fact
    if _is_mine(fact, terms):
        return Health.DEAD
    if fact is not None and not fact.holder:
        if _in_grace(watched, fact, terms, now_s):
            return Health.EXPIRED
        orphaned_s = watched.alive_at_s + ORPHANED_AFTER * terms.duration_s
        return Health.ORPHANED if now_s >= orphaned_s else Health.DEAD
    if fact is None and now_s < _grace_s(watched, terms):
        return Health.EXPIRED
    absent = fact is None or not is_process_of(fact.holder, watched.name)
    return health(SeenLease(watched.seen_at_s, _waiting_s(watched, terms), vanished=absent), now_s)


def _in_grace(watched: WatchedLease, fact: LeaseFact, terms: LeaseTerms, now_s: float) -> bool:
    """Say whether an instance that restarts still keeps its objects."""
    return fact.released == "restart" and now_s < watched.seen_at_s + terms.restart_grace_s


def _grace_s(watched: WatchedLease, terms: LeaseTerms) -> float:
    """Give until when an instance keeps its objects whose Lease vanished after it was released for a restart."""
    return watched.alive_at_s + terms.restart_grace_s if watched.left == "restart" else watched.alive_at_s


def may_move(watched: WatchedLease, terms: LeaseTerms, now_s: float) -> bool:
    """Say whether objects of a dead instance may be moved by a request that is sent now: law sent + hold - margin."""
    if watched.held_from_s is None or not _is_mine(watched.fact, terms):
        return False
    return now_s < watched.held_from_s + _held_s(watched, terms) - terms.margin_s


def standing(watched: WatchedLease | None, terms: LeaseTerms, now_s: float) -> Standing:
    """Say what may be done with the objects of an instance; one whose Lease was never looked for is late."""
    if watched is None:
        return Standing.LATE
    if may_move(watched, terms, now_s):
        return Standing.HELD
    state = judge(watched, terms, now_s)
    if state is Health.READY:
        return Standing.READY
    return Standing.LATE if state is Health.EXPIRED else Standing.LOST


def next_lease_write(
    watched: WatchedLease, terms: LeaseTerms, now_s: float, *, work: bool, named: bool, braked: bool = False
) -> LeaseWrite | None:
    """Decide the next write of a Lease that its holder can no longer renew; None where there is nothing to do.

    `work`: holding it would let something be written. `named`: objects carry its name. Order: hold, move, empty; what
    nobody needs is deleted at 10·D. Under the brake nothing is acquired or deleted.
    """
    state = judge(watched, terms, now_s)
    fact = watched.fact
    if _is_mine(fact, terms):
        return _own_hold(watched, terms, now_s, work and not braked)
    if braked or state in (Health.READY, Health.EXPIRED):
        return None
    if fact is None:
        return _hold(watched, terms) if named else None
    if fact.holder or work:
        return _hold(watched, terms)
    if state is Health.ORPHANED and not named:
        return LeaseWrite("delete", watched.name, fact.version, fact.uid)
    return None


def _hold(watched: WatchedLease, terms: LeaseTerms) -> LeaseWrite:
    """Acquire over the version that was seen when the wait began: a holder that renewed since makes this fail."""
    version, uid = (None, None) if watched.fact is None else (watched.fact.version, watched.fact.uid)
    return LeaseWrite("hold", watched.name, version, uid, terms.me, terms.hold_s, left=watched.left)


def _left(fact: LeaseFact | None) -> str:
    """Give what the instance said as it left, as long as no process of it has come back."""
    return "" if fact is None or is_process_of(fact.holder, fact.name) else fact.released or fact.left


def _own_hold(watched: WatchedLease, terms: LeaseTerms, now_s: float, work: bool) -> LeaseWrite | None:
    """Renew at half time while there is work, empty the holder when there is none; both over the version seen."""
    assert watched.fact is not None, "what is held is there"
    if not work:
        version, uid = watched.fact.version, watched.fact.uid
        return LeaseWrite("empty", watched.name, version, uid, duration_s=terms.duration_s, left=watched.left)
    if watched.held_from_s is None or now_s >= watched.held_from_s + _held_s(watched, terms) / 2:
        return _hold(watched, terms)
    return None


def next_look_s(watched: WatchedLease, terms: LeaseTerms, now_s: float) -> float | None:
    """Give the next instant at which a judgement or a decision on this Lease may change if nothing is heard."""
    waiting_s, fact = _waiting_s(watched, terms), watched.fact
    instants = [watched.alive_at_s + ORPHANED_AFTER * terms.duration_s]
    if fact is None or (fact.holder and not _is_mine(fact, terms)):
        instants = [watched.seen_at_s + waiting_s, watched.seen_at_s + 2 * waiting_s, _grace_s(watched, terms)]
    elif fact.released == "restart" and not fact.holder:
        instants.append(watched.seen_at_s + terms.restart_grace_s)
    if watched.held_from_s is not None:
        held_s = _held_s(watched, terms)
        instants += [watched.held_from_s + held_s / 2, watched.held_from_s + held_s - terms.margin_s]
    return min((instant for instant in instants if instant > now_s), default=None)


def vanished_together(
    leases: Iterable[WatchedLease],
    named: Collection[str],
    terms: LeaseTerms,
    now_s: float,
    released_s: float = float("-inf"),
) -> list[str]:
    """Find the most instances named by labels that vanished within 2·D without a release; for the brake.

    Those that vanished before an operator released the brake do not count.
    """
    gone = sorted((at_s, lease.name) for lease in leases for at_s in _vanished_at_s(lease, named, terms, now_s))
    return _most_within([each for each in gone if released_s < each[0] <= now_s], 2 * terms.duration_s)


def _vanished_at_s(lease: WatchedLease, named: Collection[str], terms: LeaseTerms, now_s: float) -> Iterator[float]:
    """Give when a Lease ended that its instance did not release: D after its last renewal, or as it vanished."""
    fact = lease.fact
    if lease.name not in named or judge(lease, terms, now_s) is Health.READY:
        return
    if fact is None:
        if not lease.left:
            yield lease.seen_at_s
    elif is_process_of(fact.holder, lease.name):
        yield lease.seen_at_s + _waiting_s(lease, terms)
    elif not (fact.released or fact.left):
        yield lease.alive_at_s + terms.duration_s


def _most_within(instants: list[tuple[float, str]], window_s: float) -> list[str]:
    """Find the most names whose instants, given in order, lie within one window."""
    most: list[tuple[float, str]] = []
    first = 0
    for last, (at_s, _) in enumerate(instants):
        while at_s - instants[first][0] > window_s:
            first += 1
        if last + 1 - first > len(most):
            most = instants[first : last + 1]
    return [name for _, name in most]
