"""A kopf operator that notes every call of a handler for an auditor; Secrets say by annotations what it does to them.

MUTANT breaks the adapter on purpose: `ungated` lets kopf process events as if there were no ring, `deaf` lets daemons
live on when their object is asked for.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import kopf
from kopf._core.reactor import processing
from tests.cluster.audit_lines import AuditFile, Noted

from poise.errors import NotHeld
from poise.hold import kopf_gate
from poise.hold.kopf import held, join_ring
from poise.kube.patches import Operation

NAME, NAMESPACE, MUTANT = os.environ["POD_NAME"], os.environ["RING_NAMESPACE"], os.environ.get("MUTANT", "")
_audit = AuditFile(Path(os.environ["AUDIT"]), NAME)
_plain = processing.process_resource_event
join_ring(os.environ["RING"], ["secrets", "configmaps"], namespace=NAMESPACE, scope=NAMESPACE, finish_s=5.0)
if MUTANT == "ungated":
    processing.process_resource_event = _plain
if MUTANT == "deaf":

    async def _let_live(_living: object) -> None:
        """Leave daemons alone."""

    for _ending in ("stop_daemon", "end_all"):
        setattr(kopf_gate, _ending, _let_live)


def note(name: str | None, what: str) -> Noted:
    """Note that a handler begins, at which epoch."""
    try:
        epoch = held().epoch
    except NotHeld:
        epoch = 0
    return _audit.begin(f"{name}/{what}", str(name), epoch)


@kopf.on.create("secrets")
async def created(name: str | None, annotations: kopf.Annotations, retry: int, **_: object) -> None:
    """Handle a new object; one that says so fails some times."""
    with note(name, f"create-{retry}"):
        if retry < int(annotations.get("fails", "0")):
            raise kopf.TemporaryError("not yet", delay=float(annotations.get("delay", "0.3")))


@kopf.on.resume("secrets")
async def resumed(name: str | None, **_: object) -> None:
    """Handle an object that was there before."""
    with note(name, "resume"):
        pass


@kopf.on.update("secrets")
async def updated(name: str | None, annotations: kopf.Annotations, **_: object) -> None:
    """Handle a change, for as long as the object says."""
    with note(name, "update"):
        if annotations.get("checked") == "wanted":
            await held().patch(Operation("add", "/metadata/annotations/checked", "done"))
        await asyncio.sleep(float(annotations.get("slow", "0")))


@kopf.on.update("secrets", annotations={"thread": "yes"})
def blocked(name: str | None, **_: object) -> None:
    """Handle a change in a thread, which nobody can cancel."""
    with note(name, "thread"):
        time.sleep(600)


@kopf.on.delete("secrets", annotations={"finalizer": "yes"})
async def deleted(name: str | None, **_: object) -> None:
    """Handle the end of an object that asks for it."""
    with note(name, "delete"):
        await asyncio.sleep(0.1)


@kopf.on.event("secrets")
async def told(name: str | None, type: str | None, **_: object) -> None:  # noqa: A002  # kopf names it so.
    """Hear of every event."""
    with note(name, f"event-{type}"):
        pass


@kopf.daemon("secrets", annotations={"daemon": "yes"})
@kopf.daemon("configmaps", annotations={"daemon": "yes"})
async def living(name: str | None, stopped: kopf.DaemonStopped, **_: object) -> None:
    """Live with an object, and take a moment to end."""
    with note(name, "daemon"):
        await stopped.wait()
        await asyncio.sleep(0.3)


@kopf.timer("secrets", annotations={"timer": "yes"}, interval=0.2)
async def ticking(name: str | None, **_: object) -> None:
    """Look at an object again and again."""
    with note(name, "timer"):
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    kopf.configure(verbose=True)
    kopf.run(namespaces=[NAMESPACE])
