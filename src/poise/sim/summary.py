"""A run brought down to a few numbers for each policy."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from poise.sim.replay import Replay, Track


class PolicySummary(msgspec.Struct, frozen=True, rename="camel"):
    """One policy over all events; errors are exact fractions as text.

    Moves, the fewest possible and innocent moves are sums over the events, the worst numbers are the largest at any
    event, the start included.
    """

    moves: int
    moves_min: int
    innocent_moves: int
    innocent_after: dict[str, int]
    worst_spread: int
    end_spread: int
    worst_error: str
    end_error: str
    worst_unassigned: int
    end_loads: dict[str, int]


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    """A whole run, as `poise simulate -o json` prints it.

    The seed is null where a script said what happens; movesMax is said by ReplicaDivisions only.
    """

    kind: str
    name: str
    events: int
    seed: int | None
    end_shares: dict[str, str]
    policies: dict[str, PolicySummary]
    moves_max: int | UnsetType = UNSET


def summarise(replay: Replay) -> Summary:
    """Bring a run down to its numbers."""
    return Summary(
        kind=replay.kind,
        name=replay.name,
        events=len(replay.happenings),
        seed=replay.seed,
        end_shares={name: str(share) for name, share in replay.exact.items()},
        policies={name: _summarise(replay, track) for name, track in replay.tracks.items()},
        moves_max=UNSET if replay.moves_max is None else replay.moves_max,
    )


def _summarise(replay: Replay, track: Track) -> PolicySummary:
    ticks, every = track.ticks, [track.start, *track.ticks]
    innocent: dict[str, int] = {}
    for happening, tick in zip(replay.happenings, ticks, strict=True):
        if tick.innocent:
            innocent[happening.verb] = innocent.get(happening.verb, 0) + tick.innocent
    return PolicySummary(
        moves=sum(tick.moves for tick in ticks),
        moves_min=sum(tick.moves_min for tick in ticks),
        innocent_moves=sum(innocent.values()),
        innocent_after=dict(sorted(innocent.items())),
        worst_spread=max(tick.spread for tick in every),
        end_spread=every[-1].spread,
        worst_error=str(max(tick.error for tick in every)),
        end_error=str(every[-1].error),
        worst_unassigned=max(tick.unassigned for tick in every),
        end_loads=dict(track.loads),
    )
