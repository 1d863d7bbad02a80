"""The leader lease as a pure function: whatever the order, the delays and the clocks, never two lead at once."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from poise.kube import leadership
from poise.kube.leadership import LeadTerms, SeenLead, claim, is_free, leads_until_s, look, release, wrote
from poise.kube.objects import Lease, LeaseSpec, Meta

D, MARGIN = 15, 5.0
NAME = ("space", "lead")
TERMS = LeadTerms(me="me_1", duration_s=D, renew_s=3.0, margin_s=MARGIN)


def lease(holder: str | None, version: str = "1", duration: int | None = D, uid: str = "u") -> Lease:
    return Lease(Meta("lead", "space", uid, version), LeaseSpec(holder, duration))


def test_nobody_yet_is_free_at_once() -> None:
    assert is_free(look(None, None, "me_1", 0.0), TERMS, 0.0)


def test_one_that_vanished_is_waited_for_like_its_holder() -> None:
    seen = look(look(None, lease("you_1"), "me_1", 0.0), None, "me_1", 5.0)
    assert not is_free(seen, TERMS, 5.0 + D - 0.01)
    assert is_free(seen, TERMS, 5.0 + D)


def test_another_holder_is_believed_for_its_whole_duration_from_the_moment_it_was_seen() -> None:
    seen = look(None, lease("you_1", duration=60), "me_1", 100.0)
    assert not is_free(seen, TERMS, 159.9)
    assert is_free(seen, TERMS, 160.0)
    again = look(seen, lease("you_1", "2", 60), "me_1", 159.0)
    assert not is_free(again, TERMS, 218.9), "each change starts the waiting again"
    assert look(again, lease("you_1", "2", 60), "me_1", 200.0).seen_at_s == 159.0, "no change does not"


@pytest.mark.parametrize("nonsense", [None, 0, -5])
def test_a_duration_that_is_nonsense_is_the_own_one(nonsense: int | None) -> None:
    seen = look(None, lease("you_1", duration=nonsense), "me_1", 0.0)
    assert (is_free(seen, TERMS, D - 0.1), is_free(seen, TERMS, D)) == (False, True)


@pytest.mark.parametrize("nobody", [None, ""])
def test_a_released_lease_is_free_at_once(nobody: str | None) -> None:
    assert is_free(look(None, lease(nobody), "me_1", 0.0), TERMS, 0.0)


def test_a_later_lease_of_the_name_is_another_one() -> None:
    seen = look(None, lease("you_1"), "me_1", 0.0)
    assert look(seen, lease("you_1", uid="v"), "me_1", 9.0).seen_at_s == 9.0


def test_the_own_lead_counts_from_the_moment_the_write_was_sent() -> None:
    seen = wrote(lease("me_1"), "me_1", 100.0)
    assert leads_until_s(seen, TERMS) == 100.0 + D - MARGIN
    assert leads_until_s(None, TERMS) == float("-inf")
    assert leads_until_s(look(seen, lease("you_1", "2"), "me_1", 101.0), TERMS) == float("-inf")
    lost_answer = look(None, lease("me_1"), "me_1", 100.0)
    assert leads_until_s(lost_answer, TERMS) == float("-inf"), "an own Lease without an answer proves nothing yet"
    assert is_free(lost_answer, TERMS, 100.0), "but it may be renewed at once"


def test_a_claim_keeps_the_version_that_was_seen_and_counts_the_changes() -> None:
    taken = claim(look(None, lease("you_1", "7"), "me_1", 0.0), TERMS, NAME, "now")
    assert taken.metadata.resource_version == "7"
    assert taken.spec == LeaseSpec("me_1", D, "now", "now", 1)
    renewed = claim(look(None, taken, "me_1", 0.0), TERMS, NAME, "later")
    assert renewed.spec == LeaseSpec("me_1", D, "now", "later", 1)
    first = claim(look(None, None, "me_1", 0.0), TERMS, NAME, "now")
    assert (first.metadata, first.spec.lease_transitions) == (Meta("lead", "space"), 0)
    assert release(renewed).spec.holder_identity is None


def test_terms_without_time_to_renew_are_refused() -> None:
    with pytest.raises(AssertionError):
        LeadTerms(me="me", duration_s=10, renew_s=6.0, margin_s=5.0)


class Server:
    """One Lease, written by compare-and-set."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.version = 0

    def put(self, wanted: Lease) -> Lease | None:
        """Write over the version that was seen; None is a conflict."""
        seen = wanted.metadata.resource_version
        if seen != ("" if self.lease is None else self.lease.metadata.resource_version):
            return None
        self.version += 1
        meta = Meta("lead", "space", "u", str(self.version))
        self.lease = msgspec.structs.replace(wanted, metadata=meta)
        return self.lease


