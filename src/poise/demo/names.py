"""The names of the demo: its jobs, and who takes part in them."""

from __future__ import annotations

ORDERS, ROUTERS, GATEWAY, FLEET, SPOT = "orders", "routers", "gateway", "fleet", "simulated-spot"
WORKERS = tuple(f"worker-{letter}" for letter in "abcdef")
COLLECTORS = tuple(f"collector-{letter}" for letter in "abcd")
SHARDS = tuple(f"{GATEWAY}-{number}" for number in range(3))
MARKET = "spot-market"
SERVER = "demo"  # The name of the server among those of its store: the same after a restart.
