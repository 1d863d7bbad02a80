"""The flags of the page of `poise operator`: checked together, before anything starts."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

import click
import msgspec

if TYPE_CHECKING:
    from poise.serve.settings import ServeSettings

LISTEN = "127.0.0.1:8081"
Given = ParamSpec("Given")
Result = TypeVar("Result")


class OpenPage(NamedTuple):
    """Where the page is, with its address taken."""

    settings: ServeSettings
    sockets: list[socket.socket]

    @property
    def url(self) -> str:
        """Its address as a browser is told."""
        host = self.settings.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.settings.port}"


class PageFlags(msgspec.Struct, frozen=True):
    """The flags as they were given."""

    page: bool = False
    page_listen: str | None = None
    insecure: bool = False
    hosts: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse flags of a page that is not wanted, and an address that would show it to others by mistake."""
        if self.page:
            self._settings()
            return
        given = {"--page-listen": self.page_listen is not None, "--insecure": self.insecure, "--host": self.hosts}
        for flag, said in given.items():
            if said:
                raise click.UsageError(f"{flag} is about the page: say --page")

    def _settings(self) -> ServeSettings:
        """Read where the page is to be; only this machine reaches it, unless more is meant."""
        from poise.errors import invalid
        from poise.serve.settings import ServeSettings, is_loopback, read_listen

        with _named():
            host, port = read_listen(LISTEN if self.page_listen is None else self.page_listen)
        if not self.insecure and not is_loopback(host):
            told = f"{host} can be reached by others: use kubectl port-forward, or say --insecure if that is meant"
            raise invalid("--page-listen", told)
        return ServeSettings(host=host, port=port, insecure=self.insecure, hosts=self.hosts)

    @contextmanager
    def opened(self) -> Iterator[OpenPage | None]:
        """Take the address of the page, where there is one, while the block runs."""
        from poise.serve.settings import open_sockets

        if not self.page:
            yield None
            return
        settings = self._settings()
        with _named():
            sockets = open_sockets(settings)
        with closing(sockets[0]):
            port: int = sockets[0].getsockname()[1]
            yield OpenPage(msgspec.structs.replace(settings, port=port), sockets)


@contextmanager
def _named() -> Iterator[None]:
    """Let what is wrong with an address name the flag of the page."""
    from poise.errors import Fault, InvalidSpec

    try:
        yield
    except InvalidSpec as error:
        raise InvalidSpec(*(Fault("--page-listen", fault.message) for fault in error.faults)) from None


def page_flags(command: Callable[Given, Result]) -> Callable[..., Result]:
    """Give a command the flags of the page, as one argument `page`."""

    @functools.wraps(command)
    def flagged(*given: Given.args, **named: Given.kwargs) -> Result:
        values = {name: named.pop(name) for name in PageFlags.__struct_fields__}
        named["page"] = msgspec.convert(values, PageFlags)
        return command(*given, **named)

    says = "Serve a page that shows the rings and changes nothing, at an address of its own."
    options = (
        click.option("--page", is_flag=True, help=says),
        click.option("--page-listen", metavar="HOST:PORT", help=f"Where the page is.  [default: {LISTEN}]"),
        click.option("--insecure", is_flag=True, help="Let everybody look who reaches the address of the page."),
        click.option("--host", "hosts", multiple=True, metavar="NAME", help="One more name that the page answers to."),
    )
    for option in reversed(options):
        flagged = option(flagged)
    return flagged
