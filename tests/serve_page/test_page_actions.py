"""What a button leads to: a plan first, the command that does the same, and an apply that sees if the world moved."""

from __future__ import annotations

import html
import re
import shlex
from urllib.parse import parse_qs, urlsplit

import click
import httpx2
import pytest
from tests.serve.live_server import LiveServer
from tests.serve_page.page_world import JOBS, POOL, check_page, marks, speak

from poise.cli.main import poise

SET, DIVISION = JOBS["PartitionSet"], JOBS["ReplicaDivision"]
_COMMAND = re.compile(r"<pre [^>]*><code>(.*?)</code></pre>", re.DOTALL)


def commands(text: str) -> list[str]:
    """Read the command lines of a page, as people copy them."""
    return [html.unescape(each) for each in _COMMAND.findall(text)]


def parsed(line: str) -> tuple[str, dict[str, object]]:
    """Read a command with the real command line: an option that does not exist is an error."""
    words = shlex.split(line.partition(" <<")[0])
    assert words[0] == "poise"
    verb = poise.get_command(click.Context(poise), words[1])
    assert verb is not None, line
    return words[1], verb.make_context(words[1], words[2:], resilient_parsing=False).params


def state_of(page: httpx2.Client, member: str) -> str:
    members = page.get("/v1/jobs/PartitionSet/orders/members").json()["items"]
    return next(str(each["state"]) for each in members if each["name"] == member)


def weights(page: httpx2.Client) -> dict[str, int]:
    clusters = page.get("/v1/jobs/ReplicaDivision/shop").json()["spec"]["clusters"]
    return {each["name"]: each.get("weight", 1) for each in clusters}


def test_looking_does_nothing(page: httpx2.Client) -> None:
    for query in ("drain=w1", "pause=moves", "pause=all", "weight=w1:2"):
        assert page.get(f"{SET}?{query}").status_code == 200
    assert state_of(page, "w1") == "active"
    assert not any(job["paused"] for job in page.get("/v1/jobs").json()["items"])


def test_a_drain_is_drawn_then_applied_then_undone(page: httpx2.Client) -> None:
    drain = page.get(f"{SET}?drain=w1")
    seen = check_page(drain.text)
    assert "What if w1 is drained?" in seen.text
    assert "Nothing has been done" in seen.text
    assert "Plan: 4 moves" in seen.text
    done = page.post(f"{SET}?drain=w1", data=marks(drain.text))
    assert (done.status_code, done.headers["location"]) == (303, f"{SET}?done=drain")
    assert state_of(page, "w1") == "draining"
    after = check_page(page.get(done.headers["location"]).text)
    assert "the drain has begun" in after.text
    assert "undrain-w1" in after.ids
    undrain = page.get(f"{SET}?undrain=w1")
    assert "What if w1 takes part again?" in check_page(undrain.text).text
    assert page.post(f"{SET}?undrain=w1", data=marks(undrain.text)).status_code == 303
    assert state_of(page, "w1") == "active"


@pytest.mark.parametrize(("query", "words"), [("pause=moves", "moves are paused"), ("pause=all", "and recovery too")])
def test_a_pause_is_shown_then_applied_then_resumed(page: httpx2.Client, query: str, words: str) -> None:
    pause = page.get(f"{SET}?{query}")
    assert words in pause.text
    assert page.post(f"{SET}?{query}", data=marks(pause.text)).status_code == 303
    assert "ask-resume" in check_page(page.get(SET).text).ids
    resume = page.get(f"{SET}?resume=yes")
    assert page.post(f"{SET}?resume=yes", data=marks(resume.text)).status_code == 303
    assert "ask-pause" in check_page(page.get(SET).text).ids


@pytest.mark.parametrize("kind", ["PartitionSet", "ReplicaDivision", "CapacitySplit"])
def test_the_guard_of_a_pause_is_imagined_with_it(page: httpx2.Client, kind: str) -> None:
    def guard(query: str) -> str:
        found = re.search(r'<li class="guard" data-guard="pause".*?</li>', page.get(f"{JOBS[kind]}{query}").text)
        assert found is not None
        return found[0]

    assert "not paused" in guard("")
    imagined = guard("?pause=moves")
    assert "would be held back until someone resumes" in imagined
    assert 'data-open="no"' in imagined
    page.post(f"{JOBS[kind]}?pause=moves", data=marks(page.get(f"{JOBS[kind]}?pause=moves").text))
    assert "are held back until someone resumes" in guard("")
    assert "moves would go on" in guard("?resume=yes")
    assert 'data-open="yes"' in guard("?resume=yes")
    assert "are held back until someone resumes" in guard("?pause=moves"), "what is refused is not imagined"


def test_a_pause_is_seen_in_the_plan_before_it_holds(page: httpx2.Client) -> None:
    speak(page, "orders", "w9")
    assert "paused until someone resumes it" not in page.get(SET).text
    seen = check_page(page.get(f"{SET}?pause=moves").text)
    assert "paused until someone resumes it" in seen.text
    assert page.post("/v1/jobs/PartitionSet/orders/pause").status_code == 200
    assert "paused until someone resumes it" in page.get(SET).text
    assert "paused until someone resumes it" not in page.get(f"{SET}?resume=yes").text


