"""How the verbs reach a cluster: the flags that kubectl's users know, one client, and every failure in one line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from poise.cli.common import Output, said_server
from poise.errors import Fault, InvalidSpec, NotFound, Unavailable

if TYPE_CHECKING:
    from poise.kube import Client
    from poise.kube.objects import Custom

Answer = TypeVar("Answer")
Result = TypeVar("Result")
REQUEST_S = 15.0


class Place(NamedTuple):
    """Where rings are looked for; without a namespace it is the one of the context, or with `everywhere` all."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    scoped: bool = False
    everywhere: bool = False


def kube_options(does: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Take where the cluster is, as `place`: None where no cluster is meant, which the first flag says."""

    def decorate(verb: Callable[..., Result]) -> Callable[..., Result]:
        @wraps(verb)
        def placed(
            *,
            kube: bool,
            kubeconfig: str | None,
            kube_context: str | None,
            namespace: str | None,
            scoped: bool,
            **rest: object,
        ) -> Result:
            if not kube and (kubeconfig or kube_context or namespace or scoped):
                raise click.UsageError("--kubeconfig, --context, --namespace and --scoped need --kube")
            if kube and "server" in rest and said_server():
                raise click.UsageError("--server and --kube exclude each other: ask one of them")
            if kube:
                need_package()
            place = Place(kubeconfig, kube_context, namespace, scoped) if kube else None
            return verb(place=place, **rest)

        made: Callable[..., Result] = placed
        flags = (
            click.option("--kube", is_flag=True, help=f"{does}; kubectl poise does without this flag."),
            click.option("--kubeconfig", metavar="FILE", help="With --kube: how to reach it.  [default: KUBECONFIG]"),
            click.option("--context", "kube_context", metavar="NAME", help="With --kube: the context to use."),
            click.option("-n", "--namespace", metavar="NS", help="With --kube: the namespace of the ring."),
            click.option("--scoped", is_flag=True, help="With --kube: only objects of the ring's namespace."),
        )
        for flag in reversed(flags):
            made = flag(made)
        return made

    return decorate


def asking_options(verb: Callable[..., Result]) -> Callable[..., Result]:
    """Take whether to ask, and how to print the plan; a server is told at once, so there both mean nothing."""

    @wraps(verb)
    def asked(*, yes: bool, output: Output, place: Place | None, **rest: object) -> Result:
        if place is None and (yes or output != "table"):
            raise click.UsageError("--yes and --output need --kube: a server is told at once")
        return verb(yes=yes, output=output, place=place, **rest)

    flags = (
        click.option("-y", "--yes", is_flag=True, help="With --kube: do not ask."),
        click.option(
            "-o",
            "--output",
            type=click.Choice(["table", "json", "yaml"]),
            default="table",
            show_default=True,
            help="With --kube: how to print the plan.",
        ),
    )
    made: Callable[..., Result] = asked
    for flag in reversed(flags):
        made = flag(made)
    return made


def need_package() -> None:
    """Say how to get what only Kubernetes needs."""
    try:
        for name in ("lightkube", "cryptography"):
            import_module(name)
    except ImportError:
        raise click.ClickException("Kubernetes needs one more package: pip install 'poise[kube]'") from None


def ask(place: Place, work: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Do something at a cluster, and close the connections whatever happens."""
    from poise.kube import connect

    client = connect(place.kubeconfig, context=place.context, request_s=REQUEST_S)

    async def run() -> Answer:
        async with client:
            return await work(client)

    try:
        return asyncio.run(run())
    except Unavailable as error:
        raise Unavailable(f"the cluster cannot be asked: {error}") from None
    except NotFound as error:
        raise wrong(str(error)) from None


def wrong(text: str) -> InvalidSpec:
    """Refuse what was asked for."""
    return InvalidSpec(Fault("", text))


async def list_rings(client: Client, place: Place) -> list[Custom]:
    """List the rings of a namespace, or of all; a cluster without the definitions says how to install them."""
    from poise.kube import Selection
    from poise.kube.crds import custom_resource
    from poise.kube.objects import Custom

    namespace = "" if place.everywhere else place.namespace or client.namespace
    try:
        found, _ = await client.list_all(Selection(custom_resource("ShardRing"), namespace), Custom)
    except NotFound:
        raise _no_definitions() from None
    return sorted(found, key=lambda each: each.metadata.key)


async def find_ring(client: Client, place: Place, text: str) -> Custom:
    """Find the ring of a NAME or NAMESPACE/NAME; one that is not there is told with those that are."""
    from poise.kube import ObjectRef
    from poise.kube.crds import custom_resource
    from poise.kube.objects import Custom

    namespace, _, name = text.removeprefix("ShardRing/").rpartition("/")
    namespace = namespace or place.namespace or client.namespace
    if not name:
        raise wrong(f"expected the name of a ring, got {text!r}")
    try:
        return await client.get(ObjectRef(custom_resource("ShardRing"), name, namespace), Custom)
    except NotFound:
        there = [each.metadata.name for each in await list_rings(client, place._replace(namespace=namespace))]
        listed = f"; there is {', '.join(there[:8])}" if there else ""
        raise wrong(f"there is no ring {name!r} in the namespace {namespace}{listed}") from None


def _no_definitions() -> InvalidSpec:
    from poise.jobs.operating import DEFINITIONS_HINT

    return wrong(f"the cluster does not know ShardRings; {DEFINITIONS_HINT}")
