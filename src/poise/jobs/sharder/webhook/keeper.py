"""Keeps the configuration of the webhook on the cluster: as the rings and the authorities are, and gone with them.

Without the webhook it only removes what an earlier run left behind. Nothing depends on it: what is in the way is told.
Order: the policies let labels of the webhook be, then it is called; it is called no more, then they refuse them again.
So a webhook that nobody believes is taken away: nobody would overwrite what users send.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import msgspec

from poise.errors import Forbidden, InvalidSpec, NotFound, PoiseError
from poise.jobs.sharder.policy import HOME_LABEL, is_kin, is_own, key_of
from poise.jobs.sharder.policy_keeper import ServerVersion, covers
from poise.jobs.sharder.webhook.configuring import called_rings, configuration_name, configure
from poise.jobs.sharder.webhook.hook import Webhook
from poise.kube import Client, Meta, ObjectRef, Partial, Resource
from poise.kube.mirror import Key
from poise.kube.objects import KubeValue
from poise.kube.pacing import Pace, asked_wait_s
from poise.model import ShardRing

CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)
_AGAIN_S = 30.0  # Nothing is due then: what somebody changed is found.
_LOOK_S = 0.5
_FAILED_PACE = Pace(first_s=0.5, longest_s=30.0)
_CONDITIONS_SINCE = (1, 30)
_log = logging.getLogger("poise.webhook")


class KeptConfiguration(KubeValue, frozen=True):
    """A configuration as it is on the cluster."""

    metadata: Meta
    webhooks: list[dict[str, object]] = msgspec.field(default_factory=list)

    def is_as(self, document: Mapping[str, object]) -> bool:
        """Say whether it is as a document wants it."""
        shown = {"metadata": {"labels": self.metadata.labels}, "webhooks": self.webhooks}
        meta = document["metadata"]
        assert isinstance(meta, Mapping), "metadata is a mapping"
        return covers(shown, {"metadata": {"labels": meta["labels"]}, "webhooks": document["webhooks"]})


class ConfigurationKeeper:
    """Keeps one configuration, while this process leads; `hook` is None where there is no webhook."""

    def __init__(
        self,
        client: Client,
        hook: Webhook | None,
        *,
        may_act: Callable[[], bool],
        now_s: Callable[[], float],
        scope: str | None = None,
        home: str = "",
        tell: Callable[[str], None] = lambda _sentence: None,
        let_be: Callable[[frozenset[Key]], None] = lambda _called: None,
        lets_be: Callable[[ShardRing], bool] = lambda _ring: True,
    ) -> None:
        """Prepare; `tell` hears each trouble once, `let_be` for which rings the webhook is called, or soon will be.

        `lets_be` says whether the policies let the labels of new objects of a ring be.
        """
        self._client, self._hook, self._may_act, self._now_s = client, hook, may_act, now_s
        self._scope, self._home, self._tell = scope, home, tell
        self._let_be, self._lets_be = let_be, lets_be
        self._there, self._waits = frozenset[Key](), False
        self._ref = ObjectRef(CONFIGURATIONS, configuration_name(scope))
        self._rings: tuple[ShardRing, ...] | None = None
        self._conditions: bool | None = None
        self._done: object = None
        self._due_s = float("-inf")
        self._failures = 0
        self.trouble = ""

    def update(self, rings: Iterable[ShardRing]) -> None:
        """Take the rings that are run now."""
        self._rings = tuple(rings)

    async def run(self) -> None:
        """Keep the configuration until cancelled; it stays when this ends, since others answer."""
        if self._hook is not None:
            # What an earlier lead of this process knew may be wrong by now.
            self._hook.certificates.confirm(None, self._now_s())
            self._hook.uncalled = ""
        while True:
            await self._look()
            if self._hook is None and self._done is not None:
                return  # What an earlier run left is gone.
            await asyncio.sleep(_LOOK_S)

    async def _look(self) -> None:
        """Look where something changed, or is due."""
        rings = self._assigned()
        hook = self._hook
        wanted = (rings, self._bundle, None if hook is None else (hook.users, hook.believed))
        if rings is None or not self._may_act() or (wanted == self._done and self._now_s() < self._due_s):
            return
        if self._now_s() < self._due_s and self._failures:
            return
        try:
            self._say(await self._keep(rings))
            self._done, self._failures, self._due_s = wanted, 0, self._now_s() + (0 if self._waits else _AGAIN_S)
        except PoiseError as error:
            self._failures += 1
            wait_s = max(_FAILED_PACE.wait_s(self._failures, random.random()), asked_wait_s(error))
            self._due_s = self._now_s() + wait_s
            _log.warning("webhook.wait seconds=%.1f reason=%s", wait_s, error)

    def _assigned(self) -> tuple[ShardRing, ...] | None:
        """Give the rings that new objects are assigned to. One that is being removed is left out at once.

        So nobody asks a process any more which has not heard of that yet: no label comes after the ring has ended.
        """
        if self._rings is None or self._hook is None:
            return self._rings
        return tuple(ring for ring in self._rings if not self._hook.is_removed(ring))

    @property
    def _bundle(self) -> str:
        return "" if self._hook is None else self._hook.certificates.bundle

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            self._tell(trouble)
        self.trouble = trouble
        if self._hook is not None:
            self._hook.uncalled = trouble

    async def _keep(self, rings: tuple[ShardRing, ...]) -> str:
        """Bring the configuration to what it should be; gives what is in the way."""
        self._waits = False
        try:
            found = await self._found()
            if found is not None and not is_own(found.metadata.labels, self._scope, self._home):
                self._call(frozenset())
                return self._taken(found.metadata)
            # Rings that are being removed count, too, as long as they are in it.
            there = () if found is None else found.webhooks
            return await self._keep_own(found, rings, called_rings(there, self._rings or ()))
        except Forbidden as error:
            right = error.told or f"may not {error.verb} {error.resource}"
            told = f"the webhook is not called as it should be: {right}"
        except InvalidSpec as error:
            told = f"the webhook is not called: the API server refuses its configuration: {error}"
        self._call(self._there)
        return told if self._hook is not None else ""

    async def _keep_own(
        self, found: KeptConfiguration | None, rings: tuple[ShardRing, ...], there: frozenset[Key]
    ) -> str:
        """Write it once the policies are ready for that, or remove it where nobody would believe the webhook."""
        hook, bundle, self._there = self._hook, self._bundle, there
        believed = hook is not None and hook.believed
        if hook is not None and believed and not (bundle and hook.users.sharders):
            self._call(there)
            return self.trouble  # What is there may still be right.
        assigned = rings if believed else ()
        called = frozenset(map(key_of, assigned))
        self._call(there | called)
        if not all(map(self._lets_be, assigned)):
            self._waits = True
            return self.trouble
        await self._write(found, await self._wanted(assigned, bundle))
        self._there = called
        self._call(called)
        if hook is not None:
            hook.certificates.confirm(bundle if believed else None, self._now_s())
        return ""

    def _call(self, called: frozenset[Key]) -> None:
        """Tell for which rings the webhook may be called; where there is none, nobody waits for that."""
        if self._hook is not None:
            self._let_be(called)

    def _taken(self, meta: Meta) -> str:
        """Say who else has the name; nothing of theirs is touched."""
        if self._hook is None:
            return ""
        whose = "somebody else's"
        if is_kin(meta.labels, self._scope):
            whose = f"of the installation in the namespace {meta.labels.get(HOME_LABEL)}: if that is gone, delete it"
        return f"the webhook is not called: {self._ref}: there is one of that name which is {whose}"

    async def _found(self) -> KeptConfiguration | None:
        try:
            return await self._client.get(self._ref, KeptConfiguration)
        except NotFound:
            return None

    async def _wanted(self, rings: tuple[ShardRing, ...], bundle: str) -> dict[str, object] | None:
        if self._hook is None or not rings:
            return None
        if self._conditions is None:
            self._conditions = (await self._client.read("/version", ServerVersion)).number >= _CONDITIONS_SINCE
        reached, users = self._hook.reached, self._hook.users
        return configure(rings, reached, bundle, users, self._scope, self._home, conditions=self._conditions)

    async def _write(self, found: KeptConfiguration | None, wanted: dict[str, object] | None) -> None:
        """Write or remove it where it is not as it should be."""
        if wanted is None and found is not None and self._may_act():
            with suppress(NotFound):
                await self._client.delete(self._ref, uid=found.metadata.uid)
            _log.info("webhook.removed name=%s", self._ref.name)
        elif wanted is not None and (found is None or not found.is_as(wanted)) and self._may_act():
            await self._client.apply(self._ref, wanted, Partial, force=True)
            _log.info("webhook.applied name=%s", self._ref.name)
