"""What joining a ring sets in kopf: a filter for the resources of the ring alone, no peering, time to end."""

from __future__ import annotations

import asyncio

import kopf
import pytest
from tests.hold.test_kopf_gate import PODS, SECRETS

from poise.errors import InvalidSpec
from poise.hold.kopf_member import RingMember
from poise.hold.shard import Shard
from poise.kube.client import Client
from poise.kube.connecting import connect

APPS = kopf.Resource("apps", "v1", "secrets", kind="Secret", namespaced=True)


def _shard(client: Client | None = None) -> Shard:
    return Shard(ring="web", resources=["secrets"], name="me", client=client)


def _member() -> RingMember:
    return RingMember(
        _shard, lambda: connect("/nowhere"), ring="web", resources=["secrets"], everywhere=["pods"], finish_s=7.0
    )


@pytest.mark.parametrize("mandatory", [False, True])
def test_kopf_is_set_to_be_a_shard(mandatory: bool, caplog: pytest.LogCaptureFixture) -> None:
    settings = kopf.OperatorSettings()
    settings.peering.mandatory = mandatory
    _member()._adapt(settings, _shard())
    chosen = settings.watching.label_selectors.collect
    assert [chosen(each) for each in (SECRETS, PODS, APPS)] == [["shard.poise.dev/web=me"], [], []]
    assert (settings.peering.standalone, settings.peering.mandatory) == (True, False)
    assert settings.queueing.exit_timeout == 7.0
    assert ("kopf.peering_off" in caplog.text) is mandatory


def test_time_that_was_given_to_handlers_stays() -> None:
    settings = kopf.OperatorSettings()
    settings.queueing.exit_timeout = 60.0
    _member()._adapt(settings, _shard())
    assert settings.queueing.exit_timeout == 60.0


def test_a_shard_that_cannot_begin_says_why() -> None:
    async def begin() -> None:
        with pytest.raises(InvalidSpec, match="nowhere"):
            await _member().begin(kopf.OperatorSettings())
        await _member().end()

    asyncio.run(begin())
