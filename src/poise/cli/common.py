"""What the verbs share: reading documents, choosing one, and printing data in three forms."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import click

from poise.errors import Fault, InvalidSpec

if TYPE_CHECKING:
    from poise.jobs.what_if import WhatIf
    from poise.model import Document

_Verb = TypeVar("_Verb", bound=Callable[..., object])
Output = Literal["table", "json", "yaml"]

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="How to print: text for people, or data for programs.",
)
at_option = click.option(
    "--at",
    metavar="TIME",
    help="Judge windows and cooldowns at this time, such as 2026-11-15T02:00:00Z.  [default: now]",
)
_JOB = re.compile(r"[A-Za-z0-9-]+(/[A-Za-z0-9-]+)?")  # Looks like a job, and not like a file.
SERVER = "http://127.0.0.1:7878"  # Where `poise up` answers if it is not told otherwise.


def server_option(does: str = "Ask this server", default: str | None = None) -> Callable[[_Verb], _Verb]:
    """Take the address of a server as an option, or from the environment."""
    return click.option(
        "--server",
        metavar="URL",
        envvar="POISE_SERVER",
        default=default,
        help=f"{does}; or set POISE_SERVER." + (f"  [default: {default}]" if default else ""),
    )


def said_server() -> bool:
    """Say whether the server was named on the command line, not only in the environment."""
    source = click.get_current_context().get_parameter_source("server")
    return source is click.core.ParameterSource.COMMANDLINE


def asks_server(arguments: Sequence[str]) -> bool:
    """Say whether arguments name jobs of a server: where only the environment names it, a file is still a file."""
    return said_server() or not any(name == "-" or Path(name).is_file() for name in arguments)


only_option = click.option("--only", metavar="NAME", help="Only the document of this name (or KIND/NAME).")


def files_argument(verb: _Verb) -> _Verb:
    """Take documents as arguments, or with -f; a dash is standard input."""
    path = click.Path(allow_dash=True)
    verb = click.option(
        "-f",
        "--file",
        "more",
        multiple=True,
        type=path,
        metavar="FILE",
        help="A file of documents; - is standard input.",
    )(verb)
    return click.argument("files", nargs=-1, type=path, metavar="[FILE]...")(verb)


def what_if_options(verb: _Verb) -> _Verb:
    """Add the flags that imagine another world."""
    for flag, metavar, text in reversed(
        (
            ("--add", "MEMBER", "What if this member joined?"),
            ("--remove", "MEMBER", "What if this member were gone?"),
            ("--drain", "MEMBER", "What if this member were drained?"),
            ("--undrain", "MEMBER", "What if this member took part again?"),
            ("--weight", "MEMBER=N", "What if this member weighed N?"),
            ("--replicas", "WORKLOAD=N", "What if this workload had N replicas?"),
        )
    ):
        verb = click.option(flag, metavar=metavar, multiple=True, help=text)(verb)
    return verb


def read_bytes(name: str) -> bytes:
    """Read a file, or standard input for a dash: at most one byte more than a file may have, to see that it has."""
    from poise.documents import BYTES_MAX

    try:
        if name == "-":
            return sys.stdin.buffer.read(BYTES_MAX + 1)
        with Path(name).open("rb") as file:
            return file.read(BYTES_MAX + 1)
    except OSError as error:
        is_file = not isinstance(error, FileNotFoundError) or _JOB.fullmatch(name) is None
        hint = "" if is_file else " (a job of a server? name it with --server URL or POISE_SERVER)"
        raise InvalidSpec(Fault("", f"cannot be read: {error.strerror}{hint}", name)) from None


def read_documents(files: Sequence[str], *, with_targets: bool = True) -> list[Document]:
    """Read all documents of all files; every fault of every file is reported at once.

    Without `with_targets` a pool's file of targets is left to the server, which watches it.
    """
    from poise.documents import load

    if not files:
        raise click.UsageError("no file given: name one, or - for standard input")
    documents: list[Document] = []
    faults: list[Fault] = []
    for name in files:
        try:
            loaded = load(read_bytes(name), "standard input" if name == "-" else name)
            documents += [_with_targets(document, name) for document in loaded] if with_targets else loaded
        except InvalidSpec as error:
            faults += error.faults
    if faults:
        raise InvalidSpec(*faults)
    return documents


def _with_targets(document: Document, name: str) -> Document:
    """Put a pool's file of targets in the place of its name; the path counts from the document's folder."""
    import msgspec

    from poise.documents import load_targets
    from poise.model import TargetPool, Targets

    if not isinstance(document, TargetPool) or document.spec.targets.file is None:
        return document
    folder = Path() if name == "-" else Path(name).parent
    path = str(folder / document.spec.targets.file)
    targets = Targets(listed=load_targets(read_bytes(path), path))
    return msgspec.structs.replace(document, spec=msgspec.structs.replace(document.spec, targets=targets))


def choose(documents: list[Document], only: str | None) -> list[Document]:
    """Keep the documents of one name."""
    if only is None:
        return documents
    kept = [each for each in documents if only in (each.metadata.name, f"{each.kind}/{each.metadata.name}")]
    if not kept:
        names = ", ".join(f"{each.kind}/{each.metadata.name}" for each in documents)
        raise click.UsageError(f"no document named {only}; there are {names}")
    return kept


def numbers(flag: str, pairs: Sequence[str]) -> dict[str, int]:
    """Read NAME=N pairs."""
    read: dict[str, int] = {}
    for pair in pairs:
        name, sign, number = pair.rpartition("=")
        if not sign or not name or not number.isascii() or not number.isdigit() or len(number) > 12:
            raise click.UsageError(f"{flag}: expected NAME=N with a whole number N >= 0, got {pair!r}")
        read[name] = int(number)
    return read


def imagined(flags: Mapping[str, tuple[str, ...]]) -> WhatIf | None:
    """Make a what-if of the flags; None where none was given."""
    from poise.jobs.what_if import WhatIf

    if not any(flags.values()):
        return None
    return WhatIf(
        add=list(flags["add"]),
        remove=list(flags["remove"]),
        drain=list(flags["drain"]),
        weights=numbers("--weight", flags["weight"]),
        replicas=numbers("--replicas", flags["replicas"]),
        undrain=list(flags["undrain"]),
    )


def moment(text: str | None) -> datetime:
    """Read --at; without it, the clock."""
    from poise import clock

    if text is None:
        return clock.now()
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--at: expected a time such as 2026-11-15T02:00:00Z, got {text!r}") from None
    if at.tzinfo is None:
        raise click.UsageError(f"--at: {text} has no zone; add Z for UTC")
    if not 1971 <= at.year <= 8999:
        raise click.UsageError(f"--at: expected a year from 1971 to 8999, got {text}")
    return at.astimezone(UTC)


def emit(data: object, output: Output) -> None:
    """Print data as JSON or YAML."""
    import msgspec

    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2))
        return
    from poise.documents import write_yaml

    click.echo(write_yaml(msgspec.to_builtins(data)), nl=False)


def paint(text: str, colour: str) -> str:
    """Colour a text where a terminal shows it and NO_COLOR is not set; the words never depend on it."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=colour)
