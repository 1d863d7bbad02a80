"""The webhook of one process: what it knows of rings, what it shows to be believed, and what it answers.

Every process answers, whoever leads. It does so from memory alone: no answer waits for anything.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from poise import clock
from poise.errors import PoiseError, Unavailable
from poise.jobs.sharder.policy_keeper import own_user
from poise.jobs.sharder.ring_run import RESTART_PACE, told, trace
from poise.jobs.sharder.selecting import own_key
from poise.jobs.sharder.session import Session
from poise.jobs.sharder.webhook.certificates import FileCertificates, SecretCertificates
from poise.jobs.sharder.webhook.choosing import Arrival
from poise.jobs.sharder.webhook.configuring import Reached, read_path
from poise.jobs.sharder.webhook.following import Followers
from poise.jobs.sharder.webhook.numbers import HookNumbers
from poise.jobs.sharder.webhook.reviewing import Answer, Place, Request, Users, answer, read_new
from poise.kube import Client, Partial
from poise.kube.mirror import Key
from poise.kube.pacing import Pace
from poise.model import ShardRing
from poise.model.sharding import Marks

_PACE = Pace(first_s=0.5, longest_s=15.0)
_TELL_EVERY_S = 1.0
_PATIENCE_S = 30.0  # So long it may take until somebody leads, who makes the first certificate.
_log = logging.getLogger("poise.webhook")


class HookTerms(msgspec.Struct, frozen=True):
    """How the API server reaches the webhook, where the operator lives, and the files of its certificate, if any."""

    reached: Reached
    home: str
    files: tuple[Path, Path, Path] | None = None


class Webhook:
    """Answers the API server for all rings. `trouble` says why it is not believed, or soon will not be.

    `uncalled` is why a leader cannot tell the API server of it.
    """

    def __init__(
        self,
        client: Client,
        reached: Reached,
        certificates: FileCertificates | SecretCertificates,
        followers: Followers,
        *,
        users: Users,
        now_s: Callable[[], float],
        tell: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        """Prepare; nothing is asked yet. The own user is the sharder; it is asked for."""
        self.reached, self.certificates = reached, certificates
        self.numbers = HookNumbers(lambda: certificates.left_s, lambda: bool(self.trouble or self.uncalled))
        self.users = users
        self._client, self._followers, self._now_s, self._tell = client, followers, now_s, tell
        self.trouble = self.uncalled = self._nameless = ""

    async def run(self, leads: Callable[[], bool]) -> None:
        """Know and show what there is until cancelled; a fault of ours costs the webhook a while, and nothing else."""
        failures = 0
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.certificates.run(leads))
                    group.create_task(self._follow())
                    group.create_task(self._tell_trouble())
            except Exception as error:
                _log.error("webhook.failed reason=%s\n%s", told(error), trace(error))
            failures += 1
            await asyncio.sleep(RESTART_PACE.wait_s(failures, random.random()))

    async def _follow(self) -> None:
        """Learn who this process is, whose writes must stay as they are; then follow the rings."""
        failures = 0
        while not self.users.sharders:
            try:
                me = await own_user(self._client)
                self.users = msgspec.structs.replace(self.users, sharders=(me,))
            except PoiseError as error:
                failures += 1
                if not isinstance(error, Unavailable):
                    self._nameless = f"whose writes are the sharder's is not known, so nothing is assigned: {error}"
                await asyncio.sleep(_PACE.wait_s(failures, random.random()))
        self._nameless = ""
        await self._followers.run()

    async def _tell_trouble(self) -> None:
        """Tell each trouble once; the first moments without a certificate are none."""
        patient_until_s = self._now_s() + _PATIENCE_S
        while True:
            found = self._nameless or self.certificates.trouble
            if found != self._nameless and self.certificates.ends is None and self._now_s() < patient_until_s:
                found = ""
            if found and found != self.trouble:
                self._tell(self._told(found))
            self.trouble = found
            await asyncio.sleep(_TELL_EVERY_S)

    @property
    def believed(self) -> bool:
        """Say whether the API server would believe and be answered; in the first moments that is not known yet."""
        if self._nameless or self.certificates.ends is None:
            return not self.trouble
        return self.certificates.left_s > 0

    def _told(self, trouble: str) -> str:
        if trouble == self._nameless:
            return f"the webhook does not work: {trouble}; the sharder assigns what is new, a moment later"
        ends = self.certificates.ends
        if ends is not None and self.certificates.left_s > 0:
            return f"the webhook is believed until {ends:%Y-%m-%d}, and not for longer: {trouble}"
        return f"the webhook is not believed: {trouble}; the sharder assigns what is new, a moment later"

    def is_removed(self, ring: ShardRing) -> bool:
        """Say whether somebody removes a ring: then nothing is assigned to it any more."""
        return self._followers.is_removed((ring.metadata.namespace or "", ring.metadata.name))

    def unready(self) -> str:
        """Say why no request should come here yet."""
        return "" if self.certificates.ends is not None else f"the webhook has no certificate: {self.trouble or 'yet'}"

    def answer(self, path: str, body: bytes) -> bytes | None:
        """Answer one review; None where the path is none of the webhook's."""
        place = read_path(path)
        if place is None:
            return None
        began_s = time.perf_counter()
        made: Answer = answer(body, place, self.users, self._choose)
        self.numbers.note(made.outcome, time.perf_counter() - began_s)
        return made.body

    def _choose(self, place: Place, request: Request) -> Marks | None:
        """Choose for a new object; None where the ring is not known as the configuration means it."""
        follower = self._followers.find(place.namespace, place.ring)
        session = None if follower is None else follower.session
        if follower is None or session is None or follower.digest != place.digest or not self.users.sharders:
            return None
        arrival = read_arrival(session, request)
        if arrival is None:
            return None
        return follower.chooser.choose(follower.ring.spec, session.view, arrival, self._now_s())


def make_webhook(
    client: Client,
    terms: HookTerms,
    *,
    me: str,
    scope: str | None,
    users: Users,
    lend: Callable[[Key], Session | None],
    tell: Callable[[str], None],
) -> Webhook:
    """Put the webhook of one process together."""
    certificates: FileCertificates | SecretCertificates
    if terms.files is not None:
        certificates = FileCertificates(*terms.files, terms.reached.host)
    else:
        certificates = SecretCertificates(client, terms.home, terms.reached.names)
    followers = Followers(client, me, scope, lend=lend)
    return Webhook(client, terms.reached, certificates, followers, users=users, now_s=clock.boot_s, tell=tell)


def read_arrival(session: Session, request: Request) -> Arrival | None:
    """Read a new object as the mirror of its ring would; None where that would show something else."""
    asked = request.resource
    names = {(kind.resource.group, kind.resource.plural): kind for kind in session.kinds}
    kind = names.get((asked.group, asked.resource))
    if kind is None:
        return None
    seen = session.keys.keep(read_new(request, session.keys.shape))
    meta, owner = seen.metadata, seen.metadata.controller
    key: str | None = session.keys.read(kind.resource, seen)
    if not meta.name and key == own_key(kind.resource, meta):
        key = None
    if session.keys.shape is not Partial and asked.version != kind.resource.version:
        key = None  # A path may lead elsewhere in another version.
    kinds = {(each.resource.group, each.resource.kind) for each in session.kinds}
    parent = owner.uid if owner is not None and (owner.group, owner.kind) in kinds else None
    return Arrival(kind, meta, key, parent, request.dry_run)
