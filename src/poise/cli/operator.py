"""`poise operator`: the Kubernetes controllers, one leader among as many processes as are started."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from poise.cli.kube_options import need_package
from poise.cli.page_flags import OpenPage, PageFlags, page_flags
from poise.cli.webhook_flags import HookFlags, webhook_flags

if TYPE_CHECKING:
    from poise.jobs.operating import Operator
    from poise.kube import Client

LISTEN = "127.0.0.1:8080"
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,198}[A-Za-z0-9])?")


@click.command(
    epilog="""\b
Examples:
  poise operator --definitions | kubectl apply -f -
  poise operator
  poise operator --namespace team-a --listen 0.0.0.0:8080
  poise operator --webhook 0.0.0.0:9443 --webhook-service poise-webhook
  poise operator --page"""
)
@click.option(
    "--kubeconfig", metavar="FILE", help="How to reach the cluster.  [default: the Pod's account, KUBECONFIG]"
)
@click.option("--context", metavar="NAME", help="The context of the kubeconfig.  [default: its current one]")
@click.option("--namespace", metavar="NS", help="Only rings and objects of this namespace.  [default: all]")
@click.option(
    "--listen", metavar="HOST:PORT", default=LISTEN, show_default=True, help="Where /metrics, /livez and /readyz are."
)
@click.option("--id", "name", metavar="ID", help="The name of this process in Leases.  [default: the host's]")
@click.option(
    "--lease-seconds",
    type=click.IntRange(3, 3600),
    default=15,
    show_default=True,
    metavar="N",
    help="After so long without a word from the leader another one leads.",
)
@click.option(
    "--protect/--no-protect",
    default=True,
    show_default=True,
    help="Let the API server refuse everybody else who writes labels of rings.",
)
@click.option("--exempt", multiple=True, metavar="USER", help="One more controller that copies labels (repeatable).")
@webhook_flags
@page_flags
@click.option("--definitions", is_flag=True, help="Print the custom resource definitions, for kubectl, and end.")
def operator(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    listen: str,
    name: str | None,
    lease_seconds: int,
    protect: bool,
    exempt: tuple[str, ...],
    hook: HookFlags,
    page: PageFlags,
    definitions: bool,
) -> None:
    """Run the jobs that live on Kubernetes, until a signal comes.

    A ShardRing shares the objects of a cluster out over the instances of one controller: the operator watches rings,
    objects and the Leases of instances, and writes labels. It is not on the path of any reconciliation: when it
    stops, everybody goes on with what they have.

    Start as many processes as you like: one leads, by the Lease poise-operator in the namespace of its Pod (else in
    --namespace, else in that of the kubeconfig), and the others stand by. SIGTERM lets go of the lead, so that the
    next one need not wait.

    What it answers on HTTP can be read by everybody who reaches the address, and nothing can be changed there: it is
    this machine only, unless --listen says otherwise. In a Pod, probes need --listen 0.0.0.0:8080. The page names
    objects, too, and so has an address of its own, on this machine only: reach that of a Pod by kubectl port-forward.
    """
    need_package()
    if definitions:
        _print_definitions()
        return
    _check_names(namespace, name)
    hook.check()
    page.check()
    from poise.jobs.operating import Operator, identity, request_s
    from poise.kube import connect
    from poise.serve.settings import ServeSettings, open_sockets, read_listen

    host, port = read_listen(listen)
    client = connect(kubeconfig, context=context, request_s=request_s(lease_seconds))
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="poise: %(message)s")
    for chatty in ("httpx2", "httpcore2", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    sockets = open_sockets(ServeSettings(host=host, port=port))
    with closing(sockets[0]), hook.opened() as hook_sockets, page.opened() as shown:
        home = _home(client, namespace, in_pod=kubeconfig is None)
        me = identity(name or re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()).strip("-.") or "host")
        made = Operator(
            client,
            me=me,
            home=home,
            scope=namespace,
            lease_s=lease_seconds,
            protecting=protect,
            exempt=exempt,
            webhook=hook.terms(home),
            tell=_say,
        )
        _say(f"answers on http://{host}:{sockets[0].getsockname()[1]}; Ctrl-C ends it")
        for each in hook_sockets:
            _say(f"the webhook listens on port {each.getsockname()[1]}")
        if shown is not None:
            _say(f"the page is at {shown.url}")
        asyncio.run(_run(made, client, sockets, hook_sockets, shown))


async def _run(
    made: Operator,
    client: Client,
    sockets: list[socket.socket],
    hook_sockets: list[socket.socket],
    page: OpenPage | None,
) -> None:
    """Run until a signal comes or the operator ends; health is answered until the last moment."""
    from poise.errors import Hung

    ended, quiet = _until_signal(), asyncio.Event()
    async with client:
        serving = asyncio.create_task(_show(made, sockets, page, quiet))
        answering = asyncio.create_task(_answer(made, hook_sockets, quiet))
        working = asyncio.create_task(made.run())
        ending = asyncio.create_task(ended.wait())
        await asyncio.wait([working, ending, serving], return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        try:
            await working
        except asyncio.CancelledError:
            _say("ended")
        except Hung as error:
            # Nothing is waited for: whatever still runs must not outlast the Lease.
            _say(f"{error}: this process ends now")
            os._exit(1)
        except ExceptionGroup as error:
            raise _fault(error) from None
        finally:
            quiet.set()
            ending.cancel()
            await asyncio.gather(serving, answering)


async def _show(made: Operator, sockets: list[socket.socket], page: OpenPage | None, ended: asyncio.Event) -> None:
    """Serve health and numbers, and at its own address the page, where there is one."""
    from poise.serve.probes import probe_app, serve_probes

    probes = probe_app(made.dead, made.unready, made.metrics.exposition)
    if page is None:
        await serve_probes(probes, sockets, ended)
        return
    from poise.serve.rings.ring_page import RingPage

    shown = RingPage(lambda: made.rings, made.leader, page.settings)
    await asyncio.gather(serve_probes(probes, sockets, ended), shown.serve(page.sockets, ended))


async def _answer(made: Operator, sockets: list[socket.socket], ended: asyncio.Event) -> None:
    """Serve the webhook, where there is one."""
    from poise.serve.webhook import serve_webhook

    if made.webhook is not None:
        await serve_webhook(made.webhook.answer, made.webhook.certificates.shown.context, sockets, ended)


def _until_signal() -> asyncio.Event:
    """Give what is set when a signal comes; a second one ends at once."""
    ended = asyncio.Event()

    def end() -> None:
        if ended.is_set():
            os._exit(130)  # Twice means now: the Lease tells the others.
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    return ended


def _fault(error: ExceptionGroup[Exception]) -> click.ClickException:
    """Tell a fault of ours in one line; the log has its trace."""
    from poise.jobs.sharder.ring_run import told, trace

    logging.getLogger("poise.operator").error("operator.fault\n%s", trace(error))
    return click.ClickException(f"a fault of Poise itself, please report it: {told(error)}")


def _print_definitions() -> None:
    """Print the definitions of the five kinds as one file."""
    from poise.documents import write_yaml
    from poise.kube.crds import DEFINED, definition

    click.echo("---\n".join(write_yaml(definition(kind)) for kind in DEFINED), nl=False)


def _check_names(namespace: str | None, name: str | None) -> None:
    """Refuse names that Kubernetes would refuse later, or that could be taken for others."""
    if namespace is not None and not _LABEL.fullmatch(namespace):
        raise click.UsageError(f"--namespace: expected the name of a namespace, got {namespace[:80]!r}")
    if name is not None and not _ID.fullmatch(name):
        raise click.UsageError(f"--id: expected letters and digits, with '-' or '.' between them, got {name[:80]!r}")


def _home(client: Client, scope: str | None, *, in_pod: bool) -> str:
    """Choose the namespace of the leader's Lease: the Pod's, else the one that is looked at, else the user's own."""
    from lightkube.config.kubeconfig import SERVICE_ACCOUNT

    if in_pod and (Path(SERVICE_ACCOUNT) / "namespace").is_file():
        return client.namespace
    return scope or client.namespace


def _say(text: str) -> None:
    click.echo(f"poise: {text}", err=True)
