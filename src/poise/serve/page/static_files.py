"""The files of the page: read once, named by what is in them, kept by browsers for as long as they are the same."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from poise.serve.problems import Refused

_MEDIA = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOREVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"


class StaticFile(msgspec.Struct, frozen=True):
    """One file and the mark of its content."""

    body: bytes
    media: str
    mark: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Read every file that browsers may ask for; there is no other, whatever a path says."""
    found: dict[str, StaticFile] = {}
    root = files("poise.serve.page") / "static"
    for folder, prefix in ((root, ""), (root / "vendor", "vendor/")):
        for each in folder.iterdir():
            ending = f".{each.name.rpartition('.')[2]}"
            if each.is_file() and ending in _MEDIA:
                body = each.read_bytes()
                found[prefix + each.name] = StaticFile(body, _MEDIA[ending], hashlib.sha256(body).hexdigest()[:16])
    return found


def static_url(name: str) -> str:
    """Give the address of a file; it changes with the content, so that no browser keeps an old one."""
    return f"/static/{name}?v={static_files()[name].mark}"


async def serve_static(request: Request) -> Response:
    """Answer with a file; whoever has it already hears only that it is still the same."""
    found = static_files().get(unquote(str(request.path_params["path"])))
    if found is None:
        raise Refused(404, "there is no such file")
    tag = f'"{found.mark}"'
    kept = _FOREVER if request.query_params.get("v") == found.mark else _ASK_AGAIN
    headers = {"ETag": tag, "Cache-Control": kept}
    if tag in [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers=headers, media_type=found.media)
