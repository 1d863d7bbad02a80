"""The page: what people look at instead of reading; drawn on the server, readable without scripts."""

from __future__ import annotations

from poise.serve.page.routes import page_routes

__all__ = ["page_routes"]
