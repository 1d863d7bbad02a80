"""A member for synchronous code: the asynchronous one runs in a thread, and callbacks run in threads of their own."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

from poise.errors import MemberEnded, invalid
from poise.hold.changes import Gained, Lost
from poise.hold.member import Member
from poise.hold.works import Callback as AsyncCallback
from poise.stores.base import Store

Callback = Callable[[str, int], None]
_LOOK_S = 0.02


class SyncMember:
    """Holds items of a set while its block runs: `with SyncMember(url, set="orders", name="w1", …) as member:`.

    A synchronous callback cannot be cancelled. One that hangs ends the member, and with `on_hang="exit"` the process.
    """

    def __init__(
        self,
        where: str | Store,
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
        token: str | None = None,
    ) -> None:
        """Prepare; nothing is asked before the block is entered. Without callbacks, read `changes`."""
        self._streams = on_gain is None and on_loss is None
        self._waiting: queue.SimpleQueue[Gained | Lost | None] = queue.SimpleQueue()
        self._left, self._abandoned = threading.Event(), threading.Event()
        gain, lose = (self._put_gain, self._put_loss) if self._streams else (on_gain, on_loss)
        self._member = Member(
            where,
            set=set,
            name=name,
            on_gain=_in_thread(gain, self._abandoned) if gain is not None else None,
            on_loss=_in_thread(lose, self._abandoned) if lose is not None else None,
            margin_s=margin_s,
            stop_s=stop_s,
            write_s=write_s,
            store_step_s=store_step_s,
            weight=weight,
            on_exit=on_exit,
            on_hang=on_hang,
            token=token,
        )
        self._ready, self._over = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"poise-{name}", daemon=True)

    @property
    def name(self) -> str:
        """The name of this member."""
        return self._member.name

    @property
    def incarnation(self) -> int:
        """The number of this process among all that ever had this name."""
        return self._member.incarnation

    @property
    def items(self) -> tuple[str, ...]:
        """Everything that may be acted on at this moment."""
        return self._member.items

    @property
    def ended(self) -> bool:
        """Say whether the member has ended, though its block has not: it failed, or was superseded."""
        return self._over.is_set()

    def epoch(self, item: str) -> int:
        """Give the epoch that side effects should carry."""
        return self._member.epoch(item)

    def changes(self) -> Iterator[Gained | Lost]:
        """Give gains and losses one by one; acknowledge each loss when its work has stopped."""
        if not self._streams:
            raise invalid("$.on_gain", "changes are for members without callbacks")
        return iter(self._waiting.get, None)

    def drain(self) -> None:
        """Let go of everything and take nothing new; returns when the store knows."""
        if self._over.is_set():
            raise MemberEnded(f"{self.name} has ended")
        asyncio.run_coroutine_threadsafe(self._member.drain(), self._loop).result()

    def __enter__(self) -> Self:
        """Register, and begin to speak."""
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all work, say so, and only then go; an error of the member comes out here."""
        del kind, trace
        self._left.set()
        if not self._over.is_set():
            self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()
        if self._error is not None:
            raise self._error from error

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # It is raised again where the block is left.
            self._error = error
        finally:
            self._over.set()
            self._ready.set()
            self._waiting.put(None)

    async def _live(self) -> None:
        self._loop, self._leave = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with self._member:
                self._ready.set()
                await self._leave.wait()
        finally:
            self._abandoned.set()  # Callbacks that still run are not waited for: that is what the error is about.

    def _put_gain(self, item: str, epoch: int) -> None:
        self._waiting.put(Gained(item, epoch))

    def _put_loss(self, item: str, epoch: int) -> None:
        """Hand a loss over, and wait until it is acknowledged; whoever has left the block works no more."""
        acknowledged = threading.Event()
        self._waiting.put(Lost(item, epoch, acknowledged.set))
        while not (acknowledged.wait(_LOOK_S) or self._left.is_set() or self._abandoned.is_set()):
            pass


def _in_thread(callback: Callback, abandoned: threading.Event) -> AsyncCallback:
    """Run a callback in a thread of its own, and wait for it whatever happens: only then has its work ended."""

    async def call(item: str, epoch: int) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def run() -> None:
            error: BaseException | None = None
            try:
                callback(item, epoch)
            except BaseException as raised:  # It is the member's to judge, in its own thread.
                error = raised
            with suppress(RuntimeError):  # Nobody waits any more.
                loop.call_soon_threadsafe(_settle, done, error)

        threading.Thread(target=run, name=f"poise-item-{item}", daemon=True).start()
        while not done.done():
            try:
                await asyncio.shield(done)
            except asyncio.CancelledError:
                if abandoned.is_set():
                    raise

    return call


def _settle(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
