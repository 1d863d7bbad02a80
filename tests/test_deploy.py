"""What is shipped for running Poise is current: alerts and dashboard ask for metrics that exist, commands are known."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from tests.serve_process import await_met
from tests.shown_commands import ROOT, Command, check_words
from tools.kube import build

from poise.cli.operator import LISTEN
from poise.clock import boot_s
from poise.jobs.sharder.metrics import PROCESS, OperatorMetrics, RingNumbers
from poise.jobs.sharder.report import RingCounts, RingReport
from poise.jobs.sharder.webhook.numbers import HookNumbers
from poise.serve.calls import CALLS
from poise.serve.jobs_api import StoreJobs
from poise.serve.metrics import Metrics
from poise.stores.memory import MemoryStore

DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
OPERATOR_ALERTS = DEPLOY / "prometheus" / "operator.yaml"
DASHBOARD = DEPLOY / "grafana" / "poise.json"
UNIT = DEPLOY / "systemd" / "poise.service"
CONTAINER = DEPLOY / "container" / "Containerfile"
# The labels of the contract, those of a histogram and of the information, and what Prometheus adds to a scrape.
LABELS = {"job", "state", "member", "reason", "outcome", "le", "version", "python", "instance", "namespace", "kind"}


def served() -> dict[str, str]:
    """Ask the server's own metrics for their names and types."""
    return _types(Metrics(StoreJobs(MemoryStore(boot_s), ready=lambda: True)).exposition())


def operated() -> dict[str, str]:
    """Ask the operator's own metrics for theirs."""
    rings = [RingNumbers("web", RingReport(), RingCounts())]
    hook = HookNumbers(lambda: 0.0, lambda: False)
    return _types(OperatorMetrics(lambda: rings, {name: lambda: 0.0 for name in PROCESS}, [hook]).exposition())


def _types(exposition: bytes) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposition.decode(), re.MULTILINE))


def series(types: dict[str, str]) -> set[str]:
    """List every series that can be asked for."""
    names = set()
    for name, kind in types.items():
        names |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return names


