"""What the status of a ring shows: conditions that say what is the case and why, and counts, never an object. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from poise.jobs.sharder.orders import DRAINED_ANNOTATION, PAUSED_ANNOTATION
from poise.jobs.sharder.report import InstanceSeen, RingReport
from poise.kube.crds.status import Condition, ShownRing, Terms, put_condition, terms_of
from poise.model.shard_ring import Instance, ShardRingSpec, ShardRingStatus
from poise.observe.leases import Health

MESSAGE_MAX = 2_000
NAMED_MAX = 5
_STEADY_S = 2.0  # The wall clock and the own one differ by less than this between two looks.
BRAKE_ANNOTATION = "poise.dev/brake-released"
_STUCK = "the ring is being removed, which needs this: mend it, or name in its spec only what there is"
_STOPPED = "the brake holds the removal up"


class Refusal(msgspec.Struct, frozen=True):
    """Why a ring is not run, or not by its newest document."""

    reason: str
    message: str


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """One ring as the operator sees it now; `report` is None where no sharder runs for it.

    `spec` is of the document that the sharder goes by, which need not be the newest.
    `troubles` of the whole operator, by the condition that shows each of them.
    """

    generation: int
    report: RingReport | None = None
    spec: ShardRingSpec | None = None
    refusal: Refusal | None = None
    removing: bool = False
    troubles: Mapping[str, str] = {}

    @property
    def is_starting(self) -> bool:
        """Say whether nothing can be said yet."""
        return self.refusal is None and (self.report is None or not (self.report.synced or self.report.faults))


class Verdict(msgspec.Struct, frozen=True):
    """One condition without its time."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


class Known(msgspec.Struct, frozen=True, rename="camel"):
    """What an earlier status says that the next one goes on from."""

    conditions: list[Condition] = []
    oldest_drain_since: datetime | None = None
    observed_generation: int | None = None
    terms: Terms | None = None

    def shows(self, generation: int) -> bool:
        """Say whether it is about this generation of the ring, and says something."""
        return self.observed_generation == generation and len(self.conditions) >= len(JUDGES)


def read_known(status: bytes | msgspec.Raw) -> Known:
    """Read an earlier status; one that somebody spoilt counts as none."""
    try:
        return msgspec.json.decode(status or b"{}", type=Known)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Known()


def status_of(looked: Looked, known: Known, now: datetime) -> dict[str, object]:
    """Write the whole status as the API server keeps it; equal looks give equal texts, whenever they are taken."""
    shown, model = shown_ring(looked, known, now), ring_status(looked.report)
    fields = {name: value for name, value in _plain(shown).items() if value is not None}
    # A state that is usual is said like any other: people read this.
    instances = [{"name": each.name, "state": each.state, "tokens": each.tokens} for each in model.instances]
    return fields | ({"instances": instances} if instances else {})


def shown_ring(looked: Looked, known: Known, now: datetime) -> ShownRing:
    """Make what every tool of Kubernetes shows of a ring."""
    at = now.replace(microsecond=0)
    verdicts = {kind: judge(looked) for kind, judge in JUDGES.items()} | asked_verdicts(looked.report)
    verdicts |= {kind: Verdict("False", "Trouble", told) for kind, told in looked.troubles.items()}
    conditions: list[Condition] = [each for each in known.conditions if each.type in verdicts]
    for kind, verdict in verdicts.items():
        new = Condition(
            type=kind,
            status=verdict.status,
            reason=verdict.reason,
            message=clipped(verdict.message),
            last_transition_time=at,
            observed_generation=looked.generation,
        )
        conditions = put_condition(conditions, new)
    report = looked.report
    # Instances that start go by what was taken last, also while nothing runs for the ring.
    terms = known.terms if looked.spec is None else terms_of(looked.spec)
    if report is None:
        return ShownRing(observed_generation=looked.generation, conditions=conditions, terms=terms)
    return ShownRing(
        observed_generation=looked.generation,
        conditions=conditions,
        terms=terms,
        summary=summary(report),
        objects={each.name: each.objects for each in report.instances},
        ready=len(ready_instances(report)),
        drains_pending=report.drains,
        oldest_drain_since=_since(report.oldest_drain_s, known.oldest_drain_since, at),
        unassigned=report.unassigned,
    )


