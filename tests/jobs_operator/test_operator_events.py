"""Events for instances: what is told, what is not, and that there are never many of them."""

from __future__ import annotations

from msgspec.structs import replace
from tests.jobs_operator.ring_reports import CALM, seen

from poise.jobs.sharder.happenings import Entry, Happening, Ledger, happenings
from poise.jobs.sharder.recording import event_body, event_name
from poise.jobs.sharder.report import RingReport
from poise.kube import ObjectRef
from poise.kube.objects import Meta
from poise.kube.resources import EVENTS
from poise.observe.leases import Health

AT = "2026-11-16T10:00:00Z"
RING = Meta("web", "team", "uid-1")


def told(before: RingReport | None, after: RingReport) -> list[tuple[str, str]]:
    return [(each.reason, each.about) for each in happenings(before, after)]


def with_state(state: Health, note: str = "") -> RingReport:
    return replace(CALM, instances=(seen("web-0"), seen("web-1", state, note=note)))


def test_what_is_found_at_the_start_did_not_happen_now() -> None:
    assert told(None, CALM) == []
    assert told(RingReport(), CALM) == []
    assert told(CALM, RingReport()) == []


def test_an_instance_comes_expires_dies_and_returns() -> None:
    alone = replace(CALM, instances=(seen("web-0"),))
    assert told(alone, CALM) == [("InstanceReady", "web-1")]
    assert told(CALM, with_state(Health.EXPIRED)) == [("InstanceExpired", "web-1")]
    assert told(with_state(Health.EXPIRED), with_state(Health.UNCERTAIN)) == []
    assert told(with_state(Health.UNCERTAIN), with_state(Health.DEAD)) == [("InstanceDead", "web-1")]
    assert told(with_state(Health.EXPIRED), with_state(Health.DEAD)) == [("InstanceDead", "web-1")]
    assert told(with_state(Health.DEAD), with_state(Health.READY)) == [("InstanceReady", "web-1")]
    assert told(with_state(Health.DEAD), with_state(Health.ORPHANED)) == []
    assert told(with_state(Health.ORPHANED), with_state(Health.DEAD)) == []
    assert told(with_state(Health.ORPHANED), alone) == []


def test_an_instance_that_releases_is_not_called_dead() -> None:
    (happening,) = happenings(CALM, with_state(Health.DEAD))
    assert (happening.reason, happening.type) == ("InstanceReleased", "Normal")
    assert happening.told == "web-1 has released its Lease: its objects move"


def test_what_is_odd_is_told() -> None:
    (happening,) = happenings(CALM, with_state(Health.EXPIRED, "the holder is somebody else"))
    assert "(the holder is somebody else)" in happening.told
    assert happening.type == "Warning"


def test_the_brake_engages_and_opens_once() -> None:
    braked = replace(CALM, vanished=("web-0", "web-1"))
    assert told(CALM, braked) == [("BrakeEngaged", "")]
    assert told(braked, replace(braked, vanished=("web-0", "web-1", "web-2"))) == []
    assert told(braked, CALM) == [("BrakeOpened", "")]
    assert "poise.dev/brake-released" in happenings(CALM, braked)[0].told


def test_objects_make_no_events() -> None:
    busy = replace(CALM, roots=900, drains=70, unassigned=12, overdue=3, in_flight=9)
    assert told(CALM, busy) == []


def test_many_at_once_are_one() -> None:
    crowd = replace(CALM, instances=tuple(seen(f"web-{number:03}") for number in range(500)))
    told_once = happenings(replace(CALM, instances=()), crowd)
    assert len(told_once) == 1
    one = told_once[0]
    assert one.about == ""
    assert one.told == "500 instances: web-000, web-001, web-002, web-003, web-004 and 495 more"
    few = replace(CALM, instances=crowd.instances[:5])
    assert len(happenings(replace(CALM, instances=()), few)) == 5


CAME = Happening("InstanceReady", "web-1", "web-1 is ready again")


def test_a_repetition_raises_a_number() -> None:
    ledger = Ledger(0.0)
    first, second = ledger.enter(CAME, 0.0, AT), ledger.enter(CAME, 20.0, "2026-11-16T10:00:20Z")
    assert first is not None
    assert second is not None
    assert (first.count, second.count) == (1, 2)
    assert (second.first, second.last) == (AT, "2026-11-16T10:00:20Z")
    assert event_name(RING, first.happening, "me") == event_name(RING, second.happening, "me")
    other = ledger.enter(Happening("InstanceReady", "web-2", ""), 20.0, AT)
    assert other is not None
    assert other.count == 1
    late = ledger.enter(CAME, 20_000.0, "2026-11-16T15:00:00Z")
    assert late is not None
    assert (late.count, late.first) == (1, "2026-11-16T15:00:00Z"), "the API server has forgotten the first by then"


def test_an_instance_that_flaps_is_counted_and_seldom_written() -> None:
    ledger = Ledger(0.0)
    written = [ledger.enter(CAME, second / 10, AT) for second in range(1_000)]
    some = [entry for entry in written if entry is not None]
    assert 25 <= len(some) <= 25 + 10
    assert ledger.withheld == 1_000 - len(some)
    assert some[-1].count > 800, "what was not written was counted"
    assert ledger.enter(CAME, 130.0, AT) is not None, "later there is room again"


def test_memory_is_bounded() -> None:
    ledger = Ledger(0.0)
    for number in range(5_000):
        ledger.enter(Happening("InstanceReady", f"web-{number}", ""), float(number), AT)
    assert len(ledger._known) == 1_000


def test_an_event_is_about_its_ring() -> None:
    ref = ObjectRef(EVENTS, event_name(RING, CAME, "me"), "team")
    body = event_body(ref, RING, Entry(happening=CAME, count=3, first=AT, last=AT), "m" * 300)
    assert body["involvedObject"] == {
        "apiVersion": "poise.dev/v1alpha1",
        "kind": "ShardRing",
        "name": "web",
        "namespace": "team",
        "uid": "uid-1",
    }
    assert (body["count"], body["type"], body["reason"]) == (3, "Normal", "InstanceReady")
    assert len(str(body["reportingInstance"])) == 128
    names = {event_name(RING, CAME, me) for me in ("a", "b")} | {event_name(Meta("web", "team", "uid-2"), CAME, "a")}
    assert len(names) == 3, "no process and no later ring counts for another"
