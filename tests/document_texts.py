"""Small documents for tests, one function a kind, and the faults that a file has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from poise.documents import load
from poise.errors import InvalidSpec


def faults(text: bytes | str, read: Callable[[bytes | str, str], object] = load) -> list[str]:
    """Read a file that must be refused, and give its faults as lines."""
    with pytest.raises(InvalidSpec) as caught:
        read(text, "f.yaml")
    lines = [str(fault) for fault in caught.value.faults]
    assert all(line.isprintable() for line in lines), "each fault is one line that a terminal can show"
    assert str(caught.value) == "\n".join(lines)
    return lines


def pool(spec: str = "", *, endpoints: str = "[]", targets: str = "list: []", status: str = "{}") -> str:
    head = f"kind: TargetPool\nmetadata: {{name: a}}\nstatus: {status}\nspec:\n  pods: {{endpoints: {endpoints}}}\n"
    return f"{head}  targets: {{{targets}}}\n  {spec}\n"


def partitions(spec: str = "", status: str = "{}") -> str:
    return f"kind: PartitionSet\nmetadata: {{name: a}}\nspec: {{partitions: 4, {spec}}}\nstatus: {status}\n"


def ring(spec: str = "", status: str = "{}") -> str:
    return f"kind: ShardRing\nmetadata: {{name: a}}\nspec: {{{spec}}}\nstatus: {status}\n"


def division(spec: str = "clusters: []", status: str = "{}") -> str:
    return f"kind: ReplicaDivision\nmetadata: {{name: a}}\nspec: {{{spec}}}\nstatus: {status}\n"


def split(spec: str = "", status: str = "{}") -> str:
    return f"kind: CapacitySplit\nmetadata: {{name: a}}\nspec: {{{spec}}}\nstatus: {status}\n"


def workload(fields: str) -> str:
    return split(f"workloads: [{{name: w, replicas: 1, {fields}}}]")


def window(fields: str) -> str:
    return split(f"guards: {{windows: [{{{fields}}}]}}")
