"""The machine that a file belongs to, and its clock: it counts suspend, starts anew at boot, and cannot be set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from poise.clock import boot_s
from poise.errors import invalid

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One boot of one machine. The machine's id may be unknown (as in many containers); the boot's id never is."""

    machine_id: str
    boot_id: str
    clock: Callable[[], float]


def this_machine() -> Machine:
    """Read who we are."""
    if not _BOOT_ID.exists():
        raise invalid("$.db", "SQLite stores need Linux: its boot id and its boot-time clock measure the leases")
    machine_id = next((text for path in _MACHINE_IDS if (text := _read(path))), "")
    return Machine(machine_id=machine_id, boot_id=_read(_BOOT_ID), clock=boot_s)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
