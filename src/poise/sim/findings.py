"""What a run found, in words: the columns of the table, a sentence or two, and how to read what could surprise."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import msgspec

from poise.sim.summary import PolicySummary, Summary

_DRIFT = 2  # A fresh fleet stays within this error.
_AFTER = {
    "join": "joins",
    "leave": "leaves",
    "drain": "drains",
    "add": "additions",
    "remove": "removals",
    "scale": "scaling",
    "weight": "new weights",
}


def number(value: int | Fraction) -> str:
    """Write a number for people: 1,204, or 0.50 where it is no whole number."""
    whole = isinstance(value, int) or value.denominator == 1
    return f"{int(value):,}" if whole else f"{float(value):,.2f}"


def _decimal(exact: str) -> str:
    return f"{float(Fraction(exact)):,.2f}"


def title(policy: str) -> str:
    """Give a policy's name as it stands in a sentence."""
    return policy.replace("-", " ")


class Column(msgspec.Struct, frozen=True):
    """One column of the table: its heading, and what it says of a policy."""

    heading: str
    text: Callable[[PolicySummary], str]


def columns(summary: Summary) -> list[Column]:
    """Choose the columns: spreads for items, errors of totals for a fleet, the unassigned where there are any."""
    fleet = summary.kind == "ReplicaDivision"
    chosen = [
        Column("replicas moved" if fleet else "moves", lambda each: number(each.moves)),
        Column("fewest possible" if fleet else "fewest if even", lambda each: number(each.moves_min)),
        Column("innocent", lambda each: number(each.innocent_moves)),
    ]
    if fleet:
        chosen.append(Column("end error", lambda each: _decimal(each.end_error)))
        chosen.append(Column("worst error", lambda each: _decimal(each.worst_error)))
    else:
        chosen.append(Column("worst spread", lambda each: number(each.worst_spread)))
        chosen.append(Column("worst error", lambda each: _decimal(each.worst_error)))
    if any(each.worst_unassigned for each in summary.policies.values()):
        chosen.append(Column("unplaced" if fleet else "unassigned", lambda each: number(each.worst_unassigned)))
    return chosen


def finding(summary: Summary) -> str:
    """Say in two sentences what the run found."""
    if not summary.policies:
        return ""
    told = _fleet_finding(summary) if summary.kind == "ReplicaDivision" else _item_finding(summary)
    return f"Over {number(summary.events)} event{'' if summary.events == 1 else 's'}, {told}"


def _item_finding(summary: Summary) -> str:
    (lead, first), *others = summary.policies.items()
    proof = f" ({number(first.moves_min)} would keep loads even)"
    if first.moves == first.moves_min:
        proof = ", exactly the fewest that keep loads even"
    said = f"{title(lead)} moved {_many(first.moves, 'item')}{proof}; {_evenness(first)}."
    rest = [
        f"{title(name)} moved {_times(each.moves, first.moves)} and let loads differ by up to {each.worst_spread:,}"
        for name, each in others
    ]
    return said + _sentence(rest)


def _evenness(each: PolicySummary) -> str:
    """Say how even loads were: by the spread where that is small, else by the exact shares, which know the weights."""
    if each.worst_spread <= 1:
        return f"loads never differed by more than {each.worst_spread}"
    return f"no load was further than {number(Fraction(each.worst_error))} from its exact share"


def _fleet_finding(summary: Summary) -> str:
    (lead, first), *others = summary.policies.items()
    errors = [f"{title(name)} {number(Fraction(each.end_error))}" for name, each in others]
    against = f" ({', '.join(errors)})" if errors else ""
    far = number(Fraction(first.end_error))
    said = f"{title(lead)} ends with every cluster's total within {far} of its exact share{against}."
    rest = [f"{title(name)} {number(each.moves)}" for name, each in others]
    exactly = ", the fewest possible" if first.moves == first.moves_min else ""
    moved = f"{title(lead)} moved {_many(first.moves, 'replica')}{exactly}"
    return f"{said} {moved[0].upper()}{moved[1:]}" + (f"; {', '.join(rest)}." if rest else ".")


def _sentence(parts: list[str]) -> str:
    """Join parts with semicolons into a sentence of their own."""
    if not parts:
        return ""
    joined = "; ".join(parts)
    return f" {joined[0].upper()}{joined[1:]}."


def _many(count: int, noun: str) -> str:
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def _times(moves: int, first: int) -> str:
    """Compare with the first policy: `2.2 times as many`; plain numbers where there is nothing to compare with."""
    if moves == first:
        return "as many"
    if not first or not moves:
        return number(moves)
    if 20 * abs(moves - first) < first:
        return "about as many"
    ratio = moves / first
    return f"{ratio:,.0f} times as many" if ratio >= 10 else f"{ratio:.{1 if ratio >= 0.1 else 2}f} times as many"


def notes(summary: Summary) -> list[str]:
    """Say how to read numbers that could surprise."""
    if not summary.policies:
        return []
    said = []
    owed = summary.policies.get("fleet")
    if owed and summary.moves_max == 0 and Fraction(owed.worst_error) > _DRIFT:
        said.append(
            "fleet keeps what fits, so old results drift; movesMax in the document lets it repair some each time"
        )
    lazy = [title(name) for name, each in summary.policies.items() if each.moves < each.moves_min]
    if lazy:
        said.append(f"{' and '.join(lazy)} moved less than even loads take, and did not become even")
    lead, first = next(iter(summary.policies.items()))
    if first.innocent_moves and first.moves == first.moves_min:
        verbs = ", ".join(f"{number(count)} after {_AFTER[verb]}" for verb, count in first.innocent_after.items())
        said.append(f"{title(lead)} could not do without its innocent moves: {verbs}")
    return said
