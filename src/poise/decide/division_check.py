"""A second opinion on divisions: it shares no code with the planner and names every broken law in a sentence.

It does not work the quotas out again. It tests what makes them the only fair ones: they sum to what is placed, they
keep the bounds, and no cluster above its lower bound stands higher for its weight than one below its upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import lcm

import msgspec

from poise.decide.division import Division, Draw

Counts = Mapping[str, int]


class _Case(msgspec.Struct, frozen=True):
    """A request as the laws see it; an upper bound that is not there is None."""

    replicas: int
    weights: Counts
    last: Counts | None
    strategy: str
    draw: str
    mix: Fraction
    capacity: Counts
    pulls: dict[str, int]
    lower: dict[str, int]
    upper: dict[str, int | None]
    placed: int
    unplaced: int


class _Quotas(msgspec.Struct, frozen=True):
    """The quotas that the division claims, in whole units of 1 / unit, with their floors and ceilings."""

    parts: dict[str, int]
    unit: int
    floors: dict[str, int]
    ceilings: dict[str, int]


def check_division(
    division: Division,
    replicas: int,
    weights: Counts,
    *,
    last: Counts | None = None,
    minimum: Counts | None = None,
    maximum: Counts | None = None,
    capacity: Counts | None = None,
    strategy: str = "StaticWeight",
    seed: str | None = None,
    draw: str = "exact",
    mix: int | float | Fraction | None = None,
    debt: Mapping[str, int | Fraction] | None = None,
) -> list[str]:
    """List every broken law of one division; [] when it is sound. Seed and debt are compared only where given."""
    names = sorted(weights)
    if sorted(division.replicas) != names or sorted(division.quota) != names:
        return [f"the clusters are {', '.join(names) or 'none'}, but the division names others"]
    part = Fraction(str(mix)) if isinstance(mix, float) else Fraction(mix or 0)
    case = _read_case(replicas, weights, last, minimum or {}, maximum or {}, capacity or {}, strategy, draw, part)
    quotas = _read_quotas(division)
    broken = [*_quota_laws(case, quotas), *_share_laws(case, quotas, division), *_last_laws(case, quotas, division)]
    broken += _record_laws(case, division, minimum or {}, maximum or {})
    broken += _draw_laws(case, quotas, division)
    if seed is not None and division.record.seed != seed:
        broken.append(f"the record's seed is {division.record.seed!r}, not {seed!r}")
    for name, owed in (division.record.debt or {}).items():
        if debt is not None and Fraction(owed) != debt.get(name, 0):
            broken.append(f"{name}: the record says that {owed} is owed, not {debt.get(name, 0)}")
    return broken


def _read_case(
    replicas: int,
    weights: Counts,
    last: Counts | None,
    minimum: Counts,
    maximum: Counts,
    capacity: Counts,
    strategy: str,
    draw: str,
    mix: Fraction,
) -> _Case:
    pulls = {name: capacity[name] if strategy == "DynamicWeight" else weights[name] for name in sorted(weights)}
    if not any(pulls.values()):
        pulls = dict.fromkeys(pulls, 1)
    lower = {name: minimum.get(name, 0) for name in pulls}
    limits = {name: [bound[name] for bound in (maximum, capacity) if name in bound] for name in pulls}
    upper = {name: min(limits[name], default=None) for name in pulls}
    wanted = replicas
    if strategy == "Duplicated":
        most = [min([replicas, *limits[name]]) for name in pulls]
        wanted, placed = replicas * max(1, len(pulls)), sum(most)
    elif sum(lower.values()) > replicas:
        pulls, lower, upper, placed = lower, dict.fromkeys(pulls, 0), dict.fromkeys(pulls, None), replicas
    else:
        tops = [upper[name] if pulls[name] else lower[name] for name in pulls]
        placed = min(replicas, sum(replicas if top is None else top for top in tops))
    before = last or None
    return _Case(replicas, weights, before, strategy, draw, mix, capacity, pulls, lower, upper, placed, wanted - placed)


def _read_quotas(division: Division) -> _Quotas:
    unit = lcm(*(quota.denominator for quota in division.quota.values()))
    parts = {name: quota.numerator * (unit // quota.denominator) for name, quota in division.quota.items()}
    floors = {name: part // unit for name, part in parts.items()}
    return _Quotas(parts, unit, floors, {name: -(-part // unit) for name, part in parts.items()})


def _quota_laws(case: _Case, quotas: _Quotas) -> Iterator[str]:
    """The quotas are the bounded fair shares."""
    parts, unit = quotas.parts, quotas.unit
    if case.strategy == "Duplicated":
        for name, most in case.upper.items():
            if parts[name] != unit * (case.replicas if most is None else min(case.replicas, most)):
                yield f"{name}: a duplicate's quota is all {case.replicas} within its upper bound"
        return
    if sum(parts.values()) != case.placed * unit:
        yield f"the quotas sum to {Fraction(sum(parts.values()), unit)}, not to the {case.placed} that can be placed"
    for name, part in parts.items():
        if not case.pulls[name] and part != case.lower[name] * unit:
            yield f"{name}: weight 0 means exactly the minimum {case.lower[name]}, but its quota is another"
    if not _is_level(parts, unit, case.pulls, case.lower, case.upper):
        yield "the quotas are not the fair shares: some cluster stands too high for its weight and bounds"


def _is_level(
    parts: Mapping[str, int],
    unit: int,
    pulls: Counts,
    lower: Mapping[str, int],
    upper: Mapping[str, int | None],
) -> bool:
    """Tell whether part / unit = clamp(μ·pull, lower, upper) for one and the same μ.

    So the highest level part / pull above a lower bound must not exceed the lowest one below an upper bound.
    """
    high, low = (0, 1), (1, 0)
    for name, part in parts.items():
        top, pull = upper[name], pulls[name]
        if part < lower[name] * unit or (top is not None and part > top * unit):
            return False
        if pull and part > lower[name] * unit and part * high[1] > high[0] * pull:
            high = (part, pull)
        if pull and (top is None or part < top * unit) and part * low[1] < low[0] * pull:
            low = (part, pull)
    return high[0] * low[1] <= low[0] * high[1]


def _share_laws(case: _Case, quotas: _Quotas, division: Division) -> Iterator[str]:
    """Everything that can be placed is, in floors and ceilings, within the bounds."""
    total, step = sum(division.replicas.values()), division.record.step
    if total != case.placed:
        yield f"{total} replicas are placed, not {case.placed}"
    if division.unplaced != case.unplaced:
        yield f"unplaced says {division.unplaced}, but {case.unplaced} do not fit"
    yield from _shares_of_quotas(case, quotas, division.replicas)
    if step is not None and (step.source == step.target or not {step.source, step.target} <= set(quotas.parts)):
        yield f"a step from {step.source} to {step.target} moves nothing between the clusters"
    elif step is not None:
        yield from _shares_of_quotas(case, quotas, _decided(division))


def _shares_of_quotas(case: _Case, quotas: _Quotas, shares: Counts) -> Iterator[str]:
    for name, share in shares.items():
        floor, ceiling, top = quotas.floors[name], quotas.ceilings[name], case.upper[name]
        if floor == ceiling and share != floor:
            yield f"{name}: a whole quota is met exactly, but {share} is not {floor}"
        elif not floor <= share <= ceiling:
            quota = Fraction(quotas.parts[name], quotas.unit)
            yield f"{name}: {share} is neither floor nor ceiling of its quota {quota}"
        low = 0 if case.strategy == "Duplicated" else case.lower[name]
        if share < low or (top is not None and share > top):
            yield f"{name}: {share} is outside its bounds"


def _decided(division: Division) -> dict[str, int]:
    """Take the step of a fleet repair back: what is left is what the division alone decided."""
    shares, step = dict(division.replicas), division.record.step
    if step is not None:
        shares[step.source] = shares.get(step.source, 0) + 1
        shares[step.target] = shares.get(step.target, 0) - 1
    return shares


def _last_laws(case: _Case, quotas: _Quotas, division: Division) -> Iterator[str]:
    """What fits is kept, nothing else is, and a repair changes as few replicas as possible."""
    last, decided, stepped = case.last or {}, _decided(division), division.record.step is not None
    fit = case.last is not None and _fits(case, quotas, last)
    changed = sum(abs(share - last.get(name, 0)) for name, share in decided.items())
    fewest = _fewest_changes(case, quotas, last)
    if division.kept and not fit:
        yield "kept, but the last result does not fit"
    if fit and changed:
        yield "the last result still fits, but was not kept"
    if fit and division.kept == stepped:
        yield "kept must say that the last result is returned unchanged"
    if case.last is not None and changed != fewest:
        yield f"{changed} replicas change, but {fewest} would do"
    names = {*last, *division.replicas} if last else set()
    changes = [division.replicas.get(name, 0) - last.get(name, 0) for name in names]
    moved = min(sum(change for change in changes if change > 0), -sum(change for change in changes if change < 0))
    if division.moved != moved:
        yield f"moved says {division.moved}, but {moved} replicas moved"


def _fits(case: _Case, quotas: _Quotas, last: Counts) -> bool:
    """Same total placed, nothing on a removed cluster, every share less than one away from its quota."""
    gone = any(share for name, share in last.items() if name not in quotas.parts)
    near = all(abs(last.get(name, 0) * quotas.unit - part) < quotas.unit for name, part in quotas.parts.items())
    return not gone and near and sum(last.values()) == case.placed


def _fewest_changes(case: _Case, quotas: _Quotas, last: Counts) -> int:
    """Start from all floors and raise those clusters first for which a ceiling costs the least."""
    changes, prices = 0, []
    for name, floor in quotas.floors.items():
        at_floor = abs(floor - last.get(name, 0))
        changes += at_floor
        if quotas.ceilings[name] > floor:
            prices.append(abs(quotas.ceilings[name] - last.get(name, 0)) - at_floor)
    raised = case.placed - sum(quotas.floors.values())
    return changes + sum(sorted(prices)[:raised])


def _record_laws(case: _Case, division: Division, minimum: Counts, maximum: Counts) -> Iterator[str]:
    """The record says what was asked and what was answered."""
    record = division.record
    pairs = [
        ("replicas", record.replicas, case.replicas),
        ("weights", record.weights, dict(case.weights)),
        ("strategy", record.strategy, case.strategy),
        ("result", record.result, division.replicas),
        ("quotas", record.quotas, {name: str(part) for name, part in division.quota.items()}),
        ("kept", record.kept, division.kept),
        ("reason", record.reason, division.reason),
        ("minimum", record.minimum, dict(minimum)),
        ("maximum", record.maximum, dict(maximum)),
        ("capacity", record.capacity, dict(case.capacity)),
        ("last", record.last, None if case.last is None else dict(case.last)),
        ("draw", record.draw, case.draw),
        ("mix", record.mix, str(case.mix)),
    ]
    for field, written, true in pairs:
        if written != true:
            yield f"the record's {field} is {written!r}, not {true!r}"
    unmet = case.strategy != "Duplicated" and sum(minimum.values()) > case.replicas
    if unmet and "cannot be met" not in division.reason:
        yield "the minimums cannot be met, but the reason does not say so"
    if case.unplaced and not any(word in division.reason for word in ("unplaced", "short", "no cluster")):
        yield "some replicas are unplaced, but the reason does not say so"


def _draw_laws(case: _Case, quotas: _Quotas, division: Division) -> Iterator[str]:
    """The draw explains the result: the right candidates, the right odds, as many winners as were missing."""
    start, last, draws = quotas.floors, case.last, division.record.draws
    if last is not None:
        start = {name: min(max(last.get(name, 0), low), quotas.ceilings[name]) for name, low in start.items()}
    missing = case.placed - sum(start.values())
    if len(draws) != (1 if missing else 0):
        yield f"{missing} were missing before the draw, and the record holds {len(draws)} draws"
    if len(draws) != 1 or not missing:
        return
    drawn, change = draws[0], 1 if missing > 0 else -1
    if drawn.change != change or len(drawn.winners) != abs(missing) or len(set(drawn.winners)) != abs(missing):
        yield f"{missing} were missing, but {len(drawn.winners)} clusters changed by {drawn.change}"
    winners = set(drawn.winners)
    if _decided(division) != {name: share + change * (name in winners) for name, share in start.items()}:
        yield "the winners of the draw do not explain the result"
    away = {name: (part - start[name] * quotas.unit) * change for name, part in quotas.parts.items()}
    free = {name: Fraction(part, quotas.unit) for name, part in away.items() if part > 0}
    if set(drawn.odds) != set(free):
        yield f"the draw was among {', '.join(drawn.odds)}, not among {', '.join(free)}"
    else:
        yield from _odds_laws(case, division, drawn, free)


def _odds_laws(case: _Case, division: Division, drawn: Draw, away: Mapping[str, Fraction]) -> Iterator[str]:
    """The odds follow the rule of the draw; `away` is the fraction of each candidate, for a removal 1 - fraction."""
    odds = {name: Fraction(text) for name, text in drawn.odds.items()}
    rule = "debt" if division.record.debt is not None else case.draw if case.last is None else "fraction"
    if drawn.rule != rule:
        yield f"the draw went by {drawn.rule}, not by {rule}"
    elif rule == "debt":
        yield from _debt_laws(division, drawn, odds, away)
    elif rule == "weighted" and len({odds[name] / case.pulls[name] for name in odds}) != 1:
        yield "the odds of the draw are not the weights"
    elif rule == "fraction" and odds != away:
        yield "the odds of the draw are not the fractions (for a removal: what they lack to 1)"
    elif rule == "exact":
        yield from _chance_laws(case, odds, away)


def _chance_laws(case: _Case, odds: Mapping[str, Fraction], away: Mapping[str, Fraction]) -> Iterator[str]:
    """Chance = (1 - mix)·fraction + mix·p, where p is level over the capacities that are known."""
    known = {name: part for name, part in away.items() if name in case.capacity and case.mix}
    if any(odds[name] != part for name, part in away.items() if name not in known):
        yield "the chances of the draw are not the fractions"
    p = {name: (odds[name] - (1 - case.mix) * part) / case.mix for name, part in known.items()}
    unit = lcm(*(part.denominator for part in p.values()))
    parts = {name: int(part * unit) for name, part in p.items()}
    level = _is_level(parts, unit, case.capacity, dict.fromkeys(p, 0), dict.fromkeys(p, 1))
    if sum(p.values()) != sum(known.values()) or not level:
        yield "the chances of the draw are not tilted by the capacities"


def _debt_laws(
    division: Division, drawn: Draw, owed: Mapping[str, Fraction], away: Mapping[str, Fraction]
) -> Iterator[str]:
    """The largest debt + fraction win, the smallest lose."""
    if drawn.odds != division.record.debt:
        yield "the odds of the draw are not what the record says is owed"
    # Of a removal the clusters are 1 - fraction away, so that the largest of this is the smallest debt + fraction.
    scores = {name: drawn.change * part + away[name] for name, part in owed.items()}
    winners = set(drawn.winners)
    worst = min((score for name, score in scores.items() if name in winners), default=None)
    for name, score in scores.items():
        if name not in winners and worst is not None and score > worst:
            yield f"{name} comes before a winner by debt + fraction, but was passed over"
