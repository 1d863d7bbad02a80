"""A ring whose operators serve a webhook to the real API server: living instances, a Service, people who write."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType

import httpx2
import msgspec
from tests.cluster.control_plane import ControlPlane, free_port
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.ring_world import RINGS, ring_document
from tests.cluster.world import RBAC, Cluster

from poise.decide.ring import Ring
from poise.errors import Conflict, NotFound, Unavailable
from poise.jobs.sharder.webhook.keeper import CONFIGURATIONS, KeptConfiguration
from poise.kube import LEASES, Client, Lease, Meta, ObjectRef, Partial, Resource
from poise.model.sharding import RING_LABEL, Marks, label_names, read_marks
from poise.move.sharding.keys import object_key

SHARDER = "alice"
RING = "web"
INSTANCES = ("web-0", "web-1", "web-2")
WITHIN_S = 60.0
_MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
_ROLE_BINDINGS = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False)
_MASTERS = ObjectRef(_ROLE_BINDINGS, "webhook-masters")


async def make_masters(client: Client, *users: str) -> None:
    """Let users do everything, without being of the group that everything is allowed to anyhow."""
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": user} for user in users]
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
    kind = {"apiVersion": _ROLE_BINDINGS.api_version, "kind": _ROLE_BINDINGS.kind}
    body = {**kind, "metadata": {"name": "webhook-masters"}, "roleRef": role, "subjects": subjects}
    await client.apply(_MASTERS, body, Partial, force=True)


async def unmake_masters(client: Client) -> None:
    """Take that away: the users are those of other tests, too."""
    await client.delete(_MASTERS, uid=(await client.get(_MASTERS, Partial)).metadata.uid)


class Beats:
    """Instances without work: their Leases are renewed by a thread, as long as the block runs."""

    def __init__(self, cluster: Cluster, namespace: str, names: tuple[str, ...] = INSTANCES, ring: str = RING) -> None:
        """Prepare; `silent` are those that stop renewing."""
        self._cluster, self._namespace, self._names, self._ring = cluster, namespace, names, ring
        self.silent: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._beat()), daemon=True)

    def __enter__(self) -> Beats:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._ended.set()
        self._thread.join(20)

    async def _beat(self) -> None:
        leases: dict[str, Lease] = {}
        async with self._cluster.connect() as client:
            while not self._ended.is_set():
                for name in self._names:
                    try:
                        if name not in self.silent:
                            leases[name] = await self._renew(client, name, leases.get(name))
                    except (Unavailable, Conflict):  # It may have been written although nobody answered.
                        with suppress(Unavailable, NotFound):
                            leases[name] = await client.get(ObjectRef(LEASES, name, self._namespace), Lease)
                await asyncio.sleep(0.3)

    async def _renew(self, client: Client, name: str, old: Lease | None) -> Lease:
        ref = ObjectRef(LEASES, name, self._namespace)
        told = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 10**9 // 1000:06}Z"
        meta = {"name": name, "labels": {RING_LABEL: self._ring}}
        version = {} if old is None else {"resourceVersion": old.metadata.resource_version}
        spec = {"holderIdentity": f"{name}_beats", "leaseDurationSeconds": 15, "renewTime": told}
        body = {"metadata": meta | version, "spec": spec}
        send = client.create if old is None else client.replace
        return await send(ref, body, Lease)


class Service:
    """An address of the tests' own that leads to one of several ports, as a Service does: the first that takes it."""

    def __init__(self, ports: tuple[int, ...]) -> None:
        """Prepare; the order of the ports may be changed at any time."""
        self.ports = ports
        self.port = free_port()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Service:
        """Listen."""
        self._thread.start()
        made = asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._server = asyncio.run_coroutine_threadsafe(made, self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every connection."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def lead_to(self, *ports: int) -> None:
        """Lead to these ports, also those who are connected already: they must connect anew."""
        self.ports = ports
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)

    async def _cut(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _end(self) -> None:
        self._server.close()
        await self._cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        others: list[asyncio.StreamWriter] = [writer]
        try:
            for port in self.ports:
                try:
                    there, back = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    continue
                others.append(back)
                await asyncio.gather(_pump(reader, back), _pump(there, writer))
                break
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for each in others:
                each.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


class HookWorld:
    """One namespace with a ring whose name is that of every ring here, and people who write objects in it."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        """Speak plain HTTP: the answer to a request is looked at, and nothing else."""
        self.http, self.namespace = plane.client(), namespace
        self._numbers = itertools.count()

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        who: str = "carol",
        pod: str = "",
        kind: str = "application/json",
        **query: str,
    ) -> httpx2.Response:
        """Send one request as somebody who has all rights: what is refused then is refused by a policy."""
        headers = {"Content-Type": kind, "Impersonate-User": who, "Impersonate-Group": "system:masters"}
        if pod:
            headers["Impersonate-Extra-authentication.kubernetes.io%2Fpod-name"] = pod
        content = None if body is None else msgspec.json.encode(body)
        return self.http.request(method, path, headers=headers, params=query, content=content)

    def path(self, resource: str = "secrets", name: str = "") -> str:
        """Say where objects of the namespace are."""
        return f"/api/v1/namespaces/{self.namespace}/{resource}" + (f"/{name}" if name else "")

    def make(
        self,
        labels: Mapping[str, str] | None = None,
        *,
        name: str = "",
        resource: str = "secrets",
        owner: Meta | None = None,
        who: str = "carol",
        **query: str,
    ) -> Meta:
        """Make an object, and give what the answer of the API server shows of it."""
        meta: dict[str, object] = {"name": name or f"s{next(self._numbers)}-{uuid.uuid4().hex[:6]}"}
        if labels is not None:
            meta["labels"] = labels
        if owner is not None:
            meta["ownerReferences"] = [controlled_by(owner)]
        answer = self.ask("POST", self.path(resource), {"metadata": meta}, who=who, **query)
        return read(answer)

    def get(self, name: str, resource: str = "secrets") -> Meta:
        """Read an object as it is now."""
        return read(self.ask("GET", self.path(resource, name)))

    def marks(self, meta: Meta) -> Marks:
        """Read the labels of the ring."""
        return read_marks(meta.labels, RING)

    def home(self, name: str) -> str | None:
        """Say who has the key of a Secret, by what everybody can compute."""
        return Ring(INSTANCES).owner(object_key("", "Secret", self.namespace, name))

    def assigns(self) -> bool:
        """Say whether the webhook assigns now; nothing is made for that."""
        return self.marks(self.make(dryRun="All")).shard is not None

    def lets_be(self) -> bool:
        """Say whether the policy with the webhook is in force: it lets labels be sent, and refuses changes of them."""
        labels = {label_names(RING)[0]: "no-instance"}
        bare = self.ask("PATCH", self.path(name="probe"), {"metadata": {"labels": labels}}, kind=_MERGE, dryRun="All")
        return self._sent(labels).is_success and bare.status_code == 403

    def refuses(self) -> bool:
        """Say whether the policy without the webhook is in force: labels cannot even be sent with what is new."""
        return self._sent({label_names(RING)[0]: "no-instance"}).status_code == 403

    def _sent(self, labels: Mapping[str, str]) -> httpx2.Response:
        meta = {"name": f"probe-{uuid.uuid4().hex[:6]}", "labels": labels}
        return self.ask("POST", self.path(), {"metadata": meta}, dryRun="All")

    def patch(self, name: str, labels: Mapping[str, str | None], *, who: str, pod: str = "") -> httpx2.Response:
        """Change labels."""
        return self.ask("PATCH", self.path(name=name), {"metadata": {"labels": labels}}, who=who, pod=pod, kind=_MERGE)

    def put(self, name: str, labels: Mapping[str, str] | None, *, who: str = "carol", pod: str = "") -> httpx2.Response:
        """Replace an object by one with these labels."""
        meta = {"name": name} | ({} if labels is None else {"labels": labels})
        body = {"metadata": meta, "stringData": {"new": "value"}}
        return self.ask("PUT", self.path(name=name), body, who=who, pod=pod)


def controlled_by(owner: Meta) -> dict[str, object]:
    """Write the ownerReference of a controlling Secret."""
    return {"apiVersion": "v1", "kind": "Secret", "name": owner.name, "uid": owner.uid, "controller": True}


def read(answer: httpx2.Response) -> Meta:
    """Read the metadata of what came."""
    assert answer.is_success, answer.text
    return msgspec.json.decode(answer.content, type=Partial).metadata


def wait(holds: Callable[[], bool], what: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end_s, f"not within {within_s} s: {what()}"
        time.sleep(0.1)


async def put_ring(client: Client, namespace: str, **spec: object) -> None:
    """Create the ring."""
    await client.create(ObjectRef(RINGS, RING, namespace), ring_document(RING, namespace, **spec), Partial)


async def configuration(client: Client, namespace: str) -> KeptConfiguration:
    """Read the configuration of the webhook of an operator that looks at one namespace."""
    return await client.get(ObjectRef(CONFIGURATIONS, f"poise-webhook.{namespace}"), KeptConfiguration)


def operator(cluster: Cluster, namespace: str, *options: str, who: str = SHARDER) -> OperatorProcess:
    """Start an operator that looks at one namespace."""
    return OperatorProcess(cluster.kubeconfig(who), "--namespace", namespace, *options)


def hook_options(port: int, service: Service, files: tuple[Path, Path, Path] | None = None) -> list[str]:
    """Write the flags of a webhook on a port, which the API server reaches by the address of the tests."""
    options = ["--webhook", f"127.0.0.1:{port}", "--webhook-url", f"https://127.0.0.1:{service.port}"]
    if files is not None:
        named = zip(("--webhook-cert", "--webhook-key", "--webhook-ca"), map(str, files), strict=True)
        options += [each for pair in named for each in pair]
    return options


@asynccontextmanager
async def cancelled(task: asyncio.Task[None]) -> AsyncIterator[None]:
    """Run a task while the block does."""
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
