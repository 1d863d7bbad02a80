"""Where the programs of the control plane come from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tools.kube import build


def test_what_a_given_folder_lacks_is_built_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go operators keep the API server and its store in such a folder, and little else."""
    given = tmp_path / "given"
    built: list[str] = []

    def made(names: Sequence[str], folder: Path) -> None:
        built.extend(names)
        for name in names:
            (folder / name).touch()

    given.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (given / name).touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_build", made)
    assert build.find_programs(["etcd", "helm"]) == {"etcd": given / "etcd", "helm": build.cache_folder() / "helm"}
    assert build.find_program("kube-apiserver") == given / "kube-apiserver"
    assert build.find_program("helm").is_file()
    assert built == ["helm"], "what is there is not built again"


def test_a_given_folder_without_an_api_server_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etcd").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(SystemExit, match="has no kube-apiserver"):
        build.find_program("etcd")
