"""A worker of the demo: a member of a set, with a small piece of work on every item that it holds.

Order for safety: each piece of work carries the epoch that its item was gained with, and the sink refuses an older one.
A worker that was frozen wakes up in the middle of its work and writes too late: that is what the sink is for.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from poise.demo.sink import Sink
from poise.demo.words import Late
from poise.errors import Fenced, PoiseError
from poise.hold.member import Member

_WORK_S = 3.0  # How long one piece of work takes, roughly.
_AGAIN_S, _AGAIN_MAX_S = 0.1, 5.0


class Worker:
    """One worker; its writes go through a thread of their own, so that a slow disk holds up no heartbeat."""

    def __init__(self, name: str, sink: Sink | None) -> None:
        """Work into this sink; without one an item is only held."""
        self._name, self._sink = name, sink
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="sink")

    async def work(self, item: str, epoch: int) -> None:
        """Work on an item until it is lost, which cancels this."""
        loop = asyncio.get_running_loop()
        while self._sink is not None:
            await asyncio.sleep(_WORK_S * random.uniform(0.5, 1.5))
            # What is on its way to a sink cannot be called back, as over any network: only the sink can refuse it.
            await asyncio.shield(loop.run_in_executor(self._writer, self._write, self._sink, item, epoch))

    def _write(self, sink: Sink, item: str, epoch: int) -> None:
        try:
            sink.write(item, epoch, self._name)
        except Fenced as error:
            say(Late(item=item, epoch=epoch, seen=error.seen))


def say(late: Late) -> None:
    """Tell the parent, who reads what this process prints."""
    sys.stdout.buffer.write(msgspec.json.encode(late) + b"\n")
    sys.stdout.buffer.flush()


async def run(job: str, name: str, server: str, sink: Sink | None) -> None:
    """Hold items until a signal comes, then stop the work and say that this name comes back."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    worker, pause_s = Worker(name, sink), _AGAIN_S
    while not ended.is_set():
        try:
            async with Member(server, set=job, name=name, on_gain=worker.work, on_exit="keep"):
                pause_s = _AGAIN_S
                await ended.wait()
        except PoiseError as error:
            logging.warning("worker.again name=%s reason=%s", name, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _AGAIN_MAX_S)


def main(arguments: list[str]) -> None:
    """Run one worker."""
    parser = argparse.ArgumentParser(prog="worker")
    parser.add_argument("job")
    parser.add_argument("name")
    parser.add_argument("--server", required=True)
    parser.add_argument("--sink", type=Path)
    options = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    asyncio.run(run(options.job, options.name, options.server, Sink(options.sink) if options.sink else None))
