"""`kubectl poise`: the verbs for rings, with --kube understood; and the completion that kubectl asks for."""

from __future__ import annotations

import os
import sys

import click

from poise import __version__
from poise.cli.main import poise, run

# The verbs that know --kube, and those that need no cluster.
RING_VERBS = ("get", "plan", "explain", "history", "drain", "undrain", "pause", "resume")
_OTHERS = ("version", "operator", "conformance")
_NO_FILES = 4  # What kubectl reads as: offer no names of files.


def kube_arguments(arguments: list[str]) -> list[str]:
    """Give the arguments of `poise` that mean what those of `kubectl poise` do."""
    if not arguments or arguments[0] not in RING_VERBS:
        return arguments
    verb, *rest = arguments
    return [verb, *rest] if "--kube" in rest else [verb, "--kube", *rest]


def main() -> None:
    """Be `kubectl-poise`, which kubectl runs for `kubectl poise`."""
    if os.environ.get("NO_COLOR"):
        os.environ["FORCE_COLOR"] = ""
    sys.exit(run_plugin(sys.argv[1:]))


def run_plugin(arguments: list[str]) -> int:
    """Run a verb for a cluster and answer its exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        click.echo(_help())
        return 0
    if arguments[0] in ("--version",):
        click.echo(f"kubectl-poise {__version__}")
        return 0
    if arguments[0].startswith("-"):
        click.echo(f"poise: the verb comes first: kubectl poise VERB {arguments[0]} …", err=True)
        return 64
    known = [*RING_VERBS, *(each for each in _OTHERS if each in poise.list_commands(click.Context(poise)))]
    if arguments[0] not in known:
        click.echo(f"poise: kubectl poise has no verb {arguments[0]!r}; there is {', '.join(known)}", err=True)
        return 64
    return run(kube_arguments(arguments))


def _help() -> str:
    lines = ["Usage: kubectl poise VERB [FLAGS] …", "", "See and steer the ShardRings of a cluster.", ""]
    context = click.Context(poise)
    shown = [(each, poise.get_command(context, each)) for each in RING_VERBS]
    lines += [f"  {name:10} {command.get_short_help_str(80)}" for name, command in shown if command is not None]
    return "\n".join([*lines, "", "More on each: kubectl poise VERB --help"])


def complete() -> None:
    """Be `kubectl_complete-poise`, which kubectl asks for words: one a line, and last what else it may offer."""
    for word in completions(sys.argv[1:]):
        click.echo(word)
    click.echo(f":{_NO_FILES}")


def completions(arguments: list[str]) -> list[str]:
    """Give the words that the last argument may become."""
    from click.shell_completion import ShellComplete

    *before, begun = arguments or [""]
    if not before:
        return [each for each in RING_VERBS if each.startswith(begun)]
    asked = ShellComplete(poise, {}, "kubectl-poise", "_KUBECTL_POISE_COMPLETE")
    found = asked.get_completions(kube_arguments(before), begun)
    return [each.value for each in found if each.type == "plain" and each.value != "--kube"]
