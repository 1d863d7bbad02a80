"""A preview: what a wish would lead to, drawn and planned before anything is done, and the commands that do it."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime

import msgspec

from poise.documents import dump, write_yaml
from poise.jobs.entries import CapacityEntry, DivisionEntry, ItemsEntry, Planned
from poise.jobs.what_if import WhatIf
from poise.model import Document
from poise.serve.facade import JobsApi
from poise.serve.page.changes import Change, Obstacle, change_of
from poise.serve.page.commands import apply_command, doing_commands, plan_command
from poise.serve.page.looking import look
from poise.serve.page.pictures.seen import Look
from poise.serve.page.rendering import brief
from poise.serve.page.what_if import Wish
from poise.serve.page.words import MEMBERS
from poise.serve.shown import hold_back

_PARTS_MAX = 12  # Each part that can be taken out repeats the whole query: a few keep the page small.
_SHOWN_MAX = 20_000  # A longer document is not printed into the page: people have it in a file.
_FAULT = re.compile(r"\$\.(?P<field>\w+)(?:\[(?:\d+|'(?P<name>[^']*)')\])?: (?P<why>.*)")
_NODE = re.compile(r"\bnode(?= of that name| already$)")
_GONE = ("gone", "dead", "orphaned")


class Part(msgspec.Struct, frozen=True):
    """One part of a wish in words, and the query without it."""

    text: str
    without: str


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for, whether it can be applied here, and the marks that an apply must carry."""

    title: str
    verb: str
    parts: list[Part]
    plan: str
    commands: list[str]
    obstacles: tuple[Obstacle, ...]
    refused: list[str]
    revision: int
    digest: str
    change: Change

    @property
    def applies(self) -> bool:
        """Tell whether the page may offer to do it."""
        return not self.refused and not self.obstacles


def imagine_job(api: JobsApi, kind: str, name: str, wish: Wish, now: datetime) -> Look:
    """Look at a job as a wish would have it."""
    seen = look(api, kind, name, wish.what_if, now)
    if seen.planned is None:
        return seen
    if wish.pause:
        alive = {each.name for each in seen.members if each.state not in _GONE}
        return msgspec.structs.replace(seen, planned=hold_back(seen.planned, alive))
    return msgspec.structs.replace(seen, planned=_let_go(seen.planned)) if wish.resume else seen


def _let_go(planned: Planned) -> Planned:
    """Take the pause out of a plan."""
    entry = planned.entry
    if isinstance(entry, ItemsEntry):
        moves = [
            msgspec.structs.replace(move, waits=None) if move.waits and move.waits.code == "pause" else move
            for move in entry.moves
        ]
        return msgspec.structs.replace(planned, entry=msgspec.structs.replace(entry, moves=moves))
    if isinstance(entry, CapacityEntry):
        workloads = {
            name: msgspec.structs.replace(each, waits=None) if each.waits and each.waits.code == "pause" else each
            for name, each in entry.workloads.items()
        }
        return msgspec.structs.replace(planned, entry=msgspec.structs.replace(entry, workloads=workloads))
    return planned


def preview(seen: Look, wish: Wish, server: str) -> Preview:
    """Say what a wish would lead to; `seen` is the job as the wish would have it."""
    job = f"{seen.kind}/{seen.name}"
    refused = _refusals(seen, wish)
    change = Change() if refused else change_of(seen.stored.document, wish, server)
    commands = [] if refused else doing_commands(job, msgspec.structs.replace(wish, drain=change.drain), server)
    if change.document is not None:
        commands.append(_written(change.document, server))
    parts = _parts(wish)
    return Preview(
        title=f"What if {_joined(_few([part.text for part in parts]))}?",
        verb=_verb(wish),
        parts=parts[:_PARTS_MAX],
        plan=plan_command(job, wish, server) if wish.what_if else "",
        commands=commands,
        obstacles=change.obstacles,
        refused=refused,
        revision=seen.stored.revision,
        digest=digest_of(seen),
        change=change,
    )


def _written(document: Document, server: str) -> str:
    text = write_yaml(dump(document))
    if len(text) <= _SHOWN_MAX:
        return apply_command(text, server)
    return f"poise apply {document.metadata.name}.yaml --server {server}   # after the change in your file"


