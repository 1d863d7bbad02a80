"""The tree of errors is the one that its docstring draws."""

from __future__ import annotations

import re

from poise import errors
from poise.errors import PoiseError


def drawn() -> dict[str, str]:
    """Read the tree from the docstring: each name with the one above it."""
    above, path = dict[str, str](), list[str]()
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"([ │├└─]*)([A-Z]\w+)(?:  |$)", line):
            depth = len(match[1]) // 4
            path[depth:] = [match[2]]
            if depth:
                above[match[2]] = path[depth - 1]
    return above


def test_the_tree_is_drawn_as_it_is() -> None:
    found = {
        name: kind.__bases__[0].__name__
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, PoiseError) and kind is not PoiseError
    }
    assert drawn() == found
    assert {"Fenced": "Conflict", "Hung": "PoiseError"}.items() <= found.items()
