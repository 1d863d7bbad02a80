"""Certificates of the webhook on a real API server: from files and the own, renewed while it serves."""

from __future__ import annotations

import asyncio
import base64
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.cluster.control_plane import free_port
from tests.cluster.operator_process import OperatorProcess, awaited, read_ring
from tests.cluster.webhook_world import (
    RING,
    SHARDER,
    WITHIN_S,
    Beats,
    HookWorld,
    Service,
    configuration,
    hook_options,
    make_masters,
    operator,
    put_ring,
    read,
    unmake_masters,
    wait,
)
from tests.cluster.world import Cluster

from poise.errors import NotFound
from poise.jobs.operating import Operator, identity
from poise.jobs.sharder.webhook import certificates, configuring
from poise.jobs.sharder.webhook.authority import LASTS, RENEWED, Kept, next_kept, read_kept, write_kept
from poise.jobs.sharder.webhook.configuring import Reached
from poise.jobs.sharder.webhook.hook import HookTerms
from poise.kube import Client, ObjectRef, Partial
from poise.kube.objects import KubeValue
from poise.kube.resources import SECRETS
from poise.model.sharding import Marks
from poise.serve.settings import ServeSettings, open_sockets
from poise.serve.webhook import serve_webhook

pytestmark = pytest.mark.usefixtures("definitions")
NAMES = ("127.0.0.1",)
SECRET = "poise-webhook"


def made_ago(ago: timedelta) -> Kept:
    """Make certificates as they were made some time ago."""
    kept = next_kept(None, NAMES, datetime.now(UTC) - ago, trusted=False)
    assert kept is not None
    return kept


@pytest.fixture
def world(cluster: Cluster, namespace: str) -> Iterator[HookWorld]:
    """A ring with instances, and no operator yet."""
    cluster.run(lambda client: make_masters(client, SHARDER))
    cluster.run(lambda client: put_ring(client, namespace))
    world = HookWorld(cluster.plane, namespace)
    read(world.ask("POST", world.path(), {"metadata": {"name": "probe"}}))
    with Beats(cluster, namespace):
        yield world
    world.close()
    cluster.run(unmake_masters)


def write_files(folder: Path, kept: Kept) -> tuple[Path, Path, Path]:
    """Write the three files of a certificate, all in one instant: that is how a mounted Secret changes."""
    made, link = Path(tempfile.mkdtemp(dir=folder)), folder / "link"
    texts = {"tls.crt": kept.current.certificate, "tls.key": kept.current.key, "ca.crt": kept.trusted}
    for name, text in texts.items():
        (made / name).write_text(text)
    link.symlink_to(made)
    shown = link.replace(folder / "shown")
    return shown / "tls.crt", shown / "tls.key", shown / "ca.crt"


def test_files_that_expire_and_are_renewed(cluster: Cluster, world: HookWorld, tmp_path: Path) -> None:
    files, port = write_files(tmp_path, made_ago(LASTS + timedelta(days=1))), free_port()
    with (
        Service((port,)) as service,
        operator(cluster, world.namespace, *hook_options(port, service, files)) as process,
    ):
        # An expired one: everything is made all the same, and assigned by the watch. Nobody overwrites labels then.
        wait(world.refuses, lambda: process.said)
        assert not is_configured(cluster, world.namespace)
        bare = world.make()
        assert world.marks(bare) == Marks()
        wait(lambda: world.marks(world.get(bare.name)).shard is not None, lambda: process.said)
        wait(
            lambda: "the webhook is not believed: the certificate has expired on" in process.said, lambda: process.said
        )
        assert numbers(cluster, process)["poise_webhook_certificate_seconds"] < 0
        assert numbers(cluster, process)["poise_webhook_trouble"] == 1
        wait(lambda: "has expired" in condition(cluster, world.namespace), lambda: process.said)

        # Files that are renewed are taken without a restart; also those of another authority.
        for ago in (timedelta(hours=2), timedelta(hours=1)):
            write_files(tmp_path, made_ago(ago))
            left_s = (LASTS - ago).total_seconds()
            wait(
                lambda left_s=left_s: (  # type: ignore[misc]  # The usual way to bind a loop's variable.
                    abs(numbers(cluster, process)["poise_webhook_certificate_seconds"] - left_s) < 1_800
                ),
                lambda: process.said,
            )
            wait(world.assigns, lambda: process.said)
            assert world.lets_be()
        wait(lambda: condition(cluster, world.namespace) == "", lambda: process.said)

        # A broken one keeps the old one in place.
        files[0].write_text("rubbish")
        wait(lambda: "the certificate cannot be replaced" in process.said, lambda: process.said)
        assert world.assigns()
        assert numbers(cluster, process)["poise_webhook_trouble"] == 1
        assert process.said.count("cannot be replaced") == 1
        assert process.said.count("has expired on") == 1
        assert cluster.run(lambda _client: process.end()) == 0

    # Without the flag the configuration goes, and objects are made as before.
    assert is_configured(cluster, world.namespace)
    with operator(cluster, world.namespace) as process:
        wait(lambda: not is_configured(cluster, world.namespace), lambda: process.said)
        bare = world.make()
        wait(lambda: world.marks(world.get(bare.name)).shard is not None, lambda: process.said)
        wait(world.refuses, lambda: process.said)


