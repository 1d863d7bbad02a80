"""One control plane a test run and a namespace a test; everything that was started is ended by its id."""

from __future__ import annotations

import gc
import os
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.control_plane import ControlPlane
from tests.cluster.world import Cluster, install_definitions, make_namespace, remove_definitions, started

from poise.kube import NAMESPACES, ObjectRef

USERS = ("alice", "bob")
# A request that is cancelled while its connection is being made leaves the socket to the garbage collector.
_STRAY_SOCKETS = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <(socket.socket|function _SelectorTransport):pytest.PytestUnraisableExceptionWarning"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs against a cluster: it is slow, and chosen by `-m cluster`."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.slow)
            item.add_marker(_STRAY_SOCKETS)


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Collect stray sockets within the test that left them: no other test is to hear of them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _is_the_users(config: pytest.Config) -> bool:
    """Say whether this run is for a cluster of the user's own."""
    return bool(os.environ.get("KUBECONFIG")) and "cluster" in config.getoption("markexpr")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """The cluster of this run: with `-m cluster` the one of KUBECONFIG, else a control plane that ends with the run.

    Both are needed: nobody's cluster is written to only because a variable happens to be set.
    """
    if _is_the_users(pytestconfig):
        yield Cluster(None)
        return
    with started(ControlPlane(tmp_path_factory.mktemp("plane"), USERS)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def rig(pytestconfig: pytest.Config) -> None:
    """Skip tests with a control plane of their own where the run is for the user's cluster; nothing is started."""
    if _is_the_users(pytestconfig):
        pytest.skip("needs the rig: unset KUBECONFIG")


@pytest.fixture(scope="module")
def breakable(rig: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:  # noqa: ARG001
    """A control plane of this file's own, which its tests may kill."""
    with started(ControlPlane(tmp_path_factory.mktemp("breakable"), USERS)) as cluster:
        yield cluster


def _namespace(cluster: Cluster) -> Iterator[str]:
    name = f"poise-test-{uuid.uuid4().hex[:8]}"
    made = cluster.run(lambda client: make_namespace(client, name))
    yield name
    cluster.run(lambda client: client.delete(ObjectRef(NAMESPACES, name), uid=made.metadata.uid))


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of this test's own."""
    yield from _namespace(cluster)


@pytest.fixture
def broken_namespace(breakable: Cluster) -> Iterator[str]:
    """A namespace of this test's own in a cluster that may be broken."""
    yield from _namespace(breakable)


@pytest.fixture(scope="session")
def definitions(cluster: Cluster) -> Iterator[None]:
    """The five kinds, known to the API server while the tests run; those that were there before stay."""
    made = cluster.run(install_definitions)
    yield
    cluster.run(lambda client: remove_definitions(client, made))
