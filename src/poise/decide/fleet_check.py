"""A second opinion on the divisions of a fleet: each by itself, and the debts and the repair between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from math import floor

from poise.decide.division import Division
from poise.decide.division_check import Counts, check_division

# Exact debts of a strange fleet could grow without end, so all are added up in this grain; the planner may round too.
_GRAIN = 2**256
_NEAR = 2**128


def check_fleet(
    divisions: Mapping[str, Division],
    workloads: Counts,
    weights: Counts | Mapping[str, Counts],
    *,
    last: Mapping[str, Counts | None] | None = None,
    moves_max: int = 0,
    minimum: Counts | None = None,
    maximum: Counts | None = None,
    capacity: Counts | None = None,
    strategy: str = "StaticWeight",
    seed: str = "",
    draw: str = "exact",
    mix: int | float | Fraction | None = None,
    fair: str = "fleet",
) -> list[str]:
    """List every broken law of a fleet's divisions, each with its workload; [] when they are sound."""
    if list(divisions) != sorted(workloads):
        return ["the divisions are not those of the workloads, in bytewise order"]
    broken = []
    for name, division in divisions.items():
        pulls = _weights_of(weights, name)
        before = (last or {}).get(name)
        sentences = check_division(
            division,
            workloads[name],
            pulls,
            last=before,
            minimum=_among(minimum, pulls),
            maximum=_among(maximum, pulls),
            capacity=_among(capacity, pulls),
            strategy=strategy,
            seed=f"{seed}/{name}" if seed else name,
            draw=draw,
            mix=mix,
        )
        broken += [f"{name}: {sentence}" for sentence in sentences]
    if not broken:
        broken += _single_laws(divisions) if fair == "single" else _debt_laws(divisions)
        broken += _repair_laws(divisions, moves_max)
    return broken


def _weights_of(weights: Counts | Mapping[str, Counts], name: str) -> Counts:
    """Read the weights of one workload: its own mapping, or the one that all share."""
    own = weights.get(name)
    if isinstance(own, Mapping):
        return own
    return {cluster: weight for cluster, weight in weights.items() if isinstance(weight, int)}


def _among(bound: Counts | None, names: Iterable[str]) -> dict[str, int]:
    return {name: bound[name] for name in names if name in bound} if bound else {}


def _single_laws(divisions: Mapping[str, Division]) -> Iterator[str]:
    for name, division in divisions.items():
        if division.record.debt is not None:
            yield f"{name}: each workload is divided by itself, but a debt decided"


def _debt_laws(divisions: Mapping[str, Division]) -> Iterator[str]:
    """What fits comes first, the others follow by name; each draw knows what all before it leave owed."""
    debts: dict[str, int] = {}
    for name in sorted(divisions, key=lambda name: (not _was_kept(divisions[name]), name)):
        division = divisions[name]
        if division.record.draws and division.record.debt is None:
            yield f"{name}: its draw did not look at the debts"
        for cluster, text in (division.record.debt or {}).items():
            owed = Fraction(text)
            if abs(owed.numerator * _GRAIN // owed.denominator - debts.get(cluster, 0)) > _NEAR:
                yield f"{name}: {cluster} is not owed {text} at this turn"
        _add_debts(debts, division, _before_step(division))


def _was_kept(division: Division) -> bool:
    """Tell whether the last result was kept, before a repair moved one replica."""
    last = division.record.last
    if last is None or division.record.step is None:
        return division.kept
    shares = _before_step(division)
    return {name: share for name, share in last.items() if share} == {name: n for name, n in shares.items() if n}


def _before_step(division: Division) -> dict[str, int]:
    shares, step = dict(division.replicas), division.record.step
    if step is not None:
        shares[step.source] += 1
        shares[step.target] -= 1
    return shares


def _add_debts(debts: dict[str, int], division: Division, shares: Counts) -> None:
    for name, quota in division.quota.items():
        owed = quota.numerator * _GRAIN // quota.denominator - shares[name] * _GRAIN
        debts[name] = debts.get(name, 0) + owed


def _repair_laws(divisions: Mapping[str, Division], moves_max: int) -> Iterator[str]:
    """No more steps than allowed, together they help, and they end early only when no step would help."""
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    for division in divisions.values():
        _add_debts(before, division, _before_step(division))
        _add_debts(after, division, division.replicas)
    steps = sum(division.record.step is not None for division in divisions.values())
    if steps > moves_max:
        yield f"the repair makes {steps} steps, but {moves_max} were allowed"
    if steps and _squares(after) >= _squares(before):
        yield "the repair does not bring the totals nearer to the exact shares"
    if steps < moves_max:
        for name, division in divisions.items():
            pair = None if division.record.step else _helpful_step(division, after)
            if pair:
                yield f"{name}: a step from {pair[0]} to {pair[1]} would help, but the repair stopped"


def _squares(debts: Mapping[str, int]) -> int:
    return sum(debt * debt for debt in debts.values())


def _helpful_step(division: Division, debts: Mapping[str, int]) -> tuple[str, str] | None:
    """Find the best step within floor and ceiling, from too much to owed; it helps when they are more than 1 apart."""
    quota = division.quota
    free = [name for name in quota if quota[name].denominator > 1]
    raised = [name for name in free if division.replicas[name] > floor(quota[name]) and debts[name] < 0]
    lowered = [name for name in free if division.replicas[name] == floor(quota[name]) and debts[name] > 0]
    if not raised or not lowered:
        return None
    source, target = min(raised, key=debts.__getitem__), max(lowered, key=debts.__getitem__)
    return (source, target) if debts[target] - debts[source] > _GRAIN + _NEAR else None
