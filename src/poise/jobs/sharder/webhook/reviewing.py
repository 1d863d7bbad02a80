"""What the webhook answers: a review of a request in, a patch of labels out. Pure; it never denies, whatever comes.

On CREATE it overwrites the labels of the ring with those that the sharder would write, or takes them off. On UPDATE it
restores those that a PUT left out; what the sharder, exempt controllers and the holder itself write stays as it is.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from poise.kube import Meta, Partial
from poise.kube.objects import KubeValue
from poise.kube.patches import Operation, pointer
from poise.model.sharding import Marks, label_names, label_patch

API_VERSION = "admission.k8s.io/v1"
_POD_EXTRA = "authentication.kubernetes.io/pod-name"
Labels = Mapping[str, str]
Change = Mapping[str, str | None]


class Outcome(StrEnum):
    """What was made of a request."""

    ASSIGNED = "assigned"
    LEFT = "left"  # To the sharder: nothing was known, or nobody is ready.
    RESTORED = "restored"
    UNCHANGED = "unchanged"
    MALFORMED = "malformed"


class Asked(KubeValue, frozen=True):
    """The resource of a request."""

    group: str = ""
    version: str = ""
    resource: str = ""


class User(KubeValue, frozen=True):
    """Who asks."""

    username: str = ""
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class Request(KubeValue, frozen=True):
    """What is asked of the API server, of which the objects are decoded later."""

    uid: str
    operation: str
    resource: Asked = Asked()
    sub_resource: str = ""
    namespace: str = ""
    user_info: User = User()
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    dry_run: bool = False


class Review(KubeValue, frozen=True):
    """What the API server sends."""

    request: Request


class Answer(msgspec.Struct, frozen=True):
    """What it is answered, and what was made of it."""

    body: bytes
    outcome: Outcome


class Place(msgspec.Struct, frozen=True):
    """A ring as the configuration names it, and what it looked at when the configuration was written."""

    namespace: str
    ring: str
    digest: str


class Users(msgspec.Struct, frozen=True):
    """Whose writes stay as they are: the sharder's always, those of exempt controllers where they are changes.

    Before it is known who the sharder is nothing is restored: it might be the sharder that leaves labels out.
    `protected`: a policy lets only the holder hand an object over, by a name that tells it. Else anybody may be that.
    """

    sharders: tuple[str, ...]
    exempt: tuple[str, ...]
    protected: bool = True


Choose = Callable[[Place, Request], Marks | None]


def answer(body: bytes, place: Place, users: Users, choose: Choose) -> Answer:
    """Answer one review; `choose` gives the labels of a new object, None where it is to have none."""
    try:
        request = msgspec.json.decode(body, type=Review).request
        labels = _labels(request.object)
        return _judge(request, labels, place, users, choose)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Answer(_allowed(_uid(body)), Outcome.MALFORMED)


def _judge(request: Request, labels: Labels | None, place: Place, users: Users, choose: Choose) -> Answer:
    who = request.user_info.username
    change: Change = {}
    outcome = Outcome.UNCHANGED
    if request.operation == "CREATE" and not request.sub_resource and who not in users.sharders:
        marks = choose(place, request)
        change = label_patch(labels or {}, place.ring, marks or Marks())
        outcome = Outcome.LEFT if marks is None else Outcome.ASSIGNED
    elif request.operation == "UPDATE" and users.sharders and who not in (*users.sharders, *users.exempt):
        change = restored(request, labels or {}, place, protected=users.protected)
        outcome = Outcome.RESTORED if change else Outcome.UNCHANGED
    return Answer(_allowed(request.uid, _operations(labels, change)), outcome)


def restored(request: Request, labels: Labels, place: Place, *, protected: bool) -> dict[str, str | None]:
    """Give the labels that a PUT left out, as they were; the API server does not say whether it was one, or a patch.

    Whoever holds an object may hand it over by a PUT, which leaves some out on purpose; but the epoch stays then.
    """
    before, names = _labels(request.old_object) or {}, label_names(place.ring)
    there = [name for name in names if name in before]
    gone = [name for name in there if name not in labels]
    shard, epoch = names[:2]
    holds = bool(before.get(shard)) and before.get(shard) == instance(request.user_info, place.namespace)
    may_hand_over = holds or not protected
    if may_hand_over and not (epoch in before and gone == there):
        return {}
    return {name: before[name] for name in gone}


def instance(user: User, namespace: str) -> str:
    """Name the instance that a user is: by the Pod of its token, where it has one, else by its user name."""
    pod = next(iter(user.extra.get(_POD_EXTRA, ())), "")
    if not pod:
        return user.username
    return pod if user.username.startswith(f"system:serviceaccount:{namespace}:") else ""


def _labels(body: msgspec.Raw) -> Labels | None:
    """Read the labels of an object; None where it has none."""
    seen = msgspec.json.decode(body, type=_Labelled | None)
    return None if seen is None else seen.metadata.labels


class _LabelMeta(KubeValue, frozen=True):
    labels: dict[str, str] | None = None


class _Labelled(KubeValue, frozen=True):
    metadata: _LabelMeta = _LabelMeta()


def read_new(request: Request, shape: type[Partial]) -> Partial:
    """Read a new object; its namespace is that of the request, also where it says none."""
    seen = msgspec.json.decode(request.object, type=shape)
    meta: Meta = msgspec.structs.replace(seen.metadata, namespace=seen.metadata.namespace or request.namespace)
    return msgspec.structs.replace(seen, metadata=meta)


def _operations(labels: Labels | None, change: Change) -> list[Operation]:
    """Write a change of labels as a JSON Patch."""
    if labels is None:
        given = {name: value for name, value in change.items() if value is not None}
        return [Operation("add", pointer("metadata", "labels"), given)] if given else []
    return [
        Operation("remove", pointer("metadata", "labels", name))
        if value is None
        else Operation("add", pointer("metadata", "labels", name), value)
        for name, value in change.items()
    ]


def _allowed(uid: str, operations: list[Operation] | None = None) -> bytes:
    """Write an answer, which always allows."""
    response: dict[str, object] = {"uid": uid, "allowed": True}
    if operations:
        patch = base64.b64encode(msgspec.json.encode(operations)).decode()
        response |= {"patchType": "JSONPatch", "patch": patch}
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


class _Named(KubeValue, frozen=True):
    uid: str = ""


class _AnyReview(KubeValue, frozen=True):
    request: _Named = _Named()


def _uid(body: bytes) -> str:
    """Read which request it was, where at least that can be read."""
    try:
        return msgspec.json.decode(body, type=_AnyReview).request.uid
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
