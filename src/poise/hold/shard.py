"""A shard: one instance of a controller that reconciles its own share of the objects, and never another's.

Order for safety: wait, acquire, list, confirm, then act; stop before the Lease ends, and before a key is handed over.
What may be done is decided by the pure functions of `sharding`; one event loop owns all state.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec

from poise.clock import boot_s
from poise.errors import Conflict, Hung, invalid
from poise.hold.ending import only
from poise.hold.guard import Guard
from poise.hold.ring_leases import Dress
from poise.hold.settings import EXIT_AT, HUNG_AT
from poise.hold.shard_core import Core
from poise.hold.shard_held import Child, Held, Reconcile
from poise.hold.shard_lease import TICK_S, LeaseLost, OwnLease
from poise.hold.shard_place import host_name, own_pod
from poise.hold.shard_terms import RingTerms, ShardPace, ShardSettings, check_resources, check_settings
from poise.hold.shard_watching import RingWatch, Watches, find_resources, is_named
from poise.hold.sharding import Claimant, Verdict
from poise.kube.client import Client
from poise.kube.connecting import connect
from poise.kube.resources import ObjectRef, Resource
from poise.model.sharding import holder_identity

_log = logging.getLogger("poise.shard")


class ShardCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a shard has done since it began, and what it has to do now; for metrics."""

    objects: int
    running: int
    queued: int
    waiting: int
    reconciles: int
    failures: int
    cancelled: int
    handed_over: int
    fenced: int
    conflicts: int
    renewals: int
    renewals_failed: int