def _refusals(seen: Look, wish: Wish) -> list[str]:
    """Say why a wish makes no sense for the job as it is."""
    found = [_in_words(line, MEMBERS[seen.kind]) for line in seen.refused.splitlines()] if wish.what_if else []
    states = {each.name: each for each in seen.members}
    found += [
        f"drain {name}: it is draining already" for name in wish.drain if name in states and states[name].draining
    ]
    if wish.pause and wish.resume:
        found.append("pause and resume exclude each other")
    elif wish.pause == "moves" and seen.summary.paused:
        found.append("the job is paused already")
    elif wish.resume and not seen.summary.paused and not any("brake" in each for each in seen.summary.problems):
        found.append("the job is not paused")
    if msgspec.structs.replace(wish, undrain=()).what_if and (wish.undrain or wish.pause or wish.resume):
        found.append("undrain, pause and resume are done on their own: take the other parts out first")
    return found


def _in_words(fault: str, noun: str) -> str:
    """Say a fault without the path of programs: `$.drain['w1']: w1 is gone` is about the drain of w1.

    A planner calls every member of a set a node; the page calls it what the rest of the page does.
    """
    found = _FAULT.fullmatch(fault)
    if not found:
        return fault
    why = _NODE.sub(noun, found["why"])
    return f"{found['field']} {found['name'] or ''}".rstrip() + f": {why}"


def _parts(wish: Wish) -> list[Part]:
    words = {"drain": "{} is drained", "undrain": "{} takes part again", "add": "{} joins", "remove": "{} is gone"}
    parts = [
        Part(form.format(brief(name)), wish.without(key, name))
        for key, form in words.items()
        for name in getattr(wish, key)
    ]
    for key, form in (("weight", "{} weighs {}"), ("replicas", "{} has {} replicas")):
        found: dict[str, int] = getattr(wish, key)
        parts += [
            Part(form.format(brief(name), number), wish.without(key, f"{name}:{number}"))
            for name, number in found.items()
        ]
    if wish.pause:
        text = "moves are paused" + (", and recovery too" if wish.pause == "all" else "")
        parts.append(Part(text, wish.without("pause", wish.pause)))
    return [*parts, Part("moves go on", wish.without("resume", "yes"))] if wish.resume else parts


def _few(words: list[str]) -> list[str]:
    more = len(words) - _PARTS_MAX
    return words if more <= 0 else [*words[:_PARTS_MAX], f"{more} more"]


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _verb(wish: Wish) -> str:
    """Name what an apply does; the button says it."""
    keys = {key for key, _ in wish.pairs()}
    return keys.pop() if len(keys) == 1 and keys <= {"drain", "undrain", "pause", "resume"} else "change"


def digest_of(seen: Look) -> str:
    """Mark what was seen: the document, who is there in which state, and where everything would end.

    Hand-overs that go on as planned do not change it, since where they end stays the same.
    """
    members = [(each.name, each.state, each.draining, each.weight) for each in seen.members]
    facts = [seen.stored.revision, seen.summary.paused, members, seen.refused, _ends(seen.planned, seen.what_if)]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:32]


def _ends(planned: Planned | None, what_if: WhatIf | None) -> object:
    entry = None if planned is None else planned.entry
    if isinstance(entry, ItemsEntry):
        return sorted((item, holder or "") for item, holder in entry.assignment.items())
    if isinstance(entry, DivisionEntry):
        return sorted((name, dict(each.replicas)) for name, each in entry.divisions.items())
    return _split_ends(entry, what_if or WhatIf()) if isinstance(entry, CapacityEntry) else None


def _split_ends(entry: CapacityEntry, what_if: WhatIf) -> object:
    """Say where a split would end: workloads that a wish names with their next action, since others act all the time.

    A wish that names only workloads is about them alone; any other is about what is wanted of all.
    """
    named = what_if.replicas
    alone = what_if == WhatIf(replicas=named) and bool(named)
    return sorted(
        (name, each.action if name in named else "", msgspec.to_builtins(each.desired))
        for name, each in entry.workloads.items()
        if name in named or not alone
    )
