"""Writes the CustomResourceDefinitions of the five kinds from their Structs, to deploy/kustomize/crds/.

python -m tools.crds          writes them
python -m tools.crds --check  only says which are not current
"""

from __future__ import annotations

import sys
from pathlib import Path

from poise.documents import write_yaml
from poise.kube.crds import DEFINED, definition

FOLDER = Path(__file__).parent.parent / "deploy" / "kustomize" / "crds"
_HEAD = "# Generated from the Structs in src/poise/model by tools/crds.py; do not edit.\n"


def files() -> dict[str, str]:
    """Give every file with the text that it should have."""
    made = {f"{defined.plural}.yaml": _HEAD + write_yaml(definition(kind)) for kind, defined in DEFINED.items()}
    listed = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": sorted(made)}
    return made | {"kustomization.yaml": _HEAD + write_yaml(listed)}


def stale() -> list[str]:
    """Name the files that are missing, not current, or not ours any more."""
    wanted = files()
    there = {path.name: path.read_text() for path in FOLDER.glob("*.yaml")}
    return sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))


def write() -> None:
    """Write every file, and remove those of kinds that are no more."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = files()
    for path in FOLDER.glob("*.yaml"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        write()
    elif outdated := stale():
        sys.exit(f"not current: {', '.join(outdated)}; run: python -m tools.crds")
