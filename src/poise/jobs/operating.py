"""The Kubernetes operator: one leader among its processes, which runs a job for each kind that lives there."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple

from poise import clock
from poise.errors import Forbidden, NotFound, Unavailable
from poise.jobs.sharder.metrics import OperatorMetrics, RingNumbers
from poise.jobs.sharder.policy import KUBE_SYSTEM
from poise.jobs.sharder.policy_keeper import PolicyKeeper
from poise.jobs.sharder.rings import Lookout, Rings
from poise.jobs.sharder.session import Session
from poise.jobs.sharder.webhook.hook import HookTerms, Webhook, make_webhook
from poise.jobs.sharder.webhook.keeper import ConfigurationKeeper
from poise.jobs.sharder.webhook.reviewing import Users
from poise.kube import LEASES, Client, Lead, Missing, ObjectRef, Resource, find_resource
from poise.kube.crds import custom_resource
from poise.kube.leadership import LeadTerms
from poise.kube.mirror import Key
from poise.kube.objects import KubeValue
from poise.kube.pacing import Pace
from poise.model import ShardRing
from poise.model.sharding import holder_identity

LEASE = "poise-operator"
# What each kind is run by. The other kinds of Poise have their place here, too.
JOBS: dict[str, Callable[[Lookout], Rings]] = {"ShardRing": Rings}
DEFINITIONS_HINT = "install the definitions first: poise operator --definitions | kubectl apply -f -"
_REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)
_REACH_PACE = Pace(first_s=1.0, longest_s=15.0)


def lead_terms(me: str, lease_s: int) -> LeadTerms:
    """Divide the Lease of the leader: renewed five times, and ended for itself a third before others may take it."""
    return LeadTerms(me=me, duration_s=lease_s, renew_s=lease_s / 5, margin_s=lease_s / 3)


def request_s(lease_s: int) -> float:
    """Give the longest request: what was sent while it led has arrived before anybody else leads."""
    return min(4.0, lease_s / 4)


def identity(name: str) -> str:
    """Name this process. No instance of a ring is called like this, so that nobody takes it for one."""
    return holder_identity(f"poise-sharder-{name}", uuid.uuid4().hex)


class Operator:
    """One process of the operator: it stands for the lead, and works while it has it."""

    def __init__(
        self,
        client: Client,
        *,
        me: str,
        home: str,
        scope: str | None = None,
        lease_s: int = 15,
        protecting: bool = True,
        exempt: tuple[str, ...] = (),
        webhook: HookTerms | None = None,
        tell: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        """Prepare; `home` is the namespace of the leader's Lease, `scope` the only one that is looked at."""
        self._client, self._me, self._home, self._scope, self._tell = client, me, home, scope, tell
        self._lead = Lead(client, LEASE, home, lead_terms(me, lease_s), tell=tell)
        self._protecting, self._exempt = protecting, (*KUBE_SYSTEM, *exempt)
        self.webhook: Webhook | None = None
        if webhook is not None:
            users = Users((), self._exempt, protected=protecting)
            self.webhook = make_webhook(client, webhook, me=me, scope=scope, users=users, lend=self._lend, tell=tell)
        self._jobs: dict[str, Rings] = {}
        self._policies: PolicyKeeper | None = None
        self._configurations: ConfigurationKeeper | None = None
        self._waits = "the API server was not asked yet"
        self.ended = ""
        self.metrics = OperatorMetrics(
            self._numbers,
            {
                "leads": lambda: float(self._lead.may_act()),
                "rings": lambda: float(len(self._numbers())),
                "rings_refused": lambda: float(sum(job.refused for job in self._jobs.values())),
                "policy_trouble": lambda: float("Protected" in self._troubles()),
                "kube_events_dropped": lambda: float(sum(job.events_dropped for job in self._jobs.values())),
            },
            () if self.webhook is None else (self.webhook.numbers,),
        )

    async def run(self) -> None:
        """Wait until the cluster answers, then stand for the lead until cancelled. Hung: end this process at once."""
        answering: asyncio.Task[None] | None = None
        try:
            await self._reach()
            if self.webhook is not None:
                answering = asyncio.create_task(self.webhook.run(self._lead.may_act))
            await self._lead.run(self._work)
        except BaseException as error:
            self.ended = f"the operator has ended: {type(error).__name__}"
            raise
        finally:
            if answering is not None:
                answering.cancel()  # Nothing waits for it: a process that must end at once does.

    async def _reach(self) -> None:
        """Ask for the definitions and the own rights; who does not answer is asked again."""
        failures = 0
        while True:
            try:
                await check_cluster(self._client, self._home, self._scope)
                self._waits = ""
                return
            except Unavailable as error:
                failures += 1
                wait_s = _REACH_PACE.wait_s(failures, 1.0)
                self._waits = f"the API server cannot be reached: {error}"
                self._tell(f"{self._waits}; trying again in {wait_s:.0f} s")
                await asyncio.sleep(wait_s)

    async def _work(self) -> None:
        """Run all jobs, as somebody who knows nothing of what was before."""
        policies, configurations = self._keepers()

        def rings_changed(rings: list[ShardRing]) -> None:
            policies.update(rings)
            configurations.update(rings)

        lookout = Lookout(
            client=self._client,
            me=self._me,
            home=self._home,
            may_act=self._lead.may_act,
            scope=self._scope,
            rings_changed=rings_changed,
            ring_ends=policies.remove,
            troubles=self._troubles,
        )
        self._jobs = {kind: make(lookout) for kind, make in JOBS.items()}
        self._policies, self._configurations = policies, configurations
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(policies.run())
                tasks.create_task(configurations.run())
                for job in self._jobs.values():
                    tasks.create_task(job.run())
        finally:
            self._jobs, self._policies, self._configurations = {}, None, None

    def _keepers(self) -> tuple[PolicyKeeper, ConfigurationKeeper]:
        """Make what keeps the policies and the configuration of the webhook as the rings are."""
        policies = PolicyKeeper(
            self._client,
            may_act=self._lead.may_act,
            scope=self._scope,
            home=self._home,
            protecting=self._protecting,
            webhook=self.webhook is not None,
            exempt=self._exempt,
            tell=self._tell,
        )
        configurations = ConfigurationKeeper(
            self._client,
            self.webhook,
            may_act=self._lead.may_act,
            now_s=clock.boot_s,
            scope=self._scope,
            home=self._home,
            tell=self._tell,
            let_be=policies.let_be,
            lets_be=policies.lets_be,
        )
        return policies, configurations

    def _troubles(self) -> dict[str, str]:
        """Say what is wrong beside the rings, by the condition that shows it."""
        hook = "" if self.webhook is None else self.webhook.trouble
        kept = "" if self._configurations is None else self._configurations.trouble
        open_labels = "" if self._policies is None else self._policies.trouble
        found = {"Protected": open_labels, "WebhookTrusted": "; ".join(filter(None, (hook, kept)))}
        return {kind: told for kind, told in found.items() if told}

    def dead(self) -> str:
        """Say why this process should be started again; empty while it is well."""
        return self.ended

    def unready(self) -> str:
        """Say what is missing; empty when it leads and knows everything, or stands by for another leader."""
        if self.ended or self._waits:
            return self.ended or self._waits
        if self.webhook is not None and (told := self.webhook.unready()):
            return told
        if self._lead.may_act():
            if not self._jobs:
                return "the jobs have not begun yet"
            return "; ".join(told for job in self._jobs.values() if (told := job.unready()))
        if self._lead.holder not in ("", self._me):
            return ""
        return f"nobody leads yet, by the Lease {self._home}/{LEASE}"

    @property
    def rings(self) -> Rings | None:
        """The rings, while this process leads."""
        return self._jobs.get("ShardRing")

    def leader(self) -> str:
        """Name who leads, where it is another process; empty where this one does, or nobody is known to."""
        return "" if self._lead.may_act() or self._lead.holder == self._me else self._lead.holder

    def _lend(self, key: Key) -> Session | None:
        """Let the webhook read what the sharder of a ring sees, where this process leads."""
        return next((seen for job in self._jobs.values() if (seen := job.session(key)) is not None), None)

    def _numbers(self) -> list[RingNumbers]:
        return [ring for job in self._jobs.values() for ring in job.numbers()]


