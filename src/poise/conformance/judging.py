"""Each rule judged by what was seen of an act: a story in, findings out. Pure.

A rule is kept only where it could have been broken; elsewhere nothing is said. Times are those at which requests came
to the gate, which is never before they were sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from poise.conformance.judging_handover import HANDOVER_LAWS
from poise.conformance.requests import CONFIG_MAPS, SECRETS, Asked, Intent
from poise.conformance.rules import Finding, failed, passed
from poise.conformance.story import Life, Story
from poise.model.sharding import RELEASED_ANNOTATION, RING_LABEL, is_process_of, read_marks

Law = Callable[[Story], Iterator[Finding]]


def judge(story: Story) -> list[Finding]:
    """Judge every rule."""
    return [finding for law in (*LAWS, *HANDOVER_LAWS) for finding in law(story)]


def unique_holder(story: Story) -> Iterator[Finding]:
    """Each process has a holder of its own, `<instance>_<id>`."""
    holders: dict[str, set[str]] = {}
    for process, _, _ in story.acquired():
        for holder in {asked.holder or "" for asked in story.leases(process)}:
            holders.setdefault(holder, set()).add(process)
            if not is_process_of(holder, story.instance):
                yield failed(
                    "unique-holder", f"the holder is {holder!r}, expected {story.instance}_<id>, no _ in the id"
                )
    for holder, processes in holders.items():
        if len(processes) > 1:
            yield failed("unique-holder", f"{' and '.join(sorted(processes))} both hold as {holder}")
    if len(holders) > 1:
        yield passed("unique-holder")


def lease_upkeep(story: Story) -> Iterator[Finding]:
    """The Lease says what it must, and is renewed within D as long as nothing hinders it."""
    for life in story.lives:
        writes = [asked for asked in story.leases(life.process) if life.until_s is None or asked.at_s <= life.until_s]
        if not writes:
            continue
        yield from (failed("lease-upkeep", told) for told in dict.fromkeys(_wrongs(story, writes)))
        end_s = writes[-1].at_s if life.until_s is None else life.until_s
        for before_s, after_s in pairwise([*(asked.at_s for asked in writes), end_s]):
            if after_s - before_s > story.lease_s:
                late = f"not renewed for {after_s - before_s:.1f} s of {story.lease_s:.0f}"
                yield failed("lease-upkeep", f"{late}, {story.when(before_s)}")
        if end_s - writes[0].at_s >= 2 * story.lease_s:
            yield passed("lease-upkeep", f"{len(writes)} writes in {end_s - writes[0].at_s:.1f} s")


def _wrongs(story: Story, writes: list[Asked]) -> Iterator[str]:
    """Say what a Lease should say and does not."""
    versions = set()
    for asked in writes:
        assert asked.answer is not None, "a holder was read from it"
        meta, spec = asked.answer.metadata, asked.answer.spec
        if meta.name != story.instance:
            yield f"the Lease is named {meta.name}, expected {story.instance}"
        if meta.labels.get(RING_LABEL) != story.ring:
            yield f"the label {RING_LABEL} is {meta.labels.get(RING_LABEL)!r}, expected {story.ring!r}"
        if spec.lease_duration_seconds != round(story.lease_s):
            yield f"leaseDurationSeconds is {spec.lease_duration_seconds}, the ring says {story.lease_s:.0f}"
        if meta.resource_version in versions:
            yield f"a renewal {story.when(asked.at_s)} changed nothing: renewTime must differ each time"
        versions.add(meta.resource_version)


def act_as_holder(story: Story) -> Iterator[Finding]:
    """Nothing is written before the Lease is held."""
    taken_s = {process: at_s for process, _, at_s in story.acquired()}
    early = [asked for asked in story.asked if asked.is_write and asked.at_s < taken_s.get(asked.process, float("inf"))]
    for asked in early[:3]:
        yield failed("act-as-holder", f"{asked} {story.when(asked.at_s)}, before the Lease was held")
    if story.inherited and taken_s and not early:
        yield passed("act-as-holder")


def list_after_acquiring(story: Story) -> Iterator[Finding]:
    """Between the Lease and the first write stands a list of what is true now."""
    for process, _, taken_s in story.acquired():
        mine = [asked for asked in story.of(process) if asked.at_s >= taken_s]
        first = next((asked for asked in mine if asked.is_write), None)
        if first is None:
            continue
        lists = (asked for asked in mine if asked.is_fresh_list and asked.succeeded and asked.answered_s is not None)
        if any((asked.answered_s or 0.0) <= first.at_s for asked in lists):
            yield passed("list-after-acquiring")
        else:
            what = "no list of secrets with no resourceVersion"
            yield failed("list-after-acquiring", f"{what} between the Lease and {first} {story.when(first.at_s)}")


def fence_inherited(story: Story) -> Iterator[Finding]:
    """What was there when a process came after a sharder's hold is raised before its first reconcile."""
    for gain in story.inherited:
        for process, _, taken_s in story.acquired():
            # One that was refused did nothing; of some bodies it cannot even be told what it was for.
            acts = [
                asked
                for asked in story.reconciles(gain.root)
                if asked.process == process and asked.at_s >= taken_s and asked.succeeded
            ]
            if not acts:
                continue
            if any(
                _raised(story, asked, gain.root) > gain.epoch for asked in story.of(process) if _before(asked, acts[0])
            ):
                yield passed("fence-inherited")
            else:
                told = f"{acts[0]} {story.when(acts[0].at_s)} while {gain.root} was still at epoch {gain.epoch}"
                yield failed("fence-inherited", told)


