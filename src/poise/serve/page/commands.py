"""The command line that does what the page shows: exact, and quoted so that it can be copied into a shell."""

from __future__ import annotations

import shlex

from poise.serve.page.what_if import Wish


def command(*words: str) -> str:
    """Write a command as a shell reads it."""
    return shlex.join(["poise", *words])


def plan_command(job: str, wish: Wish, server: str) -> str:
    """Give the command that shows the same plan."""
    flags = [(f"--{key}", value) for key in ("add", "remove", "drain", "undrain") for value in getattr(wish, key)]
    flags += [("--weight", f"{name}={number}") for name, number in wish.weight.items()]
    flags += [("--replicas", f"{name}={number}") for name, number in wish.replicas.items()]
    return command("plan", job, *(word for pair in flags for word in pair), "--server", server)


def doing_commands(job: str, wish: Wish, server: str) -> list[str]:
    """Give the commands that do what has a verb of its own; changes of the document are written with `apply`."""
    there = ("--server", server)
    said = [command("drain", name, "--job", job, *there) for name in wish.drain]
    said += [command("undrain", name, "--job", job, *there) for name in wish.undrain]
    if wish.pause:
        said.append(command("pause", job, *(["--all"] if wish.pause == "all" else []), *there))
    if wish.resume:
        said.append(command("resume", job, *there))
    return said


def worker_command(job: str, name: str, server: str) -> str:
    """Give the command that starts a member of a set."""
    return command("worker", job, "--name", name, "--server", server)


def apply_command(document: str, server: str) -> str:
    """Give the command that writes a document; its text comes with it, so that nothing else is needed."""
    return (
        f"{command('apply', '--yes', '--file', '-', '--server', server)} <<'END_OF_DOCUMENT'\n{document}END_OF_DOCUMENT"
    )
