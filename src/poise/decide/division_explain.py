"""Why a division is as it is, in sentences: every cluster's quota, its bounds, its luck, and what would change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil, floor

import msgspec

from poise.decide.divide import divide
from poise.decide.division import Division, Draw, Record
from poise.decide.division_goal import COUNT_MAX, read_fraction
from poise.errors import invalid

_NAMES_MAX = 8  # A sentence that lists more clusters than this is not read.
_DIGITS_MAX = 12  # A fraction longer than this is shown as a decimal number.


class _View(msgspec.Struct, frozen=True):
    """A record with its fractions read: by which numbers it divides, and what those are called."""

    record: Record
    quotas: dict[str, Fraction]
    word: str
    pulls: Mapping[str, int]
    pulls_sum: int


def explain_division(subject: Division | Record) -> list[str]:
    """Explain a division, or its record alone: first the whole, then each cluster, then what would change it."""
    record = subject.record if isinstance(subject, Division) else subject
    return [*tell_decision(record), *_what_would_change(_view(record))]


def tell_decision(record: Record) -> list[str]:
    """Tell what was decided and by what chance, not what would change it now."""
    view = _view(record)
    replicas, clusters = _count(record.replicas, "replica"), _count(len(record.weights), "cluster")
    sentences = [f"{replicas} over {clusters} by {record.strategy}; {record.reason}."]
    luck = {name: text for drawn in record.draws for name, text in _luck(view, drawn).items()}
    if record.step and luck:
        repaired = ((record.step.source, "took one from it"), (record.step.target, "gave it one"))
        luck |= {name: f"{luck[name]}, and the repair {did}" for name, did in repaired if name in luck}
    for name in view.quotas:
        parts = (_quota_part(view, name), _bound_part(view, name), luck.get(name, ""), _last_part(record, name))
        sentences.append(f"{name}: {'; '.join(filter(None, parts))}.")
    for name, before in (record.last or {}).items():
        if name not in record.weights and before:
            sentences.append(f"{name}: it had {before}, and it is no longer a cluster.")
    return sentences


def _view(record: Record) -> _View:
    """Read a record; one whose parts do not name the same clusters is InvalidSpec."""
    for field, names in (("result", record.result), ("quotas", record.quotas)):
        if set(names) != set(record.weights):
            raise invalid(f"$.{field}", "expected the clusters of the weights")
    for position, drawn in enumerate(record.draws):
        if not set(drawn.winners) <= set(drawn.odds) <= set(record.weights):
            raise invalid(f"$.draws[{position}]", "expected winners that have odds, among the clusters of the weights")
    quotas = {name: read_fraction(f"$.quotas[{name!r}]", text) for name, text in record.quotas.items()}
    word, pulls = "weight", record.weights
    if record.strategy == "DynamicWeight":
        word, pulls = "capacity", {name: record.capacity.get(name, 0) for name in record.weights}
    if not any(pulls.values()):
        word, pulls = "equal weight", dict.fromkeys(pulls, 1)
    if sum(record.minimum.values()) > record.replicas:
        word, pulls = "minimum", {name: record.minimum.get(name, 0) for name in record.weights}
    return _View(record, quotas, word, pulls, sum(pulls.values()))


def _quota_part(view: _View, name: str) -> str:
    """Give the quota with its floor and ceiling, and the share."""
    record, quota, share = view.record, view.quotas[name], view.record.result[name]
    if record.strategy == "Duplicated":
        return f"a copy of all {record.replicas}, and it gets {share}"
    start = f"{view.word} {view.pulls[name]} of {view.pulls_sum}, quota {quota}"
    if quota.denominator == 1:
        return f"{start}, a whole number, so exactly {share}"
    return f"{start}, floor {floor(quota)}, ceiling {ceil(quota)}, and it gets {share}"


def _bound_part(view: _View, name: str) -> str:
    """Name the bound that applied, and what the quota would be by weight alone."""
    record, quota, least = view.record, view.quotas[name], view.record.minimum.get(name, 0)
    plain = Fraction(record.replicas)
    if record.strategy != "Duplicated":
        if view.word == "minimum":
            return f"its minimum of {least} cannot be met" if least else ""
        if not view.pulls[name]:
            return f"{view.word} 0 means exactly its minimum of {least}"
        plain = Fraction(record.replicas * view.pulls[name], view.pulls_sum)
    uppers = [(bound[name], kind) for kind, bound in _uppers(record).items() if name in bound]
    if quota < plain and uppers and quota == min(uppers)[0]:
        return f"its {min(uppers)[1]} of {quota} holds it below {plain}"
    if quota > plain and quota == least:
        return f"its minimum of {least} holds it above {plain}"
    return "" if quota == plain else f"without the bounds of the clusters its quota would be {plain}"


def _uppers(record: Record) -> dict[str, dict[str, int]]:
    return {"maximum": record.maximum, "capacity": record.capacity}


def _luck(view: _View, drawn: Draw) -> dict[str, str]:
    """Tell of every cluster whether it got the extra, and by what chance."""
    odds = {name: read_fraction(f"$.draws[0].odds[{name!r}]", text) for name, text in drawn.odds.items()}
    extra = "one more" if drawn.change > 0 else "one less"
    told = {name: "a whole quota takes no part in the draw" for name, q in view.quotas.items() if q.denominator == 1}
    winners = set(drawn.winners)
    for name, part in odds.items():
        won = name in winners
        if drawn.rule == "exact":
            told[name] = f"it {'got' if won else 'did not get'} {extra}, which had a chance of {part}"
        elif drawn.rule == "debt":
            told[name] = f"{_owed(view, name, part)}, so it {'got' if won else 'did not get'} {extra}"
    return told if drawn.rule in ("exact", "debt") else told | _turns(drawn, odds, extra)


def _owed(view: _View, name: str, debt: Fraction) -> str:
    fraction = view.quotas[name] - floor(view.quotas[name])
    return f"so far it was owed {_number(debt)}, with its fraction {_number(debt + fraction)}"


def _turns(drawn: Draw, odds: Mapping[str, Fraction], extra: str) -> dict[str, str]:
    """A draw one by one: the chance of each winner in its turn, of each other in the first."""
    if any(part <= 0 for part in odds.values()):
        raise invalid("$.draws[0].odds", "expected odds above 0")
    total, turns = sum(odds.values()), len(drawn.winners)
    told = {name: f"it was not drawn for {extra}; its chance in turn 1 was {odds[name] / total}" for name in odds}
    for turn, name in enumerate(drawn.winners, start=1):
        told[name] = f"it was drawn for {extra} in turn {turn} of {turns}, with a chance of {odds[name] / total}"
        total -= odds[name]
    return told


def _last_part(record: Record, name: str) -> str:
    if record.last is None:
        return ""
    before = record.last.get(name, 0)
    if record.kept:
        return "kept, since the last result still fits"
    return "unchanged" if before == record.result[name] else f"it had {before}"


def _what_would_change(view: _View) -> list[str]:
    """Tell how far the quotas may go, and what one replica more or less would do."""
    record = view.record
    if not record.weights:
        if not record.replicas:
            return ["There is nothing to place."]
        are = "is" if record.replicas == 1 else "are"
        return [f"{_count(record.replicas, 'replica')} {are} unplaced until there is a cluster."]
    sentences = []
    if record.strategy != "Duplicated":
        ranges = [_range(name, share) for name, share in record.result.items()]
        placed = sum(record.result.values())
        sentences.append(f"It is kept while {placed} are placed and the quotas stay so: {_few(ranges, ', ')}.")
    if record.replicas < COUNT_MAX:
        sentences.append(_what_if(record, record.replicas + 1))
    if record.replicas:
        sentences.append(_what_if(record, record.replicas - 1))
    return sentences


def _range(name: str, share: int) -> str:
    """A share fits its quota when the two are less than 1 apart."""
    return f"{name} above {share - 1} and below {share + 1}" if share else f"{name} below 1"


def _what_if(record: Record, replicas: int) -> str:
    """Divide again with another number of replicas, from this result; who wins a draw may depend on other workloads."""
    division = divide(
        replicas,
        record.weights,
        last=record.result,
        minimum=record.minimum,
        maximum=record.maximum,
        capacity=record.capacity,
        strategy=record.strategy,
        seed=record.seed,
    )
    before = record.result
    certain = dict(division.replicas)
    for drawn in division.record.draws:
        certain |= {name: certain[name] - drawn.change for name in drawn.winners}
    changes = [f"{name} {before[name]} -> {now}" for name, now in certain.items() if now != before[name]]
    draws = [_open_draw(drawn) for drawn in division.record.draws]
    start = f"With {_count(replicas, 'replica')}"
    if draws and not changes:
        return f"{start} {', '.join(draws)}."
    return f"{start}: {', then '.join([_few(changes, ', ') or 'nothing changes', *draws])}."


def _open_draw(drawn: Draw) -> str:
    """Say who may change, not who does."""
    takes, names = len(drawn.winners), _few(drawn.odds, ", ")
    extra = "get one more" if drawn.change > 0 else "have one less"
    return f"one of {names} would {extra}" if takes == 1 else f"{takes} of {names} would each {extra}"


def _few(texts: Iterable[str], between: str) -> str:
    listed = list(texts)
    shown = between.join(listed[:_NAMES_MAX])
    return shown if len(listed) <= _NAMES_MAX else f"{shown} and {len(listed) - _NAMES_MAX} others"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _number(value: Fraction) -> str:
    """Write a fraction, or about its decimal number where it would be too long to read."""
    text = str(value)
    if len(text) <= _DIGITS_MAX:
        return text
    sign, hundredths = "-" if value < 0 else "", floor(abs(value) * 100)
    return f"about {sign}{hundredths // 100}.{hundredths % 100:02}"
