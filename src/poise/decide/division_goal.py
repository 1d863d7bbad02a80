"""What a division of replicas over clusters is asked for: the request, checked, and the exact quota of each cluster."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from fractions import Fraction
from math import gcd, lcm

import msgspec

from poise.decide.division import Record
from poise.decide.shares import Shares, fair_shares
from poise.errors import invalid
from poise.inputs import unique_names, whole

STRATEGIES = ("StaticWeight", "Duplicated", "DynamicWeight")
DRAWS = ("exact", "weighted")
COUNT_MAX = 2**63 - 1  # The largest number that every reader of a record can hold.
FRACTION_BITS_MAX = 4096  # A longer fraction would make a record that nobody can read.

Counts = Mapping[str, int]
Last = Counts | Record | None


class Terms(msgspec.Struct, frozen=True):
    """What a request says beside replicas and weights; a fleet shares it."""

    minimum: dict[str, int]
    maximum: dict[str, int]
    capacity: dict[str, int]
    strategy: str
    draw: str
    mix: Fraction


class Goal(msgspec.Struct, frozen=True):
    """A request with its quotas: clusters in bytewise order, each with floor + fraction / denominator of the quotas."""

    replicas: int
    weights: dict[str, int]
    terms: Terms
    names: list[str]
    pulls: list[int]
    quotas: Shares
    floors: list[int]
    fractions: list[int]
    placed: int
    note: str


class Debt(msgspec.Struct, frozen=True):
    """What each cluster is owed over all workloads, in units of 1 / unit; a cluster without an amount is owed 0."""

    amounts: Mapping[str, int]
    unit: int


def set_goal(replicas: int, weights: dict[str, int], terms: Terms) -> Goal:
    """Work out the quotas; bounds that cannot be met, or weights that are all 0, leave a note for the reason."""
    names = list(weights)
    if terms.strategy == "Duplicated":
        pulls, quotas, notes = _copies(replicas, names, terms)
    else:
        pulls, quotas, notes = _parts(replicas, weights, terms)
    placed = sum(quotas.numerators) // quotas.denominator
    note = "; ".join(notes) if names else "there is no cluster"
    return Goal(replicas, weights, terms, names, pulls, quotas, quotas.floors(), quotas.remainders(), placed, note)


def _copies(replicas: int, names: list[str], terms: Terms) -> tuple[list[int], Shares, list[str]]:
    """Duplicated: every cluster gets all replicas, as far as its upper bound lets it."""
    _, upper = _bounds(names, terms)
    shares = [replicas if most is None else min(replicas, most) for most in upper]
    short = [f"{name} is {replicas - share} short" for name, share in zip(names, shares, strict=True)]
    notes = [text for text, share in zip(short, shares, strict=True) if share < replicas]
    return [1] * len(names), Shares(shares, 1), notes


def _parts(replicas: int, weights: dict[str, int], terms: Terms) -> tuple[list[int], Shares, list[str]]:
    """Divide by weight within the bounds: clamp(μ·w, lower, upper), or by the minimums where they exceed everything."""
    names, notes = list(weights), []
    lower, upper = _bounds(names, terms)
    pulls = [terms.capacity[name] for name in names] if terms.strategy == "DynamicWeight" else list(weights.values())
    if names and not any(pulls):
        pulls = [1] * len(names)
        notes.append("all weights are 0, so all clusters count alike")
    least = sum(lower)
    if least > replicas:
        notes.append(f"the minimums add up to {least} and cannot be met, so they count as weights")
        pulls, lower, upper = lower, [0] * len(names), [None] * len(names)
    pulls = _reduced(pulls)
    quotas = fair_shares(replicas, pulls, lower, upper)
    placed = sum(quotas.numerators) // quotas.denominator
    if placed < replicas:
        notes.append(f"the clusters take {placed} at most, so {replicas - placed} of {replicas} are unplaced")
    return pulls, quotas, notes


def _bounds(names: list[str], terms: Terms) -> tuple[list[int], list[int | None]]:
    """Read the lower and the upper bound of every cluster; the upper one is the smaller of maximum and capacity."""
    lower = [terms.minimum.get(name, 0) for name in names] if terms.minimum else [0] * len(names)
    if not terms.maximum and not terms.capacity:
        return lower, [None] * len(names)
    return lower, [_smaller(terms.maximum.get(name), terms.capacity.get(name)) for name in names]


def _smaller(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _reduced(weights: list[int]) -> list[int]:
    """Divide by the greatest common divisor: 1:1 and 2:2 are the same request."""
    divisor = gcd(*weights) or 1
    return weights if divisor == 1 else [weight // divisor for weight in weights]


def read_count(path: str, value: object) -> int:
    """Read a number of replicas, or a weight; any other value is InvalidSpec."""
    if type(value) is int and value.bit_length() > 63:
        raise invalid(path, f"expected a whole number from 0 to {COUNT_MAX}")
    return whole(path, value)


def read_counts(path: str, counts: object) -> dict[str, int]:
    """Read cluster -> number, in bytewise order of the names (code points sort like UTF-8)."""
    if not isinstance(counts, Mapping):
        raise invalid(path, f"expected a mapping cluster -> number, got {type(counts).__name__}")
    read: dict[str, int] = {name: counts[name] for name in sorted(unique_names(path, counts))}
    values = read.values()
    if read and (set(map(type, values)) != {int} or min(values) < 0 or max(values) > COUNT_MAX):
        for name, value in read.items():
            read_count(f"{path}[{name!r}]", value)
    return read


def read_terms(
    clusters: Iterable[str],
    minimum: Counts | None,
    maximum: Counts | None,
    capacity: Counts | None,
    strategy: str,
    draw: str,
    mix: int | float | Fraction | None,
) -> Terms:
    """Read the rest of a request; the bounds name known clusters only, and no minimum is above an upper bound."""
    known = dict.fromkeys(clusters)
    strategy, draw = read_choice("$.strategy", strategy, STRATEGIES), read_choice("$.draw", draw, DRAWS)
    low, high = _read_bound("$.minimum", minimum, known), _read_bound("$.maximum", maximum, known)
    room = _read_bound("$.capacity", capacity, known)
    for name, least in low.items():
        for bound, most in (("maximum", high.get(name)), ("capacity", room.get(name))):
            if most is not None and least > most:
                raise invalid(f"$.minimum[{name!r}]", f"expected <= {most}, the {bound}, got {least}")
    for name in known if strategy == "DynamicWeight" else ():
        if name not in room:
            raise invalid(f"$.capacity[{name!r}]", "expected a number: DynamicWeight divides by capacity")
    part = _read_mix(mix)
    if part and draw == "weighted":
        raise invalid("$.mix", "expected 0: only the exact draw can mix capacities into its chances")
    return Terms(low, high, room, strategy, draw, part)


def read_choice(path: str, value: str, choices: tuple[str, ...]) -> str:
    """Read one of the choices, as our own text, which a record then knows as its default; all else is InvalidSpec."""
    for choice in choices:
        if choice == value:
            return choice
    raise invalid(path, f"expected one of {', '.join(choices)}, got {value!r}")


def _read_bound(path: str, bound: Counts | None, known: Container[str]) -> dict[str, int]:
    read = read_counts(path, {} if bound is None else bound)
    for name in read:
        if name not in known:
            raise invalid(f"{path}[{name!r}]", "no such cluster here")
    return read


def _read_mix(mix: object) -> Fraction:
    """Read a part between 0 and 1; a float counts as the decimal number that it prints."""
    if mix is None:
        return Fraction(0)
    if not isinstance(mix, int | float | Fraction) or isinstance(mix, bool) or not 0 <= mix <= 1:
        shown = repr(mix) if isinstance(mix, float) else type(mix).__name__
        raise invalid("$.mix", f"expected a number from 0 to 1, got {shown}")
    return _short("$.mix", Fraction(str(mix)) if isinstance(mix, float) else Fraction(mix))


def _short(path: str, value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > FRACTION_BITS_MAX:
        raise invalid(path, f"expected a fraction of at most {FRACTION_BITS_MAX} bits on either side")
    return value


def read_seed(seed: str) -> str:
    """Read a seed: any text that UTF-8 can hold, also none."""
    return unique_names("$.seed", [seed])[0] if seed != "" else seed


def read_last(path: str, last: Last, strategy: str) -> dict[str, int] | None:
    """Read a last result; an empty one, or a record of another strategy, is none."""
    if isinstance(last, Record):
        last = last.result if last.strategy == strategy else None
    return None if last is None else read_counts(path, last) or None


def read_debt(debt: object, names: Iterable[str]) -> Debt | None:
    """Read what the clusters are owed; clusters of other workloads may be named too."""
    if debt is None:
        return None
    if not isinstance(debt, Mapping):
        raise invalid("$.debt", f"expected a mapping cluster -> number, got {type(debt).__name__}")
    for name, owed in debt.items():
        if type(owed) not in (int, Fraction):
            raise invalid(f"$.debt[{name!r}]", f"expected a whole number or a fraction, got {type(owed).__name__}")
    amounts = {name: _short(f"$.debt[{name!r}]", Fraction(debt[name])) for name in names if name in debt}
    unit = lcm(*(owed.denominator for owed in amounts.values()))
    return Debt({name: owed.numerator * (unit // owed.denominator) for name, owed in amounts.items()}, unit)


def read_fraction(path: str, text: str) -> Fraction:
    """Read a fraction of a record, such as 7/2 or 4."""
    # The pattern keeps out exponents: a short text such as 1e999999999 would fill the memory.
    if len(text) > FRACTION_BITS_MAX or not re.fullmatch(r"-?[0-9]+(/[0-9]*[1-9][0-9]*)?", text):
        raise invalid(path, f"expected a fraction such as 7/2, got {text[:40]!r}")
    return Fraction(text)
