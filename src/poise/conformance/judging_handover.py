"""The rules of the hand-over, judged by what was seen of an act: a story in, findings out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from poise.conformance.requests import CONFIG_MAPS, SECRETS, Asked, Intent
from poise.conformance.rules import Finding, failed, passed
from poise.conformance.story import Drain, Story, Version
from poise.model.sharding import Marks


def stop_when_drained(story: Story) -> Iterator[Finding]:
    """From the first word of a hand-over to its commit, no reconcile writes."""
    for drain in story.drains:
        begun = story.hand_overs(drain.root)
        if not begun:
            continue
        ends = [asked.answered_s or 0.0 for asked in story.hand_overs(drain.root, SECRETS) if asked.succeeded]
        end_s = ends[0] if ends else float("inf")
        acts = [asked for asked in story.reconciles(drain.root) if begun[0].at_s < asked.at_s <= end_s]
        for asked in acts[:3]:
            told = f"{asked} {story.when(asked.at_s)}, while the hand-over of {drain.root} was under way"
            yield failed("stop-when-drained", f"{told} since {story.when(begun[0].at_s)}")
        if drain.redirected and not acts:
            yield passed("stop-when-drained")


def handover_after_reconcile(story: Story) -> Iterator[Finding]:
    """While a write of a reconcile is under way, nothing of its family is handed over."""
    for drain in story.drains:
        for held in story.reconciles(drain.root):
            if not held.held or held.at_s > drain.at_s or (held.answered_s or float("inf")) < drain.at_s:
                continue
            end_s = float("inf") if held.answered_s is None else held.answered_s
            early = [asked for asked in story.hand_overs(drain.root) if drain.at_s <= asked.at_s < end_s]
            for asked in early[:3]:
                told = f"{asked} handed over {story.when(asked.at_s)}, while {held} of {story.when(held.at_s)} ran"
                yield failed("handover-after-reconcile", told)
            if not early and held.answered_s is not None and story.hand_overs(drain.root):
                yield passed("handover-after-reconcile")


def children_before_root(story: Story) -> Iterator[Finding]:
    """Each child has its next owner before the root is committed, and its answer before that is sent."""
    for drain in story.drains:
        commit = _commit(story, drain)
        if commit is None or not drain.children:
            continue
        wrong = [*_sent_early(story, drain), *_left_behind(story, drain, commit)]
        yield from (failed("children-before-root", told) for told in wrong)
        if not wrong:
            long_form = "the root alone was let go: its children are left to the sharder"
            yield passed("children-before-root", "" if commit.marks.shard else long_form)


def _commit(story: Story, drain: Drain) -> Version | None:
    """Find the version by which the shard itself gave a root away."""
    return next(
        (
            after
            for before, after in pairwise(story.history(SECRETS, drain.root))
            if not after.own and before.marks.shard == story.instance != after.marks.shard
        ),
        None,
    )


def _sent_early(story: Story, drain: Drain) -> Iterator[str]:
    for root in story.hand_overs(drain.root, SECRETS):
        for child in story.hand_overs(drain.root, CONFIG_MAPS):
            if child.at_s < root.at_s < (child.answered_s or float("inf")):
                yield f"{root} {story.when(root.at_s)}, while {child} of {story.when(child.at_s)} was not answered"


def _left_behind(story: Story, drain: Drain, commit: Version) -> Iterator[str]:
    """Name the children that still had their old owner when the root was committed to the next one."""
    if commit.marks.shard is None:
        return
    for child in drain.children:
        before = [each for each in story.history(CONFIG_MAPS, child) if each.number < commit.number]
        if before and before[-1].marks.shard == story.instance:
            yield f"the root {drain.root} was committed before its child {child} was handed over"


def handover_form(story: Story) -> Iterator[Finding]:
    """Labels change only as the contract allows, in one write each."""
    for before, after in _changes(story):
        if before.marks.drain == "":
            continue
        if not _is_allowed(story, before, after):
            told = f"{after.plural} {after.name} went from {_shown(before.marks)} to {_shown(after.marks)}"
            yield failed("handover-form", f"{told} {story.when(after.seen_s)}")
        elif before.marks.drain is not None:
            yield passed("handover-form", "" if after.marks.shard else "the long form")


def empty_drain(story: Story) -> Iterator[Finding]:
    """To nobody: shard and drain go together, the epoch stays."""
    for before, after in _changes(story):
        if before.marks.drain != "":
            continue
        if after.marks == Marks(epoch=before.marks.epoch):
            yield passed("empty-drain")
        else:
            told = f"{after.name} went from {_shown(before.marks)} to {_shown(after.marks)}"
            yield failed("empty-drain", f"{told} {story.when(after.seen_s)}")


def _changes(story: Story) -> Iterator[tuple[Version, Version]]:
    """Give the versions by which the shard changed labels of the ring, each with the one before."""
    names = dict.fromkeys((each.plural, each.name) for each in story.versions if each.plural in (SECRETS, CONFIG_MAPS))
    for plural, name in names:
        for before, after in pairwise(story.history(plural, name)):
            if not after.own and after.uid == before.uid and after.marks != before.marks:
                yield before, after


def _is_allowed(story: Story, before: Version, after: Version) -> bool:
    """Say whether an instance may change these labels so."""
    old, new = before.marks, after.marks
    if old.shard != story.instance:
        return False
    if old.drain is None:
        raised = new == Marks(old.shard, old.next_epoch)
        return raised or (after.plural == CONFIG_MAPS and bool(new.shard) and new == Marks(new.shard, old.next_epoch))
    # A write that was decided on before the drain was redirected is judged by its version alone.
    targets = {old.drain, *(each.target for each in story.drains if each.redirected and each.root == after.name)}
    return new == Marks(epoch=old.epoch) or new in [Marks(target, old.next_epoch) for target in targets]


def _shown(marks: Marks) -> str:
    names = (("shard", marks.shard), ("epoch", marks.epoch), ("drain", marks.drain))
    said = " ".join(f"{name}={value}" for name, value in names if value is not None)
    return said or "no labels"


def handover_with_version(story: Story) -> Iterator[Finding]:
    """A hand-over that comes after somebody else's write is refused."""
    for drain in story.drains:
        held = [asked for asked in story.hand_overs(drain.root, SECRETS) if asked.held and drain.redirected]
        for asked in held:
            if asked.succeeded:
                told = f"{asked} was accepted though {drain.root} had been given another target meanwhile"
                yield failed("handover-with-version", f"{told}, {story.when(asked.at_s)}")
            elif _was_refused(asked):
                yield passed("handover-with-version")


def _was_refused(asked: Asked) -> bool:
    return asked.intent is Intent.HAND_OVER and asked.status is not None and 400 <= asked.status < 500


HANDOVER_LAWS: tuple[Callable[[Story], Iterator[Finding]], ...] = (
    stop_when_drained,
    handover_after_reconcile,
    children_before_root,
    handover_form,
    empty_drain,
    handover_with_version,
)
