"""What another process does to a store in tests: `python -m tests.store_child URL count N|hang|commit`."""

from __future__ import annotations

import sys

import msgspec
from tests.store_places import owned

from poise.model.ownership import Line, SetRow
from poise.stores.base import Store, Transaction
from poise.stores.open import open_store


def add_one(tx: Transaction) -> int:
    """Read, add one, write: two that do so at once would lose one."""
    job = tx.job() or SetRow(name="orders")
    tx.write_job(msgspec.structs.replace(job, count=job.count + 1, revision=job.revision + 1))
    tx.write_lines([line(tx.now_s)])
    return job.count + 1


def line(at_s: float) -> Line:
    """Make one line of the journal."""
    return Line(set="orders", item="", transition="set", member=None, epoch=0, at_s=at_s, reason="one more")


def count(store: Store, times: int) -> None:
    """Add one so many times."""
    for _ in range(times):
        store.transact("orders", add_one)


def hang(store: Store) -> None:
    """Write everything, and wait for the end in the middle of the transaction."""

    def work(tx: Transaction) -> None:
        add_one(tx)
        tx.write_rows([owned()])
        say("inside")
        sys.stdin.readline()

    store.transact("orders", work)
    say("committed")


def commit(store: Store) -> None:
    """Commit, say so, and wait to be killed."""
    store.transact("orders", add_one)
    say("committed")
    sys.stdin.readline()


def say(text: str) -> None:
    """Say one line to the test."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Do what was asked."""
    url, verb, *words = sys.argv[1:]
    store = open_store(url)
    say("open")
    match verb:
        case "count":
            count(store, int(words[0]))
        case "hang":
            hang(store)
        case _:
            commit(store)
    store.close()


if __name__ == "__main__":
    main()
