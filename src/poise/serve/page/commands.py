"""The command line that does what the page shows: exact, and quoted so that it can be copied into a shell."""

from __future__ import annotations

import shlex

from poise.serve.page.what_if import Wish

KUBE = "kube"  # In the place of a server's address: the job is a ring of a cluster, whose kubeconfig is the user's own.


def command(*words: str) -> str:
    """Write a command as a shell reads it."""
    return shlex.join(["poise", *words])


def plan_command(job: str, wish: Wish, server: str) -> str:
    """Give the command that shows the same plan."""
    flags = [(f"--{key}", value) for key in ("add", "remove", "drain", "undrain") for value in getattr(wish, key)]
    flags += [("--weight", f"{name}={number}") for name, number in wish.weight.items()]
    flags += [("--replicas", f"{name}={number}") for name, number in wish.replicas.items()]
    words = [word for pair in flags for word in pair]
    return command("plan", *(["--kube", _ring(job), *words] if server == KUBE else [job, *words, "--server", server]))


def explain_command(job: str, item: str, server: str) -> str:
    """Give the command that explains one item."""
    if server == KUBE:
        return command("explain", "--kube", _ring(job), item)
    return command("explain", job, "--server", server, "--", item)


def _ring(job: str) -> str:
    """Name a ring as NAMESPACE/NAME."""
    return job.partition("/")[2]


def doing_commands(job: str, wish: Wish, server: str) -> list[str]:
    """Give the commands that do what has a verb of its own; changes of the document are written with `apply`."""
    if server == KUBE:
        return _kube_commands(_ring(job), wish)
    there = ("--server", server)
    said = [command("drain", name, "--job", job, *there) for name in wish.drain]
    said += [command("undrain", name, "--job", job, *there) for name in wish.undrain]
    if wish.pause:
        said.append(command("pause", job, *(["--all"] if wish.pause == "all" else []), *there))
    if wish.resume:
        said.append(command("resume", job, *there))
    return said


def _kube_commands(ring: str, wish: Wish) -> list[str]:
    said = [command("drain", "--kube", ring, name) for name in wish.drain]
    said += [command("undrain", "--kube", ring, name) for name in wish.undrain]
    if wish.pause:
        said.append(command("pause", "--kube", ring, *(["--all"] if wish.pause == "all" else [])))
    return [*said, command("resume", "--kube", ring)] if wish.resume else said


def worker_command(job: str, name: str, server: str) -> str:
    """Give the command that starts a member of a set."""
    return command("worker", job, "--name", name, "--server", server)


def apply_command(document: str, server: str) -> str:
    """Give the command that writes a document; its text comes with it, so that nothing else is needed."""
    return (
        f"{command('apply', '--yes', '--file', '-', '--server', server)} <<'END_OF_DOCUMENT'\n{document}END_OF_DOCUMENT"
    )