def _before(asked: Asked, other: Asked) -> bool:
    return asked.answered_s is not None and asked.answered_s <= other.at_s


def _raised(story: Story, asked: Asked, root: str) -> int:
    """Give the epoch of a Secret after a write that succeeded; 0 for any other request."""
    here = asked.place is not None and (asked.place.plural, asked.place.name) == (SECRETS, root)
    if not here or not asked.succeeded or asked.answer is None or asked.intent is Intent.LOOK:
        return 0
    return read_marks(asked.answer.metadata.labels, story.ring).epoch or 0


def confirm_gains(story: Story) -> Iterator[Finding]:
    """A renewal that was sent since the object was given stands before the first write for it."""
    for gain in story.gains:
        acts = [asked for asked in story.reconciles(gain.root) if asked.at_s >= gain.at_s]
        if not acts:
            continue
        renewals = (asked for asked in story.leases(acts[0].process) if asked.at_s >= gain.at_s)
        if any(_before(asked, acts[0]) for asked in renewals):
            yield passed("confirm-gains")
        else:
            after_s = acts[0].at_s - gain.at_s
            yield failed("confirm-gains", f"{acts[0]} {after_s:.2f} s after it was given, with no renewal in between")


def only_own_objects(story: Story) -> Iterator[Finding]:
    """Nothing is written for what others have, nobody has, or was given away."""
    wrong = [*_strays(story), *_given_away(story)]
    yield from (failed("only-own-objects", told) for told in wrong[:5])
    if story.strays and story.gains and not wrong:
        yield passed("only-own-objects")


def _strays(story: Story) -> Iterator[str]:
    for asked in story.asked:
        others = [root for root in asked.roots if root in story.strays or root not in story.names]
        if asked.is_write and others:
            yield f"{asked} {story.when(asked.at_s)} for {others[0]}, which it does not have"
        elsewhere = asked.place is not None and asked.place.namespace != story.namespace
        if elsewhere and asked.intent is Intent.ASIDE and asked.place and asked.place.plural in (SECRETS, CONFIG_MAPS):
            yield f"{asked} {story.when(asked.at_s)}: an object that nobody gave to it"


def _given_away(story: Story) -> Iterator[str]:
    for drain in story.drains:
        ends = [asked.answered_s for asked in story.hand_overs(drain.root, SECRETS) if asked.succeeded]
        for asked in story.reconciles(drain.root):
            if ends and ends[0] is not None and asked.at_s > ends[0]:
                yield f"{asked} {story.when(asked.at_s)}, after {drain.root} was handed over {story.when(ends[0])}"


def no_write_after_loss(story: Story) -> Iterator[Finding]:
    """Who is cut off from its Lease writes nothing more once D has passed since its last renewal came."""
    for life in story.lives:
        if life.ending != "cut off":
            continue
        last_s = max(asked.at_s for asked in story.leases(life.process))
        late = [asked for asked in story.of(life.process) if asked.is_write and asked.at_s > last_s + story.lease_s]
        for asked in late[:3]:
            told = f"{asked} {asked.at_s - last_s:.1f} s after the last renewal that succeeded"
            yield failed("no-write-after-loss", f"{told}; the Lease lasts {story.lease_s:.0f} s")
        if not late:
            yield passed("no-write-after-loss")
        yield from _late_renewals(story, life)


def _late_renewals(story: Story, life: Life) -> Iterator[Finding]:
    """A renewal that arrives after a sharder took the Lease is refused, by its version."""
    held = [asked for asked in story.of(life.process) if asked.held and asked.intent is Intent.LEASE]
    for asked in held:
        if asked.succeeded:
            told = "a renewal that was held up took the Lease back from the sharder that held it"
            yield failed("lease-with-version", f"{told}: {asked}, sent {story.when(asked.at_s)}")
    if held and not any(asked.succeeded for asked in held):
        yield passed("lease-with-version")


def release_on_exit(story: Story) -> Iterator[Finding]:
    """Running work ends, then the Lease is emptied with a reason, and nothing is written after it."""
    for life in story.lives:
        if life.ending != "asked to leave":
            continue
        mine = story.of(life.process)
        releases = [asked for asked in mine if asked.holder == ""]
        if not releases:
            yield failed("release-on-exit", "the holder of the Lease was not emptied after SIGTERM")
            continue
        wrong = list(_release_wrongs(story, mine, releases[0]))
        yield from (failed("release-on-exit", told) for told in wrong)
        if not wrong:
            yield passed("release-on-exit")


def _release_wrongs(story: Story, mine: list[Asked], release: Asked) -> Iterator[str]:
    assert release.answer is not None, "a holder was read from it"
    if release.answer.metadata.annotations.get(RELEASED_ANNOTATION) not in ("stop", "restart"):
        yield f"the annotation {RELEASED_ANNOTATION} of the released Lease says neither stop nor restart"
    for asked in mine:
        if asked.held and asked.intent is Intent.ACT and (asked.answered_s is None or asked.answered_s > release.at_s):
            yield f"released {story.when(release.at_s)}, while {asked} of {story.when(asked.at_s)} was under way"
        if asked.is_write and asked.at_s > release.at_s:
            yield f"{asked} {story.when(asked.at_s)}, after the Lease was released {story.when(release.at_s)}"


LAWS: tuple[Law, ...] = (
    unique_holder,
    lease_upkeep,
    act_as_holder,
    list_after_acquiring,
    fence_inherited,
    confirm_gains,
    only_own_objects,
    no_write_after_loss,
    release_on_exit,
)
