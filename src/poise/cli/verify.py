"""`poise verify`: replay a journal against the laws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from poise.model.ownership import Line


@click.command(
    epilog="""\b
Examples:
  poise verify orders.journal
  poise verify sqlite:///poise.db"""
)
@click.argument("journal")
def verify(journal: str) -> int:
    """Replay JOURNAL against the laws and name the first that is broken (exit 1).

    JOURNAL is what `poise history SET -o json` printed, or the address of a store, whose sets are all replayed.
    """
    from poise.cli.main import FAILED, OK
    from poise.move.verify import verify as judge

    journals = _journals(journal)
    for lines in journals:
        broken = judge(lines)
        if broken is not None:
            click.echo(f"broken: {broken}")
            return FAILED
    count = sum(len(lines) for lines in journals)
    what = "1 journal keeps" if len(journals) == 1 else f"{len(journals)} journals keep"
    click.echo(f"sound: {count} lines of {what} the laws")
    return OK


def _journals(journal: str) -> list[list[Line]]:
    import msgspec

    from poise.cli.common import read_bytes
    from poise.errors import Fault, InvalidSpec
    from poise.model.ownership import Line

    if journal.startswith(("sqlite:", "postgresql:", "postgres:")):
        return _of_store(journal)
    try:
        lines = msgspec.json.decode(read_bytes(journal), type=list[Line])
    except msgspec.DecodeError as error:
        raise InvalidSpec(Fault("", f"is no journal: {error}", journal)) from None
    by_set: dict[str, list[Line]] = {}
    for line in lines:
        by_set.setdefault(line.set, []).append(line)
    return list(by_set.values())


def _of_store(url: str) -> list[list[Line]]:
    from poise.stores.open import open_store
    from poise.stores.reading import read_journal

    store = open_store(url, make=False)
    try:
        return [list(read_journal(store, name)) for name in store.sets()]
    finally:
        store.close()
