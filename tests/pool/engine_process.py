"""An engine in a process of its own, so that a test can kill it: engine_process.py DATABASE [hasty].

A hasty one believes a pod's answer alone and does not look whether streams have ended: the auditor must find it.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from tests.pool.pool_world import POOL

from poise.jobs.pool import steps
from poise.jobs.pool.engine import PoolEngine
from poise.jobs.pool.steps import Memory, Sight
from poise.stores.open import open_store


def believes_the_answer_alone(name: str, sight: Sight, memory: Memory) -> bool:
    """Take an answered document for a proof."""
    del sight
    return memory.answered is not None and name not in memory.answered


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    if "hasty" in sys.argv[2:]:
        steps.is_let_go = believes_the_answer_alone
    asyncio.run(PoolEngine(open_store(sys.argv[1]), POOL).run())