def ring_status(report: RingReport | None) -> ShardRingStatus:
    """Make what the document itself knows of instances; who has which object stands in the labels."""
    seen = () if report is None else report.instances
    return ShardRingStatus([Instance(each.name, each.state.value, each.tokens) for each in seen])


def summary(report: RingReport) -> str:
    """Say in one line how a ring stands."""
    ready, objects = len(ready_instances(report)), report.roots + report.children
    parts = [f"{ready} of {_count(len(report.instances), 'instance')} ready", _count(objects, "object")]
    parts += [f"{report.unassigned} unassigned"] if report.unassigned else []
    parts += [f"{report.waiting} without their owner"] if report.waiting else []
    parts += [f"{report.drains} draining"] if report.drains else []
    parts += ["paused"] if report.paused else []
    return ", ".join(parts)


def _ready(looked: Looked) -> Verdict:
    """Judge whether the sharder does its work."""
    if looked.refusal is not None:
        return Verdict("False", looked.refusal.reason, looked.refusal.message)
    report = looked.report
    if report is not None and report.faults:
        told = "; ".join(report.faults)
        return Verdict("False", "ResourceFault", f"{told} ({_STUCK})" if looked.removing else told)
    if report is None or not report.synced:
        return Verdict("Unknown", "Starting", "the objects and the Leases are being listed")
    if looked.removing:
        held_up = f"; {_STOPPED}: {brake_message(report.vanished)}" if report.vanished else ""
        return Verdict("False", "Removing", f"the ring is being removed; {_held(report)} still to be let go{held_up}")
    if report.vanished:
        return _braked(looked, report)
    if not ready_instances(report):
        return Verdict(
            "False", "NoInstances", f"no instance is ready; {_count(report.unassigned, 'object')} unassigned"
        )
    return Verdict("True", "Sharding", summary(report))


def _balanced(looked: Looked) -> Verdict:
    """Judge whether every object is where the ring wants it."""
    report = looked.report
    if report is None or not report.synced:
        return _unknown(looked)
    if report.vanished:
        return _braked(looked, report)
    if report.unassigned:
        return Verdict("False", "Unassigned", f"{_count(report.unassigned, 'object')} without an instance")
    if report.overdue:
        return Verdict("False", "DrainOverdue", _overdue(report))
    if report.drains or report.delayed or report.in_flight:
        return Verdict("False", "Moving", _moving(report))
    if report.withheld:
        return Verdict("False", "Paused", _withheld(report))
    if lost := _lost(report):
        return Verdict("False", "InstancesLost", f"objects are with instances that are not ready: {names(lost)}")
    if report.waiting:
        return Verdict("False", "OwnerUnseen", f"{_count(report.waiting, 'object')} whose owner is not there")
    if full := [each.name for each in drained_instances(report) if each.objects]:
        alone = all(each.drained for each in ready_instances(report))
        told = "nobody can take the objects of these, which are drained" if alone else "drained, and not empty yet"
        return Verdict("False", "Draining", f"{told}: {names(full)}")
    return Verdict("True", "Settled", "every object is where the ring wants it")


def _progressing(looked: Looked) -> Verdict:
    """Judge whether something is under way; overdue drains are told first, since nothing but people ends them."""
    report = looked.report
    if report is None or not report.synced:
        return _unknown(looked)
    if report.vanished:
        return _braked(looked, report)
    if report.overdue:
        return Verdict("False", "DrainOverdue", _overdue(report))
    if looked.removing:
        return Verdict("True", "Removing", f"{_held(report)} still to be let go")
    if report.drains or report.delayed or report.in_flight:
        return Verdict("True", "Moving", _moving(report))
    if report.unassigned and ready_instances(report) and report.paused != "all":
        return Verdict("True", "Assigning", f"{_count(report.unassigned, 'object')} to be given to an instance")
    if report.withheld:
        return Verdict("False", "Paused", _withheld(report))
    if report.unassigned:
        return Verdict("False", "NoInstances", f"no instance is ready for {_count(report.unassigned, 'object')}")
    if lost := _lost(report):
        return Verdict("True", "Waiting", f"waits until the Leases of these have run out: {names(lost)}")
    return Verdict("False", "Settled", "nothing is to be done")


