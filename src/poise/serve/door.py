"""Who may come in: tokens, sessions of the page, the names of this server, and where a request comes from."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import socket
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import msgspec

from poise import clock
from poise.errors import InvalidSpec
from poise.serve.asking import Who
from poise.serve.problems import Refused
from poise.serve.settings import ServeSettings, Token, is_loopback, read_tokens

COOKIE = "poise_session"
ANYBODY, LOOKER = Who("anybody", "operator"), Who("anybody", "viewer")
NOBODY = Who("nobody", "none")
_SESSIONS_MAX = 1_000
_LOOK_S = 1.0
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]*))(?::[0-9]{0,5})?")
_log = logging.getLogger("poise.door")


class Session(msgspec.Struct, frozen=True):
    """A browser that has shown a token; it lasts as long as the token does, and no longer than its own time."""

    sha256: str
    until_s: float


class Door:
    """Judges every request before anything of its body is read. One event loop uses it, and login threads."""

    def __init__(self, settings: ServeSettings) -> None:
        """Read the tokens; later changes of their file are noticed."""
        self._settings = settings
        self._tokens: list[Token] = []
        self._stamp: tuple[int, int] | None = None
        self._looked_s = 0.0
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._names = _own_names(settings)
        if settings.tokens is not None:
            self._stamp = stamp_of(settings.tokens)
            self._tokens = read_tokens(settings.tokens)

    def identify(self, headers: Mapping[str, str]) -> tuple[Who, bool]:
        """Say who asks, and whether it was by a cookie: then a browser may have been made to ask."""
        if self._settings.on_kubernetes:
            return LOOKER, False
        if self._settings.is_open:
            return ANYBODY, False
        self._look_again()
        scheme, _, said = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            token = self._of(_digest(said.strip()))
            if token is None:
                raise _unknown_token()
            return _who(token), False
        return self._by_cookie(headers.get("cookie", "")), True

    def _of(self, digest: str) -> Token | None:
        """Compare with every token in the same time, whichever it is and however much of it is right."""
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.sha256, digest):
                found = token
        return found

    def _by_cookie(self, header: str) -> Who:
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name != COOKIE:
                continue
            session = self._sessions.get(_digest(value))
            if session is not None and clock.boot_s() < session.until_s:
                token = self._of(session.sha256)
                return NOBODY if token is None else _who(token)
        return NOBODY

    def log_in(self, said: str) -> str:
        """Make a session of a token, and give the cookie's value; the oldest session ends where there are too many."""
        if self._settings.is_open:
            return ""
        token = self._of(_digest(said))
        if token is None:
            raise _unknown_token()
        value = secrets.token_urlsafe(32)
        self._sessions[_digest(value)] = Session(token.sha256, clock.boot_s() + self._settings.session_s)
        while len(self._sessions) > _SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return value

    def log_out(self, header: str) -> None:
        """End the session of a cookie for good: a copy of it is worth nothing."""
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == COOKIE:
                self._sessions.pop(_digest(value), None)

    def _look_again(self) -> None:
        """Take a changed tokens file, so that a token can be withdrawn; a broken one changes nothing."""
        path, now_s = self._settings.tokens, clock.boot_s()
        if path is None or now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        stamp = stamp_of(path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._tokens = read_tokens(path)
            _log.info("tokens.reloaded tokens=%d", len(self._tokens))
        except InvalidSpec as error:
            _log.error("tokens.kept reason=%s", error)

    def check_host(self, headers: Mapping[str, str], reached: str) -> None:
        """Refuse a name that is not ours: a page of another site may have made it point here (DNS rebinding).

        The very address that was reached is always ours: an address cannot be made to point elsewhere.
        """
        host = _bare(headers.get("host", ""))
        if host not in self._names and host != reached.lower():
            raise Refused(421, f"the Host {host[:100]!r} is none of this server's; name it with --host if it should be")

    def check_origin(self, method: str, headers: Mapping[str, str], by_cookie: bool) -> None:
        """Refuse a changing request that a page of another origin has made a browser send."""
        if method in _READS:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if site not in ("same-origin", "none"):
            raise Refused(403, "a page of another site may not change anything here (Sec-Fetch-Site)")
        if origin is None:
            if by_cookie and COOKIE in headers.get("cookie", ""):
                raise Refused(403, "a changing request with a cookie must name its Origin")
            return
        # A proxy may speak TLS for a server that does not, never the other way round.
        schemes = ("https",) if self._settings.tls_cert else ("http", "https")
        if origin.lower() not in {f"{scheme}://{headers.get('host', '').lower()}" for scheme in schemes}:
            raise Refused(403, f"the Origin {origin[:100]!r} may not change anything here")


def stamp_of(path: Path) -> tuple[int, int] | None:
    """Say when a file was changed, and which file it is; None where it cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _own_names(settings: ServeSettings) -> frozenset[str]:
    """List the names that this server answers to."""
    names = {settings.host.lower(), *map(_bare, settings.hosts)}
    if is_loopback(settings.host):
        names |= _LOCAL
    elif settings.host in ("0.0.0.0", "::"):
        names |= _LOCAL | {socket.gethostname().lower()}
    return frozenset(names - {"", "0.0.0.0", "::"})


def _bare(host: str) -> str:
    """Take the port and the brackets from a Host: what matters is the name; a port that is no number names nobody."""
    text = host.strip().lower()
    found = _HOST.fullmatch(text)
    return text if found is None else found[1] or found[2]


def _who(token: Token) -> Who:
    return Who(token.name, token.role, token.set)


def _digest(value: str) -> str:
    """Hash a secret: what is compared or looked up tells nothing about the secret by the time that it takes."""
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()


def _unknown_token() -> Refused:
    return Refused(401, "the token is not known", headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})
