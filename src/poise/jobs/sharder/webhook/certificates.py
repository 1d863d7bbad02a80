"""Where the certificate of the webhook comes from: files that somebody else renews, or a Secret that the leader keeps.

Both are read again and again. What cannot be used keeps the old one in place, and is told in one sentence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from poise import clock
from poise.errors import Conflict, Forbidden, InvalidSpec, NotFound, PoiseError, Unavailable
from poise.jobs.sharder.policy import MANAGED, MANAGED_LABEL
from poise.jobs.sharder.webhook.authority import Kept, next_kept, read_kept, write_kept
from poise.jobs.sharder.webhook.showing import Shown, doubts, load
from poise.jobs.sharder.webhook.x509 import read_names, read_span
from poise.kube import Client, Meta, ObjectRef
from poise.kube.objects import KubeValue
from poise.kube.resources import SECRETS

SECRET = "poise-webhook"
OVERLAP_S = 60.0  # So long the API server has known a new authority before anything of it is served.
_FILES_S, _SECRET_S, _FIRST_S = 2.0, 10.0, 1.0
_BYTES_MAX = 1024 * 1024


class Proof(msgspec.Struct, frozen=True):
    """What a server is believed by: its certificate and key, and the authorities that are to be trusted; in PEM."""

    certificate: str
    key: str
    trusted: str


class Certificates:
    """What is shown now, for how long it is good, and what is in the way; `bundle` is what the API server must know."""

    def __init__(self, name: str, now: Callable[[], datetime] = clock.now) -> None:
        """Begin with nothing to show; `name` is what the API server calls, and the certificate must be for it."""
        self._name = name
        self.shown = Shown()
        self.bundle = ""
        self.ends: datetime | None = None
        self._now, self._tried, self._fault = now, Proof("", "", ""), ""

    @property
    def left_s(self) -> float:
        """For how long the certificate is still good; not a number where there is none."""
        return float("nan") if self.ends is None else (self.ends - self._now()).total_seconds()

    @property
    def trouble(self) -> str:
        """Say what is wrong with what is shown, or with what should be shown instead."""
        if self.ends is None:
            return self._fault or "there is no certificate yet"
        if self.left_s <= 0:
            return f"the certificate has expired on {self.ends:%Y-%m-%d at %H:%M:%S} UTC" + (
                f", and what should replace it cannot be used: {self._fault}" if self._fault else ""
            )
        return f"the certificate cannot be replaced: {self._fault}" if self._fault else ""

    def offer(self, proof: Proof) -> None:
        """Use a proof, unless it is worse than what is shown: broken, not to be believed, or over."""
        if proof == self._tried:
            return
        self._tried = proof
        try:
            context, span = load(proof.certificate, proof.key), read_span(proof.certificate)
        except InvalidSpec as error:
            self._fault = str(error)
            return
        over = span.ends <= self._now()
        why = "it has expired" if over else doubts(context, proof.trusted, self._name)
        if why and not (over and (self.ends is None or self.left_s <= 0)):
            made_for = ", ".join(read_names(proof.certificate)) or "no name"
            doubt = f"nobody who trusts its authorities would believe it: {why}; it is for {made_for}"
            self._fault = why if over else f"{doubt}, and the API server calls {self._name}"
            return
        self.shown.use(context)
        self.bundle, self.ends, self._fault = proof.trusted, span.ends, ""

    def fail(self, why: str) -> None:
        """Note why nothing new can be had."""
        self._fault, self._tried = why, Proof("", "", "")


class FileCertificates(Certificates):
    """Certificates from three files, read again when they change."""

    def __init__(
        self, certificate: Path, key: Path, trusted: Path, name: str, now: Callable[[], datetime] = clock.now
    ) -> None:
        """Read these files, for a server of this name."""
        super().__init__(name, now)
        self._files = (certificate, key, trusted)

    async def run(self, _leads: Callable[[], bool]) -> None:
        """Look until cancelled; everybody reads alike."""
        while True:
            self.look()
            await asyncio.sleep(_FILES_S)

    def look(self) -> None:
        """Read the files once."""
        texts = []
        for path in self._files:
            try:
                with path.open("rb") as file:
                    texts.append(file.read(_BYTES_MAX).decode("ascii"))
            except OSError as error:
                self.fail(f"{path} cannot be read: {error.strerror}")
                return
            except UnicodeDecodeError:
                self.fail(f"{path} is no PEM")
                return
        self.offer(Proof(*texts))

    def confirm(self, bundle: str | None, now_s: float) -> None:
        """Nothing waits for this: whoever renews the files lets them overlap."""


class _Secret(KubeValue, frozen=True):
    metadata: Meta
    data: dict[str, str] = msgspec.field(default_factory=dict)
    type: str = "Opaque"


class SecretCertificates(Certificates):
    """Certificates that the leader makes and replaces, in a Secret that all processes share."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        names: tuple[str, ...],
        *,
        now: Callable[[], datetime] = clock.now,
        now_s: Callable[[], float] = clock.boot_s,
    ) -> None:
        """Keep them in this namespace, for these names of the server; it is called by the first."""
        super().__init__(names[0], now)
        self._client, self._names, self._now_s = client, names, now_s
        self._ref = ObjectRef(SECRETS, SECRET, namespace)
        self._confirmed: tuple[str, float] | None = None

    async def run(self, leads: Callable[[], bool]) -> None:
        """Look until cancelled; only a leader writes."""
        while True:
            try:
                await self.look(leads)
            except (Conflict, Unavailable) as error:
                # What is shown stays good; where there is nothing yet, this says why.
                if self.ends is None:
                    self.fail(str(error))
            except PoiseError as error:
                self.fail((error.told if isinstance(error, Forbidden) else "") or str(error))
            await asyncio.sleep(_SECRET_S if self.ends is not None and self.left_s > 0 else _FIRST_S)

    async def look(self, leads: Callable[[], bool]) -> None:
        """Read the Secret and show what it keeps; where this process leads, bring it to what it should be."""
        found = await self._read()
        kept = None if found is None else read_kept(found.data)
        if kept is not None:
            self.offer(_proof(kept))
        if not leads():
            return
        sound = kept if kept is not None and _is_sound(kept) else None
        wanted = next_kept(sound, self._names, self._now(), trusted=self._is_trusted(kept))
        if wanted is not None and leads():
            await self._write(found, wanted)
            self.offer(_proof(wanted))

    def confirm(self, bundle: str | None, now_s: float) -> None:
        """Take the news which authorities the API server knows now; None: what it knows is not known."""
        if bundle is None:
            self._confirmed = None
        elif self._confirmed is None or self._confirmed[0] != bundle:
            self._confirmed = (bundle, now_s)

    def _is_trusted(self, kept: Kept | None) -> bool:
        if kept is None or self._confirmed is None:
            return False
        bundle, since_s = self._confirmed
        return bundle == kept.trusted and self._now_s() >= since_s + OVERLAP_S

    async def _read(self) -> _Secret | None:
        try:
            return await self._client.get(self._ref, _Secret)
        except NotFound:
            return None

    async def _write(self, found: _Secret | None, kept: Kept) -> _Secret:
        """Write over exactly what was read; Conflict where somebody else was faster."""
        data = write_kept(kept)
        if found is None:
            meta = Meta(name=self._ref.name, namespace=self._ref.namespace, labels={MANAGED_LABEL: MANAGED})
            return await self._client.create(self._ref, _Secret(meta, data), _Secret)
        return await self._client.replace(self._ref, _Secret(found.metadata, data, found.type), _Secret)


def _proof(kept: Kept) -> Proof:
    return Proof(kept.current.certificate, kept.current.key, kept.trusted)


def _is_sound(kept: Kept) -> bool:
    """Say whether certificates and keys belong together; what somebody spoilt is made anew."""
    try:
        for each in filter(None, (kept.current, kept.next)):
            load(each.certificate, each.key)
    except InvalidSpec:
        return False
    return True
