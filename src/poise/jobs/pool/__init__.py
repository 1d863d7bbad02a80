"""TargetPool at work: sources, deliveries, one task for each pod, and the engine that drives them."""

from __future__ import annotations

from poise.jobs.pool.engine import PoolEngine
from poise.jobs.pool.pull import HttpSd, answer_pull
from poise.jobs.pool.state import PodNote, PodState, PoolState, SourceState, read_notes

__all__ = [
    "HttpSd",
    "PodNote",
    "PodState",
    "PoolEngine",
    "PoolState",
    "SourceState",
    "answer_pull",
    "read_notes",
]