class Right(NamedTuple):
    """One thing that the operator must be allowed to do."""

    verb: str
    resource: Resource
    namespace: str
    subresource: str = ""
    name: str = ""


class _Allowed(KubeValue, frozen=True):
    allowed: bool = False


class _Review(KubeValue, frozen=True):
    status: _Allowed = _Allowed()


async def check_cluster(client: Client, home: str, scope: str | None) -> None:
    """Refuse to start where the definitions, or the rights to lead and to follow, are missing; says all that is."""
    for kind in JOBS:
        wanted = custom_resource(kind)
        found = await find_resource(client, wanted.group, wanted.plural)
        if isinstance(found, Missing):
            raise NotFound(f"the cluster does not know {kind} ({found.why}); {DEFINITIONS_HINT}")
    lacking = [right for right in needed_rights(home, scope) if not await is_allowed(client, right)]
    if lacking:
        first, *more = refusals(lacking)
        raise Forbidden(first.verb, first.group, first.resource, first.namespace, "; ".join(map(str, more)))


def needed_rights(home: str, scope: str | None) -> list[Right]:
    """List what is needed to lead and to follow; what a single ring needs is told by that ring."""
    named = {"get": LEASE, "create": "", "update": LEASE}  # What is created has no name yet.
    rights = [Right(verb, LEASES, home, name=name) for verb, name in named.items()]
    for kind in JOBS:
        resource = custom_resource(kind)
        rights += [Right(verb, resource, scope or "") for verb in ("list", "watch", "patch")]
        rights.append(Right("patch", resource, scope or "", "status"))
    return rights


async def is_allowed(client: Client, right: Right) -> bool:
    """Ask the API server whether this user has a right."""
    asked = {
        "verb": right.verb,
        "group": right.resource.group,
        "resource": right.resource.plural,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    body = {"apiVersion": _REVIEWS.api_version, "kind": _REVIEWS.kind, "spec": {"resourceAttributes": asked}}
    return (await client.create(ObjectRef(_REVIEWS, ""), body, _Review)).status.allowed


def refusals(lacking: Iterable[Right]) -> list[Forbidden]:
    """Say which rights are missing, the verbs of one resource together."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for right in lacking:
        named = "/".join(part for part in (right.resource.plural, right.subresource) if part)
        verbs.setdefault((right.resource.group, named, right.namespace), []).append(right.verb)
    return [Forbidden(", ".join(some), *resource) for resource, some in verbs.items()]
