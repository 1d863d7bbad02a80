"""`poise conformance shard`: does a shard, in any language, keep the written contract?"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from poise.cli.common import Output, emit, output_option, paint
from poise.cli.kube_options import need_package

if TYPE_CHECKING:
    from collections.abc import Callable

    from poise.conformance.check import Progress, Wanted
    from poise.conformance.rules import Report
    from poise.kube import Client

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_SPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_COLOURS = {"passed": "green", "failed": "red", "not observed": "yellow"}


@click.group()
def conformance() -> None:
    """Check programs in any language against the written contracts."""


@conformance.command(
    epilog="""\b
Examples:
  poise conformance shard --ring try -- ./my-operator
  poise conformance shard --ring try -- python my_operator.py --ring {ring} --name {instance}
  poise conformance shard --ring try --rule release-on-exit --logs out -- ./my-operator"""
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--ring", required=True, metavar="R", help="The ring to make for the check; none of that name may exist.")
@click.option(
    "--kubeconfig", metavar="FILE", help="How to reach the cluster.  [default: the Pod's account, KUBECONFIG]"
)
@click.option("--context", metavar="NAME", help="The context of the kubeconfig.  [default: its current one]")
@click.option("--namespace", metavar="NS", help="Check in this namespace.  [default: a new one]")
@click.option(
    "--lease-seconds",
    type=click.IntRange(2, 60),
    default=5,
    show_default=True,
    metavar="N",
    help="How long Leases last; a check takes about twelve times as long.",
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    metavar="N",
    help="How many acts run side by side; several processes of COMMAND must get on with each other.",
)
@click.option("--rule", "rules", multiple=True, metavar="RULE", help="Only the acts that show this rule (repeatable).")
@click.option("--logs", type=click.Path(path_type=Path), metavar="DIR", help="Keep there what COMMAND says.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1, 36_000),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up after this.",
)
@output_option
def shard(
    command: tuple[str, ...],
    ring: str,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    lease_seconds: int,
    at_once: int,
    rules: tuple[str, ...],
    logs: Path | None,
    timeout_s: float,
    output: Output,
) -> int:
    """Run COMMAND as an instance of a ring, and report each rule of the contract for shards by its name.

    The check makes a ring, plays its sharder, gives and takes Secrets, and looks at what COMMAND asks of the API
    server, through a gate that its kubeconfig leads to. No operator may watch that ring. COMMAND is started once for
    each act, twice in one of them, and told who it is:

    \b
      KUBECONFIG            how it reaches the cluster; it must use this
      POISE_RING            the ring, also as {ring} in COMMAND
      POISE_NAMESPACE       where ring, Leases and Secrets are, also as {namespace}
      POISE_INSTANCE        its name (POD_NAME says the same), also as {instance}
      POISE_LEASE_SECONDS   how long its Lease lasts, as the ring says

    Its duty: whenever the data of a Secret that it holds has changed, write something, on the Secret or on any other
    object that names it. SIGTERM asks it to leave. All that was made is removed at the end, also after Ctrl-C.

    Exit code 0: every rule is kept. 1: one is broken, or could not be observed.
    """
    from poise.cli.main import FAILED, OK

    wanted = _read(command, ring, namespace, lease_seconds, at_once, rules, logs, timeout_s)
    report = _run(wanted, kubeconfig, context)
    if output != "table":
        emit(report, output)
    else:
        click.echo(text_of(report))
    return OK if report.conforms else FAILED


def _read(
    command: tuple[str, ...],
    ring: str,
    namespace: str | None,
    lease_s: int,
    at_once: int,
    rules: tuple[str, ...],
    logs: Path | None,
    timeout_s: float,
) -> Wanted:
    """Refuse what cannot be checked before anything is made."""
    need_package()
    from poise.conformance.check import Wanted
    from poise.conformance.rules import RULES

    if not _NAME.fullmatch(ring):
        raise click.UsageError(f"--ring: expected at most 63 of a-z, 0-9, - and ., got {ring[:80]!r}")
    if namespace is not None and not _SPACE.fullmatch(namespace):
        raise click.UsageError(f"--namespace: expected the name of a namespace, got {namespace[:80]!r}")
    for rule in rules:
        if rule not in RULES:
            raise click.UsageError(f"--rule: there is no rule {rule[:80]!r}; there are {', '.join(RULES)}")
    if shutil.which(command[0]) is None:
        raise click.UsageError(f"{command[0]}: no such command")
    return Wanted(
        command=command,
        ring=ring,
        namespace=namespace,
        lease_s=lease_s,
        at_once=at_once,
        rules=rules,
        logs=logs,
        timeout_s=timeout_s,
    )


def _run(wanted: Wanted, kubeconfig: str | None, context: str | None) -> Report:
    """Check, with a line of progress; a signal ends the check, which then cleans up."""
    from poise.cli.progress import Line, Seen
    from poise.kube import connect

    client, line = connect(kubeconfig, context=context), Line()

    def tell(progress: Progress) -> None:
        text = f"{progress.done} of {progress.total} acts, now: {progress.text}"
        line.show(Seen(text, is_end=False, done=progress.done, total=progress.total))

    try:
        return asyncio.run(_check(client, wanted, tell))
    except asyncio.CancelledError:
        raise click.Abort from None
    finally:
        line.clear()


async def _check(client: Client, wanted: Wanted, tell: Callable[[Progress], None]) -> Report:
    from poise.conformance.check import check

    task = asyncio.current_task()
    assert task is not None, "this runs as a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with client:
        return await check(client, wanted, tell, lambda text: click.echo(f"poise: {text}", err=True))


def text_of(report: Report) -> str:
    """Say a line a rule, what was seen below those that are not kept, and the sum."""
    wide = max(len(each.name) for each in report.rules)
    lines = [f"Ring {report.ring}: {' '.join(report.command)} ({report.seconds:.0f} s)"]
    for each in report.rules:
        outcome = paint(f"{each.outcome:<12}", _COLOURS[each.outcome])
        lines.append(f"  {outcome}  {each.name:<{wide}}  {each.says}")
        lines += [f"{'':<16}{seen}" for seen in each.seen if each.outcome != "passed"]
    counts = [sum(each.outcome == outcome for each in report.rules) for outcome in _COLOURS]
    lines.append(f"Rules: {counts[0]} kept, {counts[1]} broken, {counts[2]} not observed.")
    return "\n".join(lines)
