"""The commands under the buttons of the demo: they meet whom the button would meet, and change what it would change."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.demo.test_demo_telling import AT, crew, staff

from poise.demo.commands import commands
from poise.demo.documents import CLUSTERS, RISEN, RISING, documents
from poise.demo.guide import Guide
from poise.demo.line import Line
from poise.demo.names import COLLECTORS, FLEET, ORDERS, ROUTERS
from poise.demo.ports import address_of, unusual
from poise.demo.sink import Sink
from poise.demo.steps import STEPS
from poise.demo.taking import POOL, take
from poise.demo.words import State
from poise.documents import dump, load, write_yaml
from poise.errors import Conflict
from poise.jobs.stored import put_document, store_name
from poise.model import ReplicaDivision
from poise.move.executor import register_member
from poise.serve.jobs_api import StoreJobs
from poise.serve.settings import ServeSettings
from poise.stores.base import Store, Transaction
from poise.stores.open import open_store

PORTS = {name: 7890 + place for place, name in enumerate(COLLECTORS)}


@pytest.fixture
def store() -> Iterator[Store]:
    """The five jobs of the demo, with workers that hold something."""
    with closing(open_store("memory:")) as opened:
        for document in documents(PORTS):
            put_document(opened, document, AT)
        opened.transact(ORDERS, staff)
        opened.transact(store_name(POOL, ROUTERS), come)
        yield opened


@pytest.fixture
def api(store: Store) -> StoreJobs:
    return StoreJobs(store, ready=lambda: True)


def come(tx: Transaction) -> None:
    """Let the collectors be found."""
    for name in COLLECTORS:
        register_member(tx, store_name(POOL, ROUTERS), name, name)


def test_every_button_has_its_command(api: StoreJobs) -> None:
    told = commands(api, crew(6), [], 4242)
    assert list(told) == [step.name for step in STEPS]
    met = take("kill-worker", api, crew(6), back=False).subject
    pid = next(part.pid for part in crew(6).parts if part.name == met)
    assert told["kill-worker"] == f"kill -9 {pid}"
    assert told["freeze-worker"] == f"kill -STOP {pid}; sleep 15; kill -CONT {pid}"
    assert told["restart-server"] == "kill 4242"


def test_the_collector_of_the_command_is_the_one_of_the_button(api: StoreJobs) -> None:
    told = commands(api, crew(6), [], 1)["drain-collector"]
    met = take("drain-collector", api, crew(6), back=False).subject
    assert told == f"poise drain {met} --job {ROUTERS}"
    assert commands(api, crew(6), ["drain-collector"], 1)["drain-collector"] == f"poise undrain {met} --job {ROUTERS}"


def test_a_step_that_cannot_be_taken_has_no_command(api: StoreJobs) -> None:
    assert set(commands(api, crew(4), [], 1)) == {"drain-collector", "change-weight", "restart-server"}
    api.delete(POOL, ROUTERS, if_match=None)
    assert set(commands(api, crew(4), [], 1)) == {"change-weight", "restart-server"}


def test_before_a_collector_was_found_none_can_be_drained() -> None:
    with closing(open_store("memory:")) as empty:
        put_document(empty, documents(PORTS)[1], AT)
        api = StoreJobs(empty, ready=lambda: True)
        assert set(commands(api, State(), [], 1)) == {"change-weight", "restart-server"}
        with pytest.raises(Conflict, match="no collector yet"):
            take("drain-collector", api, State(), back=False)


def test_the_command_of_the_weight_changes_that_weight_alone_and_back(api: StoreJobs) -> None:
    before = next(each for each in documents(PORTS) if each.metadata.name == FLEET)
    assert isinstance(before, ReplicaDivision)
    risen = load(edited(api, [], write_yaml(dump(before))), "test")[0]
    assert isinstance(risen, ReplicaDivision)
    assert {each.name: each.weight for each in risen.spec.clusters} == {**CLUSTERS, RISING: RISEN}
    assert risen.spec.workloads == before.spec.workloads
    assert load(edited(api, ["change-weight"], write_yaml(dump(risen))), "test") == [before]


def edited(api: StoreJobs, back: list[str], text: str) -> str:
    """Let the sed of the command change a document, as a shell would."""
    told = commands(api, crew(6), [step.name for step in STEPS if step.name in back], 1)["change-weight"]
    found = re.fullmatch(rf"poise get {FLEET} -o yaml \| sed '([^']+)' \| poise apply -y -f -", told)
    assert found is not None, told
    return subprocess.run(["sed", found[1]], input=text, capture_output=True, text=True, check=True, timeout=20).stdout


class Silent(Line):
    """A line on which nobody speaks."""

    def __init__(self, state: State) -> None:
        self.state = state


def test_the_strip_shows_the_commands_and_what_can_be_taken_back(api: StoreJobs, tmp_path: Path) -> None:
    with closing(Sink(tmp_path / "work.db")) as sink:
        state = msgspec.structs.replace(crew(6), done=("kill-worker", "drain-collector"))
        api.drain(POOL, ROUTERS, "collector-b", True)
        strip = str(Guide(api, Silent(state), sink, "http://127.0.0.1:7990").strip())
        usual = str(Guide(api, Silent(state), sink).strip())
    glyphs = dict(re.findall(r'id="demo-([a-z-]+)".*?<span aria-hidden="true">(.)&nbsp;', strip))
    assert glyphs == {
        "kill-worker": "✓",
        "freeze-worker": "2",
        "drain-collector": "↩",
        "change-weight": "4",
        "restart-server": "5",
    }
    typed = [re.sub(r"<[^>]*>", "", each) for each in re.findall(r'class="typed">(.*?)</code>', strip)]
    assert "In a terminal: poise undrain collector-b --job routers" in typed
    assert f"In a terminal: kill {os.getpid()}" in typed
    assert strip.count('class="typed"') == len(STEPS)
    assert "export POISE_SERVER=http://127.0.0.1:7990" in strip
    assert "POISE_SERVER" not in usual


@pytest.mark.parametrize(
    ("host", "port", "told"),
    [
        ("127.0.0.1", 7878, ""),
        ("0.0.0.0", 7878, ""),
        ("0.0.0.0", 80, "http://127.0.0.1:80"),
        ("::", 7878, "http://[::1]:7878"),
        ("demo.example", 7878, "http://demo.example:7878"),
    ],
)
def test_only_an_unusual_address_must_be_said(host: str, port: int, told: str) -> None:
    assert unusual(address_of(ServeSettings(host=host, port=port))) == told