def test_weights_and_replicas_of_a_division_are_written(page: httpx2.Client) -> None:
    address = f"{DIVISION}?weight=east:1&replicas=cart:9"
    shown = page.get(address)
    assert "What if east weighs 1 and cart has 9 replicas?" in check_page(shown.text).text
    assert page.post(address, data=marks(shown.text)).headers["location"].endswith("?done=change")
    assert weights(page) == {"east": 1, "west": 1}
    workloads = page.get("/v1/jobs/ReplicaDivision/shop").json()["spec"]["workloads"]
    assert {each["name"]: each["replicas"] for each in workloads} == {"cart": 9, "team/search": 4}


def test_clusters_come_and_go(page: httpx2.Client) -> None:
    address = f"{DIVISION}?add=north&remove=west"
    assert page.post(address, data=marks(page.get(address).text)).status_code == 303
    assert weights(page) == {"east": 2, "north": 1}


def test_counts_of_a_split_survive_a_change_of_its_document(page: httpx2.Client) -> None:
    address = f"{JOBS['CapacitySplit']}?replicas=api:12"
    assert page.post(address, data=marks(page.get(address).text)).status_code == 303
    document = page.get("/v1/jobs/CapacitySplit/services").json()
    assert document["spec"]["workloads"][0]["replicas"] == 12
    counted = document["status"]["workloads"]["api"]
    assert (counted["spot"], counted["onDemand"]) == (5, 5)


def test_a_weight_in_a_set_and_a_pool_is_written(page: httpx2.Client) -> None:
    for address in (f"{SET}?weight=w1:3", f"{JOBS['TargetPool']}?weight=gnmic-1:2"):
        assert page.post(address, data=marks(page.get(address).text)).status_code == 303
    assert page.get("/v1/jobs/PartitionSet/orders").json()["spec"]["weights"] == {"w1": 3}
    pods = page.get("/v1/jobs/TargetPool/core").json()["spec"]["pods"]["endpoints"]
    assert pods[1]["weight"] == 2
    assert pods[0]["url"] == POOL["spec"]["pods"]["endpoints"][0]["url"]  # type: ignore[index]


def test_who_comes_too_late_sees_that_the_world_has_moved(page: httpx2.Client) -> None:
    first, second = page.get(f"{SET}?drain=w1"), page.get(f"{SET}?drain=w2")
    assert page.post(f"{SET}?drain=w1", data=marks(first.text)).status_code == 303
    late = page.post(f"{SET}?drain=w2", data=marks(second.text))
    assert late.status_code == 409
    seen = check_page(late.text)
    assert "the world has moved since you looked: nothing was done" in seen.text
    assert state_of(page, "w2") == "active"
    assert marks(late.text) != marks(second.text), "the plan that is shown now can be applied"
    assert page.post(f"{SET}?drain=w2", data=marks(late.text)).status_code == 303


def test_a_changed_document_and_a_new_member_are_noticed(page: httpx2.Client, page_server: LiveServer) -> None:
    address = f"{DIVISION}?weight=east:5"
    old = page.get(address)
    changed = page.get("/v1/jobs/ReplicaDivision/shop").json()
    changed["spec"]["clusters"][1]["weight"] = 7
    page_server.put(changed, page)
    assert page.post(address, data=marks(old.text)).status_code == 409
    assert weights(page) == {"east": 2, "west": 7}
    drain = page.get(f"{SET}?drain=w1")
    speak(page, "orders", "w9")
    assert page.post(f"{SET}?drain=w1", data=marks(drain.text)).status_code == 409
    assert state_of(page, "w1") == "active"


@pytest.mark.parametrize("form", [{}, {"revision": "1"}, {"revision": "x", "digest": "y"}, {"digest": "y"}])
def test_nothing_is_applied_unseen(page: httpx2.Client, form: dict[str, str]) -> None:
    assert page.post(f"{SET}?drain=w1", data=form or {"a": "b"}).status_code == 400
    assert state_of(page, "w1") == "active"


@pytest.mark.parametrize(
    ("path", "query", "why"),
    [
        ("PartitionSet", "drain=nobody", "no worker of that name"),
        ("PartitionSet", "add=w1", "w1 is a worker already"),
        ("PartitionSet", "undrain=w1", "w1 is in service already"),
        ("PartitionSet", "undrain=nobody", "no worker of that name"),
        ("PartitionSet", "resume=yes", "the job is not paused"),
        ("PartitionSet", "pause=all&drain=w1", "are done on their own"),
        ("PartitionSet", "replicas=cart:9", "counts no replicas"),
        ("ReplicaDivision", "weight=moon:2", "no cluster of that name"),
        ("ReplicaDivision", "replicas=none:2", "no workload of that name"),
        ("CapacitySplit", "add=pool", "has no pools"),
        ("ShardRing", "drain=web-9", "no instance of that name"),
    ],
)
def test_what_is_impossible_says_why(page: httpx2.Client, path: str, query: str, why: str) -> None:
    response = page.get(f"{JOBS[path]}?{query}")
    assert response.status_code == 400
    seen = check_page(response.text)
    assert why in seen.text
    assert "impossible" in seen.ids
    assert "apply" not in seen.ids
    assert page.post(f"{JOBS[path]}?{query}", data={"revision": "1", "digest": "x"}).status_code in (400, 409)


