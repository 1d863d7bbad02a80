"""Works that wait for the same transaction are carried out together: one commit makes all of them durable."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from poise.errors import Unavailable
from poise.stores.base import Answer, Transaction

_TOGETHER_MAX = 32  # So many works share a commit; a longer queue goes in turns, so that other processes get theirs.


class Piece(NamedTuple):
    """One work that waits; it is done once it is committed."""

    name: str
    run: Callable[[Transaction], None]
    done: Future[None]


class Batches:
    """A queue for each key, and a few threads: a key is with one thread at a time, so a slow one delays no other."""

    def __init__(self, carry_out: Callable[[list[Piece]], None], *, threads: int, start_s: float, where: str) -> None:
        """Carry out batches by a function that settles every piece; one that has not begun in time never begins."""
        self._carry_out, self._start_s, self._where = carry_out, start_s, where
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="poise store")
        self._state = threading.Lock()
        self._queues: dict[str, deque[Piece]] = {}
        self._closed = False

    def do(self, key: str, name: str, work: Callable[[Transaction], Answer]) -> Answer:
        """Queue a work, wait until it is committed, and give its answer or its error."""
        answers: list[Answer] = []
        piece = Piece(name, lambda tx: answers.append(work(tx)), Future())
        with self._state:
            if self._closed:
                raise Unavailable(f"{self._where} is closed")
            if key in self._queues:
                self._queues[key].append(piece)
            else:
                self._queues[key] = deque([piece])
                self._threads.submit(self._carry, key)
        try:
            piece.done.result(self._start_s)
        except TimeoutError:
            if piece.done.cancel():
                raise Unavailable(f"{self._where} had no time for this within {self._start_s:g} s") from None
            piece.done.result()
        return answers[0]

    def close(self) -> None:
        """Carry out what is queued, then end."""
        with self._state:
            self._closed = True
        self._threads.shutdown()

    def _carry(self, key: str) -> None:
        """Take turns with other keys: one batch, then back to the end of the line."""
        while True:
            with self._state:
                queue = self._queues[key]
                pieces = [queue.popleft() for _ in range(min(_TOGETHER_MAX, len(queue)))]
                if not pieces:
                    del self._queues[key]
                    return
            started = [piece for piece in pieces if piece.done.set_running_or_notify_cancel()]
            if started:
                self._carry_out(started)
            with self._state:
                if self._queues[key] and not self._closed:
                    self._threads.submit(self._carry, key)
                    return


def fail(pieces: list[Piece], error: BaseException) -> None:
    """Tell everybody who has not heard yet what went wrong."""
    for piece in pieces:
        if not piece.done.done():
            piece.done.set_exception(error)
