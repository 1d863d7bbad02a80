"""The verbs that ask a server: what they print, what they refuse, and that it is the same as offline."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.hold.processes import await_that
from tests.serve_process import ServedFolder

from poise.cli.main import run
from poise.documents import load
from poise.model.ownership import OwnerState
from poise.stores.open import open_store

SET = """apiVersion: poise.dev/v1alpha1
kind: PartitionSet
metadata: {name: NAME}
spec: {partitions: 4, leaseSeconds: 10, graceSeconds: 2}
"""
ORDERS, SPARE = SET.replace("NAME", "orders"), SET.replace("NAME", "spare")
WEB = """apiVersion: poise.dev/v1alpha1
kind: ShardRing
metadata: {name: web}
spec: {policy: balanced, leaseSeconds: 10, objects: [apps/a, "..", "ü <b>", "50%"]}
"""
SHOP = """apiVersion: poise.dev/v1alpha1
kind: ReplicaDivision
metadata: {name: shop}
spec:
  clusters: [{name: east, weight: 2}, {name: west, weight: 1}]
  workloads: [{name: cart, replicas: 6}]
"""
SPOT = """apiVersion: poise.dev/v1alpha1
kind: CapacitySplit
metadata: {name: shop}
spec: {workloads: [{name: api, replicas: 10, spotPercentage: 70, minOnDemand: 1}]}
status: {workloads: {api: {spot: 6, onDemand: 4, readyOnDemand: 4}}}
"""
Poise = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFolder]:
    """Run a server with four jobs; two members hold what can be held."""
    with ServedFolder(tmp_path_factory.mktemp("server"), ORDERS, SPARE, WEB, SHOP, SPOT) as made:
        for job, name in (("orders", "w1"), ("orders", "w2"), ("web", "w1")):
            made.begin("worker", job, "--name", name)
        await_that(lambda: _loads(made, "orders") == [2, 2] and len(_loads(made, "web")) == 1)
        yield made


def _loads(server: ServedFolder, job: str) -> list[int]:
    """Count what each member holds and has confirmed; nothing while an item is on its way."""
    with closing(open_store(str(server.folder / "poise.db"))) as store:
        rows = list(store.view(job, lambda tx: tx.rows()).values())
    settled = all(row.confirmed and row.state is OwnerState.ASSIGNED for row in rows)
    return sorted(Counter(row.owner for row in rows).values()) if settled else []


@pytest.fixture
def poise(
    server: ServedFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Poise:
    """Run a verb in this process, in an empty folder, against the server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_SERVER", server.url)
    monkeypatch.delenv("POISE_TOKEN", raising=False)

    def perform(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return perform


@pytest.mark.slow
def test_every_job_in_a_line_and_one_job_in_full(poise: Poise) -> None:
    code, table, said = poise("get")
    assert (code, said) == (0, "")
    rows = [line.split() for line in table.splitlines()]
    assert rows[0] == ["KIND", "NAME", "ITEMS", "NO", "OWNER", "MOVING", "SPREAD", "MEMBERS", "HEALTH"]
    assert [row[:2] for row in rows[1:]] == [
        ["CapacitySplit", "shop"],
        ["PartitionSet", "orders"],
        ["PartitionSet", "spare"],
        ["ReplicaDivision", "shop"],
        ["ShardRing", "web"],
    ]
    assert rows[2][2:] == ["4", "partitions", "0", "0", "0", "2", "active", "as", "it", "should", "be"]
    assert rows[3][2:] == ["4", "partitions", "4", "0", "0", "none", "4", "of", "4", "items", "have", "no", "owner"]
    assert poise("get", "partitionsets")[1].count("\n") == 3
    assert poise("get", "spare")[1].splitlines() == [
        "PartitionSet spare   revision 1   4 of 4 items have no owner",
        "  no member has come yet",
        "  !! no owner   0, 1, 2, 3   no active node",
    ]
    lines = poise("get", "orders")[1].splitlines()
    assert [line.split()[:3] for line in lines[2:]] == [["w1", "active", "2"], ["w2", "active", "2"]]
    assert poise("get", "ReplicaDivision/shop")[1].splitlines()[1:] == ["         east   west", "  cart   4      2"]
    assert poise("get", "CapacitySplit/shop")[1].splitlines()[1:] == ["        onDemand   spot", "  api   4          6"]


@pytest.mark.slow
def test_who_holds_what(poise: Poise) -> None:
    lines = poise("get", "partitions", "orders")[1].splitlines()
    assert lines[0] == "PartitionSet orders   4 partitions on 2 nodes"
    held = [line.split() for line in lines[1:]]
    assert [words[:3] for words in held] == [["w1", "active", "2:"], ["w2", "active", "2:"]]
    assert sorted(held[0][3:] + held[1][3:]) == ["0", "1", "2", "3"]
    assert poise("get", "objects", "web")[1].splitlines()[1].endswith("ready   4:   ..   50%   apps/a   ü <b>")
    assert poise("get", "partitions")[1].count("PartitionSet ") == 2
    members = poise("get", "members", "orders")[1].splitlines()
    assert members[0] == "PartitionSet orders   2 nodes"
    listed = json.loads(poise("get", "items", "web", "-o", "json")[1])
    assert [(each["kind"], each["name"], len(each["items"])) for each in listed] == [("ShardRing", "web", 4)]
    assert poise("get", "targets") == (0, "There is no such job yet; write one with: poise apply FILE\n", "")


@pytest.mark.slow
def test_what_is_got_is_planned_the_same_offline(poise: Poise, tmp_path: Path) -> None:
    for job in ("orders", "spare", "web", "ReplicaDivision/shop", "CapacitySplit/shop"):
        code, text, _ = poise("get", job, "-o", "yaml")
        assert code == 0
        (tmp_path / "got.yaml").write_text(text)
        online, offline = poise("plan", job), poise("plan", "got.yaml")
        assert online == offline
        assert online[0] == 0
        assert poise("plan", job, "-o", "json") == poise("plan", "got.yaml", "-o", "json")
    assert [each.kind for each in load(poise("get", "-o", "yaml")[1], "all")] == [
        "CapacitySplit",
        "PartitionSet",
        "PartitionSet",
        "ReplicaDivision",
        "ShardRing",
    ]
    assert len(json.loads(poise("get", "-o", "json")[1])) == 5
    assert json.loads(poise("get", "web", "-o", "json")[1])["kind"] == "ShardRing"
    assert poise("plan")[1].count("Plan: ") == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "item", "flags"),
    [
        ("orders", "2", ()),
        ("orders", "2", ("--drain", "w1")),
        ("orders", "2", ("--at", "2026-11-15T02:00:00Z")),
        ("web", "ü <b>", ()),
        ("web", "..", ("--add", "w9")),
        ("ReplicaDivision/shop", "cart", ()),
        ("ReplicaDivision/shop", "cart", ("--replicas", "cart=7")),
        ("CapacitySplit/shop", "api", ()),
    ],
)
def test_what_ifs_and_explanations_read_as_offline(
    poise: Poise, tmp_path: Path, job: str, item: str, flags: tuple[str, ...]
) -> None:
    (tmp_path / "got.yaml").write_text(poise("get", job, "-o", "yaml")[1])
    assert poise("explain", job, item, *flags) == poise("explain", "got.yaml", item, *flags)
    online = poise("plan", job, *flags, "--detailed-exitcode")
    assert online == poise("plan", "got.yaml", *flags, "--detailed-exitcode")
    assert online[0] in (0, 2)


