"""Keeps the policies of rings on the cluster: made when a ring is accepted, mended when it changes, gone with the ring.

Order: the policy before its binding; the binding goes first. A webhook is called only after the policies let its labels
be, and they do so until it is called no more. Nothing depends on policies: where the cluster is too old, or a right is
missing, that is told in one sentence, and the rings are run without.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from poise import clock
from poise.errors import Forbidden, InvalidSpec, NotFound, PoiseError
from poise.jobs.sharder.policy import (
    KUBE_SYSTEM,
    MANAGED,
    MANAGED_LABEL,
    NAMESPACE_LABEL,
    Names,
    Protection,
    Terms,
    Writers,
    is_kin,
    is_own,
    key_of,
    protect,
    resource_names,
)
from poise.kube import Client, Meta, ObjectRef, Partial, Resource, Selection, find_resource
from poise.kube.crds import custom_resource
from poise.kube.mirror import Key
from poise.kube.objects import KubeValue
from poise.kube.pacing import Pace, asked_wait_s
from poise.model import ShardRing
from poise.model.shard_ring import ShardRingSpec
from poise.model.sharding import RING_LABEL

_ADMISSION = "admissionregistration.k8s.io"
POLICIES = Resource(_ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False)
BINDINGS = Resource(_ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False)
_SELF = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False)
_RINGS = custom_resource("ShardRing")
_AGAIN_S = 30.0  # Nothing is due then: what somebody changed, and kinds that came later, are found.
_LEAD_S = 1.0
_SETTLED_S = 3.0  # So long every API server may take to follow a policy; it looks for changes once a second.
_FAILED_PACE = Pace(first_s=0.5, longest_s=30.0)
_OPEN = "the labels of rings are not protected"
_log = logging.getLogger("poise.operator")


class Kept(KubeValue, frozen=True):
    """A policy or a binding as it is on the cluster."""

    metadata: Meta
    spec: dict[str, object]

    def is_as(self, document: Mapping[str, object]) -> bool:
        """Say whether it is as a document wants it."""
        shown = {"metadata": {"name": self.metadata.name, "labels": self.metadata.labels}, "spec": self.spec}
        return all(covers(shown[part], document[part]) for part in shown)


class _User(KubeValue, frozen=True):
    username: str = ""


class _UserStatus(KubeValue, frozen=True):
    user_info: _User = _User()


class _Review(KubeValue, frozen=True):
    status: _UserStatus = _UserStatus()


class ServerVersion(KubeValue, frozen=True):
    """What the API server says it is."""

    git_version: str = ""

    @property
    def number(self) -> tuple[int, int]:
        """Its first two numbers; what cannot be read counts as old."""
        found = re.match(r"v?(\d{1,4})\.(\d{1,4})", self.git_version)
        return (int(found[1]), int(found[2])) if found else (0, 0)


async def own_user(client: Client) -> str:
    """Ask the API server who this process is; NotFound where it is too old to say so."""
    body = {"apiVersion": _SELF.api_version, "kind": _SELF.kind}
    try:
        return (await client.create(ObjectRef(_SELF, ""), body, _Review)).status.user_info.username
    except NotFound:
        told = f"this cluster has no {_SELF.kind} of {_SELF.api_version}, which Kubernetes has since 1.28"
        raise NotFound(f"{told}: it cannot be asked who this process is") from None


class PolicyKeeper:
    """Keeps one policy and one binding for each ring that is run; `trouble` says what is not protected, and why.

    With `protecting` off it only removes what it made before. The own user is always one of the sharders. With a
    webhook nothing is written before it is known which rings it is called for.
    """

    def __init__(
        self,
        client: Client,
        *,
        may_act: Callable[[], bool],
        scope: str | None = None,
        home: str = "",
        protecting: bool = True,
        webhook: bool = False,
        sharders: tuple[str, ...] = (),
        exempt: tuple[str, ...] = KUBE_SYSTEM,
        tell: Callable[[str], None] = lambda _sentence: None,
        now_s: Callable[[], float] = clock.boot_s,
    ) -> None:
        """Prepare; `scope` is the only namespace that is looked at, `home` where the operator lives.

        `tell` hears each trouble once.
        """
        self._client, self._may_act, self._scope, self._tell = client, may_act, scope, tell
        self._home, self._now_s = home, now_s
        self._protecting, self._sharders, self._exempt = protecting, sharders, exempt
        self._called: frozenset[Key] | None = None if webhook else frozenset()
        self._opened: dict[Key, tuple[ShardRingSpec, float]] = {}
        self._rings: tuple[ShardRing, ...] | None = None
        self._me = ""
        self._kinds: dict[Names, str] = {}
        self._failures = 0
        self._woken, self._alone = asyncio.Event(), asyncio.Lock()
        self.trouble = ""

    def update(self, rings: Iterable[ShardRing]) -> None:
        """Take the rings that are run now; one that is only not known yet loses nothing."""
        given = tuple(rings)
        if given != self._rings:
            self._rings = given
            self._woken.set()

    def let_be(self, called: frozenset[Key]) -> None:
        """Let labels be sent with new objects of these rings: the webhook is called for them, or soon will be."""
        if called != self._called:
            self._called = called
            self._woken.set()

    def lets_be(self, ring: ShardRing) -> bool:
        """Say whether labels can be sent with new objects of a ring, as it is now, on every API server."""
        spec, since_s = self._opened.get(key_of(ring), (None, 0.0))
        return not self._protecting or (spec == ring.spec and self._now_s() >= since_s + _SETTLED_S)

    async def run(self) -> None:
        """Keep the policies until cancelled; they stay when it ends."""
        while True:
            self._woken.clear()
            wait_s = await self._look()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    async def remove(self, ring: ShardRing) -> None:
        """Remove what protects a ring that ends and is no longer run; what may not be removed stays, and is told."""
        async with self._alone:
            refused: Forbidden | None = None
            for resource in (BINDINGS, POLICIES):
                try:
                    for name, kept in (await self._there(resource)).items():
                        if self._is_kin(kept.metadata) and _is_of(kept.metadata, ring) and self._may_act():
                            await self._delete(resource, name, kept.metadata)
                except NotFound:
                    pass
                except Forbidden as error:
                    refused = refused or error
            if refused is not None:
                self._say(_left_behind(refused))

    async def _look(self) -> float | None:
        """Look once; gives when to look again."""
        if self._rings is None or self._called is None:
            return None
        if not self._may_act():
            return _LEAD_S
        try:
            async with self._alone:
                rings, called = self._rings, self._called
                self._say(await self._keep(rings, called))
                self._note_opened(rings, called)
        except PoiseError as error:
            self._failures += 1
            wait_s = max(_FAILED_PACE.wait_s(self._failures, random.random()), asked_wait_s(error))
            _log.warning("policies.wait seconds=%.1f reason=%s", wait_s, error)
            return wait_s
        self._failures = 0
        return _AGAIN_S

    def _note_opened(self, rings: tuple[ShardRing, ...], called: frozenset[Key]) -> None:
        """Note since when policies are as they are, or nothing can be done about them."""
        now_s, before = self._now_s(), self._opened
        specs = {key_of(ring): ring.spec for ring in rings if key_of(ring) in called}
        self._opened = {
            key: before[key] if key in before and before[key][0] == spec else (spec, now_s)
            for key, spec in specs.items()
        }

    def _say(self, trouble: str) -> None:
        """Tell a trouble once, and again only after it was gone."""
        if trouble and trouble != self.trouble:
            self._tell(trouble)
        self.trouble = trouble

    async def _keep(self, rings: tuple[ShardRing, ...], called: frozenset[Key]) -> str:
        """Bring policies and bindings to what they should be; gives what is in the way."""
        try:
            policies, bindings = await self._there(POLICIES), await self._there(BINDINGS)
        except NotFound:
            return await self._too_old() if self._protecting else ""
        except Forbidden as error:
            return _not_allowed(error) if self._protecting else _left_behind(error)
        try:
            if self._protecting and not self._me:
                self._me = await own_user(self._client)
        except (NotFound, Forbidden) as error:
            return f"{_OPEN}: {error}"
        try:
            wanted = await self._wanted(rings, called) if self._protecting else []
            troubles = [await self._apply(each, policies, bindings) for each in wanted]
            await self._sweep(policies, bindings, {each.name for each in wanted}, rings)
        except Forbidden as error:
            return _not_allowed(error) if self._protecting else _left_behind(error)
        return "; ".join(filter(None, troubles))

    async def _too_old(self) -> str:
        told = await self._client.read("/version", ServerVersion)
        return f"{_OPEN}: this cluster ({told.git_version}) has no {POLICIES.kind}, which Kubernetes has since 1.30"

    async def _there(self, resource: Resource) -> dict[str, Kept]:
        found, _ = await self._client.list_all(Selection(resource), Kept)
        return {each.metadata.name: each for each in found}

    async def _wanted(self, rings: tuple[ShardRing, ...], called: frozenset[Key]) -> list[Protection]:
        """Make what should be there, for this user and the kinds that the cluster has now."""
        for names in {each for ring in rings for each in resource_names(ring)} - self._kinds.keys():
            found = await find_resource(self._client, *names)
            if isinstance(found, Resource):
                self._kinds[names] = found.kind
        sharders = tuple(dict.fromkeys((self._me, *self._sharders)))
        writers = Writers(sharders=sharders, exempt=self._exempt)
        terms = Terms(writers=writers, scope=self._scope, home=self._home, webhook=called)
        return protect(rings, self._kinds, terms)

    def _is_own(self, meta: Meta) -> bool:
        """Say whether this installation made it."""
        return is_own(meta.labels, self._scope, self._home)

    def _is_kin(self, meta: Meta) -> bool:
        """Say whether it may be taken over with its ring: who ran that before made it."""
        return is_kin(meta.labels, self._scope)

    async def _apply(self, made: Protection, policies: Mapping[str, Kept], bindings: Mapping[str, Kept]) -> str:
        """Apply a policy, then its binding, where they are not as they should be; gives why one cannot be applied."""
        pairs = ((POLICIES, policies, made.policy), (BINDINGS, bindings, made.binding))
        for resource, there, document in pairs:
            found = there.get(made.name)
            if found is not None and not self._is_kin(found.metadata):
                return f"{_OPEN} by {made.name}: there is a {resource.kind} of that name which is somebody else's"
            if (found is not None and found.is_as(document)) or not self._may_act():
                continue
            try:
                await self._client.apply(ObjectRef(resource, made.name), document, Partial, force=True)
            except InvalidSpec as error:
                return f"{_OPEN} by {made.name}: the API server refuses it: {error}"
            _log.info("policy.applied kind=%s name=%s", resource.kind, made.name)
        return ""

    async def _sweep(
        self, policies: Mapping[str, Kept], bindings: Mapping[str, Kept], names: set[str], rings: tuple[ShardRing, ...]
    ) -> None:
        """Remove what this installation made and nobody wants any more, bindings first."""
        for resource, there in ((BINDINGS, bindings), (POLICIES, policies)):
            for name in there.keys() - names:
                meta = there[name].metadata
                run_here = self._is_kin(meta) and any(_is_of(meta, ring) for ring in rings)
                if (run_here or self._is_own(meta)) and await self._is_over(meta, rings) and self._may_act():
                    await self._delete(resource, name, meta)

    async def _delete(self, resource: Resource, name: str, meta: Meta) -> None:
        with suppress(NotFound):
            await self._client.delete(ObjectRef(resource, name), uid=meta.uid)
        _log.info("policy.removed kind=%s name=%s", resource.kind, name)

    async def _is_over(self, meta: Meta, rings: tuple[ShardRing, ...]) -> bool:
        """Say whether a policy has no ring any more. A ring that is there stays protected, also while it is not run."""
        name, namespace = meta.labels.get(RING_LABEL, ""), meta.labels.get(NAMESPACE_LABEL, "")
        if any(_is_of(meta, ring) for ring in rings) or not self._protecting:
            return True
        try:
            found, _ = await self._client.list_all(
                Selection(_RINGS, namespace, fields=f"metadata.name={name}"), Partial
            )
        except NotFound:
            return True  # Not even their definition is there.
        return not found


def _is_of(meta: Meta, ring: ShardRing) -> bool:
    its = ring.metadata
    return (meta.labels.get(RING_LABEL, ""), meta.labels.get(NAMESPACE_LABEL, "")) == (its.name, its.namespace)


def _not_allowed(error: Forbidden) -> str:
    """Say which right is missing: the API server names it best."""
    right = error.told or f"may not {error.verb} {error.resource}"
    return f"{_OPEN} as they should be: {right} (grant it, or start the operator with --no-protect)"


def _left_behind(error: Forbidden) -> str:
    """Say that nobody knows whether policies of an earlier run are left, or can remove them."""
    right = error.told or f"may not {error.verb} {error.resource}"
    plurals = f"{BINDINGS.plural},{POLICIES.plural}"
    by_hand = f"kubectl get {plurals} -l {MANAGED_LABEL}={MANAGED}"
    return f"policies of rings that were protected before may still be there: {right} (grant it, or look: {by_hand})"


def covers(found: object, wanted: object) -> bool:
    """Say whether all that is wanted is there; what others added to a mapping, such as a default, is theirs."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(covers(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        there = found if isinstance(found, list) else []
        return len(there) == len(wanted) and all(map(covers, there, wanted))
    return found == wanted