def test_what_poise_cannot_do_is_said_with_the_command(page: httpx2.Client, page_server: LiveServer) -> None:
    shown = page.get(f"{SET}?add=w9")
    seen = check_page(shown.text)
    assert "apply" not in seen.ids
    assert "Poise does not start w9" in seen.text
    assert f"poise worker orders --name w9 --server {page_server.url}" in commands(shown.text)
    assert page.post(f"{SET}?add=w9", data={"revision": "1", "digest": "x"}).status_code == 409


def test_a_form_leads_to_an_address_that_can_be_sent(page: httpx2.Client) -> None:
    response = page.get(
        DIVISION, params={"drain": "", "weight": "west:2", "weight_of": "east", "weight_is": "3", "replicas_of": ""}
    )
    assert response.status_code == 303
    assert parse_qs(urlsplit(response.headers["location"]).query) == {"weight": ["west:2", "east:3"]}
    half = page.get(DIVISION, params={"weight_of": "east", "weight_is": ""})
    assert half.status_code == 400
    assert "give the number for east" in half.text


@pytest.mark.parametrize(
    ("path", "query", "verbs"),
    [
        ("PartitionSet", "drain=w1", ["drain", "plan"]),
        ("PartitionSet", "drain=w1&drain=w2", ["drain", "drain", "plan"]),
        ("PartitionSet", "pause=moves", ["pause"]),
        ("PartitionSet", "pause=all", ["pause"]),
        ("PartitionSet", "weight=w1:2&drain=w2", ["drain", "apply", "plan"]),
        ("PartitionSet", "add=w9&remove=w1", ["worker", "plan"]),
        ("ShardRing", "drain=web-0", ["drain", "plan"]),
        ("ReplicaDivision", "weight=east:1&replicas=team/search:9", ["apply", "plan"]),
    ],
)
def test_the_commands_are_those_of_the_real_command_line(
    page: httpx2.Client, page_server: LiveServer, path: str, query: str, verbs: list[str]
) -> None:
    lines = commands(page.get(f"{JOBS[path]}?{query}").text)
    read = [parsed(line) for line in lines]
    assert [verb for verb, _ in read] == verbs
    assert {str(params["server"]) for _, params in read} == {page_server.url}
    for verb, params in read:
        if verb == "drain":
            assert params["jobs"] == (JOBS[path].removeprefix("/jobs/"),)
        if verb == "pause":
            assert params["everything"] is (query == "pause=all")


def test_commands_of_states_that_were_reached(page: httpx2.Client) -> None:
    assert page.post("/v1/jobs/PartitionSet/orders/pause").status_code == 200
    assert page.post("/v1/jobs/PartitionSet/orders/members/w1/drain").status_code == 200
    for query, verbs in (("resume=yes", ["resume"]), ("undrain=w1", ["undrain", "plan"])):
        assert [parsed(line)[0] for line in commands(page.get(f"{SET}?{query}").text)] == verbs


def test_the_document_of_a_command_is_the_one_that_apply_writes(page: httpx2.Client) -> None:
    address = f"{DIVISION}?weight=east:1"
    shown = page.get(address).text
    text = commands(shown)[0].partition("\n")[2].removesuffix("END_OF_DOCUMENT")
    assert page.post(address, data=marks(shown)).status_code == 303
    written = page.get("/v1/jobs/ReplicaDivision/shop").json()
    from poise.documents import dump, load

    document = dump(load(text.encode(), "shown")[0])
    assert document["spec"] == written["spec"]


def test_a_what_if_that_turns_impossible_is_said_in_the_living_part(page: httpx2.Client) -> None:
    live = {"HX-Request": "true"}
    assert page.get(f"{SET}?add=w9", headers=live).status_code == 200
    speak(page, "orders", "w9")
    assert page.get(f"{SET}?add=w9", headers=live).status_code == 200
    assert page.get(f"{SET}?add=w9").status_code == 400


def test_several_drains_are_drains_and_not_a_change_of_the_document(page: httpx2.Client) -> None:
    both = page.get(f"{SET}?drain=w1&drain=w2")
    assert "Apply: drain" in check_page(both.text).text
    assert page.post(f"{SET}?drain=w1&drain=w2", data=marks(both.text)).headers["location"] == f"{SET}?done=drain"
    assert {state_of(page, name) for name in ("w1", "w2")} == {"draining"}


def test_an_apply_of_nothing_is_refused(page: httpx2.Client) -> None:
    seen = page.get(f"{SET}?drain=w1")
    assert page.post(SET, data=marks(seen.text)).status_code == 400


def test_a_long_query_does_not_make_a_page_of_megabytes(page: httpx2.Client) -> None:
    query = "&".join(f"add={'n' * 60}{number}" for number in range(90))
    assert len(page.get(f"{SET}?{query}").content) < 300_000
