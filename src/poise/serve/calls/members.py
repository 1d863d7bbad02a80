"""Members: their load and leases, draining, and the heartbeats by which they speak."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from poise import clock
from poise.errors import invalid
from poise.model.common import Name
from poise.model.ownership import Registered, Reply, SetTerms
from poise.move.heartbeat import Stale, Superseded
from poise.serve.asking import Answer, Ask, paged
from poise.serve.bodies import Nothing, read_json
from poise.serve.call import PAGES, Call, Listed, Shown
from poise.serve.calls.jobs import job_of
from poise.serve.facade import MemberView, Registration, SaidHeartbeat, Stoppable
from poise.serve.problems import Refused
from poise.serve.site import Site

Heard = TypeVar("Heard")
_MEMBERS = "/v1/jobs/{kind}/{name}/members"
_SPEAKER = "/v1/sets/{set}/members/{id}"


def list_members(site: Site, ask: Ask) -> Answer:
    """List members."""
    return Answer(value=paged(ask, site.api.members(*job_of(ask)), lambda member: member.name))


def drain(site: Site, ask: Ask) -> Answer:
    """Take a member out of service."""
    return _drain(site, ask, draining=True)


def undrain(site: Site, ask: Ask) -> Answer:
    """Take a member back into service."""
    return _drain(site, ask, draining=False)


def _drain(site: Site, ask: Ask, *, draining: bool) -> Answer:
    read_json(ask.body or b"{}", Nothing)
    return Answer(value=site.api.drain(*job_of(ask), ask.names["member"], draining))


def stoppable(site: Site, ask: Ask) -> Answer:
    """Say whether a member may stop."""
    return Answer(value=site.api.stoppable(*job_of(ask), ask.names["member"]))


def register(site: Site, ask: Ask) -> Answer:
    """Give a process its incarnation."""
    return Answer(value=_said(ask, Registration, site.api.register))


def set_terms(site: Site, ask: Ask) -> Answer:
    """Say what a set promises."""
    return Answer(value=site.api.terms(ask.names["set"]))


def heartbeat(site: Site, ask: Ask) -> Answer:
    """Take a heartbeat: 409 to a superseded process, 412 to an old sequence number."""
    begun = clock.boot_s()
    answer = _said(ask, SaidHeartbeat, site.api.heartbeat)
    site.metrics.on_renewal(clock.boot_s() - begun)
    match answer:
        case Superseded(incarnation=incarnation):
            told = (
                f"a newer process of this name has registered, incarnation {incarnation}: stop, do not register again"
            )
            raise Refused(409, told, incarnation=incarnation)
        case Stale(seq=seq):
            raise Refused(412, f"heartbeat {seq} came first; this one is old and changed nothing", seq=seq)
    return Answer(value=answer)


def _said(ask: Ask, shape: type[msgspec.Struct], tell: Callable[[str, str, bytes], Heard]) -> Heard:
    """Hand a body on as it is, since heartbeats are many; only one that cannot be read is read here, for its faults."""
    try:
        return tell(*_speaker(ask), ask.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        read_json(ask.body, shape)
        raise


def _speaker(ask: Ask) -> tuple[str, str]:
    """Name the set and the member, which must be a name: whoever registers creates it."""
    try:
        msgspec.convert(ask.names["id"], Name)
    except msgspec.ValidationError:
        raise invalid("{id}", "expected letters and digits, with '-', '.' or '_' between them, 253 at most") from None
    return ask.names["set"], ask.names["id"]


CALLS = (
    Call(
        method="GET",
        path=_MEMBERS,
        does="List members with their load and the state of their lease",
        handle=list_members,
        role="viewer",
        query=PAGES,
        answers={200: Shown("a page of members", Listed(MemberView))},
        refusals=(404,),
    ),
    Call(
        method="POST",
        path=f"{_MEMBERS}/{{member}}/drain",
        does="Take a member out of service; load and releasing show the progress",
        handle=drain,
        role="operator",
        body=Nothing,
        body_needed=False,
        answers={200: Shown("the member", MemberView)},
        refusals=(404, 409),
    ),
    Call(
        method="POST",
        path=f"{_MEMBERS}/{{member}}/undrain",
        does="Take a member back into service",
        handle=undrain,
        role="operator",
        body=Nothing,
        body_needed=False,
        answers={200: Shown("the member", MemberView)},
        refusals=(404, 409),
    ),
    Call(
        method="GET",
        path=f"{_MEMBERS}/{{member}}/stoppable",
        does="May this member stop now, and if not every reason, with an estimate",
        handle=stoppable,
        role="viewer",
        answers={200: Shown("the verdict", Stoppable)},
        refusals=(404,),
    ),
    Call(
        method="GET",
        path="/v1/sets/{set}",
        does="What a set promises its members: know it before you register",
        handle=set_terms,
        role="member",
        answers={200: Shown("the lengths of its leases, and how often to speak", SetTerms)},
        refusals=(404,),
    ),
    Call(
        method="PUT",
        path=_SPEAKER,
        does="A member's heartbeat: what it holds; the reply names everything that it may hold or must release",
        handle=heartbeat,
        role="member",
        body=SaidHeartbeat,
        answers={200: Shown("what the member may hold and must release", Reply)},
        refusals=(404, 409, 412),
        lane="beats",
    ),
    Call(
        method="POST",
        path=_SPEAKER,
        does="Register a process of a member",
        handle=register,
        role="member",
        body=Registration,
        answers={200: Shown("its incarnation, and the lengths of its set", Registered)},
        refusals=(404, 409),
        lane="beats",
    ),
)
