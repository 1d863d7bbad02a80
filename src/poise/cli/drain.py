"""`poise drain`: a member gives everything away and takes nothing new."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from poise.cli.common import SERVER, Output, server_option
from poise.cli.kube_options import Place, asking_options, kube_options
from poise.cli.progress import Seen, follow, waiting_options

if TYPE_CHECKING:
    from poise.cli.remote import Job, Server

_Verb = TypeVar("_Verb", bound=Callable[..., object])


def member_arguments(verb: _Verb) -> _Verb:
    """Take the member, and the job where it is needed."""
    told = "The job that it is a member of (NAME or KIND/NAME); needed where there are several."
    verb = click.option("--job", "jobs", metavar="JOB", multiple=True, help=told)(verb)
    return click.argument("names", nargs=-1, required=True, metavar="[RING] MEMBER")(verb)


def one_member(names: tuple[str, ...]) -> str:
    """Read the only name that is wanted where no cluster is asked."""
    if len(names) > 1:
        raise click.UsageError(f"Got unexpected extra argument ({names[1]}); a RING before its instance needs --kube")
    return names[0]


def ring_member(names: tuple[str, ...], jobs: tuple[str, ...]) -> tuple[str, str]:
    """Read a ring and its instance: both by their place, or the ring with --job."""
    said = [*jobs, *names]
    if len(said) != 2 or len(jobs) > 1:
        raise click.UsageError("with --kube a RING and one of its instances are needed")
    return said[0], said[1]


@click.command(
    epilog="""\b
Examples:
  poise drain w1                        waits until w1 holds nothing
  poise drain w1 --job orders           where w1 is a member of several jobs
  poise drain w2 --no-wait
  poise undrain w1                      takes it back into service
  poise drain --kube web web-0          an instance of a ring of a cluster: shows the plan, and asks"""
)
@member_arguments
@server_option(default=SERVER)
@kube_options("Drain an instance of a ring of a cluster")
@asking_options
@waiting_options
def drain(
    names: tuple[str, ...],
    jobs: tuple[str, ...],
    server: str,
    no_wait: bool,
    timeout_s: float,
    yes: bool,
    output: Output,
    place: Place | None,
) -> None:
    """Take MEMBER out of service: its items move to others, one safe hand-over after the other.

    It ends when MEMBER holds nothing and may be stopped. A drain is kept by the server: Ctrl-C ends the waiting, not
    the drain. The guards of the job hold: while it is paused nothing leaves. With --kube the drain is kept on the ring.
    """
    if place is not None:
        from poise.cli.kube_orders import Answering, drain_instance

        drain_instance(place, *ring_member(names, jobs), Answering(yes, output, not no_wait, timeout_s))
        return
    from poise.cli.remote import Server

    member = one_member(names)
    with Server(server) as asked:
        found = member_jobs(asked, member, jobs)
        for job in found:
            asked.drain(job, member, draining=True)
            click.echo(f"{member} is being drained of {job}", err=True)
        for job in [] if no_wait else found:
            click.echo(f"{job}: {follow(asked, _way(asked, job, member), timeout_s)}", err=True)


def member_jobs(server: Server, member: str, jobs: tuple[str, ...]) -> list[Job]:
    """Find the jobs of a member: those that are named, or the only one that has it."""
    from poise.cli.remote import Job, wrong

    owning = ("PartitionSet", "ShardRing", "TargetPool")
    if jobs:
        return [server.find(name, owning) for name in jobs]
    all_jobs = [Job(each.kind, each.name) for each in server.jobs() if each.kind in owning]
    found = [job for job in all_jobs if any(each.name == member for each in server.members(job))]
    if not found:
        raise wrong(f"no job at {server.url} has a member {member!r}")
    if len(found) > 1:
        raise wrong(f"{member} is a member of {', '.join(map(str, found))}: choose with --job, once for each")
    return found


def _way(server: Server, job: Job, member: str) -> Callable[[], Seen]:
    """Give a look at how much a member still holds."""
    most = 0

    def look() -> Seen:
        nonlocal most
        verdict = server.stoppable(job, member)
        if verdict.ok:
            return Seen(f"{member} holds nothing and may stop", is_end=True)
        load = sum(each.load + each.reserved for each in server.members(job) if each.name == member)
        most = max(most, load)
        about = f" (about {verdict.estimate_s:.0f} s)" if verdict.estimate_s else ""
        return Seen(f"{job}: {', '.join(verdict.reasons)}{about}", False, most - load, most)

    return look
