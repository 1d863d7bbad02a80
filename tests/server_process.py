"""The former name of `ServedFolder`, for tests that still use it."""

from __future__ import annotations

from tests.serve_process import ServedFolder as ServerProcess
from tests.serve_process import free_port

__all__ = ["ServerProcess", "free_port"]
