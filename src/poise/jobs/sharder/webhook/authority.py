"""The certificates that an operator makes for itself, and when they are replaced. Time is an argument.

Each serving certificate has an authority of its own, which signs it and nothing else: its key is thrown away. Order of
a replacement: the new authority is trusted beside the old one, and only then the new certificate is served.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from poise.errors import InvalidSpec
from poise.jobs.sharder.webhook.x509 import Span, certificates, issue, read_span

LASTS, RENEWED = timedelta(days=90), timedelta(days=30)
_SKEW = timedelta(hours=1)  # Clocks of other machines may be behind.
_CURRENT, _NEXT = ("tls.crt", "tls.key", "tls.names"), ("next.crt", "next.key", "next.names")
_BUNDLE = "ca.crt"


class Served(msgspec.Struct, frozen=True):
    """A serving certificate with its key, in PEM, and the names that it was made for."""

    certificate: str
    key: str
    names: tuple[str, ...] = ()


class Kept(msgspec.Struct, frozen=True):
    """What a Secret keeps: what is served, what will be served next, and all authorities that are to be trusted."""

    current: Served
    bundle: tuple[str, ...]
    next: Served | None = None

    @property
    def trusted(self) -> str:
        """All authorities as one text."""
        return "".join(self.bundle)


def make_served(names: tuple[str, ...], now: datetime) -> tuple[Served, str]:
    """Make a serving certificate, and the authority that vouches for it."""
    made = issue(names, Span(now - _SKEW, now + LASTS))
    return Served(made.certificate, made.key, names), made.authority


def next_kept(kept: Kept | None, names: tuple[str, ...], now: datetime, *, trusted: bool) -> Kept | None:
    """Decide what is to be kept instead; None where all is well.

    `trusted`: the API server has known the kept authorities for long enough. What is of no use now, because it has run
    out or has other names, is replaced at once: nobody believes it anyhow.
    """
    bundle = () if kept is None else tuple(each for each in kept.bundle if not _is_over(each, now))
    if kept is None or _is_over(kept.current.certificate, now) or kept.current.names != names:
        made, authority = make_served(names, now)
        return Kept(made, (*bundle, authority))
    if kept.next is not None and (kept.next.names != names or _is_over(kept.next.certificate, now)):
        return Kept(kept.current, bundle)
    if kept.next is not None and trusted:
        return Kept(kept.next, bundle)
    if kept.next is None and read_span(kept.current.certificate).ends - now < RENEWED:
        made, authority = make_served(names, now)
        return Kept(kept.current, (*bundle, authority), made)
    return None if bundle == kept.bundle else Kept(kept.current, bundle, kept.next)


def _is_over(pem: str, now: datetime) -> bool:
    return now >= read_span(pem).ends


def write_kept(kept: Kept) -> dict[str, str]:
    """Write what is kept as the data of a Secret."""
    texts = {_BUNDLE: kept.trusted}
    for names, served in ((_CURRENT, kept.current), (_NEXT, kept.next)):
        if served is not None:
            values = (served.certificate, served.key, ",".join(served.names))
            texts |= dict(zip(names, values, strict=True))
    return {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}


def read_kept(data: Mapping[str, str]) -> Kept | None:
    """Read the data of a Secret; None where somebody spoilt it, or put nothing in it yet."""
    try:
        texts = {name: base64.b64decode(value).decode() for name, value in data.items()}
        current, following = _served(texts, _CURRENT), _served(texts, _NEXT)
        bundle = tuple(certificates(texts.get(_BUNDLE, "")))
        for each in bundle:
            read_span(each)
    except (binascii.Error, UnicodeDecodeError, InvalidSpec):
        return None
    return None if current is None or not bundle else Kept(current, bundle, following)


def _served(texts: Mapping[str, str], names: tuple[str, str, str]) -> Served | None:
    certificate, key, told = (texts.get(name, "") for name in names)
    if not certificate or not key:
        return None
    read_span(certificate)
    return Served(certificate, key, tuple(told.split(",")) if told else ())
