"""The engine follows its document and its source: who joins, who departs, what is listed, what is held back."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest
from tests.pool.pool_setting import NAMES, Setting, play
from tests.pool.pool_world import POOL, SET, document, listed, put
from tests.pool.served import engine_on, until

from poise.jobs.pool.settings import PODS_NOTE
from poise.jobs.stored import DOCUMENT, TARGETS, delete_document
from poise.model.target_pool import Pods
from poise.move.executor import drain_member


def test_capacities_and_weights_hold_and_who_is_left_over_has_a_reason(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        one, two = (each.endpoint for each in now.served)
        now.want_pods([{**one, "capacity": 1}, {**two, "capacity": 3}])
        async with engine_on(now.store) as engine:
            await until(lambda: len(engine.state().unassigned) == 2, engine.state)
            assert set(engine.state().unassigned.values()) == {"no pod has room"}
            await until(lambda: [len(each) for each in now.live()] == [1, 3])
            now.want_pods([{**one, "weight": 2}, {**two, "weight": 1}])
            await until(lambda: [len(each) for each in now.live()] == [4, 2], engine.state)
            assert engine.state().unassigned == {}

    play(tmp_path, "p1 p2", work)


def test_the_stateless_policy_runs_too(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.want(policy="hashed")
        async with engine_on(now.store) as engine:
            await until(now.shared(3, 3), engine.state)

    play(tmp_path, "p1 p2", work)


def test_a_changed_target_goes_to_its_pod_only(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.want()
        async with engine_on(now.store) as engine:
            await until(now.shared(3, 3), engine.state)
            changed = [{"name": name, "address": "other:1" if name == "r0" else f"{name}:57400"} for name in NAMES]
            now.want(targets={"list": changed})
            (home,) = [each for each in now.served if "r0" in each.pod.live]
            await until(lambda: home.pod.configured["r0"]["address"] == "other:1", engine.state)
            assert sorted(each.writes for each in now.served) == [1, 2]

    play(tmp_path, "p1 p2", work)


def test_a_drained_pod_lets_go_and_gets_its_share_back(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.want()
        async with engine_on(now.store) as engine:
            await until(now.shared(3, 3), engine.state)
            now.store.transact(SET, lambda tx: drain_member(tx, SET, "p1", True))
            await until(lambda: [len(each) for each in now.live()] == [0, 6], engine.state)
            await until(lambda: now.pod(engine, "p1").state == "draining", engine.state)
            now.store.transact(SET, lambda tx: drain_member(tx, SET, "p1", False))
            await until(now.shared(3, 3), engine.state)

    play(tmp_path, "p1 p2", work)


def test_a_pod_that_leaves_the_document_is_emptied_and_forgotten_and_may_return(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.want()
        async with engine_on(now.store) as engine:
            await until(now.shared(3, 3), engine.state)
            now.want(pods=now.served[:1])
            await until(lambda: [len(each) for each in now.live()] == [6, 0], engine.state)
            await until(lambda: [pod.name for pod in engine.state().pods] == ["p1"], engine.state)
            now.want()
            await until(now.shared(3, 3), engine.state)

    play(tmp_path, "p1 p2", work)


def test_without_its_document_everything_is_taken_back(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.want()
        async with engine_on(now.store) as engine:
            await until(now.shared(3, 3), engine.state)
            delete_document(now.store, "TargetPool", POOL)
            await until(lambda: now.live() == [[], []], engine.state)
            await until(lambda: now.store.transact(SET, lambda tx: tx.rows()) == {}, engine.state)
            await until(lambda: engine.state().pods == [], engine.state)
            await until(lambda: now.store.sets() == [], engine.state)

    play(tmp_path, "p1 p2", work)


def test_a_pod_with_a_new_address_is_freed_at_the_old_one_first(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        old, new = now.served
        now.want_pods([{**old.endpoint, "name": "p"}])
        async with engine_on(now.store) as engine:
            await until(lambda: now.live() == [NAMES, []], engine.state)
            now.want_pods([{**new.endpoint, "name": "p"}])
            await until(lambda: now.live() == [[], NAMES], engine.state)
            await until(lambda: '"former":""' in now.note(PODS_NOTE), engine.state)

    play(tmp_path, "old new", work)


def test_a_pool_that_was_deleted_begins_anew(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        now.want()
        async with engine_on(now.store) as engine:
            await until(now.shared(3, 3), engine.state)
            delete_document(now.store, "TargetPool", POOL)
            now.want(targets=listed(NAMES[:2]))
            await until(now.shared(1, 1), engine.state)
            delete_document(now.store, "TargetPool", POOL)
            await until(lambda: now.live() == [[], []], engine.state)
            now.want()
            await until(now.shared(3, 3), engine.state)

    play(tmp_path, "p1 p2", work)


@pytest.mark.slow
def test_a_file_that_loses_too_much_is_held_back_also_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "routers.yaml"
    path.write_text("".join(f"{name}: {{address: '{name}:1'}}\n" for name in NAMES))

    async def work(now: Setting) -> None:
        now.want(targets={"file": "routers.yaml"})
        async with engine_on(now.store, tmp_path) as engine:
            await until(now.shared(6), engine.state)
            path.write_text("r0: {address: 'r0:1'}\n")
            await until(lambda: "lost 5 of 6 targets at once" in engine.state().source.error, engine.state)
        async with engine_on(now.store, tmp_path) as engine:
            await until(lambda: "lost 5 of 6 targets at once" in engine.state().source.error, engine.state)
            await asyncio.sleep(0.5)
            assert now.live() == [NAMES], "it was not obeyed"
            path.write_text("r0: nonsense\n")
            await until(lambda: "expected a mapping" in engine.state().source.error, engine.state)
            path.write_text("r0: {address: 'r0:1'}\n")
            await until(lambda: "at once" in engine.state().source.error, engine.state)
            now.want(targets={"file": "routers.yaml"}, capacity=7)
            await until(lambda: now.live() == [["r0"]], engine.state)
            assert engine.state().source.error == ""

    play(tmp_path, "p1", work)


@pytest.mark.slow
def test_an_http_list_is_polled_and_its_faults_change_nothing(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        pod, inventory = now.served
        inventory.pod.replace({name: {"name": name, "address": "r:1"} for name in NAMES[:3]})
        url = f"http://127.0.0.1:{inventory.port}/targets"
        now.want(pods=[pod], targets={"http": {"url": url, "intervalSeconds": 1}})
        async with engine_on(now.store) as engine:
            await until(lambda: sorted(pod.pod.live) == NAMES[:3], engine.state)
            inventory.pod.replace({name: {"name": name, "address": "r:1"} for name in NAMES})
            await until(lambda: sorted(pod.pod.live) == NAMES, engine.state)
            inventory.pod.control({"status": 500})
            await until(lambda: "answered 500" in engine.state().source.error, engine.state)
            inventory.pod.control({"status": 200, "restart": True})
            await until(lambda: "lost 6 of 6" in engine.state().source.error, engine.state)
            assert sorted(pod.pod.live) == NAMES
            inventory.pod.replace({name: {"name": name, "address": "r:1"} for name in NAMES[:5]})
            await until(lambda: sorted(pod.pod.live) == NAMES[:5], engine.state)
            await until(lambda: engine.state().source.error == "", engine.state)

    play(tmp_path, "p1 inventory", work)


SECRET = "correct horse battery"


def test_a_credential_is_delivered_again_when_it_changes_and_is_kept_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "password"
    path.write_text(SECRET)
    config = {"password": {"file": str(path)}}

    async def work(now: Setting) -> None:
        now.want(targets={"list": [{"name": "r0", "address": "r0:1", "config": config}]})
        async with engine_on(now.store) as engine:
            await until(lambda: now.served[0].writes == 1, engine.state)
            await asyncio.sleep(0.6)
            assert now.served[0].writes == 1
            path.write_text(f"{SECRET} staple")
            await until(lambda: now.served[0].writes == 2, engine.state)
            password = now.served[0].pod.configured["r0"]["password"]
            assert password == f"{SECRET} staple"
            path.unlink()
            await until(lambda: "password cannot be read" in now.pod(engine, "p1").error, engine.state)
            kept = [now.note(key) for key in (DOCUMENT, TARGETS, PODS_NOTE)]
            told = [*kept, repr(engine.state()), repr(now.store.journal(SET)), caplog.text]
            assert not any(SECRET in text for text in told)

    play(tmp_path, "p1", work)


def test_pods_of_kubernetes_are_named_as_such(tmp_path: Path) -> None:
    async def work(now: Setting) -> None:
        known = document([], listed(NAMES))
        pods = msgspec.convert({"statefulSet": {"name": "gnmic"}}, Pods)
        spec = msgspec.structs.replace(known.spec, pods=pods)
        put(now.store, msgspec.structs.replace(known, spec=spec))
        async with engine_on(now.store) as engine:
            await until(lambda: "Kubernetes only" in engine.state().error, engine.state)

    play(tmp_path, "p1", work)
