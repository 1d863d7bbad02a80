"""How long to wait after a failure: longer each time, never all at once. Pure: the chance is an argument."""

from __future__ import annotations

import msgspec

from poise.errors import Overloaded


class Pace(msgspec.Struct, frozen=True):
    """Waiting that doubles from the first to the longest: law `min(first · 2^n, longest)`, between half and all."""

    first_s: float = 0.5
    longest_s: float = 30.0

    def wait_s(self, failures: int, chance: float) -> float:
        """Give the wait after so many failures in a row; the chance, from 0 to 1, parts those who failed together."""
        whole_s = min(self.first_s * 2.0 ** min(max(failures - 1, 0), 60), self.longest_s)
        return whole_s * (0.5 + 0.5 * chance)


def asked_wait_s(error: Exception) -> float:
    """Give the wait that a server asked for; 0 where it asked for none."""
    return (error.retry_after_s or 0.0) if isinstance(error, Overloaded) else 0.0
