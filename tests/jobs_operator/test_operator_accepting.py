"""Which rings are run: one of each name, by sound documents."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from poise.errors import Forbidden, InvalidSpec
from poise.jobs.sharder.accepting import (
    FINALIZER,
    OPERATOR_ANNOTATION,
    brake_released,
    forbidden,
    invalid_document,
    name_taken,
    read_ring,
    rightful,
    taken_elsewhere,
)
from poise.kube.objects import Custom, Meta
from poise.model import ShardRing

OLD = Meta("web", "b", creation_timestamp="2026-11-16T10:00:00Z")
SECRETS = '"resources": [{"resource": "secrets"}]'
YOUNG = Meta("web", "a", creation_timestamp="2026-11-16T10:00:01Z")
TWIN = Meta("web", "c", creation_timestamp="2026-11-16T10:00:00Z")


def accepted(meta: Meta) -> Meta:
    return msgspec.structs.replace(meta, finalizers=("other", FINALIZER))


@pytest.mark.parametrize(
    ("claims", "chosen"),
    [
        ([OLD, YOUNG], OLD),
        ([OLD, TWIN], OLD),
        ([TWIN, YOUNG], TWIN),
        ([OLD, accepted(YOUNG)], accepted(YOUNG)),
        ([OLD, accepted(TWIN)], accepted(TWIN)),
        ([accepted(OLD), accepted(YOUNG)], accepted(OLD)),
        ([YOUNG], YOUNG),
    ],
)
def test_the_ring_that_was_accepted_is_run_else_the_oldest(claims: list[Meta], chosen: Meta) -> None:
    for order in itertools.permutations(claims):
        assert rightful(order) == chosen


def claimed(meta: Meta, home: str) -> Meta:
    return msgspec.structs.replace(accepted(meta), annotations={OPERATOR_ANNOTATION: home})


@pytest.mark.parametrize(
    ("claims", "chosen"),
    [
        pytest.param([claimed(OLD, "here"), claimed(YOUNG, "there")], claimed(YOUNG, "there"), id="run elsewhere"),
        pytest.param([claimed(OLD, "there"), YOUNG], claimed(OLD, "there"), id="run elsewhere, and older"),
        pytest.param([accepted(OLD), claimed(YOUNG, "here")], claimed(YOUNG, "here"), id="run here"),
        pytest.param([accepted(OLD), accepted(YOUNG)], accepted(OLD), id="run by nobody"),
        pytest.param([OLD, accepted(YOUNG)], accepted(YOUNG), id="accepted, and given free"),
    ],
)
def test_a_ring_that_another_installation_runs_has_the_name(claims: list[Meta], chosen: Meta) -> None:
    for order in itertools.permutations(claims):
        assert rightful(order, "here") == chosen


def test_a_claim_without_the_finalizer_is_none() -> None:
    only_said = msgspec.structs.replace(YOUNG, annotations={OPERATOR_ANNOTATION: "there"})
    assert rightful([OLD, only_said], "here") == OLD


def test_who_runs_a_ring_elsewhere_is_told_with_the_command_that_frees_it() -> None:
    free = "if that operator is gone for good: kubectl annotate shardring web --namespace a poise.dev/operator-"
    elsewhere, taken = taken_elsewhere(YOUNG, "there"), name_taken(OLD, YOUNG, "there")
    assert (elsewhere.reason, taken.reason) == ("RunElsewhere", "NameTaken")
    assert "the operator of the namespace there runs this ring" in elsewhere.message
    assert "the ring a/web has this name already, and the operator of the namespace there runs it" in taken.message
    assert elsewhere.message.endswith(free)
    assert taken.message.endswith(free)
    assert "kubectl" not in name_taken(OLD, YOUNG).message


def test_a_refusal_names_the_other_one() -> None:
    refusal = name_taken(YOUNG, OLD)
    assert refusal.reason == "NameTaken"
    assert "the ring b/web has this name already" in refusal.message
    assert "a/web" in refusal.message


def custom(spec: str, **meta: object) -> Custom:
    named = msgspec.convert({"name": "web", "namespace": "team", **meta}, Meta)
    return Custom(named, "poise.dev/v1alpha1", "ShardRing", msgspec.Raw(spec.encode()), msgspec.Raw(b'{"x": 1}'))


def test_a_document_is_read_like_a_file() -> None:
    spec = f'{{"policy": "balanced", "leaseSeconds": 3, {SECRETS}}}'
    ring = read_ring(custom(spec, annotations={"a": "b"}, generation=4))
    assert isinstance(ring, ShardRing)
    assert (ring.metadata.namespace, ring.spec.policy, ring.spec.lease_seconds) == ("team", "balanced", 3)


def test_every_fault_of_a_document_is_told_with_its_path() -> None:
    with pytest.raises(InvalidSpec) as caught:
        read_ring(custom('{"policy": "best", "leaseSeconds": 0}'))
    plain = invalid_document(caught.value, runs=False, removed=False).message
    assert "$.spec.policy: " in plain
    assert "$.spec.leaseSeconds: " in plain
    assert "as it was before" in invalid_document(caught.value, runs=True, removed=False).message
    assert "cannot be taken off" in invalid_document(caught.value, runs=False, removed=True).message


def test_the_missing_right_is_named() -> None:
    refusal = forbidden(Forbidden("patch", "poise.dev", "shardrings", "team"))
    assert refusal.message == 'the operator may not patch shardrings of the group "poise.dev" in the namespace team'


def test_the_brake_is_opened_by_an_annotation() -> None:
    assert brake_released(Meta("web", annotations={"poise.dev/brake-released": "now"})) == "now"
    assert brake_released(Meta("web")) == ""


@pytest.mark.parametrize(
    "guards", ['{"cooldownSeconds": 60}', '{"perTargetMax": 1}', '{"windows": [{"days": ["Mon"]}]}']
)
def test_guards_that_nobody_would_keep_are_refused(guards: str) -> None:
    with pytest.raises(InvalidSpec, match=r"\$\.spec\.guards"):
        read_ring(custom(f'{{"guards": {guards}, {SECRETS}}}'))
    kept = read_ring(custom(f'{{"guards": {{"movesInFlightMax": null}}, {SECRETS}}}'))
    assert kept.spec.guards.moves_in_flight_max is None


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        pytest.param("{}", ["$.spec.resources"], id="no resources"),
        pytest.param('{"resources": []}', ["$.spec.resources"], id="an empty list of them"),
        pytest.param(f'{{"objects": ["a/b"], {SECRETS}}}', ["$.spec.objects"], id="keys beside resources"),
        pytest.param('{"objects": ["a/b"]}', ["$.spec.objects", "$.spec.resources"], id="keys alone"),
        pytest.param(
            '{"objects": ["a"], "guards": {"perTargetMax": 1}}',
            ["$.spec.guards", "$.spec.objects", "$.spec.resources"],
            id="all faults at once",
        ),
    ],
)
def test_a_ring_that_would_run_with_nothing_is_refused(spec: str, paths: list[str]) -> None:
    with pytest.raises(InvalidSpec) as caught:
        read_ring(custom(spec))
    assert [fault.path for fault in caught.value.faults] == paths
