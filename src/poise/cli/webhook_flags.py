"""The flags of the webhook of `poise operator`: checked together, before anything starts."""

from __future__ import annotations

import functools
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click
import msgspec

if TYPE_CHECKING:
    from poise.jobs.sharder.webhook.hook import HookTerms

Given = ParamSpec("Given")
Result = TypeVar("Result")
_SERVICE = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_OPTIONS = (
    ("--webhook", "HOST:PORT", "Assign new objects in the request that makes them: serve a webhook here."),
    ("--webhook-service", "NAME", "The Service (port 443) by which the API server reaches it."),
    ("--webhook-url", "URL", "The address by which the API server reaches it."),
    ("--webhook-cert", "FILE", "Its certificate; read again when it changes.  [default: the operator makes its own]"),
    ("--webhook-key", "FILE", "The key of that certificate."),
    ("--webhook-ca", "FILE", "The authorities by which the API server believes that certificate."),
)


class HookFlags(msgspec.Struct, frozen=True):
    """The flags as they were given."""

    webhook: str | None = None
    webhook_service: str | None = None
    webhook_url: str | None = None
    webhook_cert: str | None = None
    webhook_key: str | None = None
    webhook_ca: str | None = None

    @property
    def files(self) -> tuple[str | None, str | None, str | None]:
        """The three files of the certificate."""
        return self.webhook_cert, self.webhook_key, self.webhook_ca

    def check(self) -> None:
        """Refuse flags that make no sense together."""
        ways = [each for each in (self.webhook_service, self.webhook_url) if each is not None]
        files = [each for each in self.files if each is not None]
        if self.webhook is None:
            if ways or files:
                raise click.UsageError("--webhook HOST:PORT is needed beside the other flags of the webhook")
            return
        if len(ways) != 1:
            raise click.UsageError("--webhook: say how it is reached, by --webhook-service or by --webhook-url")
        if files and len(files) != len(self.files):
            raise click.UsageError("--webhook-cert, --webhook-key and --webhook-ca belong together")
        if self.webhook_service is not None and not _SERVICE.fullmatch(self.webhook_service):
            raise click.UsageError(f"--webhook-service: expected the name of a Service, got {ways[0][:80]!r}")

    def terms(self, home: str) -> HookTerms | None:
        """Say how the webhook is reached and believed, where there is one; `home` is the operator's namespace."""
        from poise.jobs.sharder.webhook.configuring import Reached, read_url
        from poise.jobs.sharder.webhook.hook import HookTerms

        if self.webhook is None:
            return None
        reached = Reached(
            self.webhook_service or "", home, "" if self.webhook_url is None else read_url(self.webhook_url)
        )
        cert, key, trusted = self.files
        if cert is None or key is None or trusted is None:
            return HookTerms(reached, home)
        return HookTerms(reached, home, (Path(cert), Path(key), Path(trusted)))

    @contextmanager
    def opened(self) -> Iterator[list[socket.socket]]:
        """Take the address of the webhook, where there is one, while the block runs."""
        from poise.errors import Fault, InvalidSpec
        from poise.serve.settings import ServeSettings, open_sockets, read_listen

        sockets: list[socket.socket] = []
        if self.webhook is not None:
            try:
                host, port = read_listen(self.webhook)
                sockets = open_sockets(ServeSettings(host=host, port=port))
            except InvalidSpec as error:
                raise InvalidSpec(*(Fault("--webhook", fault.message) for fault in error.faults)) from None
        try:
            yield sockets
        finally:
            for each in sockets:
                each.close()


def webhook_flags(command: Callable[Given, Result]) -> Callable[..., Result]:
    """Give a command the flags of the webhook, as one argument `hook`."""

    @functools.wraps(command)
    def flagged(*given: Given.args, **named: Given.kwargs) -> Result:
        values = {name: named.pop(name) for name in HookFlags.__struct_fields__}
        named["hook"] = msgspec.convert(values, HookFlags)
        return command(*given, **named)

    for flag, metavar, says in reversed(_OPTIONS):
        flagged = click.option(flag, metavar=metavar, help=says)(flagged)
    return flagged
