"""Documents in files: YAML or JSON in, checked Structs out, with every fault by file, document and path."""

from __future__ import annotations

from poise.documents.dump import dump, write_yaml
from poise.documents.load import load, load_targets
from poise.documents.text import BYTES_MAX
from poise.model import Document

__all__ = ["BYTES_MAX", "Document", "dump", "load", "load_targets", "write_yaml"]
