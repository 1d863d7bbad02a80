"""`poise simulate` as people and programs use it."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from poise.cli import simulate as verb
from poise.cli.main import run
from poise.sim import replay as replays
from poise.sim.replay import policies_of
from poise.sim.summary import Summary
from poise.sim.worlds import FleetWorld, ItemWorld

EXAMPLES = Path(__file__).parents[2] / "examples"
ROUTERS, SHOP, SPOT = (str(EXAMPLES / f"{name}.yaml") for name in ("routers", "shop", "spot"))
GROWTH = str(EXAMPLES / "scripts" / "growth.yaml")
Printed = pytest.CaptureFixture[str]


def simulated(capsys: Printed, *arguments: str) -> Summary:
    assert run(["simulate", *arguments, "-o", "json"]) == 0
    return msgspec.json.decode(capsys.readouterr().out, type=Summary)


def refused(capsys: Printed, *arguments: str, code: int = 64) -> str:
    assert run(["simulate", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("poise: ")
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize("name", ["routers", "orders", "web"])
def test_items_are_played_under_four_policies(name: str, capsys: Printed) -> None:
    summary = simulated(capsys, str(EXAMPLES / f"{name}.yaml"), "--events", "40", "--seed", "3")
    assert (summary.events, summary.seed) == (40, 3)
    assert list(summary.policies) == ["sticky", "hashed", "ring", "modulo"]
    sticky = summary.policies["sticky"]
    assert sticky.moves == sticky.moves_min > 0
    assert sticky.worst_spread <= 1
    assert sticky.innocent_after.keys() <= {"remove"}
    assert summary.policies["ring"].innocent_moves == 0


def test_a_fleet_is_played_under_four_policies(capsys: Printed) -> None:
    summary = simulated(capsys, SHOP, "--events", "60", "--seed", "2")
    assert list(summary.policies) == ["fleet", "exact", "weighted", "name-order"]
    assert summary.moves_max == 0
    assert sum(summary.policies["fleet"].end_loads.values()) == sum(summary.policies["exact"].end_loads.values())


def test_json_has_these_keys_in_this_order(capsys: Printed) -> None:
    assert run(["simulate", ROUTERS, "--events", "2", "--policy", "ring", "-o", "json"]) == 0
    data = msgspec.json.decode(capsys.readouterr().out)
    assert list(data) == ["kind", "name", "events", "seed", "endShares", "policies"]
    assert (data["kind"], data["name"], data["events"], data["seed"]) == ("TargetPool", "core-routers", 2, 0)
    assert list(data["policies"]["ring"]) == [
        "moves",
        "movesMin",
        "innocentMoves",
        "innocentAfter",
        "worstSpread",
        "endSpread",
        "worstError",
        "endError",
        "worstUnassigned",
        "endLoads",
    ]


def test_yaml_says_what_json_says(capsys: Printed) -> None:
    assert run(["simulate", ROUTERS, "--events", "5", "-o", "yaml"]) == 0
    as_yaml = yaml.safe_load(capsys.readouterr().out)
    assert msgspec.convert(as_yaml, Summary) == simulated(capsys, ROUTERS, "--events", "5")


def test_the_table_reads_without_colour(capsys: Printed) -> None:
    assert run(["simulate", ROUTERS, "--script", GROWTH]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "\x1b" not in printed.out
    lines = printed.out.splitlines()
    start = (
        "TargetPool core-routers   15 events from a script, the same for every policy: 4 → 8 members, 10 → 153 items"
    )
    assert lines[0] == start
    assert lines[2].split() == [
        "policy",
        "moves",
        "fewest",
        "if",
        "even",
        "innocent",
        "worst",
        "spread",
        "worst",
        "error",
    ]
    assert [line.split()[0] for line in lines[3:7]] == ["sticky", "hashed", "ring", "modulo"]
    assert len({len(line) for line in lines[2:7]}) == 1
    assert lines[8].startswith("Over 15 events, sticky moved 171 items, exactly the fewest")
    assert all(len(line) <= 120 for line in lines)


def test_a_script_has_no_seed(capsys: Printed) -> None:
    summary = simulated(capsys, ROUTERS, "--script", GROWTH)
    assert (summary.events, summary.seed) == (15, None)


def test_only_the_chosen_policies_are_played(capsys: Printed) -> None:
    chosen = simulated(capsys, ROUTERS, "--policy", "ring", "--policy", "sticky", "--policy", "ring")
    assert list(chosen.policies) == ["sticky", "ring"]
    every = simulated(capsys, ROUTERS)
    assert chosen.policies["ring"] == every.policies["ring"]


def test_the_policies_of_the_command_are_those_of_the_worlds() -> None:
    of_items = policies_of(ItemWorld("TargetPool", "x", {}, {}))
    assert [*of_items, *policies_of(FleetWorld("ReplicaDivision", "x", {}, {}))] == list(verb.POLICIES)


def test_the_document_may_come_from_standard_input(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(ROUTERS).read_bytes())))
    assert simulated(capsys, "-f", "-", "--events", "1").name == "core-routers"


def test_the_same_seed_gives_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    outputs = set()
    for seed in ("0", "1", "4242"):
        page = tmp_path / f"{seed}.html"
        command = ["simulate", ROUTERS, SHOP, "--only", "shop", "--events", "30", "--seed", "9", "--report", str(page)]
        done = subprocess.run(
            [sys.executable, "-c", f"from poise.cli.main import run; raise SystemExit(run({command!r}))"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        outputs.add((done.stdout, page.read_bytes()))
    assert len(outputs) == 1


# Refusals.


def test_a_capacity_split_is_refused_with_the_reason(capsys: Printed) -> None:
    assert "cannot be simulated: it has one rule and no policies to compare" in refused(capsys, SPOT)


def test_bad_usage_is_one_line_and_64(capsys: Printed, tmp_path: Path) -> None:
    script = tmp_path / "s.yaml"
    script.write_text("events: [{leave: nobody}]")
    assert "no file given" in refused(capsys)
    assert "there are 2: choose with --only" in refused(capsys, ROUTERS, SHOP)
    assert "use one or the other" in refused(capsys, ROUTERS, "--script", GROWTH, "--seed", "1")
    assert "use one or the other" in refused(capsys, ROUTERS, "--script", GROWTH, "--events", "0")
    assert "choose from sticky, hashed, ring, modulo" in refused(capsys, ROUTERS, "--policy", "fleet")
    assert "choose from fleet, exact, weighted, name-order" in refused(capsys, SHOP, "--policy", "ring")
    assert "random" in refused(capsys, ROUTERS, "--policy", "random")
    assert "100000" in refused(capsys, ROUTERS, "--events", "100001")
    assert "--seed" in refused(capsys, ROUTERS, "--seed", "-1")
    assert "--seed" in refused(capsys, ROUTERS, "--seed", "x")
    assert "cannot be read" in refused(capsys, ROUTERS, "--script", str(tmp_path / "none.yaml"))
    assert f'{script}: $.events[0].leave: there is no member "nobody"' in refused(
        capsys, ROUTERS, "--script", str(script)
    )


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\xff\xfe garbage",
        b"a: &a [*a]",
        b"events: [{add: [x, x]}]",
        b'{"events": [{"join": "\\ud800"}]}',
        b"[" * 5000,
    ],
)
def test_a_hostile_script_is_refused(content: bytes, capsys: Printed, tmp_path: Path) -> None:
    script = tmp_path / "s.yaml"
    script.write_bytes(content)
    assert run(["simulate", ROUTERS, "--script", str(script)]) == 64
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err


def test_a_pool_whose_targets_are_elsewhere_is_refused(capsys: Printed, tmp_path: Path) -> None:
    document = tmp_path / "pool.yaml"
    document.write_text(
        "{apiVersion: poise.dev/v1alpha1, kind: TargetPool, metadata: {name: p}, spec: {pods: {endpoints: [{name: a}]},"
        " targets: {http: {url: 'http://192.0.2.1/'}}}}"
    )
    assert "cannot be read offline" in refused(capsys, str(document))


# The report.


def test_a_report_is_written_beside_the_numbers(capsys: Printed, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    assert run(["simulate", ROUTERS, "--script", GROWTH, "--report", str(page), "-o", "json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == f"report written to {page}\n"
    assert msgspec.json.decode(printed.out, type=Summary).events == 15
    assert page.read_text().startswith("<!doctype html>")
    assert os.listdir(tmp_path) == ["out.html"]


def test_a_report_that_has_no_place_is_refused_before_the_run(
    capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the run began")

    monkeypatch.setattr(replays, "replay", never)
    assert "no such folder" in refused(capsys, ROUTERS, "--report", str(tmp_path / "no" / "out.html"), code=1)
    assert "not a regular file" in refused(capsys, ROUTERS, "--report", str(tmp_path), code=1)
    assert "not a regular file" in refused(capsys, ROUTERS, "--report", "/dev/stdout", code=1)


@pytest.mark.parametrize("step", ["write_text", "replace"])
def test_a_report_that_fails_leaves_the_old_one_whole(
    step: str, capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "out.html"
    page.write_text("the old one")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, step, fail)
    told = refused(capsys, ROUTERS, "--events", "1", "--report", str(page), code=1)
    assert told == f"poise: {page}: cannot be written: No space left on device\n"
    monkeypatch.undo()
    assert page.read_text() == "the old one"
    assert os.listdir(tmp_path) == ["out.html"]


def test_a_report_keeps_a_link_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.html", tmp_path / "link.html"
    real.write_text("old")
    link.symlink_to(real)
    assert run(["simulate", ROUTERS, "--events", "1", "--report", str(link)]) == 0
    assert link.is_symlink()
    assert real.read_text().startswith("<!doctype html>")


# The bar.


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal where errors go; not as a fixture, since pytest puts its own stream there before the test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_long_run_shows_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    shown = terminal(monkeypatch)
    monkeypatch.setattr(verb, "_PATIENCE_S", 0.0)
    simulated(capsys, ROUTERS, "--events", "20")
    assert re.search(r"events .* 5%.*100%", shown.getvalue(), re.DOTALL)
    assert shown.getvalue().endswith("\x1b[?25h\n")


def test_a_short_run_shows_none(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    shown = terminal(monkeypatch)
    monkeypatch.setattr(verb, "_PATIENCE_S", 3600.0)
    simulated(capsys, ROUTERS, "--events", "20")
    assert shown.getvalue() == ""


def test_no_bar_is_shown_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr(verb, "_PATIENCE_S", 0.0)
    assert run(["simulate", ROUTERS, "--events", "20"]) == 0
    assert capsys.readouterr().err == ""


def test_an_interrupted_run_gives_the_cursor_back(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    shown = terminal(monkeypatch)
    monkeypatch.setattr(verb, "_PATIENCE_S", 0.0)
    steps, told = iter(range(9)), replays.ItemRun.step

    def stop(self: replays.ItemRun, world: ItemWorld) -> None:
        if next(steps) == 4:
            raise KeyboardInterrupt
        told(self, world)

    monkeypatch.setattr(replays.ItemRun, "step", stop)
    assert run(["simulate", ROUTERS, "--events", "20"]) == 130
    assert shown.getvalue().rindex("\x1b[?25h") > shown.getvalue().rindex("\x1b[?25l")
    assert capsys.readouterr().out == ""
