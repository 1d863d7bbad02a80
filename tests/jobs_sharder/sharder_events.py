"""Random happenings for the laws of the sharder: objects that come, change their owner, their labels, and go."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from poise.jobs.sharder.view import Kind, Known
from poise.kube import Meta, OwnerReference
from poise.kube.resources import CONFIG_MAPS, SECRETS
from poise.model.sharding import NOBODY, Marks, label_names

RING = "web"
UIDS = tuple("abcdefg")
SHARED, FOLLOWING = Kind(SECRETS), Kind(CONFIG_MAPS, shared=False)
INSTANCES = ("x-0", "x-1", "x-2")


class Put(msgspec.Struct, frozen=True):
    """An object is seen: who controls it, and its labels; `shared` says of which resource it is."""

    uid: str
    parent: str | None
    marks: Marks
    shared: bool = True
    older: bool = False  # A watch that lags shows a version that was there before.


class Drop(msgspec.Struct, frozen=True):
    """An object is gone."""

    uid: str


marks = st.builds(
    Marks,
    st.sampled_from((None, *INSTANCES)),
    st.sampled_from((None, 1, 2, 3)),
    st.sampled_from((None, None, NOBODY, *INSTANCES)),
    st.sampled_from((None, 9)),
)
uids = st.sampled_from(UIDS)
puts = st.builds(
    Put,
    uids,
    st.none() | st.sampled_from((*UIDS, "never-seen")),
    marks,
    st.booleans(),
    st.sampled_from((False,) * 5 + (True,)),
)
events = st.lists(puts | st.builds(Drop, uids), max_size=25)


def labels_of(marks: Marks) -> dict[str, str]:
    """Write marks as labels."""
    values = (marks.shard, marks.epoch, marks.drain, marks.drain_until)
    return {name: str(value) for name, value in zip(label_names(RING), values, strict=True) if value is not None}


def known_of(put: Put, version: int) -> Known:
    """Make what a mirror shows."""
    kind = SHARED if put.shared else FOLLOWING
    owners = () if put.parent is None else (OwnerReference("v1", "Secret", put.parent, put.parent, True),)
    meta = Meta(put.uid, "ns", put.uid, str(version), labels=labels_of(put.marks), owner_references=owners)
    return Known(kind, meta, f"/{kind.resource.kind}/ns/{put.uid}")