class Shard:
    """Holds its Lease while its block runs: `async with Shard(ring="web", resources=["secrets"]) as shard:`."""

    def __init__(
        self,
        *,
        ring: str,
        resources: Sequence[str | Resource],
        reconcile: Reconcile | None = None,
        name: str | None = None,
        namespace: str | None = None,
        scope: str = "",
        client: Client | None = None,
        kubeconfig: str | Path | None = None,
        tokens: int | None = None,
        trust_stable_name: bool = False,
        fence_restarts: Literal["lazy", "eager"] = "lazy",
        at_once: int = 16,
        steps_at_once: int = 16,
        finish_s: float = 10.0,
        stop_s: float | None = None,
        on_release: Literal["stop", "restart"] = "stop",
        on_hang: Literal["exit", "raise"] = "exit",
        clock: Callable[[], float] = boot_s,
    ) -> None:
        """Prepare; nothing is asked before the block is entered.

        `name` is the instance (default: the host's), `namespace` that of the ring and its Leases (default: the own),
        `scope` the one whose objects are followed (default: all). Trust in a stable name is for a StatefulSet's pods;
        a Pod that was deleted by force breaks it. The clock must count suspend.
        """
        self._settings = check_settings(
            ShardSettings(
                ring=ring,
                name=host_name() if name is None else name,
                scope=scope,
                tokens=tokens,
                trust_stable_name=trust_stable_name,
                fence_restarts=fence_restarts,
                at_once=at_once,
                steps_at_once=steps_at_once,
                finish_s=finish_s,
                stop_s=stop_s,
                on_release=on_release,
                on_hang=on_hang,
            )
        )
        if isinstance(resources, str) or not resources:
            raise invalid("$.resources", "expected a list of resources, such as ['secrets', 'deployments.apps']")
        self._wanted, self._reconcile, self._namespace = tuple(resources), reconcile, namespace
        self._given, self._kubeconfig, self._clock = client, kubeconfig, clock
        self._process = uuid.uuid4().hex
        self._leaving: Literal["stop", "restart"] = on_release
        self._entered, self._over, self._left = False, False, asyncio.Event()
        self._terms: RingTerms | None = None
        self._guard: Guard | None = None
        self._working: asyncio.Task[None] | None = None
        self._ring_task: asyncio.Task[None] | None = None

    # What may be asked.

    @property
    def name(self) -> str:
        """The name of this instance."""
        return self._settings.name

    @property
    def holder(self) -> str:
        """The name of this one process, as its Lease shows it."""
        return holder_identity(self.name, self._process)

    @property
    def holding(self) -> bool:
        """Say whether the Lease is held, and allows anything now."""
        return self._entered and self._lease.may_act()

    @property
    def held(self) -> tuple[ObjectRef, ...]:
        """Everything that may be acted on at this moment."""
        entries = self._core.view.entries.values()
        return tuple(entry.ref for entry in entries if self._core.judge(entry.uid) is Verdict.ACT)

    @property
    def counts(self) -> ShardCounts:
        """Count what was done."""
        runs, steps, lease = self._core.runs, self._core.steps, self._lease
        return ShardCounts(
            objects=len(self._core.view.entries),
            running=len(runs.running),
            queued=runs.depth,
            waiting=len(runs.waiting),
            reconciles=runs.begun,
            failures=runs.failed,
            cancelled=runs.cancelled,
            handed_over=steps.handed_over,
            fenced=steps.fenced,
            conflicts=steps.conflicts,
            renewals=lease.renewals,
            renewals_failed=lease.refused,
        )

    def holds(self, uid: str) -> bool:
        """Say whether one object may be acted on now."""
        return self._core.judge(uid) is Verdict.ACT

    def sees(self, uid: str) -> bool:
        """Say whether an object carries the own name, as far as is known."""
        return uid in self._core.view.entries

    def wake(self, uid: str) -> None:
        """Ask for an object to be reconciled, as soon as it may be acted on."""
        self._core.runs.wake(uid)

    # The life of a shard.

    async def __aenter__(self) -> Self:
        """Wait for the ring and for the Lease, then begin to follow the own objects."""
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._client = self._given or connect(self._kubeconfig)
        try:
            await self._or_failure(self._prepare(self._namespace or self._client.namespace))
            await self._or_failure(self._lease.take())
        except BaseException:
            await self._close()
            raise
        self._guard = Guard(self._clock) if self._settings.on_hang == "exit" else None
        self._move_guard()
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        # Nothing is followed before the Lease is held: what was seen earlier could not be trusted.
        watches = Watches(self._client, self._resources, self._settings, self._core.see, self._core.all_listed)
        loops = (self._renew_on, self._watch_on, watches.run, self._core.steps.work, self._core.look_on)
        self._loops = [self._group.create_task(self._keep(loop)) for loop in loops]
        self._loops.append(self._group.create_task(self._await_failure()))
        if self._reconcile is not None:
            self._start(self._reconcile)
        self._entered = True
        return self

    async def _or_failure(self, waiting: Coroutine[object, None, None]) -> None:
        """Wait for something, unless this shard fails before."""
        task = asyncio.ensure_future(waiting)
        try:
            await asyncio.wait((task, self._failure), return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await (self._failure if self._failure.done() else task)

    async def _prepare(self, namespace: str) -> None:
        """Learn what the ring says, and make the parts; nothing is held yet."""
        settings = self._settings
        ring = RingWatch(self._client, namespace, settings.ring, self._follow_ring)
        self._ring_task = asyncio.create_task(ring.run())
        self._ring_task.add_done_callback(self._task_ended)
        terms = await ring.ready()
        chosen = check_resources(self._wanted, terms)
        self._resources = await find_resources(self._client, terms)
        self._lease = OwnLease(
            self._client,
            self._claimant,
            Dress(
                namespace=namespace,
                ring=settings.ring,
                tokens=settings.tokens,
                pod=await own_pod(self._client, namespace),
            ),
            lambda: self._pace,
            named=lambda: is_named(self._client, self._resources, settings),
            eager=settings.fence_restarts == "eager",
            now_s=self._clock,
        )
        self._core = Core(
            self._client,
            settings,
            self._lease,
            chosen=frozenset(each for each in self._resources if (each.group, each.plural) in chosen),
            kinds=frozenset((each.group, each.kind) for each in self._resources),
            now_s=self._clock,
        )

    async def run(self, reconcile: Reconcile | None = None) -> None:
        """Reconcile until `leave` is called; LeaseLost or Hung ends the block."""
        if reconcile is not None:
            self._start(reconcile)
        await self._left.wait()

    def leave(self, reason: Literal["stop", "restart"] | None = None) -> None:
        """Let `run` return. With the reason "restart" the objects wait as long as the ring grants."""
        self._leaving = reason or self._leaving
        self._left.set()

    def _start(self, reconcile: Reconcile) -> None:
        assert self._working is None, "one shard reconciles in one way"
        # Not in the group: whoever ignores its cancellation must not be waited for.
        self._working = asyncio.ensure_future(self._core.work(reconcile))
        self._working.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(only(error) if isinstance(error, BaseExceptionGroup) else error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take nothing new, see what runs end, give the Lease back, and only then go."""
        try:
            await self._part()
        except asyncio.CancelledError as cancelled:
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
                await self._close()

    async def _part(self) -> None:
        """Let running reconciles end in their time, unless there is none left; then wind up."""
        self._core.runs.taking = False
        self._core.runs.ask_to_end(tuple(self._core.runs.running))
        await self._core.runs.idle(self._settings.finish_s, self._failure.done)
        await self._wind_up()

    async def _wind_up(self) -> None:
        """Cancel what still runs; give the Lease back only where nothing does, else it must lapse."""
        self._core.runs.cancel_all()
        if self._working is not None:
            self._working.cancel()
        lost = self._failure.done() and isinstance(self._failure.exception(), LeaseLost | Hung)
        patience_s = self._pace.margin_s * HUNG_AT if lost else self._pace.stop_s
        if not await self._core.runs.idle(patience_s):
            self._fail(Hung(f"{len(self._core.runs.running)} reconciles did not stop in time: this process must end"))
            return
        self._over = True
        if self._guard is not None:
            self._guard.limit_s = None  # Nothing acts any more: whoever cleans up is given the time.
        if not lost:
            await self._core.steps.settle(self._pace.ask_s)
            await self._lease.release("restart" if self._failure.done() else self._leaving)

    async def _close(self) -> None:
        if self._guard is not None and self._guard.limit_s is None:
            self._guard.close()
        if self._ring_task is not None:
            self._ring_task.cancel()
            await asyncio.gather(self._ring_task, return_exceptions=True)
        if self._given is None:
            await self._client.close()

    # What it goes by.

    @property
    def _pace(self) -> ShardPace:
        assert self._terms is not None, "nothing is asked for before the ring was read"
        return ShardPace(float(self._terms.duration_s), self._settings.stop_s)

    def _claimant(self) -> Claimant:
        return Claimant(
            name=self.name,
            me=self.holder,
            duration_s=self._pace.duration_s,
            trust_stable_name=self._settings.trust_stable_name,
        )

    def _follow_ring(self, terms: RingTerms) -> None:
        """Follow the ring; where it names other resources, all that is known must be learned anew."""
        if self._terms is not None and terms.resources != self._terms.resources:
            self._fail(Conflict(f"the ring {self._settings.ring} names other resources: start this process again"))
            return
        self._terms = terms

    # The loops.

    async def _renew_on(self) -> None:
        await self._lease.renew_on(lambda: self._core.view.newest_gain_s, self._grip_changed)

    async def _watch_on(self) -> None:
        """Fence itself, whether or not anybody answers; end what outlasts a drain."""
        while True:
            assert self._terms is not None, "the ring was read"
            self._core.runs.check_deadlines(self._terms.drain_timeout_s, self._pace.stop_s)
            grip, now_s = self._lease.grip, self._clock()
            if grip is not None and now_s >= grip.until_s:
                raise LeaseLost(f"the Lease of {self.name} could not be renewed in time")
            await asyncio.sleep(TICK_S if grip is None else min(TICK_S, grip.until_s - now_s))

    async def _keep(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop; should it fail, all work stops before anything else happens."""
        try:
            await loop()
        except Exception as error:
            self._fail(only(error) if isinstance(error, BaseExceptionGroup) else error)

    async def _await_failure(self) -> None:
        await self._failure

    def _fail(self, error: BaseException) -> None:
        """Stop everything now, and end the block with this error; where work hangs, the process."""
        if isinstance(error, Hung) and self._guard is not None:
            self._guard.limit_s = self._clock()
        if self._failure.done():
            return
        _log.error("shard.failed name=%s reason=%s", self.name, error)
        self._failure.set_exception(error)
        if self._working is not None:
            self._core.steps.taking = False
            self._core.runs.cancel_all()

    def _grip_changed(self) -> None:
        """The Lease lasts longer, or less long: the guard must know, and what waited to be confirmed may begin."""
        self._move_guard()
        self._core.look_again()

    def _move_guard(self) -> None:
        """Move the instant at which this process is ended, should its event loop hang; not after its work is over."""
        grip = self._lease.grip
        if self._guard is not None and grip is not None and not (self._over or self._failure.done()):
            self._guard.limit_s = grip.until_s + grip.margin_s * EXIT_AT


__all__ = ["Child", "Held", "LeaseLost", "Reconcile", "Shard", "ShardCounts"]
