"""The threads that requests are worked on in: what has not begun when the server ends is asked to come again."""

from __future__ import annotations

import asyncio
import threading

import pytest

from poise.serve.problems import Refused
from poise.serve.site import Lane


def test_work_that_never_began_is_refused_as_busy_when_the_lane_closes() -> None:
    async def close_while_waiting() -> None:
        lane, go_on, begun = Lane("test", 1), threading.Event(), threading.Event()

        def hold() -> str:
            begun.set()
            go_on.wait(5)
            return "done"

        first = asyncio.create_task(lane.run(hold))
        await asyncio.to_thread(begun.wait, 5)
        second = asyncio.create_task(lane.run(lambda: "never"))
        await asyncio.sleep(0)
        lane.close()
        with pytest.raises(Refused) as refused:
            await second
        assert (refused.value.status_code, refused.value.headers) == (503, {"Retry-After": "2"})
        go_on.set()
        assert await first == "done"

    asyncio.run(close_while_waiting())


def test_a_request_that_is_given_up_stays_given_up() -> None:
    async def give_up() -> None:
        lane, go_on = Lane("test", 1), threading.Event()
        task = asyncio.create_task(lane.run(lambda: go_on.wait(5)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        lane.close()

    asyncio.run(give_up())
