"""Writes the CustomResourceDefinitions of the five kinds from their Structs, for kustomize and for the chart.

python -m tools.crds          writes them
python -m tools.crds --check  only says which are not current
"""

from __future__ import annotations

import sys
from pathlib import Path

from poise.documents import write_yaml
from poise.kube.crds import DEFINED, definition

_DEPLOY = Path(__file__).parent.parent / "deploy"
FOLDER = _DEPLOY / "kustomize" / "crds"
CHART = _DEPLOY / "chart" / "poise" / "definitions"
_LIST = "kustomization.yaml"
_HEAD = "# Generated from the Structs in src/poise/model by tools/crds.py; do not edit.\n"


def files() -> dict[str, str]:
    """Give every file with the text that it should have."""
    made = {f"{defined.plural}.yaml": _HEAD + write_yaml(definition(kind)) for kind, defined in DEFINED.items()}
    listed = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": sorted(made)}
    return made | {_LIST: _HEAD + write_yaml(listed)}


def _places() -> list[tuple[Path, dict[str, str]]]:
    """Give both folders with the files that they should have; only kustomize wants a list of them."""
    wanted = files()
    return [(FOLDER, wanted), (CHART, {name: text for name, text in wanted.items() if name != _LIST})]


def stale() -> list[str]:
    """Name the files that are missing, not current, or not ours any more."""
    found: set[str] = set()
    for folder, wanted in _places():
        there = {path.name: path.read_text() for path in folder.glob("*.yaml")}
        found |= {name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name)}
    return sorted(found)


def write() -> None:
    """Write every file, and remove those of kinds that are no more."""
    for folder, wanted in _places():
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*.yaml"):
            if path.name not in wanted:
                path.unlink()
        for name, text in wanted.items():
            path = folder / name
            # What is current stays untouched: somebody may be reading it.
            if not path.exists() or path.read_text() != text:
                path.write_text(text)


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        write()
    elif outdated := stale():
        sys.exit(f"not current: {', '.join(outdated)}; run: python -m tools.crds")
