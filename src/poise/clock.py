"""The only reader of time."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """Read the wall clock, in UTC."""
    return datetime.now(UTC)
