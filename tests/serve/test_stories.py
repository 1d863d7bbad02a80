"""The story of a job: all of it, page by page, from either end."""

from __future__ import annotations

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.serve.live_server import LiveServer
from tests.serve.talking_member import TalkingMember, settle

from poise.model.ownership import Line
from poise.serve import stories
from poise.serve.stories import read_story
from poise.stores.base import Transaction
from poise.stores.memory import MemoryStore

PATH = "/v1/jobs/PartitionSet/orders"


def told_by(client: httpx2.Client, path: str, **query: str) -> list[int]:
    """Read all pages, and give the numbers of the lines."""
    numbers: list[int] = []
    more: dict[str, str] = {}
    while True:
        page = client.get(path, params={**query, **more}).json()
        numbers += [line["number"] for line in page["items"]]
        if "continue" not in page:
            return numbers
        more = {"continue": page["continue"]}


@pytest.mark.parametrize("limit", ["1", "2", "3", "100"])
def test_a_story_is_paged_from_either_end(server: LiveServer, client: httpx2.Client, limit: str) -> None:
    settle(server, TalkingMember(client, "n1"))
    everything = told_by(client, f"{PATH}/history", limit=limit)
    assert everything == sorted(everything)
    assert len(everything) >= 8, "four items were given and confirmed"
    assert told_by(client, f"{PATH}/history", limit=limit, newest="true") == everything[::-1]
    mine = told_by(client, f"{PATH}/items/0/history", limit=limit)
    assert len(mine) == 2
    assert told_by(client, f"{PATH}/items/0/history", limit=limit, newest="true") == mine[::-1]


def test_a_story_that_cannot_be_told_is_refused(client: httpx2.Client) -> None:
    assert client.get("/v1/jobs/PartitionSet/none/history").status_code == 404
    for query in ({"newest": "yes"}, {"continue": "bm9uZQ"}, {"continue": "!"}, {"limit": "0"}):
        refused = client.get(f"{PATH}/history", params=query)
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["path"] == f"?{next(iter(query))}"


@given(st.lists(st.sampled_from("abc"), max_size=60), st.sampled_from([None, "a", "b", "c"]), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_pages_from_the_newest_on_are_the_story_backwards(items: list[str], item: str | None, most: int) -> None:
    store = MemoryStore(lambda: 0.0)

    def write(tx: Transaction) -> None:
        lines = [Line(set="s", item=each, transition="t", member=None, epoch=0, at_s=0.0, reason="") for each in items]
        tx.write_lines(lines)

    store.transact("s", write)
    whole = store.journal("s", item, most=1_000)
    back: list[Line] = []
    after = None
    while page := read_story(store, "s", item, after, most, newest=True):
        assert len(page) <= most
        back += page
        after = page[-1].number
    assert back == whole[::-1]


def test_windows_that_do_not_meet_would_lose_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(lambda: 0.0)
    lines = [
        Line(set="s", item=str(n % 7), transition="t", member=None, epoch=0, at_s=0.0, reason="") for n in range(50)
    ]
    store.transact("s", lambda tx: tx.write_lines(lines))
    whole = [line.number for line in store.journal("s", "3")]
    assert [line.number for line in read_story(store, "s", "3", None, 3, newest=True)] == whole[::-1][:3]
    monkeypatch.setattr(stories, "_WIDER", 0)
    windows = iter(range(100))

    class Counting(MemoryStore):
        def journal(self, name: str, item: str | None = None, after: int = 0, most: int = 1000) -> list[Line]:
            assert next(windows) < 99, "windows that do not grow never reach the first line"
            return store.journal(name, item, after, most)

    counting = Counting(lambda: 0.0)
    counting.transact("s", lambda tx: tx.write_lines(lines))
    with pytest.raises(AssertionError, match="never reach"):
        read_story(counting, "s", "3", None, 9, newest=True)


def test_a_what_if_is_explained_and_changes_nothing(server: LiveServer, client: httpx2.Client) -> None:
    settle(server, TalkingMember(client, "n1"), TalkingMember(client, "n2"))
    mine = client.get(f"{PATH}/items", params={"member": "n2"}).json()["items"][0]["item"]
    before = client.get(f"{PATH}/items/{mine}/explain").json()
    imagined = client.post(f"{PATH}/items/{mine}/explain", json={"drain": ["n2"]}).json()
    assert imagined["item"] == mine
    assert "n2 is draining" in " ".join(imagined["because"])
    assert client.get(f"{PATH}/items/{mine}/explain").json() == before
    wrong = client.post(f"{PATH}/items/{mine}/explain", json={"drain": ["ghost"]})
    assert (wrong.status_code, wrong.json()["errors"][0]["path"]) == (400, "$.drain['ghost']")


def test_one_job_is_summed_up_as_the_list_does(client: httpx2.Client) -> None:
    for job in client.get("/v1/jobs").json()["items"]:
        assert client.get(f"/v1/jobs/{job['kind']}/{job['name']}/summary").json() == job
    assert client.get("/v1/jobs/PartitionSet/none/summary").status_code == 404