def alert_rules(path: Path = ALERTS) -> list[dict[str, object]]:
    found = yaml.safe_load(path.read_text())
    return [rule for group in found["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, object]:
    found = json.loads(DASHBOARD.read_text())
    assert isinstance(found, dict)
    return found


def panel_queries() -> Iterator[str]:
    panels = dashboard()["panels"]
    assert isinstance(panels, list)
    for panel in panels:
        yield from (target["expr"] for target in panel["targets"])


QUERIES = [str(rule["expr"]) for rule in alert_rules()] + list(panel_queries())
OPERATOR_QUERIES = [str(rule["expr"]) for rule in alert_rules(OPERATOR_ALERTS)]


def unknown(query: str, types: Callable[[], dict[str, str]] = served) -> set[str]:
    """Name what a query asks for in vain: series and labels that there are not."""
    bare = re.sub(r'"[^"]*"', '""', query)
    asked = set(re.findall(r"\bpoise_[a-z_]+", bare))
    labels = set(re.findall(r"(\w+)\s*=~?\s*\"", bare))
    for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", bare):
        labels |= set(re.findall(r"\w+", group))
    return (asked - series(types())) | (labels - LABELS)


@pytest.mark.parametrize(
    ("query", "types"), [*((each, served) for each in QUERIES), *((each, operated) for each in OPERATOR_QUERIES)]
)
def test_a_query_asks_for_what_there_is(query: str, types: Callable[[], dict[str, str]]) -> None:
    assert "poise_" in query
    assert unknown(query, types) == set()
    assert query.count("(") == query.count(")")
    assert query.count("{") == query.count("}")


def test_a_wrong_query_is_found() -> None:
    assert unknown("max by (jub) (poise_unowned)") == {"jub"}
    assert unknown('poise_members{stat="gone"}') == {"stat"}
    assert unknown("poise_moves") == {"poise_moves"}
    assert unknown("rate(poise_cycle_seconds[5m])") == {"poise_cycle_seconds"}
    assert unknown("poise_leads") == {"poise_leads"}, "only the operator has it"
    assert unknown("poise_cycle_errors_total", operated) == {"poise_cycle_errors_total"}, "only the server has it"


def test_the_dashboard_shows_every_metric() -> None:
    shown = " ".join(panel_queries())
    assert [name for name in served() if name not in shown] == []


def test_every_alert_says_what_to_look_at() -> None:
    rules = [*alert_rules(), *alert_rules(OPERATOR_ALERTS)]
    names = [rule["alert"] for rule in rules]
    assert len(names) == len(set(names)) >= 20
    for rule in rules:
        labels, notes = rule["labels"], rule["annotations"]
        assert isinstance(labels, dict)
        assert isinstance(notes, dict)
        assert labels["severity"] in ("critical", "warning", "info")
        assert notes["summary"]


def test_the_alerts_of_the_operator_are_the_same_everywhere() -> None:
    rules = yaml.safe_load((DEPLOY / "kustomize" / "components" / "monitoring" / "alerts.yaml").read_text())
    assert rules["spec"] == yaml.safe_load(OPERATOR_ALERTS.read_text())
    assert (DEPLOY / "chart" / "poise" / "files" / "alerts.yaml").read_text() == OPERATOR_ALERTS.read_text()


def hides_installations(query: str) -> bool:
    """Say whether a query takes numbers of two installations for those of one: the namespace tells them apart."""
    bare = re.sub(r"\[[^]]*\]", "", query)
    groups = [set(re.findall(r"\w+", names)) for names in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", bare)]
    folded = re.findall(r"\b(?:max|min|sum|avg|count)\b(?!\s*by\b)", bare)
    return bool(folded) or not all("namespace" in names for names in groups)


def test_installations_do_not_hide_each_other() -> None:
    assert [query for query in OPERATOR_QUERIES if hides_installations(query)] == []
    assert hides_installations("max by (job) (poise_faults) > 0")
    assert hides_installations("sum(poise_leads) < 1")
    assert hides_installations('max by (namespace, job) (poise_items) unless on (job) poise_members{state="ready"}')


def test_a_webhook_that_is_not_believed_is_told() -> None:
    rules = {str(rule["expr"]): rule for rule in alert_rules(OPERATOR_ALERTS)}
    trouble = rules["max by (namespace) (poise_webhook_trouble) > 0"]
    assert trouble["for"] == "10m"
    assert "min by (namespace) (poise_webhook_certificate_seconds) < 14 * 24 * 3600" in rules


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert isinstance(panels, list)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def settings_of(unit: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))


def test_the_unit_starts_a_command_that_exists() -> None:
    settings = settings_of(UNIT.read_text())
    words = [word for word in shlex.split(settings["ExecStart"]) if not word.startswith("$")]
    assert words[0].endswith("/poise")
    check_words(Command(UNIT.name, shlex.join(["poise", *words[1:]])))
    assert settings["RestartPreventExitStatus"] == "64", "usage and invalid settings"
    assert settings["DynamicUser"] == "yes"
    assert f"/var/lib/{settings['StateDirectory']}/" in settings["ExecStart"], "the one place that it may write"


def container_lines() -> dict[str, str]:
    """Read the last line of each instruction, with its continuations."""
    text = re.sub(r"\\\n\s*", "", "\n".join(line for line in CONTAINER.read_text().splitlines() if line[:1] != "#"))
    return dict(line.split(" ", 1) for line in text.splitlines() if line)


def test_the_container_starts_a_command_that_exists() -> None:
    lines = container_lines()
    words = [*json.loads(lines["ENTRYPOINT"]), *json.loads(lines["CMD"])]
    assert words[:2] == ["poise", "up"]
    check_words(Command(CONTAINER.name, shlex.join(words)))
    assert f"sqlite:///{lines['VOLUME']}/poise.db" in words, "the one place that is written"
    assert f"0.0.0.0:{lines['EXPOSE']}" in words
    assert "--tokens" in words, "it can be reached by others"


def test_the_container_is_nobody_of_note() -> None:
    assert int(container_lines()["USER"].split(":")[0]) > 0


def health_check() -> list[str]:
    """Read the command that asks whether the container is well, whichever of the two it runs."""
    command = json.loads(container_lines()["HEALTHCHECK"].partition(" CMD ")[2])
    assert isinstance(command, list)
    assert command[:2] == ["python", "-c"]
    return command


def test_the_container_asks_where_the_server_and_the_operator_answer() -> None:
    code = health_check()[2]
    server, operator = re.findall(r"\b(\d{4})\b", code)
    assert server == container_lines()["EXPOSE"]
    assert operator == LISTEN.rpartition(":")[2]
    (path,) = re.findall(r"127\.0\.0\.1:\{port\}(/\w+)", code)
    assert path in {call.path for call in CALLS if call.role == "open"}


class Answer(BaseHTTPRequestHandler):
    """Says whether it is ready, as its server was told."""

    def do_GET(self) -> None:
        """Answer; the name is what the library calls."""
        assert isinstance(self.server, Answering)
        self.send_response(self.server.code if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Answering(HTTPServer):
    """A port that answers with one code."""

    def __init__(self, code: int) -> None:
        """Take any port."""
        super().__init__(("127.0.0.1", 0), Answer)
        self.code = code


@pytest.mark.parametrize(("code", "place", "wanted"), [(200, 0, 0), (200, 1, 0), (503, 0, 1), (503, 1, 1)])
def test_the_container_is_well_while_either_answers(code: int, place: int, wanted: int) -> None:
    with Answering(code) as answering, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # It is taken, and nobody listens there.
        thread = threading.Thread(target=answering.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        ports = [silent.getsockname()[1]] * 2
        ports[place] = answering.server_port
        asked = health_check()[2].replace("(7878, 8080)", str(tuple(ports)))
        done = subprocess.run([sys.executable, "-c", asked], check=False, timeout=60, env={})
        answering.shutdown()
        thread.join()
    assert done.returncode == wanted


def test_the_container_has_what_the_operator_needs() -> None:
    installed = re.search(r"'\.\[([a-z,]+)\]'", CONTAINER.read_text())
    assert installed is not None
    assert installed[1].split(",") == ["kube", "postgres"]


def test_the_container_copies_what_is_there() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINER.read_text(), re.MULTILINE)
    names = " ".join(copied).split()
    sent = re.findall(r"^!(\S+)$", CONTAINER.with_name(f"{CONTAINER.name}.dockerignore").read_text(), re.MULTILINE)
    assert sorted(name for name in names if name != "./") == sorted(sent) != []
    for name in sent:
        assert (ROOT / name).exists(), name


def test_nothing_names_a_foreign_address() -> None:
    for path in (path for path in DEPLOY.rglob("*") if path.is_file()):
        for host in re.findall(r"https?://([^/:\"'\s]+)", path.read_text()):
            assert host == "127.0.0.1", path.name
    assert all("/" not in image for image in re.findall(r"^FROM (\S+)", CONTAINER.read_text(), re.MULTILINE))


def test_a_build_tells_how_far_it_is_and_is_given_up_at_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A compiler that hangs is ended together with what it has started."""
    (tmp_path / "go").write_text("#!/bin/sh\nsleep 100 & echo $! > pid; wait\n")
    (tmp_path / "go").chmod(0o755)
    (tmp_path / "kube").mkdir()
    for name, value in {"_TELL_EVERY_S": 0.1, "_PATIENCE": 0, "_LEAST_S": 0.5}.items():
        monkeypatch.setattr(build, name, value)
    with pytest.raises(SystemExit, match=r"kubectl is not built after \d s \(usually 24 s\): given up"):
        build._compile(str(tmp_path / "go"), "kubectl", tmp_path, tmp_path / "kubectl")
    assert "kubectl: 0 s of about 24 s" in capsys.readouterr().err
    child = Path("/proc", (tmp_path / "kube" / "pid").read_text().strip(), "stat")
    await_met(lambda: not child.exists() or child.read_text().split()[2] == "Z")


def test_a_build_that_fails_says_so(tmp_path: Path) -> None:
    (tmp_path / "kube").mkdir()
    with pytest.raises(SystemExit, match="kubectl cannot be built: go ended with 1"):
        build._compile("false", "kubectl", tmp_path, tmp_path / "kubectl")
