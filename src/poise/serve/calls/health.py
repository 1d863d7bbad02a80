"""What runs here and how it does: health, version, numbers, events, and the description of this API."""

from __future__ import annotations

import platform

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST

from poise import __version__
from poise.serve.asking import Answer, Ask
from poise.serve.call import Call, Members, Parameter, Shown
from poise.serve.facade import Event
from poise.serve.problems import busy
from poise.serve.site import Site


class Health(msgspec.Struct, frozen=True):
    """The answer of a health check."""

    ok: bool = True


class Version(msgspec.Struct, frozen=True):
    """What runs here."""

    version: str
    python: str


def livez(_site: Site, _ask: Ask) -> Answer:
    """Say that the event loop runs."""
    return Answer(value=Health())


def readyz(site: Site, _ask: Ask) -> Answer:
    """Say whether the store answers and the first cycle is done."""
    if not site.api.ready():
        raise busy("the store does not answer, or the first cycle is not done")
    return Answer(value=Health())


def version(_site: Site, _ask: Ask) -> Answer:
    """Say what runs here."""
    return Answer(value=Version(__version__, platform.python_version()))


def metrics(site: Site, _ask: Ask) -> Answer:
    """Write the numbers."""
    return Answer(value=site.metrics.exposition(), media=CONTENT_TYPE_LATEST)


def events(_site: Site, _ask: Ask) -> Answer:
    """Stand for the stream, which routing opens."""
    raise AssertionError("a stream is not an answer")


def description(site: Site, _ask: Ask) -> Answer:
    """Describe this API."""
    return Answer(value=site.description())


CALLS = (
    Call(
        method="GET",
        path="/v1/events",
        does="Server-sent events: every transition; Last-Event-ID goes on after that event",
        handle=events,
        role="viewer",
        members=Members(lambda _its, _names: True, "of the member's own set only"),
        query=(
            Parameter("kind", "only jobs of this kind"),
            Parameter("job", "only jobs of this name"),
            Parameter("member", "only what concerns this member"),
        ),
        answers={200: Shown("a stream without end; each event's data is one JSON value", Event, "text/event-stream")},
        streams=True,
    ),
    Call(
        method="GET",
        path="/livez",
        does="The process runs",
        handle=livez,
        role="open",
        answers={200: Shown("it does", Health)},
        lane="loop",
    ),
    Call(
        method="GET",
        path="/readyz",
        does="The store answers and the first cycle is done",
        handle=readyz,
        role="open",
        answers={200: Shown("it is ready", Health)},
    ),
    Call(
        method="GET",
        path="/metrics",
        does="The numbers, for Prometheus",
        handle=metrics,
        role="viewer",
        answers={200: Shown("text of Prometheus", str, "text/plain")},
    ),
    Call(
        method="GET",
        path="/version",
        does="What runs here",
        handle=version,
        role="viewer",
        answers={200: Shown("the version", Version)},
        lane="loop",
    ),
    Call(
        method="GET",
        path="/openapi.json",
        does="This description",
        handle=description,
        role="viewer",
        answers={200: Shown("OpenAPI 3.1", dict[str, object])},
    ),
)
