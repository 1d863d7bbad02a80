"""Documents that are sound: what they mean in Python, and that writing and reading them again changes nothing."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from poise.documents import Document, dump, load, load_targets, write_yaml
from poise.documents.json_values import json_value
from poise.documents.scalars import plain
from poise.errors import InvalidSpec
from poise.model import (
    KINDS,
    CapacitySplit,
    DivisionRecord,
    Endpoint,
    KeySource,
    Node,
    PartitionRow,
    PartitionSet,
    PoolMember,
    Ramp,
    ReplicaDivision,
    ShardRing,
    SplitCounts,
    Target,
    TargetPool,
    Window,
)

HERE = Path(__file__).parent
CONTRACT = (HERE / "data" / "documents.yaml").read_text()
REFERENCE = (HERE.parent / "docs" / "documents.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", REFERENCE, re.MULTILINE | re.DOTALL)
ADDRESSED = "endpoints: [{name: p, url: 'http://p'}]"


def contract() -> tuple[TargetPool, PartitionSet, ShardRing, ReplicaDivision, CapacitySplit]:
    pool, partitions, ring, division, split = load(CONTRACT, "documents.yaml")
    assert isinstance(pool, TargetPool)
    assert isinstance(partitions, PartitionSet)
    assert isinstance(ring, ShardRing)
    assert isinstance(division, ReplicaDivision)
    assert isinstance(split, CapacitySplit)
    return pool, partitions, ring, division, split


def test_the_target_pool_of_the_contract() -> None:
    pool = contract()[0]
    assert (pool.api_version, pool.kind, pool.metadata.name) == ("poise.dev/v1alpha1", "TargetPool", "core-routers")
    assert pool.metadata.labels == {"team": "net"}
    assert (pool.spec.policy, pool.spec.capacity) == ("sticky", 40)
    assert pool.spec.pods.endpoints == [Endpoint("gnmic-0", "http://127.0.0.1:7890", 1, 60)]
    assert pool.spec.targets.listed == [Target("router1", "10.0.0.1:57400", {"site": "par"}, {"insecure": True})]
    assert (pool.spec.drop_max_percent, pool.spec.gone_after_seconds) == (30, 30)
    assert pool.spec.delivery is not None
    assert pool.spec.delivery.kind == "gnmic"
    assert pool.spec.delivery.subscriptions == {"s1": {"paths": ["/interfaces"]}}
    assert pool.spec.guards.moves_in_flight_max == 50
    assert pool.status.members == [PoolMember("gnmic-0", "ready")]
    assert pool.status.assignment == {"router1": "gnmic-0"}


def test_the_partition_set_of_the_contract() -> None:
    orders = contract()[1]
    spec = orders.spec
    assert (spec.partitions, spec.lease_seconds, spec.grace_seconds, spec.release_seconds) == (64, 10, 2, 30)
    assert (spec.on_release_timeout, spec.margin_seconds, spec.stop_seconds) == ("revoke", 1, 1)
    assert (spec.guards.moves_in_flight_max, spec.guards.per_source_max, spec.guards.per_target_max) == (8, 4, 4)
    assert orders.status.nodes == [Node("n1", "active", 3, 1)]
    assert orders.status.partitions == [PartitionRow("0", "Assigned", "n1", None, 7)]


def test_the_shard_ring_of_the_contract() -> None:
    web = contract()[2]
    assert (web.spec.policy, web.spec.tokens, web.spec.key) == ("ring", 100, "object")
    assert (web.spec.resources[0].group, web.spec.resources[0].resource) == ("apps", "deployments")
    assert [each.resource for each in web.spec.resources[0].controlled] == ["configmaps"]
    assert (web.spec.drain_timeout_seconds, web.spec.on_drain_timeout, web.spec.brake_percent) == (60, "wait", 50)
    assert (web.status.instances[0].name, web.status.instances[0].tokens) == ("web-0", 100)
    assert web.status.assignment == {"apps/Deployment/default/a": "web-0"}


def test_the_replica_division_of_the_contract() -> None:
    shop = contract()[3]
    assert (shop.spec.strategy, shop.spec.draw, shop.spec.mix, shop.spec.fair) == ("StaticWeight", "exact", 0, "fleet")
    cluster = shop.spec.clusters[0]
    assert (cluster.name, cluster.weight, cluster.min, cluster.max, cluster.capacity) == ("member1", 1, 0, 10, 20)
    assert [(each.name, each.replicas) for each in shop.spec.workloads] == [("cart", 7)]
    weights, result = {"member1": 1, "member2": 1}, {"member1": 4, "member2": 3}
    assert shop.status.divisions == {"cart": DivisionRecord(7, weights, "StaticWeight", result)}


def test_the_capacity_split_of_the_contract() -> None:
    shop = contract()[4]
    api = shop.spec.workloads[0]
    assert (api.name, api.replicas, api.spot_percent, api.min_on_demand) == ("api", 10, 70, 1)
    assert (shop.spec.pools, shop.spec.ramp) == ([], Ramp())
    assert shop.spec.guards.cooldown_seconds == 10
    assert shop.spec.guards.windows == [Window("0 2 * * *", "4h", "UTC")]
    assert [(each.limit, each.window_seconds, each.scope) for each in shop.spec.guards.budgets] == [
        ("20%", 600, "workload")
    ]
    assert shop.status.workloads == {"api": SplitCounts(6, 4, 4)}


def test_what_the_contract_shows_as_a_value_is_also_the_default() -> None:
    pool = one(f"kind: TargetPool\nmetadata: {{name: a}}\nspec: {{pods: {{{ADDRESSED}}}, targets: {{list: []}}}}")
    assert isinstance(pool, TargetPool)
    shown = contract()[0].spec
    for name in ("policy", "drop_max_percent", "gone_after_seconds", "guards"):
        assert getattr(pool.spec, name) == getattr(shown, name)
    bare = {"kind": "PartitionSet", "metadata": {"name": "orders"}, "spec": {"partitions": 64}}
    assert one(json.dumps(bare)) == msgspec.structs.replace(contract()[1], status=type(contract()[1].status)())


@pytest.mark.parametrize("block", BLOCKS)
def test_every_example_of_the_reference_loads(block: str) -> None:
    assert load_targets(block, "docs") if block.startswith("# routers.yaml") else load(block, "docs")


def test_the_reference_names_every_field_of_every_kind() -> None:
    for kind in KINDS.values():
        for name in camel_names(msgspec.inspect.type_info(kind)):
            assert re.search(rf"\b{name}\b", REFERENCE), f"docs/documents.md does not mention {name}"


def camel_names(kind: msgspec.inspect.Type) -> set[str]:
    found: set[str] = set()
    waiting = [kind]
    while waiting:
        each = waiting.pop()
        if isinstance(each, msgspec.inspect.StructType):
            found |= {field.encode_name for field in each.fields}
            waiting += [field.type for field in each.fields]
        elif isinstance(each, msgspec.inspect.UnionType):
            waiting += each.types
        elif isinstance(each, msgspec.inspect.ListType):
            waiting.append(each.item_type)
        elif isinstance(each, msgspec.inspect.DictType):
            waiting.append(each.value_type)
        elif isinstance(each, msgspec.inspect.Metadata):
            waiting.append(each.type)
    return found


def one(text: str) -> Document:
    (document,) = load(text, "one.yaml")
    return document


SCALARS: list[tuple[str, object]] = [
    ("on", "on"),
    ("off", "off"),
    ("yes", "yes"),
    ("y", "y"),
    ("12:30", "12:30"),
    ("190:20:30", "190:20:30"),
    ("2026-11-15", "2026-11-15"),
    ("1_000", "1_000"),
    ("0b11", "0b11"),
    ("=", "="),
    ("tRue", "tRue"),
    ("nil", "nil"),
    ("-", "-"),
    ("1.2.3", "1.2.3"),
    ("٣", "٣"),
    ("", None),
    ("~", None),
    ("null", None),
    ("Null", None),
    ("NULL", None),
    ("true", True),
    ("True", True),
    ("TRUE", True),
    ("false", False),
    ("0", 0),
    ("-7", -7),
    ("+7", 7),
    ("010", 10),
    ("0o17", 15),
    ("0x1F", 31),
    ("1.5", 1.5),
    (".5", 0.5),
    ("1.", 1.0),
    ("1e3", 1000.0),
    ("-2.5E-1", -0.25),
    (".inf", float("inf")),
    ("+.INF", float("inf")),
    ("-.Inf", float("-inf")),
    ("1e999", float("inf")),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    assert plain(text) == value
    assert type(plain(text)) is type(value)


def test_not_a_number_is_a_number_in_yaml() -> None:
    assert str(plain(".nan")) == str(plain(".NaN")) == str(plain(".NAN")) == "nan"


def test_a_pool_may_be_named_on_and_quoted_text_stays_text() -> None:
    split = one("kind: CapacitySplit\nmetadata: {name: 'true'}\nspec: {pools: [{name: on}, {name: \"12\"}]}")
    assert isinstance(split, CapacitySplit)
    assert [pool.name for pool in split.spec.pools] == ["on", "12"]
    assert split.metadata.name == "true"


def test_block_text_keeps_its_lines() -> None:
    pool = one(
        "kind: TargetPool\nmetadata: {name: a}\nspec:\n  pods: {endpoints: []}\n  targets:\n    list:\n"
        "    - name: r\n      config:\n        tls-ca: |\n          one\n          two\n"
    )
    assert isinstance(pool, TargetPool)
    assert pool.spec.targets.listed is not None
    assert pool.spec.targets.listed[0].config == {"tls-ca": "one\ntwo\n"}


def test_an_empty_document_is_passed_over_and_the_others_keep_their_numbers() -> None:
    ring = "kind: ShardRing\nmetadata: {name: %s}\n"
    assert len(load(f"---\n{ring % 'a'}---\n---\n{ring % 'b'}---\n", "x")) == 2
    with pytest.raises(InvalidSpec, match=re.escape("x, document 3: $.spec: expected a mapping, got 1")):
        load(f"{ring % 'a'}---\n---\n{ring % 'b'}spec: 1\n", "x")


def test_bytes_text_and_a_byte_order_mark_are_read_alike() -> None:
    text = "kind: ShardRing\nmetadata: {name: a}\nspec: {objects: [é]}\n"
    assert load(text, "x") == load(text.encode(), "x") == load(b"\xef\xbb\xbf" + text.encode(), "x")
    as_json = json.dumps({"kind": "ShardRing", "metadata": {"name": "a"}, "spec": {"objects": ["é"]}})
    assert load(as_json, "x") == load(text, "x")


def test_json_takes_the_fast_path_and_means_the_same() -> None:
    for document in load(CONTRACT, "x"):
        text = json.dumps(dump(document), indent=1)
        assert json_value(text) is not None
        assert load(text, "x") == load(f"# not JSON\n{text}", "x") == [document]


def test_json_with_characters_beyond_the_basic_plane_is_read() -> None:
    text = '{"kind": "ShardRing", "metadata": {"name": "a"}, "spec": {"objects": ["\\ud83d\\ude00"]}}'
    ring = one(text)
    assert isinstance(ring, ShardRing)
    assert ring.spec.objects == ["😀"]


DOUBTS = [
    '{"a": 1, "a": 2}',
    '{"a": NaN}',
    "[1,",
    '["\\ud800"]',
    "{a: 1}",
    "[" * 50_000,
    "[1] x",
    '{"a": ' + "9" * 5000 + "}",
]


@pytest.mark.parametrize("text", DOUBTS, ids=lambda text: text[:12])
def test_json_in_doubt_is_left_to_yaml(text: str) -> None:
    assert json_value(text) is None


def test_a_document_written_and_read_again_is_the_same() -> None:
    for block in (CONTRACT, *(block for block in BLOCKS if not block.startswith("# routers.yaml"))):
        for document in load(block, "x"):
            values = dump(document)
            assert load(write_yaml(values), "x") == load(json.dumps(values), "x") == [document]


def test_a_dump_leaves_out_what_is_at_its_default() -> None:
    ring = one(
        "kind: ShardRing\nmetadata: {name: a}\nspec: {guards: {}, tokens: 100, namespaceSelector: {}}\nstatus: {}"
    )
    start = {"apiVersion": "poise.dev/v1alpha1", "kind": "ShardRing"}
    assert dump(ring) == {**start, "metadata": {"name": "a"}, "spec": {}}
    assert list(dump(contract()[0])) == ["apiVersion", "kind", "metadata", "spec", "status"]
    assert "guards" not in str(dump(contract()[0]))


def test_documents_share_nothing_that_can_change() -> None:
    first, second = load("kind: ShardRing\nmetadata: {name: a}\n---\nkind: ShardRing\nmetadata: {name: b}", "x")
    assert isinstance(first, ShardRing)
    assert isinstance(second, ShardRing)
    first.status.assignment["a"] = "b"
    first.spec.guards.windows.append(Window("0 2 * * *", "4h"))
    assert second.status.assignment == {}
    assert second.spec.guards.windows == []


def test_a_dump_shows_the_state_of_every_member() -> None:
    ring = one("kind: ShardRing\nmetadata: {name: a}\nstatus: {instances: [{name: i, tokens: 7}]}")
    assert dump(ring)["status"] == {"instances": [{"name": "i", "state": "ready", "tokens": 7}]}


TRICKY = [
    "on",
    "12:30",
    "0o17",
    "1e5",
    "0x1f",
    ".5",
    "+1",
    "~",
    "null",
    "a: b",
    "# c",
    "- d",
    "é",
    "x\ty\nz",
    "=",
    "<<",
    " ",
]


@pytest.mark.parametrize("text", TRICKY)
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    pool = one(
        f"kind: TargetPool\nmetadata: {{name: a}}\nspec: {{pods: {{{ADDRESSED}}}, targets: {{list: [{{name: r}}]}}}}"
    )
    assert isinstance(pool, TargetPool)
    target = Target("r", config={"key": text, text: [text]})
    targets = msgspec.structs.replace(pool.spec.targets, listed=[target, Target("s", config=target.config)])
    changed = msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, targets=targets))
    assert load(write_yaml(dump(changed)), "x") == [changed]


def test_moments_have_a_zone_and_survive() -> None:
    text = "kind: CapacitySplit\nmetadata: {name: a}\nspec: {}\nstatus: {workloads: {w: {lastActionAt: %s}}}"
    split = one(text % "2026-11-15T03:00:00.5+01:00")
    assert isinstance(split, CapacitySplit)
    assert split.status.workloads["w"].last_action_at == datetime(2026, 11, 15, 2, 0, 0, 500_000, UTC)
    assert load(write_yaml(dump(split)), "x") == [split]


@pytest.mark.parametrize(
    ("text", "percent"), [("70", 70), ("70%", 70), ("'70'", 70), ("0", 0), ("100%", 100), ("'0'", 0)]
)
def test_a_spot_percentage_may_be_text(text: str, percent: int) -> None:
    workload = f"{{name: w, replicas: 1, spotPercentage: {text}}}"
    split = one(f"kind: CapacitySplit\nmetadata: {{name: a}}\nspec: {{workloads: [{workload}]}}")
    assert isinstance(split, CapacitySplit)
    assert split.spec.workloads[0].spot_percent == percent


def test_the_key_of_a_ring_may_be_read_from_the_object() -> None:
    for text, key in (
        ("{label: app}", KeySource(label="app")),
        ('{jsonPath: "{.spec.a}"}', KeySource(json_path="{.spec.a}")),
    ):
        ring = one(f"kind: ShardRing\nmetadata: {{name: a}}\nspec: {{key: {text}}}")
        assert isinstance(ring, ShardRing)
        assert ring.spec.key == key


def test_nothing_at_all_is_an_ordinary_case() -> None:
    empty = "kind: %s\nmetadata: {name: a}\nspec: %s"
    for kind, spec in (
        ("TargetPool", "{pods: {endpoints: []}, targets: {list: []}}"),
        ("PartitionSet", "{partitions: 0}"),
        ("ShardRing", "{}"),
        ("ReplicaDivision", "{clusters: []}"),
        ("CapacitySplit", "{}"),
    ):
        assert one(empty % (kind, spec)).kind == kind


def test_a_file_of_targets_is_a_list_or_a_mapping() -> None:
    expected = [Target("r1", "10.0.0.1:57400", {"site": "par"}), Target("r2", config={"insecure": True})]
    listed = "- {name: r1, address: '10.0.0.1:57400', labels: {site: par}}\n- {name: r2, config: {insecure: true}}"
    mapped = "r1: {address: '10.0.0.1:57400', labels: {site: par}}\nr2: {name: r2, config: {insecure: true}}"
    assert load_targets(listed, "x") == load_targets(mapped, "x") == expected
    assert load_targets(json.dumps([{"name": "a b"}, {"name": "c"}]), "x") == [Target("a b"), Target("c")]
    assert load_targets("r1:\nr2: {}\n", "x") == [Target("r1"), Target("r2")]
    assert load_targets("[]", "x") == load_targets("{}", "x") == []


@pytest.mark.slow
def test_a_hundred_thousand_targets_load() -> None:
    listed = "".join(f"    - {{name: r{n}, address: '10.0.0.1:57400', labels: {{s: p}}}}\n" for n in range(100_000))
    head = "kind: TargetPool\nmetadata: {name: a}\nspec:\n  pods: {endpoints: []}\n  targets:\n    list:\n"
    pool = one(head + listed)
    assert isinstance(pool, TargetPool)
    assert pool.spec.targets.listed is not None
    assert len(pool.spec.targets.listed) == 100_000
