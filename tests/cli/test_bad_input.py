"""Bad input at the command line: one clear line with the place, exit 64, nothing on standard output, no traceback."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from poise.cli.main import run

Printed = pytest.CaptureFixture[str]
PODS = "pods: {endpoints: [{name: p0}, {name: p1}]}"
TARGETS = "targets: {list: [{name: a}, {name: b}]}"


def pool(spec: str) -> str:
    return f"{{kind: TargetPool, metadata: {{name: x}}, spec: {{{spec}}}}}"


def pods(endpoints: str) -> str:
    return pool(f"pods: {{endpoints: [{endpoints}]}}, {TARGETS}")


def workload(fields: str, more: str = "") -> str:
    spec = f"{{workloads: [{{name: api, {fields}}}]{more}}}"
    return f"{{kind: CapacitySplit, metadata: {{name: x}}, spec: {spec}}}"


def window(fields: str) -> str:
    return workload("replicas: 3, spotPercentage: 50", f", guards: {{windows: [{{{fields}}}]}}")


def division(cluster: str, more: str = "") -> str:
    spec = f"{{clusters: [{cluster}], workloads: [{{name: w, replicas: 3}}]{more}}}"
    return f"{{kind: ReplicaDivision, metadata: {{name: x}}, spec: {spec}}}"


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + level)}: &{chr(98 + level)} [{', '.join([f'*{chr(97 + level)}'] * 9)}]\n" for level in range(9)
)
FAULTS: dict[str, tuple[str, str]] = {
    "a duplicate name": (pods("{name: p0}, {name: p0}"), "$.spec.pods.endpoints[1].name: duplicate of [0]"),
    "an empty name": (pods("{name: ''}"), "$.spec.pods.endpoints[0].name: "),
    "an unknown field": (pool(f"{PODS}, {TARGETS}, nonsense: 1"), "$.spec.nonsense: unknown field"),
    "a negative weight": (pods("{name: p, weight: -1}"), "endpoints[0].weight: expected >= 0, got -1"),
    "a weight that is not whole": (pods("{name: p, weight: 1.5}"), "weight: expected a whole number, got 1.5"),
    "1e308": (pods("{name: p, weight: 1e308}"), "$.spec.pods.endpoints[0].weight: expected"),
    "NaN": (pods("{name: p, weight: .nan}"), "$.spec.pods.endpoints[0].weight: expected"),
    "capacity 0": (pool(f"{PODS}, {TARGETS}, capacity: 0"), "$.spec.capacity: expected >= 1, got 0"),
    "a percentage out of range": (pool(f"{PODS}, {TARGETS}, dropMaxPercent: 101"), "dropMaxPercent: expected <= 100"),
    "a name with a newline": (pool(PODS + ', targets: {list: [{name: "a\\nb"}]}'), "$.spec.targets.list[0].name: "),
    "a long name": (pool(f"{PODS}, targets: {{list: [{{name: {'x' * 10_000}}}]}}"), "$.spec.targets.list[0].name: "),
    "a negative count": (workload("replicas: -1, spotPercentage: 5"), "$.spec.workloads[0].replicas: expected >= 0"),
    "150 percent spot": (workload("replicas: 1, spotPercentage: 150"), "$.spec.workloads[0].spotPercentage: "),
    "a half-set window": (window("schedule: '0 2 * * *'"), "$.spec.guards.windows[0].duration: "),
    "a six-field cron": (window("schedule: '0 0 2 * * *', duration: 4h"), "windows[0].schedule: expected 5 fields"),
    "an unknown zone": (window("schedule: '0 2 * * *', duration: 4h, timezone: Mars/X"), "windows[0].timezone: "),
    "a minimum above its maximum": (division("{name: a, min: 3, max: 2}"), "$.spec.clusters[0].min: "),
    "infinity": (division("{name: a}", ", mix: .inf"), "$.spec.mix: "),
    "an unknown kind": ("{kind: Nonsense, metadata: {name: x}}", "$.kind: expected one of TargetPool"),
    "an alias": (pool(f"{PODS}, {TARGETS}, capacity: &a 1, dropMaxPercent: *a"), "aliases are not allowed"),
    "an empty file": ("", "no document"),
    "broken syntax": ("{kind: [", "line 2, column 1"),
}


@pytest.mark.parametrize(("text", "says"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("verb", ["plan", "simulate"])
def test_a_fault_is_one_line_with_its_place(verb: str, text: str, says: str, tmp_path: Path, capsys: Printed) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    assert run([verb, str(file)]) == 64
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1, printed.err
    assert printed.err.startswith(f"poise: {file}")
    assert says in printed.err
    assert len(printed.err) < 400 + len(str(file))


def test_all_faults_of_all_files_are_told_at_once(tmp_path: Path, capsys: Printed) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    bad = pool("pods: {endpoints: [{name: p0, weight: -1}]}, " + TARGETS + ", capacity: 0")
    first.write_text(f"{pool(f'{PODS}, {TARGETS}')}\n---\n{bad}\n")
    second.write_text("{kind: Nonsense}")
    assert run(["plan", str(first), str(second)]) == 64
    lines = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("poise: ").partition(": expected")[0] for line in lines] == [
        f"{first}, document 2: $.spec.pods.endpoints[0].weight",
        f"{first}, document 2: $.spec.capacity",
        f"{first}, document 2: $.metadata.name: duplicate of document 1",
        f"{second}, document 1: $.kind",
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" * 50, "", id="binary garbage"),
        pytest.param(bytes(range(256)) * 100, "", id="every byte"),
        pytest.param(b"[" * 100_000, "", id="100,000 brackets"),
        pytest.param(BOMB.encode(), "aliases are not allowed", id="a YAML bomb"),
        pytest.param(b"# x\n" * 13_000_000, "larger than", id="a 50 MB file"),
    ],
)
def test_hostile_files_are_refused_in_bounded_memory_and_time(content: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / "hostile.yaml"
    file.write_bytes(content)
    command = [str(Path(sys.executable).with_name("poise")), "plan", str(file)]
    limit = 1_500_000_000

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=bounded, check=False)
    assert done.returncode == 64, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") <= 51, "fifty faults, and how many more there are"
    assert all(line.startswith("poise: ") for line in done.stderr.splitlines())
    assert says in done.stderr


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read_is_one_line(name: str, tmp_path: Path, capsys: Printed) -> None:
    assert run(["plan", str(tmp_path / name)]) == 64
    printed = capsys.readouterr()
    assert "cannot be read" in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["plan"], ["nonsense"], ["plan", "x.yaml", "-o", "xml"], ["explain", "x.yaml"]])
def test_wrong_usage_is_one_line_that_leads_to_help(arguments: list[str], capsys: Printed) -> None:
    assert run(arguments) == 64
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "--help" in printed.err


def test_a_file_of_targets_is_read_beside_its_document(tmp_path: Path, capsys: Printed) -> None:
    document = tmp_path / "pool.yaml"
    document.write_text(pool(f"{PODS}, targets: {{file: routers.yaml}}"))
    (tmp_path / "routers.yaml").write_text("[{name: r1}, {name: r2}]")
    assert run(["plan", str(document)]) == 0
    assert "2 placed first" in capsys.readouterr().out
    (tmp_path / "routers.yaml").write_text("[{name: r1}, {name: r1}]")
    assert run(["plan", str(document)]) == 64
    assert f"{tmp_path / 'routers.yaml'}, document 1: $[1].name: duplicate of [0]" in capsys.readouterr().err
    (tmp_path / "routers.yaml").unlink()
    assert run(["plan", str(document)]) == 64
    assert "routers.yaml: cannot be read" in capsys.readouterr().err


def test_names_cannot_forge_lines_or_colours(tmp_path: Path, capsys: Printed) -> None:
    document = tmp_path / "pool.yaml"
    document.write_text(pool(PODS + ', targets: {list: [{name: "\\u00ad<b>x"}]}'))
    assert run(["plan", str(document)]) == 0
    assert "\\xad<b>x" in capsys.readouterr().out
