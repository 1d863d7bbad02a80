"""Reads a picture back: what is drawn in each of its forms, so that it can be compared with the facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from xml.etree import ElementTree

from markupsafe import Markup

Node = ElementTree.Element


def forms(markup: Markup) -> dict[str, Node]:
    """Parse a figure as XML, which is stricter than HTML, and give its forms by class."""
    root = ElementTree.fromstring(markup)
    assert root.tag == "figure"
    return {form: node for node in root.iter("svg") if (form := node.get("class", "")) in ("wide", "tall")}


def text_of(node: Node) -> str:
    """Give all text inside a node, titles included."""
    return "".join(node.itertext())


def shown(node: Node) -> list[str]:
    """Give the texts that are drawn, without titles."""
    return ["".join([text.text or "", *(child.tail or "" for child in text)]) for text in node.iter("text")]


def classed(node: Node, name: str) -> Iterator[Node]:
    """Find the nodes of a class."""
    return (each for each in node.iter() if name in (each.get("class") or "").split())


def cells(form: Node) -> Counter[str]:
    """Count the items drawn in each state: one a single cell, the number that stands in it where it is for several."""
    found: Counter[str] = Counter()
    for holder in [*form.iter("a"), *form.iter("g")]:
        children = list(holder)
        paths = [child for child in children if "c" in (child.get("class") or "").split()]
        numbers = [child for child in children if "n" in (child.get("class") or "").split()]
        for place, path in enumerate(paths):
            state = (path.get("class") or "").split()[1]
            if state != "tile":
                found[state] += sum(map(_number, shown(numbers[place]))) if numbers else 1
    return found


def _number(text: str) -> int:
    return int(text.removeprefix("+"))


def linked_items(form: Node) -> Counter[str]:
    """Count the links to items by their address, those of ghosts left out."""
    ghosts = ("reserved", "planned", "imagined")
    return Counter(
        each.get("href", "").rsplit("/", 1)[-1]
        for each in form.iter("a")
        if "/items/" in each.get("href", "") and not any(True for ghost in ghosts for _ in classed(each, ghost))
    )


def arcs(form: Node) -> Counter[str]:
    """Count arcs by their style."""
    return Counter((each.get("class") or "").split()[1] for each in classed(form, "arc"))
