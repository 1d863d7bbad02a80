"""Members over HTTP: a real server in a thread, real members, and servers that answer something else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.hold.leading import owners, put, until
from tests.hold.served_set import Diary, serving, token_line
from tests.serve.live_server import LiveServer, tokens_file

from poise.clock import boot_s
from poise.errors import Fault, InvalidSpec, Replaced
from poise.hold.changes import Gained
from poise.hold.http_link import HttpLink
from poise.hold.member import Member
from poise.hold.sync import SyncMember
from poise.model.ownership import Heartbeat, Hold, Reply, Terms, Word
from poise.move.executor import drain_member
from poise.move.heartbeat import Stale, Superseded
from poise.serve.settings import ServeSettings

PROMPT_S = 0.6  # A call is heard within 0.3 s; the rest is for a machine that does other things, too.


def test_members_gain_share_and_let_go_over_http() -> None:
    async def main(live: LiveServer) -> None:
        first, second = Diary(), Diary()
        async with first.member(live.url) as member:
            await until(lambda: len(first.has) == 4)
            assert (member.items, member.epoch("2"), member.incarnation) == (("0", "1", "2", "3"), 1, 1)
            async with second.member(live.url, "w2"):
                await until(lambda: len(first.has) == len(second.has) == 2)
                assert not set(first.has) & set(second.has)
                live.store.transact("orders", lambda tx: drain_member(tx, "orders", "w1", True))
                await until(lambda: len(second.has) == 4)
                assert first.has == {}
            assert second.has == {}, "leaving the block lets go"
        assert set(owners(live.store).values()) == {None}

    with serving() as live:
        asyncio.run(main(live))


@pytest.mark.parametrize(("role", "streams_max"), [("operator", 9), ("member:orders", 9), ("member:orders", 0)])
def test_a_grant_and_a_request_are_heard_at_once_by_the_stream_or_without_it(
    role: str, streams_max: int, tmp_path: Path
) -> None:
    """The lease is long, so that no ordinary heartbeat comes in time; the last one finds no room for a stream."""

    async def main(live: LiveServer) -> None:
        first, second = Diary(), Diary()
        async with first.member(live.url, token="w-token"):
            await until(lambda: len(first.has) == 2)
            await asyncio.sleep(1.0)
            begun_s = boot_s()
            async with second.member(live.url, "w2", token="w-token"):
                await until(lambda: len(second.has) == 1)
                assert second.changed_s - begun_s < 2 * PROMPT_S + 0.3, "a request to one, then a grant to the other"

    settings = ServeSettings(tokens=tokens_file(tmp_path, token_line("w", role)), streams_max=streams_max)
    with serving(2, Terms(lease_s=60, grace_s=5), settings) as live:
        asyncio.run(main(live))


@pytest.mark.slow
def test_without_calls_a_grant_waits_for_the_next_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same story with a link that is deaf: what the test above measures is what the link does."""

    async def main(live: LiveServer) -> None:
        first, second = Diary(), Diary()
        async with first.member(live.url):
            await until(lambda: len(first.has) == 2)
            async with second.member(live.url, "w2"):
                await asyncio.sleep(2 * PROMPT_S + 0.3)
                assert second.has == {}

    async def deaf(link: HttpLink, timeout_s: float) -> bool:
        del link
        await asyncio.sleep(timeout_s)
        return False

    monkeypatch.setattr(HttpLink, "called", deaf)
    with serving(2, Terms(lease_s=9, grace_s=5)) as live:
        asyncio.run(main(live))


@pytest.mark.slow
def test_time_counts_from_when_a_heartbeat_is_sent() -> None:
    """A slow server makes leases shorter for the member: the time that the answer took is gone."""
    left_s: list[float] = []

    def note(untils: dict[str, float]) -> None:
        left_s.extend(until_s - boot_s() for until_s in untils.values())

    async def main(live: LiveServer) -> None:
        async with Member(live.url, set="orders", name="w1", on_beat=note):
            live.store.slow_s = 0.4
            await until(lambda: len(left_s) > 0)

    terms = Terms(lease_s=6, grace_s=2)
    with serving(1, terms) as live:
        asyncio.run(main(live))
    assert 0 < max(left_s) <= terms.lease_s - terms.margin_s - 0.4


def test_a_poll_repeats_the_last_heartbeat_and_changes_nothing(tmp_path: Path) -> None:
    async def main(live: LiveServer) -> None:
        link = HttpLink(live.url, "orders", "w1", "p1", token="w-token")
        try:
            registered = await link.register(lambda _: None)
            reply = await link.beat(Heartbeat(process="p1", incarnation=registered.incarnation, seq=1))
            assert isinstance(reply, Reply)
            live.cycle()
            before = live.store.version()
            assert await link.called(0.0), "a grant waits"
            assert await link.called(0.0), "and still does, until a heartbeat has taken it"
            assert live.store.version() == before
            await link.beat(Heartbeat(process="p1", incarnation=registered.incarnation, seq=2))
            assert not await link.called(0.0)
        finally:
            await link.close(1.0)

    settings = ServeSettings(tokens=tokens_file(tmp_path, token_line("w", "member:orders")), streams_max=0)
    with LiveServer(settings) as live:
        put(live.store, 1)
        asyncio.run(main(live))


