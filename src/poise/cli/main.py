"""The `poise` command: which verbs there are, and how every failure ends in one line and an exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from poise import __version__
from poise.errors import Conflict, InvalidSpec, PoiseError, Unavailable

OK, FAILED, CHANGES, CONFLICT, UNAVAILABLE, USAGE = 0, 1, 2, 3, 4, 64

# Each verb is imported when it is called, so that `poise --help` answers at once.
_VERBS = {
    "plan": "Show what would move, why, and that it is the least possible.",
    "explain": "Say why an item is where it is, why not elsewhere, and what would move it.",
    "simulate": "Replay joins, leaves and growth under several policies, side by side.",
    "up": "Run the server: its jobs and the API.",
    "get": "Show the jobs of a server, their members, and who holds what.",
    "top": "Watch the jobs of a server, or one of them, as a live picture.",
    "apply": "Write documents to a server: show the plan, ask, and see it done.",
    "drain": "Take a member out of service, and see its items leave.",
    "undrain": "Take a member back into service.",
    "pause": "Hold the moves of a job back.",
    "resume": "Let the moves of a job go on.",
    "worker": "Run a program for every item this member holds.",
    "operator": "Run the Kubernetes controllers: rings that share objects out.",
    "conformance": "Check a shard, in any language, against the written contract.",
    "drill": "Try the hand-over protocol in seeded worlds of faults.",
    "history": "Print the story of an item from the journal.",
    "verify": "Replay a journal against the laws and name the first that is broken.",
    "completion": "Print the completion script of a shell.",
    "version": "Print the version.",
}


class _Verbs(click.Group):
    """A group that knows its verbs by name and imports them late."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the verbs in the order of use."""
        del ctx
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb: the function of that name in the module of that name."""
        del ctx
        if cmd_name not in _VERBS:
            return None
        command = getattr(import_module(f"poise.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs with their one line, without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failed, 2 changes pending (--detailed-exitcode), 3 conflict, 4 store unavailable, "
    "64 usage or an invalid document.",
)
@click.version_option(__version__, prog_name="poise")
def poise() -> None:
    """Decide which member holds what, and move as little as possible.

    A job is a YAML document: targets on collectors, objects on shards, partitions on workers, replicas over clusters
    or over spot and on-demand capacity. Try `poise plan FILE`: it changes nothing.
    """


def main() -> None:
    """Run a verb; a failure is one line on standard error, never a traceback."""
    if os.environ.get("NO_COLOR"):
        os.environ["FORCE_COLOR"] = ""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a verb and answer its exit code."""
    try:
        answer: object = poise.main(arguments, prog_name="poise", standalone_mode=False)
        sys.stdout.flush()
        return answer if isinstance(answer, int) else OK
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.UsageError as error:
        hint = f" (try: {error.ctx.command_path} --help)" if error.ctx else ""
        _say(f"{error.format_message()}{hint}")
        return USAGE
    except InvalidSpec as error:
        for fault in error.faults:
            _say(str(fault))
        return USAGE
    except (Conflict, Unavailable) as error:
        _say(str(error))
        return CONFLICT if isinstance(error, Conflict) else UNAVAILABLE
    except (PoiseError, click.ClickException) as error:
        _say(str(error))
        return FAILED
    except click.Abort:
        _say("interrupted")
        return 130
    except MemoryError:
        _say("there is not enough memory for this")
        return FAILED
    except OSError as error:
        # Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return OK  # Whoever read the output has seen enough.
        _say(f"cannot write: {error.strerror}")
        return FAILED


def _say(text: str) -> None:
    click.echo(f"poise: {text}", err=True)
