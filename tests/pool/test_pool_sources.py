"""Sources: every kind, every fault as one reason, and the drop guard."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poise.jobs.pool import sources
from poise.jobs.pool.delivery import open_client
from poise.jobs.pool.sources import Held, LastList, Source, SourceFault, guard
from poise.model.target_pool import Target, Targets

FILE = "file routers.yaml"


def targets(count: int) -> list[Target]:
    return [Target(f"r{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("before", "after", "percent", "obeyed"),
    [
        (10, 7, 30, True),
        (10, 6, 30, False),
        (10, 0, 30, False),
        (10, 0, 100, True),
        (10, 9, 0, False),
        (10, 10, 0, True),
        (10, 30, 0, True),
        (0, 0, 0, True),
        (3, 2, 33, False),
        (3, 2, 34, True),
    ],
)
def test_the_drop_guard(before: int, after: int, percent: int, obeyed: bool) -> None:
    last = guard(LastList(targets(before), FILE), targets(after), FILE, percent=percent, revision=4)
    assert last.targets == targets(after if obeyed else before)
    assert (last.held is None) == obeyed
    if last.held is not None:
        assert last.held == Held(4, before - after, before)
        assert f"lost {before - after} of {before} targets at once" in str(last.held)


def test_a_list_is_held_back_until_it_recovers_or_the_document_changes() -> None:
    first = guard(None, targets(10), FILE, percent=30, revision=1)
    held = guard(first, targets(2), FILE, percent=30, revision=1)
    assert held.targets == targets(10)
    assert guard(held, targets(1), FILE, percent=30, revision=1).held == Held(1, 9, 10)
    assert guard(held, targets(8), FILE, percent=30, revision=1) == LastList(targets(8), FILE)
    assert guard(held, targets(2), FILE, percent=30, revision=2) == LastList(targets(2), FILE)
    # A change of the document before the drop says nothing about it.
    assert guard(first, targets(2), FILE, percent=30, revision=2).held == Held(2, 8, 10)


def test_another_source_and_a_list_are_what_people_say() -> None:
    first = LastList(targets(10), FILE)
    assert guard(first, targets(1), "file other.yaml", percent=30, revision=1).held is None
    assert guard(LastList(targets(10), "list"), targets(1), "list", percent=30, revision=1).held is None


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.integers(0, 100))
def test_a_list_in_force_never_lost_more_than_its_share(before: set[int], after: set[int], percent: int) -> None:
    old, new = [Target(f"r{each}") for each in before], [Target(f"r{each}") for each in after]
    last = guard(LastList(old, FILE), new, FILE, percent=percent, revision=1)
    lost = len(before - {int(target.name[1:]) for target in last.targets})
    assert lost * 100 <= percent * len(before)


def read(spec: dict[str, object], folder: Path = Path(), *, times: int = 1) -> list[Target] | None:
    async def ask() -> list[Target] | None:
        async with open_client(ssl.create_default_context()) as client:
            source = Source(msgspec.convert(spec, Targets), client, folder)
            for _ in range(times - 1):
                await source.read()
            return await source.read()

    return asyncio.run(ask())


def test_a_list_in_the_document_is_what_people_say() -> None:
    assert read({"list": [{"name": "r0"}]}) == targets(1)


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "routers.yaml"
    path.write_text("- {name: r0}\n")

    async def watch() -> list[list[Target] | None]:
        async with open_client(ssl.create_default_context()) as client:
            source = Source(Targets(file="routers.yaml"), client, tmp_path)
            found = [await source.read(), await source.read()]
            path.write_text("r0:\nr1:\n")
            found.append(await source.read())
            other = tmp_path / "other"
            other.write_text("r0:\nr2:\n")
            os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
            other.rename(path)
            found.append(await source.read())
            return found

    assert asyncio.run(watch()) == [targets(1), None, targets(2), [Target("r0"), Target("r2")]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"- {name: r0}\n- {name: r0}\n", "$[1].name: duplicate of [0]"),
        (b"- {nome: r0}\n", 'unknown field; did you mean "name"?'),
        (b"<html>no list</html>", "expected a list of targets"),
        (b"- {name: [}\n", "routers.yaml"),
        (b"\xff\xfe\x00", "routers.yaml"),
        (b"- {name: r0, config: {password: hunter2}}\n", "a credential is never stored"),
    ],
    ids=["twice", "unknown field", "a page", "broken", "no text", "a credential"],
)
def test_a_file_that_is_no_list_is_one_reason(text: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "routers.yaml").write_bytes(text)
    with pytest.raises(SourceFault) as found:
        read({"file": "routers.yaml"}, tmp_path)
    assert told in str(found.value)
    assert "\n" not in str(found.value)
    assert "hunter2" not in str(found.value)


def test_a_file_that_is_not_there_is_one_reason(tmp_path: Path) -> None:
    with pytest.raises(SourceFault, match="cannot be read: No such file"):
        read({"file": "routers.yaml"}, tmp_path)


def test_a_config_map_needs_kubernetes() -> None:
    with pytest.raises(SourceFault, match="Kubernetes only"):
        read({"configMap": {"name": "routers"}})


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], "asyncio.Future[None]"]


def fetch(answer: bytes | None) -> list[Target] | None:
    """Read an HTTP list from a server that answers with these bytes, or with nothing."""

    async def ask() -> list[Target] | None:
        silent = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            if answer is None:
                await silent.wait()
            else:
                writer.write(answer)
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/routers"
        async with server, open_client(ssl.create_default_context()) as client:
            try:
                return await Source(msgspec.convert({"http": {"url": url}}, Targets), client, Path()).read()
            finally:
                silent.set()

    return asyncio.run(ask())


def http(status: int, body: bytes) -> bytes:
    return f"HTTP/1.1 {status} -\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def test_an_http_list_is_read() -> None:
    assert fetch(http(200, b'[{"name": "r0"}, {"name": "r1"}]')) == targets(2)
    assert fetch(http(200, b"[]")) == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (http(200, b'{"name": '), "the list of targets"),
        (http(200, b'[{"name": "r0", "adress": "x"}, {"name": 7}]'), "(and 1 more)"),
        (http(200, b"null"), "the list of targets"),
        (http(500, b"oops"), "the list of targets answered 500"),
        (http(301, b""), "the list of targets answered 301"),
        (b"garbage\r\n\r\n", "the list of targets: GET /routers failed"),
        (b"HTTP/1.1 200 -\r\ncontent-length: 100\r\n\r\n[", "the list of targets: GET /routers failed"),
        (None, "the list of targets: GET /routers was not answered within 0.2 s"),
    ],
    ids=["half", "wrong fields", "null", "500", "redirect", "garbage", "cut off", "nothing"],
)
def test_an_http_list_that_fails_is_one_reason(
    answer: bytes | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer is None:
        monkeypatch.setattr(sources, "_FETCH_S", 0.2)
    with pytest.raises(SourceFault) as found:
        fetch(answer)
    assert told in str(found.value)
    assert "\n" not in str(found.value)


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BYTES_MAX", 10)
    with pytest.raises(SourceFault, match="answered more than 10 bytes"):
        fetch(http(200, b'[{"name": "r0"}, {"name": "r1"}]'))
