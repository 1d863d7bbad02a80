"""A member of a set: it speaks, listens, calls and cancels; what to do is decided by the pure functions of `holding`.

Order for safety: lease before work, stop before saying so, fence before expiry. One event loop owns all state.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

from poise.clock import boot_s
from poise.describing import describe_types
from poise.errors import Conflict, NotHeld, Replaced, Unavailable, invalid
from poise.hold.changes import Gained, Lost, Stream
from poise.hold.ending import only, within
from poise.hold.guard import Guard
from poise.hold.holding import (
    Finish,
    Holding,
    Order,
    Phase,
    Start,
    Stop,
    busy,
    end,
    hear,
    leave,
    next_fence_s,
    overdue,
    speak,
    stopped,
    watch,
)
from poise.hold.http_link import HttpLink
from poise.hold.opening import open_link
from poise.hold.settings import BEATS_PER_LEASE, EXIT_AT, HUNG_AT, Settings, check_inequality, pace_of, read_settings
from poise.hold.works import Callback, Works
from poise.model.ownership import Reply, Terms
from poise.move.heartbeat import Stale, Superseded
from poise.stores.base import Store

TICK_S = 0.25  # The event loop's clock may stand still while the machine sleeps: look at the right one this often.
CALL_S = 0.25  # How long one look for calls may take; leaving waits for it.
CALL_PAUSE_S = 0.1  # Between two looks, however busy the store is.
CLOSE_S = 10.0  # How long a store may take to be left in peace.
HASTE = (1 - HUNG_AT) / 4  # The part of the room before the lease ends that each of three steps of leaving may take.
BACKOFF_S = 0.1  # The first pause after a store did not answer; it doubles up to half the period.

OnBeat = Callable[[dict[str, float]], None]
_log = logging.getLogger("poise.member")


class Member:
    """Holds items of a set while its block runs: `async with Member(url, set="orders", name="w1", …) as member:`."""

    def __init__(
        self,
        where: str | Store | HttpLink,
        *,
        set: str,  # noqa: A002  The word of the design; nothing here needs the built-in.
        name: str,
        on_gain: Callback | None = None,
        on_loss: Callback | None = None,
        margin_s: float | None = None,
        stop_s: float | None = None,
        write_s: float = 0.0,
        store_step_s: float = 0.0,
        weight: int = 1,
        on_exit: Literal["release", "keep"] = "release",
        on_hang: Literal["raise", "exit"] = "raise",
        on_beat: OnBeat | None = None,
        token: str | None = None,
        clock: Callable[[], float] = boot_s,
    ) -> None:
        """Prepare; nothing is asked before the block is entered.

        `where` is the address of a store or, with http:// or https://, of a server; there `token` says who this is.
        `on_gain` starts the work, or is the work; `on_loss` returns when it has stopped. Without both, read `changes`.
        `on_beat` is told after every heartbeat until when each item may be acted on. A margin and a time to stop that
        are not given are those of the set.
        """
        self._settings = read_settings(
            Settings(
                set=set,
                name=name,
                margin_s=margin_s,
                stop_s=stop_s,
                write_s=write_s,
                store_step_s=store_step_s,
                weight=weight,
                on_exit=on_exit,
                on_hang=on_hang,
            )
        )
        self._where, self._token, self._clock, self._on_beat = where, token, clock, on_beat
        self._stream = Stream() if on_gain is None and on_loss is None else None
        self._calls = (self._stream.gain, self._stream.lose) if self._stream else (on_gain, on_loss)
        self._process = where.process if isinstance(where, HttpLink) else uuid.uuid4().hex
        self._holding = Holding(process=self._process, incarnation=0, margin_s=0.0)
        self._terms = Terms()
        self._period_s = 0.0
        self._leaving: Literal["stop", "restart"] | None = None
        self._left = False  # Whether the store has heard that this member leaves.
        self._loops: list[asyncio.Task[None]] = []
        self._reported: frozenset[tuple[str, int]] = frozenset()

    # What the work may ask.

    @property
    def name(self) -> str:
        """The name of this member."""
        return self._settings.name

    @property
    def incarnation(self) -> int:
        """The number of this process among all that ever had this name."""
        return self._holding.incarnation

    @property
    def items(self) -> tuple[str, ...]:
        """Everything that may be acted on at this moment."""
        now_s = self._clock()
        return tuple(item for item in sorted(self._holding.pieces) if self._epoch(item, now_s) is not None)

    def epoch(self, item: str) -> int:
        """Give the epoch that side effects should carry; it is looked at again with the clock each time it is asked."""
        epoch = self._epoch(item, self._clock())
        if epoch is None:
            raise NotHeld(f"{self.name} may not act on {item!r} now")
        return epoch

    def _epoch(self, item: str, now_s: float) -> int | None:
        piece = self._holding.pieces.get(item)
        acting = piece is not None and piece.phase in (Phase.ACTING, Phase.FINISHING) and now_s < piece.until_s
        return piece.epoch if piece is not None and acting else None

    def changes(self) -> AsyncIterator[Gained | Lost]:
        """Give gains and losses one by one; acknowledge each loss when its work has stopped."""
        if self._stream is None:
            raise invalid("$.on_gain", "changes are for members without callbacks")
        return aiter(self._stream)

    # The life of a member.

    async def __aenter__(self) -> Self:
        """Register, and begin to speak."""
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wanted = self._settings
        self._link = await open_link(self._where, wanted.set, wanted.name, self._process, token=self._token)
        describe_types()
        try:
            registered = await self._link.register(lambda terms: check_inequality(terms, self._settings))
        except BaseException:
            await self._link.close(CLOSE_S)
            raise
        self._terms, self._period_s = registered.terms, registered.period_s
        self._pace = pace_of(self._settings, self._terms)
        self._works = Works(
            *self._calls,
            cancel_s=self._pace.cancel_s,
            hung_s=self._pace.hung_s,
            stopped=self._note_stopped,
            failed=self._fail,
        )
        self._holding = Holding(
            process=self._process,
            incarnation=registered.incarnation,
            margin_s=self._pace.margin_s,
            revoke=registered.terms.revoke,
        )
        self._guard = Guard(self._clock) if self._settings.on_hang == "exit" else None
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        loops = (self._speak_on, self._watch_on, self._listen_on)
        self._loops = [self._group.create_task(self._keep(loop)) for loop in loops]
        self._loops.append(self._group.create_task(self._await_failure()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all work, say so, and only then go."""
        try:
            if self._stream is not None:
                self._stream.close()
            await (self.drain() if not self._failure.done() else self._wind_up())
        except asyncio.CancelledError as cancelled:
            if not self._failure.done():
                self._end()
            kind, error, trace = type(cancelled), cancelled, cancelled.__traceback__
            await self._wind_up()
        finally:
            for loop in self._loops if not self._failure.done() else self._loops[:-1]:
                loop.cancel()  # The last one tells of a failure, which must not be lost.
            try:
                await self._group.__aexit__(kind, error, trace)
            except BaseExceptionGroup as errors:
                raise only(errors) from None
            finally:
                if self._guard is not None:
                    self._guard.close()
                await self._link.close(self._parting_s if self._works.hung else CLOSE_S)

    async def drain(self) -> None:
        """Let go of everything and take nothing new; returns when the store knows, or can no longer be asked.

        Work has the set's `release_s` to end in peace; then it is stopped.
        """
        if self._leaving is None:
            self._leaving = self._settings.leaving
            self._holding, orders = leave(self._holding, self._clock() + self._terms.release_s)
            self._carry_out(orders)
            self._wake.set()
        if await self._wait(lambda: not busy(self._holding), self._terms.release_s):
            await self._wait(lambda: self._left and not self._holding.pieces, self._terms.lease_s)
        elif not self._failure.done():
            self._end()
            await self._wind_up()

    async def _wind_up(self) -> None:
        """After a failure: see work end while there is time, and say once more what has stopped."""
        await self._wait(lambda: not busy(self._holding), self._parting_s)
        self._leaving = self._leaving or self._settings.leaving
        self._holding, said = speak(self._holding, weight=self._settings.weight, leaving=self._leaving)
        # Whether it was heard or not, there is nothing left to do about it.
        await within(self._link.beat(said), self._parting_s)

    @property
    def _parting_s(self) -> float:
        """Give how long each step of leaving may take: where work hangs, all of them end before the lease does."""
        return self._pace.room_s * (HASTE if self._works.hung else 1.0)

    # The loops.

    async def _speak_on(self) -> None:
        """Send a heartbeat every period, sooner when there is news, and after a failure with a growing pause."""
        failures = 0
        while True:
            sent_at_s = self._clock()
            if await self._beat(sent_at_s):
                failures = 0
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, sent_at_s + self._period_s - self._clock())):
                        await self._wake.wait()
            else:
                failures += 1
                pause_s = min(self._period_s / 2, BACKOFF_S * 2**failures)
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))

    async def _beat(self, sent_at_s: float) -> bool:
        """Send one heartbeat, and do what the answer says; its time counts from before it is sent."""
        self._wake.clear()
        leaving = self._leaving
        self._holding, said = speak(self._holding, weight=self._settings.weight, leaving=leaving)
        try:
            async with asyncio.timeout(self._terms.lease_s / 2):
                answer = await self._link.beat(said)
        except (Unavailable, Conflict, TimeoutError) as error:
            _log.warning("member.unheard member=%s seq=%d reason=%s", self.name, said.seq, str(error) or "timeout")
            return False
        match answer:
            case Reply():
                self._left = self._left or leaving is not None
                self._hear(answer, sent_at_s)
            case Superseded(incarnation):
                self._fail(Replaced(f"incarnation {incarnation} of {self.name} has registered; this is an older one"))
            case Stale(seq):
                _log.info("member.stale member=%s seq=%d newest=%d", self.name, said.seq, seq)
        return True

    def _hear(self, reply: Reply, sent_at_s: float) -> None:
        """Take a reply, and at once look at the clock: it may have taken longer than what it grants."""
        now_s = self._clock()
        before = self._holding.pieces
        self._holding, orders = hear(self._holding, reply, sent_at_s, now_s)
        if any(item not in before and piece.phase is Phase.STOPPED for item, piece in self._holding.pieces.items()):
            self._wake.set()  # It was asked back before it was ever begun: somebody waits for the word.
        self._holding, late = watch(self._holding, now_s)
        # The shortest lease that is acted on sets the pace: a set may have promised longer ones before.
        leases_s = [grant.lease_s for grant in reply.granted if self._epoch(grant.item, now_s) is not None]
        self._period_s = min(leases_s, default=self._terms.lease_s) / BEATS_PER_LEASE
        self._carry_out([*orders, *late])
        self._report(now_s)
        self._tell()

    async def _watch_on(self) -> None:
        """Fence itself, whether or not anybody answers."""
        while True:
            fence_s = next_fence_s(self._holding)
            left_s = TICK_S if fence_s is None else fence_s - self._clock()
            await asyncio.sleep(min(TICK_S, max(0.0, left_s)))
            self._holding, orders = watch(self._holding, self._clock())
            self._carry_out(orders)

    async def _listen_on(self) -> None:
        """Speak at once when something waits for this member: a grant, or a request to release."""
        while True:
            try:
                if await self._link.called(CALL_S):
                    self._wake.set()
                await asyncio.sleep(CALL_PAUSE_S)
            except (Unavailable, Conflict):
                await asyncio.sleep(self._period_s)  # The heartbeat finds out for itself.

    async def _keep(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop; should it fail, all work stops before anything else happens."""
        try:
            await loop()
        except Exception as error:
            self._fail(error)

    async def _await_failure(self) -> None:
        await self._failure

    # What happens to items.

    def _carry_out(self, orders: Iterable[Order]) -> None:
        """Do what was decided; a member that leaves starts nothing more."""
        for order in orders:
            _log.info("member.%s member=%s item=%s epoch=%d", _VERBS[type(order)], self.name, order.item, order.epoch)
            match order:
                case Start(item, epoch) if self._leaving is not None:
                    self._note_stopped(item, epoch)
                case Start(item, epoch):
                    self._works.start(item, epoch)
                case Finish(item, epoch):
                    self._works.stop(item, epoch)
                case Stop(item, epoch):
                    self._works.stop(item, epoch)
                    self._works.hurry(item)

    def _report(self, now_s: float) -> None:
        """Say once of work that it should have ended by now: under `wait` nothing else happens to it."""
        hanging = overdue(self._holding, now_s)
        for item, epoch in sorted(hanging - self._reported):
            _log.warning("member.overdue member=%s item=%s epoch=%d reason=hangs", self.name, item, epoch)
        self._reported = hanging

    def _note_stopped(self, item: str, epoch: int) -> None:
        """Work has ended: say so at once."""
        self._holding = stopped(self._holding, item, epoch)
        self._wake.set()
        self._tell()

    def _end(self) -> None:
        self._holding, orders = end(self._holding, self._clock())
        self._carry_out(orders)
        self._tell()

    def _fail(self, error: BaseException) -> None:
        """Stop everything now, and end the block with this error."""
        if self._failure.done():
            return
        _log.error("member.failed member=%s reason=%s", self.name, error)
        self._failure.set_exception(error)
        self._end()
        self._moved.set()

    def _tell(self) -> None:
        """Tell whoever waits for a change, and whoever guards the work, how long each item may be acted on."""
        self._moved.set()
        untils = {
            item: piece.until_s for item, piece in self._holding.pieces.items() if piece.phase is not Phase.STOPPED
        }
        if self._guard is not None:
            first_s = min(untils.values(), default=None)
            self._guard.limit_s = None if first_s is None else first_s + self._pace.room_s * EXIT_AT
        if self._on_beat is not None:
            self._on_beat(untils)

    async def _wait(self, met: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is so, and say whether it is. Every change is a reason to look, a failure one to end."""
        loop = asyncio.get_running_loop()
        last_s = loop.time() + timeout_s
        failed = self._failure.done()
        while not met() and loop.time() < last_s and failed == self._failure.done():
            self._moved.clear()
            await within(self._moved.wait(), last_s - loop.time())
        return met()


_VERBS: dict[type[Order], str] = {Start: "gained", Finish: "releasing", Stop: "lost"}

__all__ = ["Gained", "Lost", "Member"]
