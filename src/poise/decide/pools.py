"""Replicas over any number of capacity pools, by weight and within bounds; a pool that is down gives its share away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from poise.decide.shares import Shares, fair_shares
from poise.errors import invalid
from poise.inputs import unique_names, whole
from poise.instants import instant, span
from poise.model.capacity_split import Pool

STABLE_S = 60


class PoolSplit(msgspec.Struct, frozen=True):
    """Replicas of every pool, 0 for one that is down, and how many fit nowhere."""

    replicas: dict[str, int]
    unplaced: int


class PoolHealth(msgspec.Struct, frozen=True):
    """Whether a pool works, and since when it has been so."""

    up: bool
    since_s: float


def split_pools(
    total: int,
    pools: Iterable[Pool | Mapping[str, object]],
    *,
    order: Iterable[str] | None = None,
    previous: Mapping[str, int] | None = None,
    down: Iterable[str] = (),
) -> PoolSplit:
    """Split T replicas: share = clamp(μ·w, min, max) rounded down, then one leftover unit each to pools cut off.

    Leftovers go by `order` if given, then by the largest remainder, then to who held more in `previous` (more than its
    floor comes first, so that a split of the result moves nothing), then by name.
    Below the sum of the minimums each pool gets its minimum, in list order, until the total is used up.
    """
    whole("$.total", total)
    listed = read_pools(pools)
    names = [pool.name for pool in listed]
    ranks = _ranks(names, order)
    held = _held(previous)
    left_out = set(_known("$.down", down, names))
    ups = [pool for pool in listed if pool.name not in left_out]
    if total < sum(pool.min for pool in ups):
        placed = _minimums_in_order(total, ups)
    else:
        shares = pool_shares(total, ups)
        placed = dict(zip([pool.name for pool in ups], shares.floors(), strict=True))
        for name in _leftovers(total, ups, shares, ranks, held):
            placed[name] += 1
    return PoolSplit({name: placed.get(name, 0) for name in names}, total - sum(placed.values()))


def pool_shares(total: int, ups: Sequence[Pool]) -> Shares:
    """Give the exact shares of the pools that are up."""
    return fair_shares(total, [pool.weight for pool in ups], [pool.min for pool in ups], [pool.max for pool in ups])


def pools_down(health: Mapping[str, PoolHealth], now_s: float, *, stable_s: float = STABLE_S) -> list[str]:
    """Name the pools to leave out: those that are down, and those not yet up again for the stable time."""
    instant("$.now_s", now_s)
    span("$.stable_s", stable_s)
    for name, seen in health.items():
        instant(f"$.health[{name!r}].since_s", seen.since_s)
    return sorted(name for name, seen in health.items() if not seen.up or now_s < seen.since_s + stable_s)


def read_pools(pools: Iterable[Pool | Mapping[str, object]]) -> list[Pool]:
    """Check the pools, given as Pool or as plain mappings; the first fault is InvalidSpec with its path."""
    listed = [_read_pool(f"$.pools[{position}]", pool) for position, pool in enumerate(pools)]
    unique_names("$.pools", [pool.name for pool in listed])
    return listed


def _read_pool(path: str, given: object) -> Pool:
    fields = _fields(path, given)
    name = fields["name"]
    if not isinstance(name, str):
        raise invalid(f"{path}.name", f"expected a name, got {type(name).__name__}")
    weight, least = whole(f"{path}.weight", fields["weight"]), whole(f"{path}.min", fields["min"])
    most = None if fields["max"] is None else whole(f"{path}.max", fields["max"])
    if most is not None and least > most:
        raise invalid(f"{path}.min", f"expected <= max {most}, got {least}")
    return Pool(name, weight, least, most)


def _fields(path: str, given: object) -> dict[str, object]:
    """List the fields of a Pool or of a mapping; an unknown or a missing one is InvalidSpec."""
    if isinstance(given, Pool):
        return msgspec.structs.asdict(given)
    if not isinstance(given, Mapping):
        raise invalid(path, f"expected a pool, got {type(given).__name__}")
    for key in given:
        if key not in Pool.__struct_fields__:
            raise invalid(f"{path}.{key}", "unknown field")
    for key in ("name", "weight"):
        if key not in given:
            raise invalid(f"{path}.{key}", "missing")
    return {"min": 0, "max": None, **given}


def _known(path: str, given: Iterable[str], names: Sequence[str]) -> list[str]:
    listed, known = unique_names(path, given), set(names)
    for position, name in enumerate(listed):
        if name not in known:
            raise invalid(f"{path}[{position}]", f"no pool is named {name!r}")
    return listed


def _ranks(names: Sequence[str], order: Iterable[str] | None) -> dict[str, int]:
    """Number the pools by `order`; those it does not name share the last rank."""
    named = [] if order is None else _known("$.order", order, names)
    return {**dict.fromkeys(names, len(named)), **{name: rank for rank, name in enumerate(named)}}


def _held(previous: Mapping[str, int] | None) -> dict[str, int]:
    """Check what each pool held; a pool that is no longer listed is history, not a fault."""
    return {name: whole(f"$.previous[{name!r}]", count) for name, count in (previous or {}).items()}


def _minimums_in_order(total: int, ups: Sequence[Pool]) -> dict[str, int]:
    placed = {}
    for pool in ups:
        placed[pool.name] = min(pool.min, total)
        total -= placed[pool.name]
    return placed


def _leftovers(
    total: int, ups: Sequence[Pool], shares: Shares, ranks: Mapping[str, int], held: Mapping[str, int]
) -> list[str]:
    """Name who gets one unit more: only pools whose share was cut off, so every count is a floor or a ceiling."""
    floors = shares.floors()
    cut = {}
    for pool, floor, rest in zip(ups, floors, shares.remainders(), strict=True):
        before = held.get(pool.name, 0)
        if rest:
            cut[pool.name] = (ranks[pool.name], -rest, before <= floor, -before, pool.name)
    return sorted(cut, key=cut.__getitem__)[: total - sum(floors)]
