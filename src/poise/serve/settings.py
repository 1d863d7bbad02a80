"""How the server listens and what it lets in, from flags and the environment; a mistake is told before it starts."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from poise.errors import Fault, InvalidSpec, invalid

LISTEN = "127.0.0.1:7878"
MIB = 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_SPLIT = re.compile(r"[,\s]+")
_TOKENS_BYTES_MAX = MIB


class Token(msgspec.Struct, frozen=True):
    """One line of the tokens file; a member's token is good for one set only."""

    name: str
    role: str
    sha256: str
    set: str = ""


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the HTTP side of a server is started with. The limits are those of the contract; tests shorten them."""

    host: str = "127.0.0.1"
    port: int = 7878
    tokens: Path | None = None
    insecure: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    hosts: tuple[str, ...] = ()
    body_max: int = 8 * MIB
    buffers_max: int = 256 * MIB
    headers_max: int = 64 * 1024
    request_s: float = 30.0
    streams_max: int = 1_000
    lag_max: int = 5_000
    ping_s: float = 15.0
    session_s: float = 12 * 3600.0
    connections_max: int = 10_000
    end_s: float = 5.0
    on_kubernetes: bool = False  # What is shown lives there, and is changed there: here everybody only looks.

    @property
    def is_open(self) -> bool:
        """Tell whether everybody who reaches the server may do everything; the page says so."""
        return self.tokens is None

    @property
    def scheme(self) -> str:
        """Name the scheme of the server's own addresses."""
        return "https" if self.tls_cert else "http"