JUDGES = {"Ready": _ready, "Balanced": _balanced, "Progressing": _progressing}


def asked_verdicts(report: RingReport | None) -> dict[str, Verdict]:
    """Judge what people asked for by annotations: shown as long as they ask for it, so that they see it is obeyed."""
    verdicts: dict[str, Verdict] = {}
    if report is None or not report.synced:
        return verdicts
    if report.paused:
        verdicts["Paused"] = Verdict(
            "True", "AllPaused" if report.paused == "all" else "MovesPaused", _withheld(report)
        )
    if drained := drained_instances(report):
        still = [each for each in drained if each.objects]
        told = ", ".join(f"{each.name} ({each.objects})" for each in sorted(drained, key=lambda each: -each.objects))
        message = f"drained by the annotation {DRAINED_ANNOTATION}, with the objects that each still has: {told}"
        verdicts["Drained"] = Verdict("False" if still else "True", "Draining" if still else "Empty", message)
    return verdicts


def _unknown(looked: Looked) -> Verdict:
    """Say why nothing can be said."""
    ready = _ready(looked)
    return Verdict("Unknown", ready.reason, ready.message)


def _braked(looked: Looked, report: RingReport) -> Verdict:
    """Say that the brake holds, and what waits for it."""
    told = brake_message(report.vanished)
    return Verdict("False", "Braked", f"{_STOPPED}: {told}" if looked.removing else told)


def brake_message(vanished: Iterable[str]) -> str:
    """Say what the brake does, and how it is opened."""
    told = f"these vanished at once: {names(vanished)}; nothing is moved until they return"
    return f"{told}, or until the annotation {BRAKE_ANNOTATION} of this ring is changed"


def ready_instances(report: RingReport) -> list[InstanceSeen]:
    """Choose those that may be given objects."""
    return [each for each in report.instances if each.state is Health.READY]


def drained_instances(report: RingReport) -> list[InstanceSeen]:
    """Choose those that are to hold nothing."""
    return [each for each in report.instances if each.drained]


def _withheld(report: RingReport) -> str:
    what = "nothing moves, and nothing is recovered" if report.paused == "all" else "nothing moves that is well"
    waits = f"; {_count(report.withheld, 'object')} would move" if report.withheld else ""
    return f"paused by the annotation {PAUSED_ANNOTATION}: {what}{waits}"


def _lost(report: RingReport) -> list[str]:
    return [each.name for each in report.instances if each.state is not Health.READY and each.objects]


def _held(report: RingReport) -> str:
    return _count(sum(each.objects for each in report.instances), "object")


def _overdue(report: RingReport) -> str:
    waiting = f"{_count(report.overdue, 'object')} not handed over within drainTimeoutSeconds"
    return f"{waiting}; onDrainTimeout says what happens to them"


def _moving(report: RingReport) -> str:
    told = f"{_count(report.drains, 'object')} being handed over"
    return told + (f", {report.delayed} more wait for movesInFlightMax" if report.delayed else "")


def names(some: Iterable[str]) -> str:
    """List the first names, and how many more there are."""
    listed = sorted(some)
    more = len(listed) - NAMED_MAX
    return ", ".join(listed[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def clipped(message: str) -> str:
    """Keep a message printable, on one line and of a size that people read."""
    plain = "".join(sign if sign.isprintable() else " " for sign in message)
    return plain if len(plain) <= MESSAGE_MAX else plain[: MESSAGE_MAX - 1] + "…"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _since(age_s: float | None, known: datetime | None, now: datetime) -> datetime | None:
    """Say since when the oldest drain lasts; what is known already is kept, so that nothing is written for it."""
    if age_s is None:
        return None
    since = (now - timedelta(seconds=age_s)).replace(microsecond=0)
    same = known is not None and abs((since - known).total_seconds()) <= _STEADY_S
    return known if same else since


def _plain(shown: ShownRing) -> dict[str, object]:
    return msgspec.json.decode(msgspec.json.encode(shown), type=dict[str, object])
