"""Shards of every kind against the contract: sound ones keep every rule, and each broken one breaks exactly its own.

All checks run side by side, each on a ring and a namespace of its own, on one control plane.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest
from tests.cluster.broken_shard import BROKEN
from tests.cluster.world import Cluster

from poise.conformance.acts import ACTS
from poise.conformance.check import Wanted, check
from poise.conformance.rules import RULES, Report
from poise.errors import PoiseError

pytestmark = pytest.mark.usefixtures("definitions")
ROOT = Path(__file__).parent.parent.parent
LEASE_S = 4  # Long enough for processes on a busy machine, short enough for people who wait.
AT_ONCE = 10  # Checks side by side; most of them play one act.


def shard_command(how: str) -> tuple[str, ...]:
    """Start a shard of the tests."""
    return (sys.executable, "-m", "tests.cluster.broken_shard", how)


CHECKSUM = (sys.executable, str(ROOT / "examples" / "checksum_operator.py"), "--ring", "{ring}")
KOPF = ("env", "RING={ring}", sys.executable, "-m", "kopf", "run", "--all-namespaces")
EXAMPLES = {
    "checksum": (*CHECKSUM, "--namespace", "{namespace}", "--name", "{instance}"),
    "kopf": (*KOPF, str(ROOT / "examples" / "kopf_operator.py")),
}
HANDING_OVER = next(act.rules for act in ACTS if act.name == "handover")
CHECKS: dict[str, Wanted] = {
    **{name: Wanted(command=command, ring=f"e-{name}") for name, command in EXAMPLES.items()},
    "long": Wanted(command=shard_command("long"), ring="s-long", rules=HANDING_OVER),
    **{
        name: Wanted(command=shard_command(name), ring=f"b-{name}", rules=(each.rule,)) for name, each in BROKEN.items()
    },
}
Reports = dict[str, Report | PoiseError]


async def play_all(cluster: Cluster, logs: Path) -> Reports:
    """Play every check, some at a time; what one of them stumbles on is its own."""
    turns, alone = asyncio.Semaphore(AT_ONCE), asyncio.Lock()

    async def play(name: str, lease_s: int) -> Report | PoiseError:
        wanted = CHECKS[name]
        chosen = msgspec.structs.replace(wanted, lease_s=lease_s, at_once=3, logs=logs / name, timeout_s=240.0)
        async with cluster.connect() as client:
            try:
                return await check(client, chosen, lambda _: None, lambda _: None)
            except PoiseError as error:
                return error

    async def take_turn(name: str) -> Report | PoiseError:
        async with turns:
            report = await play(name, LEASE_S)
        if not is_starved(report, BROKEN[name].rule if name in BROKEN else ""):
            return report
        async with alone:
            return await play(name, 2 * LEASE_S)

    ends = await asyncio.gather(*map(take_turn, CHECKS))
    return dict(zip(CHECKS, ends, strict=True))


def is_starved(report: Report | PoiseError, expected: str) -> bool:
    """Say whether a machine that is too busy let a shard lose its Lease, as it must, or be too slow to break a rule.

    Such a check is played once more, by itself and with longer Leases.
    """
    if isinstance(report, PoiseError):
        return False
    if expected and report.conforms:
        return True
    broken = [each for each in report.rules if each.outcome == "failed" and each.name != expected]
    return any(each.name == "lease-upkeep" or "renewed in time" in "".join(each.seen) for each in broken)


@pytest.fixture(scope="module")
def reports(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """The reports of all checks."""
    logs = tmp_path_factory.mktemp("conformance")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        return asyncio.run(play_all(cluster, logs))


def told(report: Report | PoiseError) -> str:
    """Give what was found, for a test that fails."""
    if isinstance(report, PoiseError):
        return str(report)
    return "\n".join(f"{each.outcome}: {each.name}: {'; '.join(each.seen)}" for each in report.rules)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_sound_shard_keeps_every_rule(reports: Reports, name: str) -> None:
    report = reports[name]
    assert isinstance(report, Report), told(report)
    assert report.conforms, told(report)
    assert [each.name for each in report.rules] == list(RULES)
    assert {each.outcome for each in report.rules} == {"passed"}, told(report)


def test_the_long_form_of_a_hand_over_is_as_good_as_the_short_one(reports: Reports) -> None:
    report = reports["long"]
    assert isinstance(report, Report), told(report)
    assert report.conforms, told(report)
    assert [each.name for each in report.rules] == list(HANDING_OVER)
    assert any("long form" in seen for each in report.rules for seen in each.seen), told(report)


@pytest.mark.parametrize("name", BROKEN)
def test_a_shard_that_breaks_one_rule_is_told_exactly_that(reports: Reports, name: str) -> None:
    report = reports[name]
    assert isinstance(report, Report), told(report)
    assert not report.conforms, told(report)
    broken = [each for each in report.rules if each.outcome == "failed"]
    assert [each.name for each in broken] == [BROKEN[name].rule], told(report)
    assert broken[0].seen, "what was seen is said"


def test_every_rule_is_broken_by_some_shard() -> None:
    assert {each.rule for each in BROKEN.values()} == set(RULES)
