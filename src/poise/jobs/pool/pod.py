"""One pod, driven by one task of its own: look, say what was proven, write what has changed, wait for what tears down.

Nobody waits for another pod. After a failure of any kind the pod is read back before anything is tried again, with
growing pauses that differ from pod to pod.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from math import inf

import msgspec

from poise import clock
from poise.errors import PoiseError
from poise.jobs.pool.delivery import Courier, Packet, PodFault
from poise.jobs.pool.former import Former, vacate
from poise.jobs.pool.loops import wait_for
from poise.jobs.pool.references import Unresolved
from poise.jobs.pool.settings import Pace
from poise.jobs.pool.speaking import Said
from poise.jobs.pool.steps import (
    Call,
    Memory,
    Rights,
    Sight,
    accept,
    forget,
    is_expelled,
    is_given_back,
    look,
    next_call,
    refuse,
    send,
    to_deliver,
    words,
)

_BACKOFF_S = 0.25
_WATCH_S, _WATCH_MAX_S = 0.05, 1.0
_SETTLE_S = 0.03  # Changes that come together are delivered together.
_SURE_S = 30.0
_NAMED_MAX = 3

_log = logging.getLogger("poise.pool")


class Links(msgspec.Struct, frozen=True):
    """What a pod needs of its engine: to read its rights, to speak, to be kept alive without a word, to make
    documents, to ask whether others take theirs, and to tell that it has changed.
    """

    read: Callable[[str], Awaitable[Rights]]
    speak: Callable[[str, Said], Awaitable[Rights]]
    renew: Callable[[str], Awaitable[None]]
    pack: Callable[[frozenset[str]], Packet]
    others_well: Callable[[str], bool]
    changed: Callable[[], None]


class Pod:
    """What is known of one pod, and the turns that bring it to where it should be."""

    def __init__(
        self,
        name: str,
        courier: Courier | None,
        links: Links,
        pace: Pace,
        *,
        memory: Memory | None = None,
        former: Former | None = None,
        now: Callable[[], float] = clock.boot_s,
    ) -> None:
        """Begin without having looked; `memory` is what an earlier engine has delivered, `former` where it was before.

        Without a courier it fetches: then there is nothing to do but to free where it was before.
        """
        self.name, self.pace, self.former = name, pace, former
        self.memory = memory or Memory()
        self._courier, self._links, self._now = courier, links, now
        self.rights = Rights()
        self.sight: Sight | None = None
        self.error, self.tried = "", False
        self.spoken_s: float | None = None
        self._look_at_s = self._sure_s = -inf
        self._watched_s: float | None = None
        self._told_s = 0.0
        self._failing_s: float | None = None
        self._failures = self._watches = 0
        self._sealed = ""
        self._shown: tuple[str, str, int, bool] | None = None
        self._woken = asyncio.Event()

    @property
    def digest(self) -> str:
        """Name what it has by all we know, for the next engine; nothing where credentials are part of it."""
        return self.memory.delivered.digest if self.memory.delivered is not None and not self._sealed else ""

    @property
    def is_well(self) -> bool:
        """Say whether it is alive and has taken its last document."""
        return self.rights.active and not self.error and self.memory.delivered is not None

    def repace(self, pace: Pace) -> None:
        """Take on the pace of a changed document."""
        self.pace = pace
        if self._courier is not None:
            self._courier.pace = pace

    def wake(self) -> None:
        """Something has changed for this pod."""
        self._woken.set()

    async def run(self) -> None:
        """Take turns until cancelled; a fault of Poise itself costs this pod a pause, and nobody else anything."""
        while True:
            try:
                wait_s = await self.turn()
            except Exception as error:
                _log.exception("pool.pod_broken pod=%s", self.name)
                wait_s = self._fail(f"a fault of Poise: {error!r}")
            self.tried = True
            if self._shown != (shown := self._to_show()):
                self._shown = shown
                self._links.changed()
            # Whoever is failing waits its time out; a change alone makes it no better.
            if self._failures:
                await asyncio.sleep(wait_s)
            else:
                await wait_for(self._woken, wait_s)
                await asyncio.sleep(_SETTLE_S)

    def _to_show(self) -> tuple[str, str, int, bool]:
        """Give what people see of it, by which its engine hears of a change."""
        return self.error, self.digest, len(self.sight.listed) if self.sight is not None else -1, self.former is None

    async def close(self) -> None:
        """Close the connections to the pod, at both of its addresses."""
        if self._courier is not None:
            await self._courier.close()
        if self.former is not None:
            await self.former.close()

    async def turn(self) -> float:
        """Do everything that can be done for the pod now; answer how long to wait for the next turn."""
        if self._woken.is_set():
            self._woken.clear()
            self._sure_s = -inf
        try:
            if self.former is not None and not await self._vacate(self.former):
                return _WATCH_MAX_S
            if self._courier is None:
                return inf
            if self.sight is None or self._now() >= self._look_at_s:
                await self._look(self._courier)
                self.tried = True
            else:
                self.rights, self._sure_s = await self._links.read(self.name), self._now()
            wait_s = await self._deliver(self._courier)
        except PodFault as fault:
            self.sight = None
            return self._fail(str(fault))
        except PoiseError as error:  # The store: the pod is well, as far as anybody knows.
            self.sight = None
            return self._fail(f"the store: {error}")
        self._failures, self._failing_s = 0, None
        self.error = self.sight.unhealthy if self.sight is not None and not self.error_stays else self.error
        return wait_s

    @property
    def error_stays(self) -> bool:
        """Say whether the last error still holds though the pod answers: it has not let go in time."""
        return self._watched_s is not None and self._now() - self._watched_s >= self.pace.teardown_s

    async def _look(self, courier: Courier) -> None:
        """Read back, and say what that proves where there is something to say or it is time to."""
        self.sight = await courier.look()
        now_s = self._now()
        self.memory = look(self.memory, self.sight, now_s)
        self._look_at_s = now_s + self.pace.look_s * random.uniform(0.8, 1.0)
        due = self.spoken_s is None or now_s - self.spoken_s >= self.pace.look_s / 2 or not self.rights.active
        news = bool(words(self.rights, self.sight, self.memory)) or self.memory.refused_s is not None
        if due or news:
            # Rights are read again when something was written about this pod, and from time to time in any case.
            sure = self._sure_s > now_s - _SURE_S and self.rights.active and not news
            known = self.rights if sure else None
            borne_s = self.pace.gone_after_s
            given_back = is_given_back(self.memory, now_s, borne_s) and self._links.others_well(self.name)
            expelled = is_expelled(self.memory, now_s, borne_s)
            said = Said(self.sight, self.memory, given_back, expelled, known)
            self.rights = await self._links.speak(self.name, said)
            self.spoken_s, self._sure_s = now_s, self._sure_s if sure else now_s

    async def _deliver(self, courier: Courier) -> float:
        """Write until the pod has what it should have; the same document is sent once in a turn, then it is a fault."""
        sent = ""
        while True:
            assert self.sight is not None, "every write is followed by a look"
            expelled = is_expelled(self.memory, self._now(), self.pace.gone_after_s)
            packet = self._links.pack(to_deliver(self.rights, self.sight, expelled=expelled))
            await self._check_seal(packet)
            call = next_call(self.rights, self.sight, self.memory, packet.content)
            if call is Call.WATCH:
                return self._watch(packet)
            if call is not Call.APPLY:
                self._watched_s, self._told_s, self._watches = None, 0.0, 0
                return max(0.0, self._look_at_s - self._now())
            if packet.content.digest == sent:
                raise PodFault(_differs(packet, self.sight), refused=True)
            await self._apply(courier, packet, self.sight)
            sent = packet.content.digest
            await self._look(courier)

    async def _check_seal(self, packet: Packet) -> None:
        """Deliver once more where a credential has changed since; what it is goes nowhere."""
        if not packet.references:
            return
        try:
            sealed = await asyncio.to_thread(packet.seal)
        except Unresolved as error:
            raise PodFault(str(error)) from None
        if sealed != self._sealed:
            self.memory, self._sealed = forget(self.memory), sealed

    async def _apply(self, courier: Courier, packet: Packet, sight: Sight) -> None:
        self.memory, self.sight = send(self.memory, packet.content, sight), None
        try:
            await courier.apply(packet)
        except PodFault as fault:
            if fault.refused:
                self.memory = refuse(self.memory, self._now() if fault.broken else None)
            raise
        self.memory = accept(self.memory)
        _log.info("config applied to pod  pod=%s  targets=%d", self.name, len(packet.content.shape))

    def _watch(self, packet: Packet) -> float:
        """Wait for streams to end, for a bounded time; then tell it once more, and report it until it has obeyed."""
        assert self.sight is not None, "only a pod that was seen is watched"
        now_s = self._now()
        self._watched_s = now_s if self._watched_s is None else self._watched_s
        self._watches += 1
        if self.error_stays:
            late = _few(sorted(self.sight.live - packet.content.shape.keys()))
            self.error = f"still collects {late} more than {self.pace.teardown_s:g} s after it was told to stop"
            if now_s - self._told_s >= self.pace.teardown_s:
                self.memory, self._told_s = forget(self.memory), now_s
        self._look_at_s = -inf
        return min(_WATCH_MAX_S, _WATCH_S * 2.0 ** min(self._watches, 10))

    async def _vacate(self, former: Former) -> bool:
        """Free where the pod was before its new place gets anything; silence is borne as long as any pod's."""
        try:
            free = await vacate(former)
            self._failing_s, self.error = None, "" if free else "its former place still collects"
            await self._links.renew(self.name)  # It answers: it is there, and what is its own stays so.
        except PodFault as fault:
            self._failing_s = self._now() if self._failing_s is None else self._failing_s
            self.error = f"its former place: {fault}"
            free = self._now() - self._failing_s >= self.pace.gone_after_s
        if free:
            self.former, self._failing_s, self.error = None, None, ""
            await former.close()
        return free

    def _fail(self, reason: str) -> float:
        """Note a failure; answer how long to wait: twice as long each time, up to a limit, and never in step."""
        if reason != self.error:
            _log.warning("pool.pod_fails pod=%s reason=%s", self.name, reason)
        self.error = reason
        self._failures += 1
        wait_s = min(self.pace.backoff_max_s, _BACKOFF_S * 2.0 ** min(self._failures, 10))
        return wait_s * random.uniform(0.5, 1.0)


def _differs(packet: Packet, sight: Sight) -> str:
    """Say how what a pod lists differs from what it was sent."""
    missing, more = (
        packet.content.shape.keys() - sight.configured.keys(),
        sight.configured.keys() - packet.content.shape,
    )
    parts = [f"{word} {_few(sorted(names))}" for word, names in (("lacks", missing), ("has also", more)) if names]
    return f"it accepted its document, and {' and '.join(parts) or 'must be told again'}"


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