def is_configured(cluster: Cluster, namespace: str) -> bool:
    """Say whether the API server was told of the webhook."""
    try:
        cluster.run(lambda client: configuration(client, namespace))
    except NotFound:
        return False
    return True


def numbers(cluster: Cluster, process: OperatorProcess) -> dict[str, float]:
    """Read the metrics of an operator."""
    return cluster.run(lambda _client: process.numbers())


def condition(cluster: Cluster, namespace: str) -> str:
    """Read what the ring says of the webhook; empty where it says nothing."""
    found = cluster.run(lambda client: read_ring(client, namespace, RING)).status.of("WebhookTrusted")
    return found.message if found.status == "False" else ""


class SecretSeen(KubeValue, frozen=True):
    """The Secret of the certificates."""

    data: dict[str, str]


async def kept_now(client: Client, namespace: str) -> Kept:
    """Read what the Secret keeps now."""
    kept = read_kept((await client.get(ObjectRef(SECRETS, SECRET, namespace), SecretSeen)).data)
    assert kept is not None
    return kept


async def bundle_now(client: Client, namespace: str) -> str:
    """Read which authorities the API server was told to trust."""
    hook = (await configuration(client, namespace)).webhooks[0]
    config = hook["clientConfig"]
    assert isinstance(config, dict)
    return base64.b64decode(config["caBundle"]).decode()


class Probing:
    """Asks without a pause whether a new object would be assigned; once it was, it must be every time."""

    def __init__(self, world: HookWorld) -> None:
        """Begin."""
        self.assigned = self.missed = 0
        self._world, self._ended = world, threading.Event()
        self._thread = threading.Thread(target=self._probe, daemon=True)
        self._thread.start()

    def _probe(self) -> None:
        while not self._ended.wait(0.02):
            if self._world.assigns():
                self.assigned += 1
            elif self.assigned:
                self.missed += 1

    def end(self) -> None:
        """End."""
        self._ended.set()
        self._thread.join(20)


def test_the_operator_replaces_its_own_certificate_and_nobody_notices(
    cluster: Cluster, world: HookWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "OVERLAP_S", 4.0)
    monkeypatch.setattr(certificates, "_SECRET_S", 0.2)
    monkeypatch.setattr(configuring, "TIMEOUT_S", 10)  # Not believed is what is looked for here, not late.
    due = made_ago(LASTS - RENEWED + timedelta(days=1))

    async def scenario(admin: Client) -> None:
        sockets = open_sockets(ServeSettings(host="127.0.0.1", port=0))
        reached = Reached(url=f"https://127.0.0.1:{sockets[0].getsockname()[1]}")
        namespace, ended = world.namespace, asyncio.Event()
        ref = ObjectRef(SECRETS, SECRET, namespace)
        await admin.create(ref, {"metadata": {"name": SECRET}, "data": write_kept(due)}, Partial)
        async with cluster.connect(SHARDER) as client:
            made = Operator(
                client, me=identity("t"), home=namespace, scope=namespace, webhook=HookTerms(reached, namespace)
            )
            assert made.webhook is not None
            hook = made.webhook
            working = asyncio.create_task(made.run())
            serving = asyncio.create_task(serve_webhook(hook.answer, hook.certificates.shown.context, sockets, ended))
            probing = Probing(world)
            try:
                await awaited(lambda: holds(probing.assigned > 3), lambda: hook.trouble, WITHIN_S)
                await awaited(lambda: announced(admin, namespace), lambda: "announced", WITHIN_S)
                first = await kept_now(admin, namespace)
                assert first.current == due.current
                await awaited(lambda: replaced(admin, namespace, first), lambda: "replaced", WITHIN_S)
                count = probing.assigned
                await awaited(lambda: holds(probing.assigned > count + 10), lambda: "goes on", WITHIN_S)
                assert hook.certificates.left_s > RENEWED.total_seconds()
                # Where the process leads, its sharder's mirrors are enough.
                follower = hook._followers.find(namespace, RING)
                assert follower is not None
                assert follower.session is made._lend((namespace, RING))
                assert follower._own is None
            finally:
                await asyncio.to_thread(probing.end)
                working.cancel()
                ended.set()
                await asyncio.gather(working, serving, return_exceptions=True)
        assert probing.missed == 0, "at some moment the API server did not believe the webhook"

    async def announced(admin: Client, namespace: str) -> bool:
        kept = await kept_now(admin, namespace)
        return kept.next is not None and len(kept.bundle) == 2 and await bundle_now(admin, namespace) == kept.trusted

    async def replaced(admin: Client, namespace: str, first: Kept) -> bool:
        kept = await kept_now(admin, namespace)
        assert first.next is not None
        # Whatever is served now, the API server knows its authority.
        assert await bundle_now(admin, namespace) == first.trusted
        return kept.current == first.next

    cluster.run(scenario)


async def holds(found: bool) -> bool:
    return found
