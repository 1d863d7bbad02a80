"""A journal is replayed against the laws: a sound one passes, and every way to spoil it is named."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from poise.cli.main import run
from poise.model.ownership import GENERATION, Line
from poise.move.handoff import Transition
from poise.move.verify import verify

T = Transition


def journal(*told: tuple[str, str | None, int]) -> list[Line]:
    """Write lines of one item: (transition, member, epoch)."""
    return [
        Line(set="orders", item="0", transition=what, member=who, epoch=epoch, at_s=number, reason="", number=number)
        for number, (what, who, epoch) in enumerate(told, 1)
    ]


SOUND = journal(
    (T.T1, "n1", 1), (T.T2, "n1", 1), (T.T3, "n1", 1), (T.T4, "n1", 1), (T.T5, "n1", 1), (T.T1, "n2", 2),
    (T.T2, "n2", 2), (T.T3, "n2", 2), (T.T6B, "n3", 2), (T.T6, "n2", 2), (T.T7, "n2", 2), (T.T1, "n1", 3),
    (T.T5, "n1", 3), (T.T9, None, 3), (T.T1, "n1", 4),
)  # fmt: skip


def test_a_sound_journal_has_no_broken_law() -> None:
    assert verify(SOUND) is None
    assert verify([]) is None


@pytest.mark.parametrize(
    ("lines", "law"),
    [
        (journal((T.T1, "n1", 1), (T.T1, "n2", 2)), "never two owners: n1 still has it"),
        (journal((T.T1, "n1", 1), (T.T5, "n1", 1), (T.T1, "n2", 1)), "a grant raises the epoch by one, and it was 1"),
        (journal((T.T1, "n1", 1), (T.T5, "n1", 1), (T.T1, "n2", 3)), "a grant raises the epoch by one, and it was 1"),
        (journal((T.T1, "n1", 2**32 + 1), (T.T5, "n1", 2**32 + 1), (T.T1, "n2", 2)), "epochs only grow"),
        (journal((T.T1, "n1", 1), (T.T2, "n1", 2)), "only a grant changes the epoch"),
        (journal((T.T1, "n1", 1), (T.T2, "n2", 1)), "n2 speaks for n1"),
        (journal((T.T1, "n1", 1), (T.T5, "n2", 1)), "n2 speaks for n1"),
        (journal((T.T2, "n1", 0)), "nobody has it"),
        (journal((T.T1, "n1", 1), (T.T4, "n1", 1)), "nobody had asked for its release"),
        (journal((T.T1, "n1", 1), (T.T6, "n1", 1)), "nobody had asked for its release"),
        (journal((T.T1, "n1", 1), (T.T3, "n1", 1), (T.T3, "n1", 1)), "its release was asked for already"),
        (journal((T.T1, "n1", 1), (T.T3, "n1", 1), (T.T4, "n1", 1), (T.T6, "n1", 1)), "had acknowledged the release"),
        (journal((T.T1, "n1", 1), (T.T9, None, 1)), "a row is buried only when nobody has it"),
        (journal(("flying", "n1", 1)), "there is no transition 'flying'"),
    ],
)
def test_a_broken_law_is_named(lines: list[Line], law: str) -> None:
    broken = verify(lines)
    assert broken is not None
    assert law in str(broken)
    assert broken.line is lines[-1]


def test_lines_that_are_missing_doubled_or_late_are_named() -> None:
    assert "lines 3 to 3 are missing" in str(verify([*SOUND[:2], SOUND[3]]))
    assert "line 2 came before" in str(verify([*SOUND[:2], SOUND[1]]))
    late = [msgspec.structs.replace(SOUND[0], term=2), msgspec.structs.replace(SOUND[1], term=1)]
    assert "a leader of term 1 wrote after term 2 had begun" in str(verify(late))


def test_the_command_reads_what_history_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "orders.journal"
    file.write_bytes(msgspec.json.encode(SOUND))
    assert run(["verify", str(file)]) == 0
    assert capsys.readouterr().out == "sound: 15 lines of 1 journal keeps the laws\n"
    file.write_bytes(msgspec.json.encode([SOUND[0], msgspec.structs.replace(SOUND[5], number=2)]))
    assert run(["verify", str(file)]) == 1
    assert (
        capsys.readouterr().out == "broken: line 2, orders/0, assigned at epoch 2: never two owners: n1 still has it\n"
    )
    file.write_text(json.dumps([{"nonsense": 1}]))
    assert run(["verify", str(file)]) == 64
    assert "is no journal" in capsys.readouterr().err


def test_epochs_go_on_above_all_earlier_ones_in_a_new_generation() -> None:
    lines = journal((T.T1, "n1", 5), ("set", None, 0), (T.T1, "n2", GENERATION + 6))
    lines[1] = msgspec.structs.replace(lines[1], item="", reason="generation 1: commits were lost")
    assert verify(lines) is None
    for epoch in (5, 6, GENERATION):
        assert verify([*lines[:2], msgspec.structs.replace(lines[2], epoch=epoch)]) is not None


def test_what_became_of_a_division_is_no_hand_over() -> None:
    assert (
        verify([*SOUND, msgspec.structs.replace(SOUND[-1], transition="divided", member=None, epoch=0, number=16)])
        is None
    )
