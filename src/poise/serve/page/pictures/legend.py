"""The legend of the lanes: every sign that was drawn, with its number and in words."""

from __future__ import annotations

from poise.serve.page.pictures.courses import FLIGHT, IMAGINED, NEXT, WAITS
from poise.serve.page.pictures.figure import sign
from poise.serve.page.pictures.ink import counted, inked
from poise.serve.page.pictures.lane_values import ASKED, GHOSTS, HELD, PLANNED, RESERVED, STATES, Cell, Lanes
from poise.serve.page.pictures.lane_values import IMAGINED as WOULD_COME
from poise.serve.page.pictures.marks import PLAIN, one

_MOVES = {
    FLIGHT: "in flight, reserved where they go",
    NEXT: "about to start",
    WAITS: "waiting, with the reason in the title",
    IMAGINED: "imagined: nothing moves until it is applied",
}

_COMING = {FLIGHT: RESERVED, NEXT: PLANNED, WAITS: PLANNED, IMAGINED: WOULD_COME}  # Where a move goes to.

_LEAVING = {FLIGHT: (ASKED,), NEXT: (HELD, NEXT), WAITS: (HELD, WAITS), IMAGINED: (HELD, IMAGINED)}  # And where from.


def legend(seen: Lanes) -> str:
    """List what was drawn, what is wrong first."""
    entries = [
        _entry(_sign(state), f"{seen.counts[state]:,} {words}")
        for state, words in STATES.items()
        if state not in GHOSTS and seen.counts.get(state)
    ]
    entries += [
        _entry(
            _sign(*_LEAVING[style]) + _line(style) + _sign(_COMING[style]),
            f"{counted(seen.moves[style], 'move')} {words}",
        )
        for style, words in _MOVES.items()
        if seen.moves.get(style)
    ]
    if any(lane.floor is not None for lane in seen.lanes):
        entries.append(_entry(_share_sign(), "the share of a member, rounded down and up"))
    if seen.each > 1:
        full = f"a full cell is {counted(seen.each, seen.noun)}"
        entries.append(_entry(_sign(HELD), full))
    notes = "".join(f"<p>{inked(note)}</p>" for note in seen.notes)
    return f'<ul class="legend">{"".join(entries)}</ul>{notes}' if entries or notes else ""


def _entry(sign: str, words: str) -> str:
    return f"<li>{sign}{inked(words)}</li>"


def _sign(state: str, mark: str = "") -> str:
    return sign(one(Cell(state, "", mark=mark), 0, 0, PLAIN), 15)


def _line(style: str) -> str:
    lines = '<path class="line" d="M1,8H20"/><path class="tip" d="M26,8l-7,-3.6v7.2z"/>'
    return sign(f'<g class="arc {style}">{lines}</g>', 27)


def _share_sign() -> str:
    return sign('<rect class="track" y="5" width="26" height="6" rx="3"/><path class="mark" d="M14,2v12M19,2v12"/>', 27)
