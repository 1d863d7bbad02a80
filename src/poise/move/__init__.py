"""How to get there safely: what makes a move wait, and how one item changes hands."""

from __future__ import annotations

from poise.move.guards import Allowance, Budget, Started, Window, WindowState, allowed_moves, in_window

__all__ = ["Allowance", "Budget", "Started", "Window", "WindowState", "allowed_moves", "in_window"]
