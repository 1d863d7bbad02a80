"""`poise drill`: the real coordinator and members in seeded worlds of faults."""

from __future__ import annotations

import sys

import click

from poise.cli.common import Output, emit, output_option


@click.command(
    epilog="""\b
Examples:
  poise drill                       100 worlds of five minutes each
  poise drill --seed 37             one world, and the story of what broke
  poise drill --seeds 1000 --members 20 --items 256"""
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

    Members crash, restart, meet twins of their name, freeze longer than their leases and lose their network; the store
    is away and its clock steps; leaders crash. No item may ever have two owners that were not frozen, epochs only grow,
    budgets are kept, the journal keeps the laws, and when the faults stop everything settles evenly. Nothing outside
    this process is touched. A failing seed prints itself and the story of its item (exit 1).
    """
    from poise.cli.main import FAILED, OK
    from poise.sim.drill import drill as run_drill

    given = ctx.get_parameter_source("seed") is click.core.ParameterSource.COMMANDLINE
    count = seeds if seeds is not None else 1 if given else 100
    verdicts = []
    quiet = not sys.stderr.isatty()
    with click.progressbar(range(seed, seed + count), label="drill", file=sys.stderr, hidden=quiet) as numbers:
        for number in numbers:
            verdicts.append(run_drill(number, minutes=minutes, members=members, items=items))
            if verdicts[-1].broken:
                break
    if output != "table":
        emit(verdicts, output)
        return FAILED if verdicts[-1].broken else OK
    last = verdicts[-1]
    if last.broken:
        click.echo(f"seed {last.seed}: {last.broken[0]}")
        click.echo("\n".join(f"  {line}" for line in last.story))
        return FAILED
    faults = sum(sum(verdict.faults.values()) for verdict in verdicts)
    handovers = sum(verdict.handovers for verdict in verdicts)
    worlds = (
        f"{len(verdicts)} worlds of {minutes:g} minutes" if len(verdicts) > 1 else f"seed {seed}, {minutes:g} minutes"
    )
    click.echo(f"{worlds}, {members} members, {items} items: {faults} faults, {handovers} releases, no law broken")
    return OK
