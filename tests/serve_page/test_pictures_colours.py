"""Colours can be told apart: text at 4.5 to 1, shapes at 3 to 1, in light and in dark, alone and on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import poise.serve.page

STATIC = Path(poise.serve.page.__file__).parent / "static"
Pairs = list[tuple[str, tuple[str, ...]]]
TEXT: Pairs = [
    ("ink", ("bg", "card", "lane")),
    ("dim", ("card", "lane")),
    ("late", ("card", "lane")),
    ("moving", ("card",)),
]
ON_SHAPES: Pairs = [("card", ("held", "moving", "late", "ok"))]
SHAPES: Pairs = [
    ("held", ("card", "lane", "line")),
    ("moving", ("card", "lane")),
    ("late", ("card", "lane")),
    ("ok", ("card",)),
]


def luminance(colour: str) -> float:
    """Follow the definition of WCAG 2."""
    digits = colour.lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def palettes(text: str) -> list[dict[str, str]]:
    """Read the colours of a style sheet: light first, then dark."""
    blocks = re.findall(r":root\)? \{(.*?)\}", text, re.DOTALL)
    found = [dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})\b", block)) for block in blocks]
    return [colours for colours in found if "held" in colours]


def too_weak(colours: dict[str, str]) -> list[str]:
    needs: list[tuple[Pairs, float]] = [(TEXT, 4.5), (ON_SHAPES, 4.5), (SHAPES, 3.0)]
    return [
        f"{front} on {ground}: {contrast(colours[front], colours[ground]):.2f} < {least}"
        for pairs, least in needs
        for front, grounds in pairs
        for ground in grounds
        if contrast(colours[front], colours[ground]) < least
    ]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("sheet", ["pictures.css", "poise.css"])
def test_colours_can_be_told_apart(sheet: str, place: int) -> None:
    assert too_weak(palettes((STATIC / sheet).read_text())[place]) == []


def test_a_weak_colour_is_seen() -> None:
    colours = palettes((STATIC / "pictures.css").read_text())[0]
    assert too_weak(colours | {"dim": "#a0a8b4"}) != []
    assert too_weak(colours | {"moving": "#e08a1e"}) != []


def test_no_picture_needs_what_the_page_forbids() -> None:
    # The policy of the page refuses inline styles; what moves by itself would disturb those who asked for calm.
    text = (STATIC / "pictures.css").read_text()
    assert "@import" not in text
    assert "url(" not in text
    assert "animation" not in text
