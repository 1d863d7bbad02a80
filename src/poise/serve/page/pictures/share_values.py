"""What the picture of a division is made of: clusters against their exact shares, and workloads as cells."""

from __future__ import annotations

from fractions import Fraction

import msgspec

from poise.serve.page.pictures.lane_values import Cell


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster: its replicas now and by the plan, against its exact share as text (`950/3`)."""

    name: str
    now: int
    after: int
    exact: str
    words: str = ""
    tone: str = "ready"

    @property
    def error(self) -> Fraction:
        """Say how far it is from its exact share; above 0: it has too much."""
        return self.now - Fraction(self.exact)

    @property
    def error_after(self) -> Fraction:
        """Say how far it would be from its exact share by the plan."""
        return self.after - Fraction(self.exact)


class Mover(msgspec.Struct, frozen=True, kw_only=True):
    """A workload of which replicas would move."""

    name: str
    href: str
    text: str


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """The whole picture; `counts` are workloads by what becomes of them, `each` how many a full cell stands for."""

    about: str
    shares: list[Share]
    cells: list[Cell]
    counts: dict[str, int]
    each: int = 1
    movers: list[Mover] = []
    more: str = ""
    errors: list[str] = []
    imagined: bool = False
    teach: list[str] = []


def mixed(value: Fraction) -> str:
    """Read a fraction as `316 2/3`; one that nobody can read is rounded, and says so."""
    sign, value = ("−" if value < 0 else ""), abs(value)
    whole, rest = divmod(value, 1)
    if not rest:
        return f"{sign}{whole:,}"
    if rest.denominator > 999:
        return f"{sign}≈{float(value):,.2f}"
    return f"{sign}{whole:,} {rest}" if whole else f"{sign}{rest}"