class Candidate:
    """One candidate whose clock is wrong by a constant; a write is decided, sent, done and answered apart."""

    def __init__(self, number: int, offset_s: float) -> None:
        self.terms = msgspec.structs.replace(TERMS, me=f"c_{number}")
        self.offset_s = offset_s
        self.seen: SeenLead | None = None
        self.sent: tuple[Lease, float] | None = None
        self.answer: tuple[Lease, float] | None = None

    def leads(self, now_s: float) -> bool:
        return now_s + self.offset_s < leads_until_s(self.seen, self.terms)

    def step(self, what: str, server: Server, now_s: float) -> None:
        mine_s = now_s + self.offset_s
        if what == "look":
            self.seen = look(self.seen, server.lease, self.terms.me, mine_s)
        elif what == "send" and self.seen is not None and leadership.is_free(self.seen, self.terms, mine_s):
            self.sent = claim(self.seen, self.terms, NAME, str(now_s)), mine_s
        elif what == "arrive" and self.sent is not None:
            written = server.put(self.sent[0])
            self.answer = None if written is None else (written, self.sent[1])
            self.sent = None
        elif what == "answer" and self.answer is not None:
            self.seen = leadership.wrote(self.answer[0], self.terms.me, self.answer[1])
            self.answer = None
        elif what == "lose":
            self.answer = None


WHATS = ("look", "send", "arrive", "answer", "look", "send", "arrive", "answer", "lose")
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(WHATS), st.sampled_from([0.0, 0.5, 4.0, 16.0])), max_size=60
)


def _play(steps: list[tuple[int, str, float]], offsets: tuple[float, ...] = (0.0, 3600.0, -3600.0)) -> None:
    server = Server()
    candidates = [Candidate(number, offset) for number, offset in enumerate(offsets)]
    now_s = 0.0
    for who, what, pause_s in steps:
        candidates[who].step(what, server, now_s)
        # A request that was sent arrives, or is given up, within the margin: the client's deadline.
        for candidate in candidates:
            if candidate.sent is not None and now_s + pause_s + candidate.offset_s > candidate.sent[1] + MARGIN:
                candidate.sent = None
        now_s += pause_s
        leading = [candidate.terms.me for candidate in candidates if candidate.leads(now_s)]
        assert len(leading) <= 1, f"two lead: {leading}"


@settings(max_examples=examples(500))
@given(STEPS)
def test_never_two_lead(steps: list[tuple[int, str, float]]) -> None:
    _play(steps)


def lead(who: int, pause_s: float = 0.0) -> list[tuple[int, str, float]]:
    """Let a candidate look, send, arrive, and hear the answer after a pause."""
    return [(who, "look", 0.0), (who, "send", 0.0), (who, "arrive", pause_s), (who, "answer", 0.0)]


def test_taking_over_without_the_wait_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poise.kube.leadership.is_free", lambda _seen, _terms, _now_s: True)
    with pytest.raises(AssertionError, match="two lead"):
        _play([*lead(0), *lead(1)])


def test_counting_the_lead_from_the_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    late_s = 14.0

    def from_the_answer(found: Lease, me: str, sent_at_s: float) -> SeenLead:
        return wrote(found, me, sent_at_s + late_s)

    steps = [
        *lead(0, 0.0)[:3],
        (1, "look", late_s),
        (0, "answer", 1.0),
        (1, "send", 0.0),
        (1, "arrive", 0.0),
        (1, "answer", 0.0),
    ]
    _play(steps)
    monkeypatch.setattr("poise.kube.leadership.wrote", from_the_answer)
    with pytest.raises(AssertionError, match="two lead"):
        _play(steps)


def test_claiming_over_a_fresh_version_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that reads the version again just before it writes overwrites whoever renewed since."""
    steps = [*lead(0), (1, "look", 15.0), *lead(0), (1, "send", 0.0), (1, "arrive", 0.0), (1, "answer", 0.0)]
    _play(steps)
    server_put = Server.put

    def over_the_newest(self: Server, wanted: Lease) -> Lease | None:
        newest = Meta() if self.lease is None else self.lease.metadata
        return server_put(self, msgspec.structs.replace(wanted, metadata=newest))

    monkeypatch.setattr(Server, "put", over_the_newest)
    with pytest.raises(AssertionError, match="two lead"):
        _play(steps)