@pytest.mark.slow
def test_the_history_is_that_of_the_store(poise: Poise, server: ServedFolder) -> None:
    store = ("--db", str(server.folder / "poise.db"))
    assert poise("history", "orders", "1") == poise("history", "orders", "1", *store)
    assert poise("history", "web", "50%", "-o", "json") == poise("history", "web", "50%", "-o", "json", *store)
    assert "confirmed w1" in poise("history", "ShardRing/web", "..")[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("get nope", 64, "there is no job 'nope' at http://127.0.0.1:"),
        ("get shop", 64, "shop is more than one job: say CapacitySplit/shop or ReplicaDivision/shop"),
        ("get Strange/x", 64, "there is no kind 'Strange'; the kinds are TargetPool, "),
        ("get PartitionSet/nope", 64, "there is no PartitionSet 'nope'"),
        ("get --server http://127.0.0.1:1", 4, "http://127.0.0.1:1 cannot be reached: "),
        ("get --server 127.0.0.1:7878", 64, "$.server: expected an address such as http://127.0.0.1:7878"),
        ("plan orders --drain w9", 64, "$.drain['w9']: no node of that name"),
        ("plan orders spare --drain w1", 64, "a what-if needs one job and there are 2"),
        ("plan -f orders --server http://127.0.0.1:1", 64, "-f and --only are for files"),
        ("plan no.yaml", 64, "there is no job 'no.yaml'"),
        ("explain orders 9", 64, "PartitionSet orders has no item '9'"),
        ("explain orders 1 --only x", 64, "--only is for files"),
        ("history orders 9", 64, "PartitionSet orders has no item '9'"),
        ("history orders", 64, "a server tells the story of one ITEM"),
        ("history orders 1 --db x --server http://127.0.0.1:1", 64, "--server and --db exclude each other"),
        ("drain w9", 64, "no job at http://127.0.0.1:"),
        ("drain w1", 64, "w1 is a member of PartitionSet/orders, ShardRing/web: choose with --job, once for each"),
        ("drain w9 --job orders", 64, "PartitionSet orders has no member 'w9'"),
        ("drain east --job ReplicaDivision/shop", 64, "a ReplicaDivision has no members to drain"),
        ("pause nope", 64, "there is no job 'nope'"),
    ],
)
def test_a_refusal_is_one_line(poise: Poise, arguments: str, code: int, told: str) -> None:
    got, printed, said = poise(*arguments.split())
    assert (got, printed) == (code, "")
    assert len(said.splitlines()) == 1
    assert said.startswith("poise: ")
    assert told in said


