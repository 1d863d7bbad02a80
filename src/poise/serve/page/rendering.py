"""Templates to HTML. Every value is escaped unless it is Markup; compiled templates are kept as long as the server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from poise.serve.page.static_files import static_url
from poise.serve.page.words import side_name

if TYPE_CHECKING:
    from jinja2 import Environment

_NAME_MAX = 60
_SHARE = re.compile(r"\b(share )(\d+/[1-9]\d*)\b")


@cache
def environment(package: str) -> Environment:
    """Make the environment of a package's templates, when the first page is asked for: no server waits for it."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["static"] = static_url
    made.filters.update(
        clock=clock_text,
        moment=moment_text,
        side=side_name,
        stamp=stamp_text,
        counted=counted,
        seconds=seconds_text,
        path=path_text,
        named=named,
        mixed=mixed,
        mixed_shares=mixed_shares,
    )
    return made


def render(template: str, facts: Mapping[str, object]) -> str:
    """Write one page or a part of one."""
    return environment("poise.serve.page").get_template(template).render(facts)


def path_text(name: str) -> str:
    """Write a name as a part of a path."""
    return quote(name, safe="")


def brief(name: str) -> str:
    """Cut a very long name in its middle: beginnings tell families apart, ends tell members apart."""
    return name if len(name) <= _NAME_MAX else f"{name[:36]}…{name[-20:]}"


def named(name: str) -> Markup:
    """Show a name wherever it stands among others: never wider than a line, and whole to whoever points at it."""
    if len(name) <= _NAME_MAX:
        return Markup("<bdi>{}</bdi>").format(name)
    return Markup('<bdi title="{}">{}</bdi>').format(name, brief(name))


def clock_text(at: datetime) -> str:
    """Tell the time of the day."""
    return at.astimezone(UTC).strftime("%H:%M:%S")


def moment_text(at: datetime, now: datetime) -> str:
    """Tell a time of today by its clock, and one of another day with that day: 31 Dec 02:00."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    if at.date() == now.date():
        return clock_text(at)
    year = f" {at.year}" if at.year != now.year else ""
    return f"{at.day} {at:%b}{year} {at:%H:%M}"


def stamp_text(at: datetime) -> str:
    """Tell a time in full, as programs read it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def mixed(fraction: str) -> str:
    """Write a fraction as people read it: 1199/9 is 133 2/9."""
    value = Fraction(fraction)
    whole, rest = divmod(value.numerator, value.denominator)
    return f"{whole:,}" if not rest else f"{whole:,} {rest}/{value.denominator}" if whole else str(value)


def mixed_shares(text: str) -> str:
    """Write the shares of a sentence as every other place of the page does: share 32/3 is share 10 2/3."""
    return _SHARE.sub(lambda found: f"{found[1]}{mixed(found[2])}", text)


def counted(number: int, noun: str) -> str:
    """Count something: 1 item, 2 items."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def seconds_text(span_s: float) -> str:
    """Tell a length of time in two words at most."""
    whole = max(0, round(span_s))
    if whole < 120:
        return f"{whole} s"
    if whole < 7_200:
        return f"{whole // 60} min"
    if whole < 172_800:
        return f"{whole // 3600} h"
    return f"{whole // 86_400} days"
