"""NumPy, imported by the first plan that computes with it: members and most verbs never do, and start in less time."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["np"]

if TYPE_CHECKING:
    import numpy as np
else:

    class _Late:
        """Looks each name up once; from then on it is an attribute like any other."""

        def __getattr__(self, name: str) -> object:
            import numpy

            found = getattr(numpy, name)
            setattr(self, name, found)
            return found

    np = _Late()