def test_the_three_answers_to_a_heartbeat() -> None:
    terms = Terms(lease_s=3, grace_s=4, release_s=5, restart_grace_s=6, revoke=False, margin_s=0.5, stop_s=0.25)

    async def main(live: LiveServer) -> None:
        old, new = (HttpLink(live.url, "orders", "w1", process) for process in ("p1", "p2"))
        try:
            first = await old.register(lambda _: None)
            assert await old.register(lambda _: None) == first, "the same process gets the same answer"
            assert (first.incarnation, first.period_s) == (1, terms.lease_s / 3)
            assert first.terms == terms, "every promise of the set comes over the wire"
            holds = (Hold("0", 0, Word.RELEASED),)
            assert isinstance(await old.beat(Heartbeat(process="p1", incarnation=1, seq=7, holds=holds)), Reply)
            assert await old.beat(Heartbeat(process="p1", incarnation=1, seq=5)) == Stale(7)
            assert (await new.register(lambda _: None)).incarnation == 2
            assert await old.beat(Heartbeat(process="p1", incarnation=1, seq=8)) == Superseded(2)
        finally:
            await old.close(1.0)
            await new.close(1.0)

    with LiveServer() as live:
        put(live.store, 1, terms)
        asyncio.run(main(live))


def test_a_newer_process_of_the_name_ends_the_older_one() -> None:
    async def main(live: LiveServer) -> None:
        first, second = Diary(), Diary()
        async with first.member(live.url):
            await until(lambda: len(first.has) == 4)
            async with second.member(live.url):
                await until(lambda: first.has == {} and len(second.has) == 4)
                await asyncio.sleep(60)

    with serving() as live, pytest.raises(Replaced, match="incarnation 2 of w1 has registered"):
        asyncio.run(main(live))


@pytest.mark.slow
def test_work_goes_on_while_the_server_cannot_answer_and_ends_before_the_lease_does() -> None:
    terms = Terms(lease_s=4, grace_s=1)

    async def main(live: LiveServer) -> None:
        diary = Diary()
        async with diary.member(live.url) as member:
            await until(lambda: len(diary.has) == 4)
            live.store.away = True
            await asyncio.sleep(0.5)
            assert len(member.items) == 4, "a short silence takes nothing away"
            live.store.away = False
            await asyncio.sleep(1.0)
            assert set(diary.has.values()) == {1}, "the same epochs: nothing was lost"
            live.store.away, away_s = True, boot_s()
            await until(lambda: diary.has == {})
            assert boot_s() - away_s < terms.lease_s, "it fences itself"
            live.store.away = False
            await until(lambda: len(diary.has) == 4)

    with serving(terms=terms) as live:
        asyncio.run(main(live))


def test_settings_that_could_let_two_act_are_refused_before_anybody_is_registered() -> None:
    async def main(live: LiveServer) -> None:
        with pytest.raises(InvalidSpec, match=r"\$\.stop_s: work may last"):
            async with Member(live.url, set="orders", name="w1", stop_s=9.0):
                pass

    with LiveServer() as live:
        put(live.store, 1)
        asyncio.run(main(live))
        assert live.store.transact("orders", lambda tx: tx.member("w1")) is None


def test_a_member_whose_set_changes_while_it_registers_leaves_again() -> None:
    seen: list[float] = []

    def check(terms: Terms) -> None:
        seen.append(terms.lease_s)
        if len(seen) == 1:
            put(live.store, 1, Terms(lease_s=7))
        elif terms.lease_s == 7:
            raise InvalidSpec(Fault("$.lease", "too short for this one"))

    async def main() -> None:
        link = HttpLink(live.url, "orders", "w1", "p1")
        try:
            with pytest.raises(InvalidSpec, match="too short for this one"):
                await link.register(check)
        finally:
            await link.close(1.0)

    with LiveServer() as live:
        put(live.store, 1)
        asyncio.run(main())
        member = live.store.transact("orders", lambda tx: tx.member("w1"))
        assert seen[1] == 7
        assert member is not None
        assert member.leaving == "stop"


def test_a_synchronous_member_speaks_to_a_server_too() -> None:
    with serving(1) as live, SyncMember(live.url, set="orders", name="w1") as member:
        change = next(member.changes())
        assert isinstance(change, Gained)
        assert (change.item, member.epoch("0")) == ("0", 1)
