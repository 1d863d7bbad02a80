"""What a planner of items answers: the wanted assignment, the moves that lead there, and the proof that they are few."""

from __future__ import annotations

import msgspec


class Move(msgspec.Struct, frozen=True):
    """One item changes its member. A source of None is a first placement, a target of None the loss of a member."""

    item: str
    source: str | None
    target: str | None
    reason: str


class Certificate(msgspec.Struct, frozen=True):
    """The proof of a plan: moves made, the fewest possible, and the largest load minus the smallest.

    A first placement counts in neither number of moves; an item whose member is gone or draining counts in both.
    """

    moves: int
    moves_min: int
    spread: int


class Plan(msgspec.Struct, frozen=True):
    """Where every item should be (None: nowhere), and how to get there."""

    assignment: dict[str, str | None]
    moves: list[Move]
    unassigned: list[str]
    loads: dict[str, int]
    certificate: Certificate
