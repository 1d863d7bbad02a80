"""`poise apply`: the plan that documents would lead to, a question, the write, and the way there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from poise.cli.common import (
    SERVER,
    Output,
    choose,
    files_argument,
    only_option,
    output_option,
    read_documents,
    server_option,
)
from poise.cli.progress import follow, waiting_options
from poise.errors import Conflict, InvalidSpec, PoiseError

if TYPE_CHECKING:
    from poise.cli.remote import Found, Server
    from poise.jobs.entries import Planned
    from poise.model import Document


class Change(NamedTuple):
    """One document, what is there, and the plan that writing it would lead to; None where only the server can know."""

    document: Document
    tag: str
    verb: str
    planned: Planned | None


@click.command(
    epilog="""\b
Examples:
  poise apply orders.yaml                   shows the plan, asks, and waits until it is done
  poise apply orders.yaml --yes --no-wait
  poise apply orders.yaml --dry-run         only the plan, upon what the server knows
  poise get orders -o yaml > orders.yaml    what is there now, to change it"""
)
@files_argument
@only_option
@server_option(default=SERVER)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@waiting_options
@output_option
@click.option("--all", "everything", is_flag=True, help="Print every move, however many there are.")
def apply(
    files: tuple[str, ...],
    more: tuple[str, ...],
    only: str | None,
    server: str,
    yes: bool,
    dry_run: bool,
    no_wait: bool,
    timeout_s: float,
    output: Output,
    everything: bool,
) -> None:
    """Write the documents of the files to a server, and wait until what they ask for is true.

    The plan is shown before anything is written. If somebody else changes a document meanwhile, or members come and go
    so that the plan is another one, nothing is written and the exit code is 3: look again. A `status` in a file is not
    written, except the counts of a CapacitySplit. A file of targets is read, and watched, by the server.
    """
    from poise.cli.plan import show
    from poise.cli.remote import Server

    documents = [_wanted(each) for each in choose(read_documents([*files, *more], with_targets=False), only)]
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("nobody can be asked here: say --yes, or --dry-run to see the plan only")
    with Server(server) as asked:
        changes = [_look(asked, document) for document in documents]
        planned = [each.planned for each in changes if each.planned is not None]
        if planned:
            show(planned, output, everything=everything)
        for change in changes:
            _say(change)
        if dry_run:
            return
        written = [each for each in changes if each.verb != "unchanged"]
        if written and not yes:
            _ask(asked, written)
        for change in written:
            _write(asked, change, written)
        if not no_wait:
            for change in changes:
                _await(asked, change, timeout_s)


def _wanted(document: Document) -> Document:
    """Leave a status out: it is the server's own, but for the counts that a CapacitySplit reports."""
    import msgspec

    from poise.model import CapacitySplit

    if isinstance(document, CapacitySplit):
        return document
    return msgspec.structs.replace(document, status=type(document.status)())


def _look(server: Server, document: Document) -> Change:
    from poise.cli.remote import job_of
    from poise.cli.settling import is_unread

    there = server.find_document(job_of(document))
    try:
        planned, tag = server.try_put(document)
    except InvalidSpec as error:
        # Of a new pool only the server can read the source; its plan is known when it has.
        if _lists(document) or not is_unread(error):
            raise
        planned, tag = None, there.tag if there is not None else ""
    verb = "new" if there is None else "unchanged" if _is_same(document, there) else "changed"
    return Change(document, tag, verb, planned)


def _lists(document: Document) -> bool:
    from poise.model import TargetPool

    return not isinstance(document, TargetPool) or document.spec.targets.listed is not None


def _is_same(document: Document, there: Found) -> bool:
    """Compare what people wrote; the status is no part of it, unless it reports something."""
    from poise.documents import dump

    ours = dump(document)
    return "status" not in ours and ours == {key: value for key, value in there.document.items() if key != "status"}


def _say(change: Change) -> None:
    later = "" if change.planned is not None else "; the server plans it when it has read the targets"
    click.echo(f"{change.document.kind} {change.document.metadata.name}: {change.verb}{later}", err=True)


def _ask(server: Server, changes: Sequence[Change]) -> None:
    """Ask, and look once more: what was agreed to must still be what happens."""
    names = ", ".join(f"{each.document.kind} {each.document.metadata.name}" for each in changes)
    if not click.confirm(f"Apply {names}?", err=True):
        raise PoiseError("nothing was written")
    for change in changes:
        again = _look(server, change.document)
        if again.tag != change.tag or _moves(again.planned) != _moves(change.planned):
            name = f"{change.document.kind} {change.document.metadata.name}"
            raise Conflict(f"{name} would lead to another plan by now; nothing was written: look at the new plan")


def _moves(planned: Planned | None) -> object:
    """Give what of a plan was agreed to: not how long a guard still holds."""
    from poise.jobs.entries import CapacityEntry, DivisionEntry

    if planned is None:
        return None
    match planned.entry:
        case DivisionEntry() as entry:
            return {name: dict(each.replicas) for name, each in entry.divisions.items()}
        case CapacityEntry() as entry:
            return {name: (each.action, each.desired) for name, each in entry.workloads.items()}
        case entry:
            return dict(entry.assignment), {(move.item, move.source, move.target, move.step) for move in entry.moves}


def _write(server: Server, change: Change, changes: Sequence[Change]) -> None:
    name = f"{change.document.kind} {change.document.metadata.name}"
    try:
        server.put(change.document, change.tag)
    except Conflict as error:
        before = [each.document.metadata.name for each in changes[: changes.index(change)]]
        told = f"; {', '.join(before)} has been written" if before else "; nothing was written"
        raise Conflict(f"{name}: {error}{told}") from None


def _await(server: Server, change: Change, timeout_s: float) -> None:
    from poise.cli.remote import job_of
    from poise.cli.settling import settling

    job = job_of(change.document)
    told = follow(server, settling(server, job), timeout_s)
    click.echo(f"{job.kind} {job.name}: {told}", err=True)
