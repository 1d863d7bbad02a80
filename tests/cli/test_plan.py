"""`poise plan` as people and programs use it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import msgspec
import pytest
import yaml

from poise.cli.main import run
from poise.decide import balance
from poise.decide.balance import Quotas
from poise.jobs.entries import DivisionEntry, ItemsEntry, Waits

EXAMPLES = Path(__file__).parents[2] / "examples"
GOLDEN = Path(__file__).parent / "golden"
ROUTERS = str(EXAMPLES / "routers.yaml")
AT = ["--at", "2026-11-15T03:00:00Z"]
Printed = pytest.CaptureFixture[str]


def printed_json(capsys: Printed, *arguments: str) -> str:
    assert run(["plan", *arguments, "-o", "json"]) == 0
    return capsys.readouterr().out


def planned(capsys: Printed, *arguments: str) -> ItemsEntry:
    [entry] = msgspec.json.decode(printed_json(capsys, *arguments), type=list[ItemsEntry])
    return entry


def divided(capsys: Printed, *arguments: str) -> DivisionEntry:
    [entry] = msgspec.json.decode(printed_json(capsys, *arguments), type=list[DivisionEntry])
    return entry


@pytest.mark.parametrize("name", ["routers", "orders", "web", "shop", "spot"])
def test_the_plan_of_an_example_reads_as_its_golden(name: str, capsys: Printed) -> None:
    assert run(["plan", str(EXAMPLES / f"{name}.yaml"), *AT]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out == (GOLDEN / f"{name}.txt").read_text()


def test_items_are_printed_as_the_format_says(capsys: Printed) -> None:
    [entry] = json.loads(printed_json(capsys, ROUTERS))
    assert list(entry) == ["kind", "name", "moves", "assignment", "unassigned", "loads", "certificate"]
    assert (entry["kind"], entry["name"]) == ("TargetPool", "core-routers")
    assert entry["certificate"] == {"moves": 2, "movesMin": 2, "spread": 1}
    assert entry["moves"][0] == {
        "item": "router4",
        "source": "gnmic-2",
        "target": "gnmic-3",
        "reason": "gnmic-2 over its share (4 of 3)",
        "waits": None,
    }


def test_a_partition_set_says_its_steps(capsys: Printed) -> None:
    entry = planned(capsys, str(EXAMPLES / "orders.yaml"))
    assert {move.step for move in entry.moves} == {"unassign"}
    assert len(entry.moves) == 5


def test_a_division_is_printed_as_the_format_says(capsys: Printed) -> None:
    [entry] = json.loads(printed_json(capsys, str(EXAMPLES / "shop.yaml")))
    assert list(entry) == ["kind", "name", "divisions", "totals"]
    cart = entry["divisions"]["cart"]
    assert cart["quota"] == {"east": "7/2", "north": "7/4", "west": "7/4"}
    assert (cart["kept"], cart["moved"], cart["reason"]) == (True, 0, "the last result still fits")
    assert entry["totals"]["east"] == {"replicas": 16, "exact": "16"}


def test_a_split_is_printed_as_the_format_says(capsys: Printed) -> None:
    [entry] = json.loads(printed_json(capsys, str(EXAMPLES / "spot.yaml"), "--at", "2026-11-15T12:00:00Z"))
    api, web = entry["workloads"]["api"], entry["workloads"]["web"]
    assert api["current"] == {"spot": 5, "onDemand": 5}
    assert api["desired"] == {"spot": 7, "onDemand": 3}
    assert (api["action"], api["steps"]) == ("migrate-to-spot", 2)
    assert (api["waits"]["code"], api["waits"]["until"]) == ("window", "2026-11-16T02:00:00Z")
    assert (web["action"], web["waits"]) == ("migrate-to-on-demand", None), "it restores the minimum"


def test_yaml_output_is_the_same_data(capsys: Printed) -> None:
    data = json.loads(printed_json(capsys, ROUTERS))
    assert run(["plan", ROUTERS, "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == data


def test_standard_input_is_a_file(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    for arguments in (["-f", "-"], ["-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(ROUTERS).read_bytes())))
        assert run(["plan", *arguments, "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["name"] == "core-routers"


def test_many_files_give_one_entry_a_document(capsys: Printed) -> None:
    names = [str(EXAMPLES / f"{name}.yaml") for name in ("routers", "orders", "web", "shop", "spot")]
    entries = json.loads(printed_json(capsys, *names[:2], "-f", names[2], "-f", names[3], "-f", names[4]))
    kinds = ["TargetPool", "PartitionSet", "ShardRing", "ReplicaDivision", "CapacitySplit"]
    assert [entry["kind"] for entry in entries] == kinds


def test_the_detailed_exit_code_tells_of_changes(tmp_path: Path) -> None:
    assert run(["plan", ROUTERS, "--detailed-exitcode"]) == 2
    document = yaml.safe_load(Path(ROUTERS).read_text())
    document["status"]["assignment"] |= {"router4": "gnmic-3", "router6": "gnmic-3"}
    settled = tmp_path / "settled.yaml"
    settled.write_text(yaml.safe_dump(document))
    assert run(["plan", str(settled), "--detailed-exitcode"]) == 0


class TestWhatIf:
    def test_drain_moves_only_what_is_drained(self, capsys: Printed) -> None:
        entry = planned(capsys, ROUTERS, "--drain", "gnmic-1", "--remove", "gnmic-3")
        assert {move.source for move in entry.moves} == {"gnmic-1"}
        assert {move.reason for move in entry.moves} == {"gnmic-1 is draining"}

    def test_add_moves_only_to_the_new_one(self, capsys: Printed) -> None:
        entry = planned(capsys, ROUTERS, "--remove", "gnmic-3", "--add", "gnmic-9")
        assert {move.target for move in entry.moves} == {"gnmic-9"}

    def test_weight_and_replicas(self, capsys: Printed) -> None:
        assert planned(capsys, ROUTERS, "--weight", "gnmic-3=3").loads["gnmic-3"] == 5
        shop = str(EXAMPLES / "shop.yaml")
        entry = divided(capsys, shop, "--replicas", "stock=4", "--drain", "west", "--add", "south")
        assert entry.divisions["stock"].replicas == {"east": 2, "north": 1, "south": 1}

    def test_a_node_of_a_set_may_be_added_drained_and_removed(self, capsys: Printed) -> None:
        orders = str(EXAMPLES / "orders.yaml")
        entry = planned(capsys, orders, "--add", "n5", "--drain", "n2", "--remove", "n1", "--weight", "n4=2")
        assert set(entry.loads) >= {"n4", "n5"}
        assert "n1" not in entry.assignment.values()

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["--drain", "gnmic-x"], "$.drain['gnmic-x']: no pod of that name; there are gnmic-0, gnmic-1"),
            (["--add", "gnmic-0"], "$.add[0]: gnmic-0 is a pod already"),
            (["--weight", "gnmic-0=-1"], "--weight: expected NAME=N"),
            (["--weight", "gnmic-0"], "--weight: expected NAME=N"),
            (["--replicas", "router1=3"], "$.replicas: a TargetPool counts no replicas"),
            (["--at", "yesterday"], "--at: expected a time"),
            (["--at", "2026-11-15T02:00:00"], "has no zone"),
            (["--only", "nobody"], "no document named nobody; there are TargetPool/core-routers"),
            (["--nonsense"], "No such option"),
        ],
    )
    def test_what_cannot_be_imagined_is_one_line(self, arguments: list[str], says: str, capsys: Printed) -> None:
        assert run(["plan", ROUTERS, *arguments]) == 64
        printed = capsys.readouterr()
        assert printed.out == ""
        assert says in printed.err
        assert printed.err.count("\n") == 1

    def test_several_documents_need_a_choice(self, capsys: Printed) -> None:
        files = [ROUTERS, str(EXAMPLES / "web.yaml")]
        assert run(["plan", *files, "--add", "x"]) == 64
        assert "choose with --only" in capsys.readouterr().err
        assert "web-9" in planned(capsys, *files, "--only", "ShardRing/web", "--add", "web-9").loads


def test_a_pool_that_is_short_of_room_says_so(tmp_path: Path, capsys: Printed) -> None:
    document = yaml.safe_load(Path(ROUTERS).read_text())
    document["spec"] |= {"capacity": 2}
    short = tmp_path / "short.yaml"
    short.write_text(yaml.safe_dump(document))
    entry = planned(capsys, str(short))
    assert len(entry.unassigned) == 2
    assert {each.reason for each in entry.unassigned} == {"no pod has room"}
    assert run(["plan", str(short)]) == 0
    assert "!! unassigned" in capsys.readouterr().out


def test_guards_hold_moves_back_and_recovery_passes(tmp_path: Path, capsys: Printed) -> None:
    document = yaml.safe_load(Path(ROUTERS).read_text())
    document["spec"]["guards"] = {"movesInFlightMax": 1}
    guarded = tmp_path / "guarded.yaml"
    guarded.write_text(yaml.safe_dump(document))
    waits = [move.waits for move in planned(capsys, str(guarded)).moves]
    assert waits == [None, Waits("budget", None, "1 of 1 moves in flight")]
    entry = planned(capsys, str(guarded), "--remove", "gnmic-0")
    recovered = [move.waits for move in entry.moves if move.source == "gnmic-0"]
    assert recovered == [None, None, None]
    document["spec"]["guards"] = {"windows": [{"schedule": "0 2 * * *", "duration": "1h"}]}
    guarded.write_text(yaml.safe_dump(document))
    entry = planned(capsys, str(guarded), "--at", "2026-11-15T12:00:00Z")
    assert {move.waits.until for move in entry.moves if move.waits} == {datetime(2026, 11, 16, 2, tzinfo=UTC)}


def test_a_plan_that_breaks_a_law_is_not_shown(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    honest = balance.quotas

    def greedy(*facts: object, **more: object) -> Quotas:
        quotas = honest(*facts, **more)  # type: ignore[arg-type]  # Handed on as it came.
        return msgspec.structs.replace(quotas, quotas=[quotas.quotas[0] + 1, quotas.quotas[1] - 1, *quotas.quotas[2:]])

    monkeypatch.setattr(balance, "quotas", greedy)
    assert run(["plan", ROUTERS]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "breaks a law" in printed.err
    assert printed.err.count("\n") == 1


def shuffled(value: object, draw: Random) -> object:
    """Put every mapping and the lists whose order means nothing into another order."""
    if isinstance(value, dict):
        pairs = [(key, shuffled(each, draw)) for key, each in value.items()]
        draw.shuffle(pairs)
        return dict(pairs)
    if isinstance(value, list):
        listed = [shuffled(each, draw) for each in value]
        draw.shuffle(listed)
        return listed
    return value


def test_a_plan_is_the_same_whatever_the_order_and_the_hash_seed(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("poise")), "plan", *AT, "-o", "json"]
    printed = set()
    for seed in ("0", "1", "77"):
        files = []
        for path in sorted(EXAMPLES.glob("*.yaml")):
            document = yaml.safe_load(path.read_text())
            if "kind" not in document:
                continue
            copy = tmp_path / path.name
            copy.write_text(yaml.safe_dump(shuffled(document, Random(seed)), sort_keys=False))
            files.append(str(copy))
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run([*command, *files], check=True, capture_output=True, env=environment)
        printed.add(done.stdout)
    assert len(printed) == 1


def test_help_teaches_and_imports_nothing_heavy() -> None:
    code = "import sys; from poise.cli.main import run; run(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "plan" in done.stdout
    loaded = done.stderr
    assert "'click'" in loaded
    for heavy in ("numpy", "yaml", "rich", "jinja2", "markupsafe", "starlette", "poise.decide", "poise.jobs"):
        assert f"'{heavy}'" not in loaded


def test_no_colour_without_a_terminal_and_none_with_no_color(capsys: Printed) -> None:
    assert run(["plan", ROUTERS]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_know_the_command(shell: str, capsys: Printed) -> None:
    assert run(["completion", shell]) == 0
    assert "_POISE_COMPLETE" in capsys.readouterr().out


def test_completion_offers_the_verbs() -> None:
    poise = str(Path(sys.executable).with_name("poise"))
    environment = os.environ | {"_POISE_COMPLETE": "bash_complete", "COMP_WORDS": "poise ", "COMP_CWORD": "1"}
    done = subprocess.run([poise], capture_output=True, text=True, env=environment, check=False)
    assert "plan" in done.stdout
    assert "explain" in done.stdout


def test_a_reader_that_leaves_early_is_no_error() -> None:
    poise = str(Path(sys.executable).with_name("poise"))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; '{poise}' plan '{ROUTERS}' -o json | head -1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == ""
