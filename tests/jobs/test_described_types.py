"""No thread of a server describes a type: two that do so at once end the process without a word."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from tests.postgres_server import running_server

from poise.describing import describe_types
from poise.documents import load
from poise.jobs.stored import put_document
from poise.stores.open import open_store

DOCUMENTS = Path(__file__).parents[1] / "data" / "documents.yaml"

# Runs all kinds for a moment, and tells how often a type was described in a thread.
CHILD = """
import asyncio, sys, threading
from poise.hold import member
from poise.jobs import servers
from poise.stores import open as opening

url, how = sys.argv[1:]
if how == "blind":
    servers.describe_types = member.describe_types = opening.describe_types = lambda: 0
found = []

def look(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "get_class_annotations":
        found.append(threading.current_thread().name)

async def main():
    store = opening.open_store(url)
    server = servers.JobServer(store, "s1")
    threading.setprofile(look)
    async with server:
        while len(server.jobs) < 5:
            await asyncio.sleep(0.02)
        await asyncio.sleep(1.0)
    store.close()

asyncio.run(main())
print(len(found))
"""


def described_in_threads(url: str, how: str) -> int:
    command = [sys.executable, "-c", CHILD, url, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_no_thread_of_a_server_describes_a_type(tmp_path: Path, engine: str) -> None:
    url = f"sqlite:///{tmp_path / 'poise.db'}" if engine == "sqlite" else running_server().new_place()
    with closing(open_store(url)) as store:
        for document in load(DOCUMENTS.read_text(), "documents.yaml"):
            put_document(store, document, datetime.now(UTC))
    assert described_in_threads(url, "described") == 0
    assert described_in_threads(url, "blind") > 0, "without the descriptions this test sees nothing"


def test_types_are_described_once() -> None:
    describe_types()
    assert describe_types() == 0
    fresh = msgspec.defstruct("Fresh", [("count", int)])
    assert describe_types() == 1
    assert msgspec.json.decode(b'{"count": 1}', type=fresh) == fresh(count=1)
