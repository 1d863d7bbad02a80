"""Each promise of the fencing helpers is broken once on purpose: the test of that promise must see it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.hold import test_fencing as promises

from poise.errors import Fenced
from poise.hold import fencing
from poise.hold.fencing import FileGuard

Patch = pytest.MonkeyPatch
Promise = Callable[[Path], None]


def without_a_lock(patch: Patch) -> None:
    patch.setattr(fcntl, "flock", lambda *_: None)


def without_a_look(patch: Patch) -> None:
    patch.setattr(os, "pread", lambda *_: b"")


def without_a_memory(patch: Patch) -> None:
    patch.setattr(os, "pwrite", lambda *_: 0)


def after_the_block(patch: Patch) -> None:
    @contextmanager
    def admit(guard: FileGuard, item: str, epoch: int) -> Iterator[None]:
        path = guard._folder / item.encode().hex()
        seen = int(path.read_text()) if path.exists() else 0
        if epoch < seen:
            raise Fenced(item, epoch, seen)
        yield
        path.write_text(str(epoch))

    patch.setattr(FileGuard, "admit", admit)


def one_for_all_items(patch: Patch) -> None:
    original = FileGuard.admit
    patch.setattr(FileGuard, "admit", lambda guard, _item, epoch: original(guard, "all", epoch))


def without_a_check(patch: Patch) -> None:
    patch.setattr(fencing, "check_epoch", lambda epoch: epoch)


def answers_200(patch: Patch) -> None:
    original = fencing.admit_request
    patch.setattr(promises, "admit_request", lambda headers, admit: min(original(headers, admit), 200))


REFUSES = promises.test_a_file_refuses_an_epoch_below_the_largest_it_has_seen
MUTANTS: dict[str, tuple[Callable[[Patch], None], Promise]] = {
    "two writers of a file at once": (without_a_lock, promises.test_a_newer_owner_waits_for_a_write_that_is_under_way),
    "a file that is not looked at": (without_a_look, REFUSES),
    "a file that remembers nothing": (without_a_memory, REFUSES),
    "an epoch that is written after the block": (
        after_the_block,
        promises.test_a_crash_in_the_block_refuses_too_much_rather_than_too_little,
    ),
    "one epoch for all items": (
        one_for_all_items,
        promises.test_an_item_never_leaves_the_folder_and_never_meets_another,
    ),
    "anything is an epoch": (without_a_check, lambda path: promises.test_what_is_no_epoch_is_refused(-1, path)),
    "a stale request is answered like any other": (
        answers_200,
        promises.test_a_request_is_judged_by_the_guard_of_its_sink,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_guard_is_seen(name: str, monkeypatch: Patch, tmp_path: Path) -> None:
    change, promise = MUTANTS[name]
    change(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, Fenced)):
        promise(tmp_path)
