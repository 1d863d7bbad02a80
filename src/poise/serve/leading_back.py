"""The way back after a login: to the page that was asked for, if it is one of this server, and nowhere else."""

from __future__ import annotations

from urllib.parse import quote

HOME, LOGIN = "/", "/login"
BACK_MAX = 2_000
_NEVER = ("/login", "/logout")


def own_path(asked: str) -> str:
    r"""Give a path of this server as it was asked for; whatever could lead elsewhere leads to the overview.

    Law: the answer has one slash at its beginning, and nothing that a browser reads as another slash or passes over:
    `//evil`, `/\evil`, a tab between two slashes and `https://evil` are all the names of other servers.
    """
    plain = asked.isascii() and asked.isprintable() and " " not in asked and "\\" not in asked
    is_own = asked.startswith("/") and not asked.startswith("//") and len(asked) <= BACK_MAX
    is_loop = asked.partition("?")[0].partition("#")[0] in _NEVER
    return asked if plain and is_own and not is_loop else HOME


def login_path(path: str, query: str = "") -> str:
    """Give the address of the login that leads back to a page."""
    back = own_path(f"{path}?{query}" if query else path)
    return LOGIN if back == HOME else f"{LOGIN}?back={quote(back, safe='')}"
