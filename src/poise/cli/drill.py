"""`poise drill`: the real coordinator and members in seeded worlds of faults."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from poise.cli.common import Output, emit, output_option

if TYPE_CHECKING:
    from poise.sim.drill import Verdict

PATIENCE_S = 10.0  # So often a long run says how far it is where no bar can be drawn.


@click.command(
    epilog="""\b
Examples:
  poise drill                       100 worlds of five minutes each
  poise drill --seed 37             one world, and the story of what broke
  poise drill --seeds 1000          more worlds; how far it is goes to stderr
  poise drill --seeds 20 --members 20 --items 256 -o json"""
)
@click.option("--seed", type=click.IntRange(0, 2**62), default=0, show_default=True, help="The first seed.")
@click.option("--seeds", type=click.IntRange(1, 1_000_000), help="How many seeds.  [default: 1 with --seed, else 100]")
@click.option("--minutes", type=click.FloatRange(3, 600), default=5.0, show_default=True, help="Simulated minutes.")
@click.option("--members", type=click.IntRange(1, 500), default=8, show_default=True, help="Members in each world.")
@click.option("--items", type=click.IntRange(1, 10_000), default=64, show_default=True, help="Items in each world.")
@output_option
@click.pass_context
def drill(
    ctx: click.Context, seed: int, seeds: int | None, minutes: float, members: int, items: int, output: Output
) -> int:
    """Try the hand-over protocol in seeded worlds of faults, and judge each by checkers that share nothing with it.

    A world is the real code on a virtual clock. Members crash, restart, meet twins of their name, freeze longer than
    their leases and lose their network; their clocks run too fast or too slow, and their wall clocks jump. Messages are
    late or lost. The store is away, refuses single calls, does what it was asked without an answer, and its clock steps
    forward. Leaders crash, or freeze between reading and writing. All this ends two minutes before the world does.

    \b
    Judged in every world:
      no item has two owners that were not frozen, and its epochs only grow
      no item is without work for longer than its faults explain
      hand-overs under way stay within the budgets, and the journal keeps the laws
      when the faults stop, all is shared evenly with the fewest hand-overs,
      and then nothing moves any more

    Nothing outside this process is touched. The first failing seed ends the run: it prints itself and the story of its
    item (exit 1). The same seed is the same world everywhere, so what was found can be looked at again.
    """
    from poise.cli.main import FAILED, OK
    from poise.sim.drill import drill as run_drill

    given = ctx.get_parameter_source("seed") is click.core.ParameterSource.COMMANDLINE
    count = seeds if seeds is not None else 1 if given else 100
    verdicts = []
    with _progress(count) as progress:
        for number in range(seed, seed + count):
            verdicts.append(run_drill(number, minutes=minutes, members=members, items=items))
            if verdicts[-1].broken:
                break
            progress(len(verdicts))
    if output != "table":
        emit(verdicts, output)
    else:
        size = f"{members} members, {items} items"
        click.echo(_text(verdicts, f"{minutes:g} minutes, {size}", _again(ctx, verdicts[-1].seed)))
    return FAILED if verdicts[-1].broken else OK


class _Tell(Protocol):
    def __call__(self, done: int) -> None: ...


@contextmanager
def _progress(total: int) -> Iterator[_Tell]:
    """Draw a bar on a terminal; elsewhere write a line now and then, so that a log shows that it goes on."""
    if sys.stderr.isatty():
        with click.progressbar(length=total, label="drill", file=sys.stderr, hidden=total == 1) as bar:
            yield lambda done: bar.update(done - bar.pos)
        return
    told = time.monotonic()

    def tell(done: int) -> None:
        nonlocal told
        if total > 1 and time.monotonic() - told >= PATIENCE_S:
            told = time.monotonic()
            click.echo(f"drill: {done} of {total} worlds, no law broken", err=True)

    yield tell


def _again(ctx: click.Context, seed: int) -> str:
    """Word the command that shows one world again, of the same size."""
    sizes = [
        f" --{name} {value:g}"
        for name in ("minutes", "members", "items")
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE and (value := ctx.params[name])
    ]
    return f"poise drill --seed {seed}{''.join(sizes)}"


def _text(verdicts: list[Verdict], size: str, again: str) -> str:
    """Say what was tried and that all was well, or what broke and how it came to it."""
    last = verdicts[-1]
    if last.broken:
        return "\n".join(
            [f"seed {last.seed}: {last.broken[0]}", *(f"  {line}" for line in last.story), f"Again: {again}"]
        )
    worlds = f"{len(verdicts)} worlds of" if len(verdicts) > 1 else f"seed {last.seed},"
    faults = sum(sum(verdict.faults.values()) for verdict in verdicts)
    handovers = sum(verdict.handovers for verdict in verdicts)
    longest_s = max(verdict.unowned_max_s for verdict in verdicts)
    alone = f"an item was without work for {longest_s:.0f} s at the most"
    return f"{worlds} {size}: {faults} faults, {handovers} releases, no law broken; {alone}"