def read_settings(
    *,
    listen: str | None = None,
    tokens: str | None = None,
    insecure: bool = False,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    hosts: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> ServeSettings:
    """Check flags, and the environment where a flag is not given; InvalidSpec with every mistake at once."""
    there = environ or {}
    host, port = read_listen(listen or there.get("POISE_LISTEN") or LISTEN)
    names = tuple(hosts) or tuple(part for part in _SPLIT.split(there.get("POISE_HOSTS", "")) if part)
    settings = ServeSettings(
        host=host,
        port=port,
        tokens=_path(tokens or there.get("POISE_TOKENS")),
        insecure=insecure or there.get("POISE_INSECURE", "") in ("1", "true"),
        tls_cert=_path(tls_cert or there.get("POISE_TLS_CERT")),
        tls_key=_path(tls_key or there.get("POISE_TLS_KEY")),
        hosts=tuple(name.lower() for name in names),
    )
    check_settings(settings)
    return settings


def check_settings(settings: ServeSettings) -> None:
    """Refuse settings that cannot work or would leave the door open by mistake."""
    faults: list[Fault] = []
    if settings.tokens is None and not settings.insecure and not is_loopback(settings.host):
        told = f"{settings.host} can be reached by others: give --tokens FILE, or say --insecure if that is meant"
        faults.append(Fault("--listen", told))
    if (settings.tls_cert is None) != (settings.tls_key is None):
        faults.append(Fault("--tls-key" if settings.tls_key is None else "--tls-cert", "needed beside the other one"))
    for check in (lambda: settings.tokens and read_tokens(settings.tokens), lambda: tls_context(settings)):
        try:
            check()
        except InvalidSpec as error:
            faults += error.faults
    if faults:
        raise InvalidSpec(*faults)


def read_listen(text: str) -> tuple[str, int]:
    """Read an address and a port: 127.0.0.1:7878, [::1]:7878, name:7878, or :7878 for every address."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]*)):(\d{1,5})", text.strip())
    if found is None or int(found[3]) > 65535:
        raise invalid("--listen", f"expected ADDRESS:PORT such as {LISTEN} or [::1]:7878, got {text[:80]!r}")
    host = found[1] or found[2] or "0.0.0.0"
    if found[1]:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise invalid("--listen", f"{host!r} is no IPv6 address") from None
    return host, int(found[3])


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address; a name other than localhost may mean anything."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_tokens(path: Path) -> list[Token]:
    """Read a tokens file: a name, a role and the SHA-256 of the token on each line; # begins a comment.

    The roles are viewer, operator and member; a member's token names its set as `member:SET`, or is named like it.
    """
    try:
        if path.stat().st_size > _TOKENS_BYTES_MAX:
            raise invalid("--tokens", f"{path} is larger than 1 MiB")
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidSpec):
            raise
        why = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise invalid("--tokens", f"{path} cannot be read: {why}") from None
    tokens: list[Token] = []
    faults: list[Fault] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if words := _SPLIT.sub(" ", line.split("#", 1)[0]).split():
            token = _token(words)
            faults += [Fault(f"{path}, line {number}", token)] if isinstance(token, str) else []
            tokens += [token] if isinstance(token, Token) else []
    if not tokens and not faults:
        faults.append(Fault("--tokens", f"{path} has no token"))
    faults += _twice(tokens, path)
    if faults:
        raise InvalidSpec(*faults)
    return tokens


def _token(words: list[str]) -> Token | str:
    """Read one line, or say what is wrong with it, without repeating what may be a secret."""
    if len(words) != 3:
        return f"expected a name, a role and a SHA-256, got {len(words)} word{'s' if len(words) > 1 else ''}"
    name, role, digest = words
    role, _, only = role.partition(":")
    if role not in ("viewer", "operator", "member") or (only and role != "member"):
        return "expected the role viewer, operator, member or member:SET"
    if not _SHA256.match(digest.lower()):
        return "expected a SHA-256 of 64 hexadecimal digits (printf %s TOKEN | sha256sum)"
    return Token(name, role, digest.lower(), (only or name) if role == "member" else "")


def _twice(tokens: list[Token], path: Path) -> list[Fault]:
    digests = [token.sha256 for token in tokens]
    return [
        Fault(f"{path}", f"{token.name}: the same token as another line")
        for place, token in enumerate(tokens)
        if token.sha256 in digests[:place]
    ]


def tls_context(settings: ServeSettings) -> ssl.SSLContext | None:
    """Make the TLS of the server, if it has any."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    load_certificate(context, settings.tls_cert, settings.tls_key)
    return context


def pods_context(ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext | None:
    """Make the TLS towards pods, if something is said of it: whom to believe, and what to show them."""
    if (cert is None) != (key is None):
        raise invalid("--pods-cert", "--pods-cert and --pods-key belong together")
    if ca is None and cert is None:
        return None
    try:
        context = ssl.create_default_context(cafile=ca)
    except (ssl.SSLError, OSError) as error:
        raise invalid("--pods-ca", f"{ca} is no file of certificates: {error.strerror or error}") from None
    if cert is not None and key is not None:
        load_certificate(context, Path(cert), Path(key), prefix="--pods")
    return context


def load_certificate(context: ssl.SSLContext, cert: Path, key: Path, *, prefix: str = "--tls") -> None:
    """Read the two files; InvalidSpec where they cannot be read or do not belong together."""
    for flag, path in ((f"{prefix}-cert", cert), (f"{prefix}-key", key)):
        try:
            path.open("rb").close()
        except OSError as error:
            raise invalid(flag, f"{path} cannot be read: {error.strerror}") from None
    try:
        # A key with a password must not make the server ask for it on the terminal.
        context.load_cert_chain(cert, key, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        raise invalid(f"{prefix}-cert", f"{cert} and {key} are no certificate with its key: {why}") from None


def open_sockets(settings: ServeSettings) -> list[socket.socket]:
    """Take the address before anything else starts, so that a taken one is told at once."""
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind(address)
        except OSError:
            opened.close()
            raise
    except OSError as error:
        raise invalid("--listen", f"{settings.host}:{settings.port}: {error.strerror or error}") from None
    opened.listen(2048)
    opened.setblocking(False)
    return [opened]


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
