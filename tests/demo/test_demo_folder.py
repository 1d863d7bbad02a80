"""Whose files lie in a folder: a demo deletes and opens only what a demo has made there."""

from __future__ import annotations

from pathlib import Path

import pytest

from poise.demo import folder as module
from poise.demo.folder import Folder, Kept
from poise.errors import PoiseError


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", ["poise.db", "poise.db.backup", "work.db"])
def test_a_store_that_no_demo_has_made_is_neither_deleted_nor_used(tmp_path: Path, name: str, fresh: bool) -> None:
    (tmp_path / name).write_text("the store of a real server")
    with pytest.raises(PoiseError, match=f"holds {name}, which no demo has made: name another folder"):
        Folder(tmp_path, fresh=fresh).__enter__()
    assert (tmp_path / name).read_text() == "the store of a real server"
    (tmp_path / name).unlink()
    with Folder(tmp_path, fresh=fresh):
        pass  # A refusal has let go of the folder.


def test_what_a_demo_has_made_is_deleted_and_its_mark_goes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Folder(tmp_path) as made:
        made.write(Kept({"collector-a": 4711}))
    for name in ("poise.db", "poise.db-wal", "work.db", "logs/server.log", "demo.json.new"):
        (tmp_path / name).write_text("old")
    gone: list[str] = []
    unlink = Path.unlink

    def spy(path: Path) -> None:
        gone.append(path.name)
        unlink(path)

    monkeypatch.setattr(Path, "unlink", spy)
    with Folder(tmp_path, fresh=True) as again:
        assert again.read() == Kept()
    assert gone[-1] == "demo.json", "killed in between, the rest is still known as a demo's"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["lock", "logs"]


def test_what_cannot_be_deleted_is_told_in_one_line(tmp_path: Path) -> None:
    with Folder(tmp_path) as made:
        made.write(Kept())
    (tmp_path / "poise.db").mkdir()
    with pytest.raises(PoiseError, match=r"poise\.db cannot be deleted: "):
        Folder(tmp_path, fresh=True).__enter__()
    assert (tmp_path / "demo.json").exists()


def test_mutant_that_does_not_look_for_the_mark_deletes_a_real_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "poise.db").write_text("the store of a real server")
    monkeypatch.setattr(module.Folder, "_check_mark", lambda _self: None)
    with Folder(tmp_path, fresh=True):
        pass
    assert not (tmp_path / "poise.db").exists()
