"""The example operator tells in one line why it ends, and its code says that it failed."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from poise.errors import PoiseError, invalid
from poise.hold.shard_lease import LeaseLost

EXAMPLE = Path(__file__).parents[2] / "examples" / "checksum_operator.py"


def test_a_ring_that_cannot_be_is_told_in_one_line() -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE), "--ring", "no ring"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "KUBECONFIG": os.devnull},
    )
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("checksum_operator: $.ring: expected ")


@pytest.mark.parametrize("error", [LeaseLost("the Lease a is held by nobody"), invalid("$.resources[0]", "no such")])
def test_a_lost_lease_is_told_in_one_line(error: PoiseError, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost:
        def __init__(self, **_how: object) -> None:
            pass

        async def __aenter__(self) -> Lost:
            raise error

        async def __aexit__(self, *_ended: object) -> None:
            pass

    monkeypatch.setattr("poise.hold.shard.Shard", Lost)
    monkeypatch.setattr("sys.argv", [str(EXAMPLE), "--ring", "web"])
    monkeypatch.setattr("logging.basicConfig", lambda **_how: None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert ended.value.code == f"checksum_operator: {error}"