@pytest.mark.slow
def test_without_a_server_a_name_that_is_no_file_is_told_of(poise: Poise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POISE_SERVER")
    hint = "(a job of a server? name it with --server URL or POISE_SERVER)"
    assert poise("plan", "orders") == (64, "", f"poise: orders: cannot be read: No such file or directory {hint}\n")


@pytest.mark.slow
def test_pause_and_resume(poise: Poise) -> None:
    assert poise("pause", "spare")[2] == ("PartitionSet/spare is paused: only what nobody holds is given to somebody\n")
    assert "; paused" in poise("get", "spare")[1]
    assert poise("pause", "spare", "--all")[2].endswith("nothing moves, and nothing is recovered\n")
    assert poise("resume", "spare") == (0, "", "PartitionSet/spare goes on\n")
    assert "paused" not in poise("get", "spare")[1]


@pytest.mark.slow
def test_a_drain_of_several_jobs_and_one_that_nobody_waits_for(poise: Poise) -> None:
    code, printed, said = poise("drain", "w2", "--job", "orders", "--no-wait")
    assert (code, printed, said) == (0, "", "w2 is being drained of PartitionSet/orders\n")
    await_that(lambda: "draining" in poise("get", "orders")[1])
    assert poise("undrain", "w2", "--job", "orders")[0] == 0
    code, _, said = poise("drain", "w1", "--job", "web", "--timeout", "0.5")
    assert code == 1
    assert "not done after 0.5 s: ShardRing/web: it holds 4 items, no other member can take its items" in said
    assert poise("undrain", "w1", "--job", "web", "--job", "orders")[2].count("takes part in") == 2


@pytest.mark.slow
def test_a_watch_prints_new_lines_and_draws_anew_on_a_terminal(server: ServedFolder) -> None:
    plain = server.begin("get", "spare", "--watch")
    here, there = pty.openpty()
    drawn = subprocess.Popen(
        [sys.executable, "-m", "poise", "get", "spare", "-w", "--server", server.url],
        stdout=there,
        stderr=subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert plain.stdout is not None
    first = [plain.stdout.readline() for _ in range(3)]
    assert first[0].endswith("4 of 4 items have no owner\n")
    seen = b""
    for screens, verb in ((1, "pause"), (2, "resume"), (3, "")):
        while seen.count(b"\x1b[H\x1b[2J") < screens or not seen.endswith(b"\n"):
            seen += os.read(here, 65_536)
        if verb:
            server.poise(verb, "spare")
        if verb == "pause":
            assert plain.stdout.readline().endswith("4 of 4 items have no owner; paused\n"), "only the line that is new"
    os.close(there)
    assert b"; paused" in seen
    for each in (plain, drawn):
        each.send_signal(signal.SIGINT)
        assert each.wait(10) == 0
    os.close(here)
    drawn.communicate()


@pytest.mark.slow
def test_tokens_and_roles(tmp_path: Path) -> None:
    lines = [f"{name} {name} {hashlib.sha256(name.encode()).hexdigest()}" for name in ("viewer", "operator")]
    (tmp_path / "tokens").write_text("\n".join(lines))
    with ServedFolder(tmp_path, SPARE, options=("--tokens", "tokens")) as server:
        for token, arguments, code, told in (
            ("", "get", 1, f"poise: {server.url}: needs a token; set POISE_TOKEN (role viewer)\n"),
            ("wrong", "get", 1, f"poise: {server.url}: the token in POISE_TOKEN is not known (role viewer)\n"),
            ("viewer", "get", 0, ""),
            ("viewer", "plan spare --add w1", 0, ""),
            ("viewer", "pause spare", 1, "may not do this: this needs the role operator\n"),
            ("operator", "pause spare", 0, "PartitionSet/spare is paused: "),
        ):
            done = server.poise(*arguments.split(), token=token)
            assert done.returncode == code, done.stderr
            assert told in done.stderr
