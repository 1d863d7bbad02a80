"""A coordinator as a process: `python -m tests.chaos.chaos_coordinator URL ITEMS LEASE GRACE RESTART_GRACE`."""

from __future__ import annotations

import os
import signal
import sys

from poise.jobs.coordination import Coordination
from poise.model.ownership import SetRow, Terms
from poise.move.executor import put_set
from poise.stores.open import open_store


def main(url: str, items: int, lease_s: float, grace_s: float, restart_grace_s: float) -> None:
    """Put the set into the store, and plan it until killed."""
    terms = Terms(lease_s=lease_s, grace_s=grace_s, restart_grace_s=restart_grace_s)
    store = open_store(url)
    store.transact("chaos", lambda tx: put_set(tx, SetRow(name="chaos", count=items, terms=terms)))
    with Coordination(store, f"coordinator-{os.getpid()}", only="chaos"):
        sys.stderr.write("plans chaos\n")
        sys.stderr.flush()
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *(float(word) for word in sys.argv[3:]))
