"""What of kopf's inside is needed, all of it in this file: where events are processed, memories, daemons, indices.

kopf promises nothing about these names, so the extra `kopf` allows only versions that the tests have run with, and
`check_kopf` refuses one that has changed where an event is processed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import NamedTuple, TypedDict, cast

import kopf
from kopf._cogs.aiokits.aiotoggles import Toggle, ToggleSet
from kopf._cogs.structs.bodies import Body, RawBody, RawEvent
from kopf._cogs.structs.ephemera import AnyMemo
from kopf._core.actions.execution import LifeCycleFn
from kopf._core.actions.loggers import TerseObjectLogger
from kopf._core.engines.daemons import Daemon
from kopf._core.engines.indexing import OperatorIndexers, index_resource
from kopf._core.engines.posting import K8sEventQueue
from kopf._core.intents.handlers import DaemonHandler
from kopf._core.reactor import processing
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

from poise.errors import PoiseError


class Call(TypedDict):
    """What kopf processes an event with."""

    lifecycle: LifeCycleFn
    indexers: OperatorIndexers
    registry: kopf.OperatorRegistry
    settings: kopf.OperatorSettings
    memories: ResourceMemories
    memobase: AnyMemo
    resource: kopf.Resource
    raw_event: RawEvent
    event_queue: K8sEventQueue
    stream_pressure: asyncio.Event | None
    operator_paused: ToggleSet | None
    resource_indexed: Toggle | None
    operator_indexed: ToggleSet | None
    consistency_time: float | None


Process = Callable[..., Coroutine[None, None, str | None]]


def check_kopf() -> None:
    """Refuse a kopf that processes events in another way."""
    known = inspect.signature(processing.process_resource_event).parameters
    if missing := sorted(Call.__annotations__.keys() - known.keys()):
        raise PoiseError(f"this version of kopf is not known, it has no {', '.join(missing)}: see docs/kopf.md")


def replace_processing(process: Process) -> Process:
    """Let every event of objects go through `process`; gives what kopf does with it. Before kopf starts."""
    inner: Process = processing.process_resource_event
    processing.process_resource_event = process
    return inner


def is_handled(call: Call) -> bool:
    """Say whether handlers act on this resource; an index alone only reads."""
    registry, resource = call["registry"], call["resource"]
    parts = (registry._watching, registry._spawning, registry._changing)
    return any(part.has_handlers(resource=resource) for part in parts)


def is_watched(call: Call) -> bool:
    """Say whether handlers want to hear of every event of this resource."""
    return call["registry"]._watching.has_handlers(resource=call["resource"])


def watching_only(call: Call) -> Call:
    """Leave of the handlers only those that hear of every event: the others have nothing to do with what is gone."""
    registry = kopf.OperatorRegistry()
    registry._watching, registry._indexing = call["registry"]._watching, call["registry"]._indexing
    return {**call, "registry": registry}


async def index(call: Call) -> None:
    """Keep the indices current, whether or not the object is held: indexing only reads, and others wait for it."""
    registry, resource, raw = call["registry"], call["resource"], call["raw_event"]
    if registry._indexing.has_handlers(resource=resource):
        memory = await call["memories"].recall(raw["object"], memobase=call["memobase"])
        body = Body(raw["object"])
        await index_resource(
            registry=registry,
            indexers=call["indexers"],
            settings=call["settings"],
            resource=resource,
            raw_event=raw,
            body=body,
            memo=memory.memo,
            memory=memory.indexing_memory,
            logger=TerseObjectLogger(body=body, settings=call["settings"]),
        )
    if call["operator_indexed"] is not None and call["resource_indexed"] is not None:
        await call["operator_indexed"].drop_toggle(call["resource_indexed"])


def was_handled(call: Call) -> bool:
    """Say whether kopf has noted on the object that it was handled before."""
    body = Body(call["raw_event"]["object"])
    return call["settings"].persistence.diffbase_storage.fetch(body=body) is not None


class Traces(NamedTuple):
    """Where kopf keeps what it knows of one object."""

    memories: ResourceMemories
    indexers: OperatorIndexers
    body: RawBody

    async def wipe(self) -> None:
        """Let kopf forget the object: it may come back, as another owner left it."""
        self.indexers.discard(Body(self.body))
        await self.memories.forget(self.body)


def traces_of(call: Call) -> Traces:
    """Say where kopf keeps what it knows of an object, without keeping the object."""
    meta = call["raw_event"]["object"]["metadata"]
    named = {name: meta.get(name) for name in ("namespace", "name", "uid")}
    return Traces(call["memories"], call["indexers"], cast(RawBody, {"metadata": named}))


def memory_of(call: Call) -> ResourceMemory | None:
    """Find what kopf remembers of an object."""
    return call["memories"]._items.get(uid_of(call))


def running_daemons(memory: ResourceMemory | None) -> list[Daemon]:
    """List the daemons and timers of an object that have not ended."""
    return [] if memory is None else list(memory.daemons_memory.running_daemons.values())


async def stop_daemon(daemon: Daemon) -> None:
    """Ask a daemon or timer to end, as it was declared to be ended; kopf may start it anew when it is held again."""
    daemon.stopper.set(reason=kopf.DaemonStoppingReason.FILTERS_MISMATCH)
    handler = daemon.handler
    if isinstance(handler, DaemonHandler) and handler.cancellation_timeout is not None:
        await asyncio.wait((daemon.task,), timeout=handler.cancellation_backoff or 0.0)
        daemon.task.cancel()
    await asyncio.wait((daemon.task,))


def resource_name(resource: kopf.Resource) -> str:
    """Write a resource as people do: `secrets`, `deployments.apps`."""
    return ".".join(part for part in (resource.plural, resource.group) if part)


def uid_of(call: Call) -> str:
    """Read the uid of the object that an event tells of."""
    return str(call["raw_event"]["object"]["metadata"].get("uid", ""))


def version_of(call: Call) -> str:
    """Read the version of it."""
    return str(call["raw_event"]["object"]["metadata"].get("resourceVersion", ""))


def labels_of(call: Call) -> dict[str, str]:
    """Read its labels."""
    return dict(call["raw_event"]["object"]["metadata"].get("labels") or {})


def with_labels(call: Call, labels: dict[str, str]) -> Call:
    """Show other labels of the object."""
    body = call["raw_event"]["object"]
    meta = {name: value for name, value in body["metadata"].items() if name != "labels"}
    shown = {**body, "metadata": {**meta, "labels": labels} if labels else meta}
    # A body is a plain dict at run time; kopf types it as one with known keys.
    return {**call, "raw_event": {**call["raw_event"], "object": cast(RawBody, shown)}}
