"""What binds a part to its parent: the kernel ends the part when its parent is gone, however that ended."""

from __future__ import annotations

import ctypes
import os
import signal

PARENT = "POISE_DEMO_PARENT"  # The process number of the parent, in the environment of every part.
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2).


def end_with(parent: int, *, gently: bool = False) -> None:
    """End this process when its parent ends: at once, or gently by SIGTERM where it has something to put in order."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = signal.SIGTERM if gently else signal.SIGKILL
    if libc.prctl(_DEATH_SIGNAL, int(number), 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if os.getppid() != parent:
        os._exit(1)  # It was gone before it could be asked for.
