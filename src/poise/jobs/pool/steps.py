"""What to call next for a pod, and what may be said of it: pure functions of what it should have and was seen to have.

Order for safety: look before writing, take before giving, and say "released" only after a document without the target
was answered and a later look did not find it. A pod that counts as gone is freed of what is not its own before anybody
speaks for it again.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from poise.model.ownership import Hold, Word


class Call(StrEnum):
    """The next thing to do for a pod."""

    LOOK = "look"  # Read back what it has.
    APPLY = "apply"  # Send it what it should have.
    WATCH = "watch"  # It still tears streams down: look again soon.
    REST = "rest"  # All is as it should be until something changes.


class Rights(msgspec.Struct, frozen=True):
    """What the store says about a pod: the epochs of what it may collect, and of what it must let go of."""

    active: bool = False
    draining: bool = False
    own: dict[str, int] = {}
    leaving: dict[str, int] = {}
    unconfirmed: frozenset[str] = frozenset()


class Sight(msgspec.Struct, frozen=True):
    """What one look showed: the address of every configured target, the targets that still live, and its health."""

    configured: dict[str, str]
    live: frozenset[str] = frozenset()
    unhealthy: str = ""

    @property
    def listed(self) -> frozenset[str]:
        """Name everything that the pod may be collecting."""
        return self.live.union(self.configured)


class Content(msgspec.Struct, frozen=True):
    """What a document for a pod holds: a digest of all of it, and the address of every target."""

    digest: str
    shape: dict[str, str]


class Memory(msgspec.Struct, frozen=True):
    """What is known of the writes to a pod.

    `delivered` is what it has by all we know, `attempt` a document whose outcome is unknown, sent when the pod showed
    `before`. `answered` names the targets of the last document that was answered, while no later one is unknown: only
    then does a look prove that something is gone.
    `refused_s` and `unhealthy_s` say since when it fails at its documents, or says that it is not healthy.
    """

    delivered: Content | None = None
    attempt: Content | None = None
    before: dict[str, str] = {}
    answered: frozenset[str] | None = None
    refused_s: float | None = None
    unhealthy_s: float | None = None


def strangers(rights: Rights, sight: Sight) -> frozenset[str]:
    """Name what a pod lists and has no right to."""
    return sight.listed - rights.own.keys() - rights.leaving.keys()


def may_speak(rights: Rights, sight: Sight) -> bool:
    """Say whether a pod may count as alive: one that was gone must first be free of what is not its own."""
    return rights.active or not strangers(rights, sight)


def is_expelled(memory: Memory, now_s: float, gone_after_s: float) -> bool:
    """Judge a pod that answers and says it is not healthy: after as long as silence is borne, all is taken from it."""
    return memory.unhealthy_s is not None and now_s - memory.unhealthy_s >= gone_after_s


def to_deliver(rights: Rights, sight: Sight, *, expelled: bool = False) -> frozenset[str]:
    """Name the targets that the next document holds; one that was gone gets nothing new before it is spoken for."""
    if expelled:
        return frozenset()
    return frozenset(rights.own) if rights.active else sight.listed.intersection(rights.own)


def next_call(rights: Rights, sight: Sight | None, memory: Memory, content: Content) -> Call:
    """Decide what to do now. An unchanged pod is never written to; after a write, and after any doubt, it is read."""
    if sight is None:
        return Call.LOOK
    unproven = bool(rights.leaving) and (memory.answered is None or not memory.answered.isdisjoint(rights.leaving))
    nothing = not content.shape and not sight.listed
    if not unproven and nothing:
        return Call.REST
    changed = memory.delivered is None or memory.delivered.digest != content.digest
    if unproven or changed or sight.configured.keys() != content.shape.keys():
        return Call.APPLY
    return Call.WATCH if sight.live - content.shape.keys() else Call.REST


def words(rights: Rights, sight: Sight, memory: Memory, *, given_back: bool = False) -> tuple[Hold, ...]:
    """Say what a look has proven: held where it is listed for the first time, released where it is gone for good.

    `given_back`: the pod has failed at its document for so long that what it does not list goes to somebody else.
    """
    held = [Hold(name, rights.own[name], Word.HELD) for name in rights.unconfirmed & sight.configured.keys()]
    gone = [
        Hold(name, epoch, Word.RELEASED) for name, epoch in rights.leaving.items() if is_let_go(name, sight, memory)
    ]
    if given_back:
        gone += [Hold(name, epoch, Word.RELEASED) for name, epoch in rights.own.items() if name not in sight.listed]
    return tuple(sorted([*held, *gone], key=lambda hold: hold.item))


def after_words(rights: Rights, said: tuple[Hold, ...]) -> Rights:
    """Give the rights of a pod once its words were taken: it counts as alive, and has what it did not let go of."""
    held = {hold.item for hold in said if hold.state is Word.HELD}
    gone = {hold.item for hold in said if hold.state is Word.RELEASED}
    return Rights(
        active=True,
        draining=rights.draining,
        own={name: epoch for name, epoch in rights.own.items() if name not in gone},
        leaving={name: epoch for name, epoch in rights.leaving.items() if name not in gone},
        unconfirmed=rights.unconfirmed - held - gone,
    )


def is_let_go(name: str, sight: Sight, memory: Memory) -> bool:
    """Judge the proof: the last document was answered and left it out, and the look after it does not list it."""
    return memory.answered is not None and name not in memory.answered and name not in sight.listed


def is_given_back(memory: Memory, now_s: float, gone_after_s: float) -> bool:
    """Judge a pod that answers every document with an error of its own: that is borne as long as silence is."""
    return memory.refused_s is not None and now_s - memory.refused_s >= gone_after_s


def send(memory: Memory, content: Content, sight: Sight) -> Memory:
    """Note that a document is on its way: from now on its outcome is unknown."""
    return msgspec.structs.replace(memory, attempt=content, before=sight.configured, answered=None)


def accept(memory: Memory) -> Memory:
    """Note that the document on its way was answered."""
    assert memory.attempt is not None, "only a document that was sent is answered"
    names = frozenset(memory.attempt.shape)
    return msgspec.structs.replace(memory, delivered=memory.attempt, attempt=None, answered=names, refused_s=None)


def refuse(memory: Memory, broken_s: float | None) -> Memory:
    """Note that the document was answered with an error; parts of it may be there.

    Only an error that is the pod's own (5xx) counts towards giving its share to others, from the first on.
    """
    since_s = memory.refused_s if broken_s is not None and memory.refused_s is not None else broken_s
    return msgspec.structs.replace(memory, delivered=None, answered=None, refused_s=since_s)


def look(memory: Memory, sight: Sight, now_s: float) -> Memory:
    """Learn from a look: a document whose answer was lost is there if the pod shows what only it can have brought."""
    unhealthy_s = (memory.unhealthy_s or now_s) if sight.unhealthy else None
    memory = msgspec.structs.replace(memory, unhealthy_s=unhealthy_s)
    attempt = memory.attempt
    if attempt is None or not _shows(sight.configured, attempt) or _shows(memory.before, attempt):
        return memory
    return accept(memory)


def _shows(configured: dict[str, str], content: Content) -> bool:
    """Compare names and addresses; a pod that tells no address is believed by its names."""
    shape = content.shape
    return configured.keys() == shape.keys() and all(told in ("", shape[name]) for name, told in configured.items())


def forget(memory: Memory) -> Memory:
    """Deliver once more, whatever was delivered: the pod has lost it, or it must be told again."""
    return msgspec.structs.replace(memory, delivered=None)
