"""Makes an existing kopf operator a shard of a ring: `join_ring("web", ["secrets"])` beside its handlers.

The shard holds the Lease, watches, judges and hands over; kopf's handlers run behind its gate. Needs the extra `kopf`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import kopf

from poise.errors import NotHeld, invalid
from poise.hold.kopf_gate import held_now
from poise.hold.kopf_inside import check_kopf, replace_processing
from poise.hold.kopf_member import RingMember
from poise.hold.shard import Held, Shard
from poise.kube.connecting import connect

AT_ONCE = 10_000  # kopf itself sets no limit; an object with a daemon counts as long as that lives.
_joined: list[str] = []


def join_ring(
    ring: str,
    resources: Sequence[str],
    *,
    everywhere: Sequence[str] = (),
    name: str | None = None,
    namespace: str | None = None,
    scope: str = "",
    kubeconfig: str | Path | None = None,
    tokens: int | None = None,
    trust_stable_name: bool = False,
    fence_restarts: Literal["lazy", "eager"] = "lazy",
    finish_s: float = 10.0,
    on_release: Literal["stop", "restart"] = "stop",
    registry: kopf.OperatorRegistry | None = None,
) -> None:
    """Let the handlers for `resources` see only what this instance holds. Call it before kopf starts, once a process.

    Handlers for other resources are not called, since every instance would call them; those for what `everywhere`
    names are called by every instance. All else is as a `Shard` takes it.
    """
    if _joined:
        raise invalid("$.ring", f"expected one ring for a process: it has joined {_joined[0]} already")
    check_kopf()
    make = partial(
        Shard,
        ring=ring,
        resources=resources,
        name=name,
        namespace=namespace,
        scope=scope,
        tokens=tokens,
        trust_stable_name=trust_stable_name,
        fence_restarts=fence_restarts,
        at_once=AT_ONCE,
        finish_s=finish_s,
        on_release=on_release,
    )
    make()  # What is wrong with it is told at once.
    member = RingMember(
        lambda client: make(client=client),
        partial(connect, kubeconfig),
        ring=ring,
        resources=resources,
        everywhere=everywhere,
        finish_s=finish_s,
    )
    member.inner = replace_processing(member.process)
    kopf.on.startup(registry=registry, id="join-ring", errors=kopf.ErrorsMode.PERMANENT)(member.begin)
    kopf.on.cleanup(registry=registry, id="leave-ring", errors=kopf.ErrorsMode.PERMANENT)(member.end)
    _joined.append(ring)


def held() -> Held:
    """Give the object that the running handler was called for: its patches are refused once somebody else has it."""
    try:
        return held_now.get()
    except LookupError:
        raise NotHeld("nothing is held here: only a handler for a resource of the ring holds something") from None
