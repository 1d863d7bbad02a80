"""Make every picture of the docs from the running product: `make pictures`.

`python -m tools.pictures FOLDER` makes all pages in all forms, to look at; `make pictures` only those that docs show.

A demo is started fresh in a folder of its own, broken as the pictures need it, looked at with the system's Chromium at
1280 and 390 pixels, light and dark, and ended. Pictures have a palette of 256 colours at most, so that they stay small.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
PATIENCE_MS = 90_000
BYTES_MAX = 150_000
_SIZES = {"1280": (1280, 800), "390": (390, 844)}
_SHADES = ("light", "dark")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_ORDERS, _ROUTERS, _FLEET = "/jobs/PartitionSet/orders", "/jobs/TargetPool/routers", "/jobs/ReplicaDivision/fleet"
_SPOT, _GATEWAY = "/jobs/CapacitySplit/simulated-spot", "/jobs/ShardRing/gateway"
_MISSED = "#drawing .late, #drawing .lost, #drawing .unowned"
# On a narrow screen the strip of the demo fills a window: pictures of jobs begin below it.
_TOP = "() => Math.max(0, document.getElementById('live').getBoundingClientRect().top + window.scrollY - 12)"
_DECODE = """async (text) => {
  const image = new Image();
  image.src = "data:image/png;base64," + text;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.width; canvas.height = image.height;
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  const pixels = new Uint8Array(pen.getImageData(0, 0, image.width, image.height).data.buffer);
  let told = "";
  for (let at = 0; at < pixels.length; at += 30000) told += String.fromCharCode(...pixels.subarray(at, at + 30000));
  return [image.width, image.height, btoa(told)];
}"""


class Picture(NamedTuple):
    """One picture: its name, its page, what must have been clicked or seen before, and how high it may be."""

    name: str
    path: str
    ready: Callable[[Page], None] = lambda _page: None
    high_max: int = 1100


def _await_missed(page: Page) -> None:
    """Wait for the moment at which the cells of a killed worker are marked as late."""
    expect(page.locator(_MISSED).first).to_be_attached()


def _await_leaving(page: Page) -> None:
    expect(page.locator("#drawing .arc.flight").first).to_be_attached()


# Pictures, some with the step of the demo before them: what a click breaks is looked at while it heals.
PICTURES = (
    ("", Picture("overview", "/")),
    ("", Picture("orders", _ORDERS, high_max=900)),
    ("", Picture("what-if", f"{_ORDERS}?drain=worker-b", high_max=1100)),
    ("", Picture("item", f"{_ORDERS}/items/7")),
    ("", Picture("gateway", _GATEWAY)),
    ("", Picture("fleet", f"{_FLEET}?weight=us-west:3", high_max=1300)),
    ("", Picture("spot", _SPOT)),
    ("", Picture("events", "/events")),
    ("kill-worker", Picture("killed", _ORDERS, _await_missed, high_max=900)),
    ("drain-collector", Picture("drained", _ROUTERS, _await_leaving, high_max=900)),
)


def shown() -> set[str]:
    """Name the pictures that the README and the docs show."""
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return {name for path in texts for name in re.findall(r"images/([\w-]+\.png)", path.read_text())}


def main() -> None:
    """Make what is wanted, and say how large each is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    given: Path | None = parser.parse_args().folder
    folder, wanted = given or IMAGES, None if given else shown()
    folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=PATIENCE_MS)
    with running_demo() as origin, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_browser(), args=["--no-sandbox"], timeout=PATIENCE_MS)
        with showing(browser, origin, "1280", "light") as page:
            await_well(page)
        for shade in _SHADES:
            for size in _SIZES:
                with showing(browser, origin, size, shade) as page:
                    for step, picture in PICTURES:
                        name = f"{picture.name}-{size}-{shade}.png"
                        if wanted is not None and name not in wanted:
                            continue
                        if step:
                            breaking(page, step, picture, folder / name)
                        else:
                            take(page, picture, folder / name)
        browser.close()


def _browser() -> str:
    found = next((path for path in map(shutil.which, _BROWSERS) if path), None)
    if found is None:
        raise SystemExit("pictures are made with Chromium: run `make browser`, which installs it")
    return found


@contextmanager
def running_demo() -> Iterator[str]:
    """Run a fresh demo, and give its address; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="poise-pictures-") as folder:
        command = [sys.executable, "-m", "poise", "up", "--demo", "--fresh", "--listen", "127.0.0.1:0"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("POISE_")}
        with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            try:
                line = next((line for line in process.stderr if "answers on" in line), "")
                if not line:
                    raise SystemExit("the demo did not start")
                yield line.split()[-1]
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=60)


@contextmanager
def showing(browser: Browser, origin: str, size: str, shade: str) -> Iterator[Page]:
    """Open a window of one size and shade."""
    wide, high = _SIZES[size]
    context = browser.new_context(
        base_url=origin,
        viewport={"width": wide, "height": high},
        color_scheme="dark" if shade == "dark" else "light",
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield context.new_page()
    finally:
        context.close()


def await_well(page: Page) -> None:
    """Wait until the jobs whose parts are real are as they should be; the spot market never rests."""
    page.goto("/")
    expect(page.locator("#state-words")).to_have_text("live")
    for job in ("PartitionSet/orders", "TargetPool/routers", "ShardRing/gateway", "ReplicaDivision/fleet"):
        expect(page.locator(f"tr[data-job='{job}'][data-mood=good]")).to_be_visible()
    for name, members in (("PartitionSet/orders", "6"), ("TargetPool/routers", "4"), ("ShardRing/gateway", "3")):
        expect(page.locator(f"tr[data-job='{name}'] [data-label=Members]")).to_have_text(
            re.compile(rf"^{members} \w+$")
        )


def breaking(page: Page, step: str, picture: Picture, file: Path) -> None:
    """Take a step of the demo, look while it heals, and wait until all is well again."""
    page.goto("/")
    page.locator(f"#demo-{step}").click()
    take(page, picture, file, stay=True)
    if step == "drain-collector":
        expect(page.locator("#demo")).to_contain_text("is empty after")
        page.locator(f"form[action='/demo/{step}?back=1'] button").click()
    await_well(page)


def take(page: Page, picture: Picture, file: Path, *, stay: bool = False) -> None:
    """Take one picture, down to the end of the page or to the bound."""
    if not stay:
        page.goto(picture.path)
    expect(page.locator("#state-words")).to_have_text("live")
    picture.ready(page)
    wide = page.viewport_size["width"] if page.viewport_size else 1280
    top = page.evaluate(_TOP) if wide < 600 and picture.path.startswith("/jobs/") else 0
    high = min(page.evaluate("document.documentElement.scrollHeight") - top, picture.high_max)
    shot = page.screenshot(full_page=True, clip={"x": 0, "y": top, "width": wide, "height": high})
    file.write_bytes(write_png(*pixels_of(page, shot)))
    size = file.stat().st_size
    told = "  TOO LARGE" if size > BYTES_MAX else ""
    sys.stdout.write(f"{file.name:<28} {wide:>5} x {high:<5} {size / 1000:6.1f} kB{told}\n")


def pixels_of(page: Page, shot: bytes) -> tuple[NDArray[np.uint32], int, int]:
    """Let the browser decode its own picture: colours as whole numbers, row by row, with width and height."""
    other = page.context.new_page()
    wide, high, told = other.evaluate(_DECODE, base64.b64encode(shot).decode("ascii"))
    other.close()
    parts = np.frombuffer(base64.b64decode(told), dtype=np.uint8).reshape(-1, 4).astype(np.uint32)
    colours: NDArray[np.uint32] = parts @ np.array([1 << 16, 1 << 8, 1, 0], dtype=np.uint32)
    return colours, int(wide), int(high)


def write_png(colours: NDArray[np.uint32], wide: int, high: int) -> bytes:
    """Write an image with a palette of 256 colours at most, and each other colour as the nearest of them."""
    found, places, counts = np.unique(colours, return_inverse=True, return_counts=True)
    channels = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1).astype(np.int64)
    chosen, nearest = _choose(channels, counts)
    rows = nearest[places.reshape(-1)].reshape(high, wide)
    # Every row begins with its filter: none, which suits a palette best.
    body = zlib.compress(np.hstack([np.zeros((high, 1), np.uint8), rows]).tobytes(), 9)
    shades = channels[chosen].astype(np.uint8).tobytes()
    head = struct.pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", shades), (b"IDAT", body), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _choose(channels: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[list[int], NDArray[np.uint8]]:
    """Choose half of a palette by how often a colour stands there, and half by how far it is from what was chosen.

    Otherwise a small green dot would become grey: there are always more shades of grey around letters.
    """
    often = [int(each) for each in np.argsort(counts)[-128:]]
    chosen: list[int] = []
    far = np.full(len(counts), np.iinfo(np.int64).max)
    nearest = np.zeros(len(counts), dtype=np.uint8)
    while len(chosen) < min(256, len(counts)) and far.max() > 0:
        each = often.pop() if often else int(np.argmax(far))
        off = ((channels - channels[each]) ** 2).sum(axis=1)
        nearest[off < far] = len(chosen)
        far = np.minimum(far, off)
        chosen.append(each)
    return chosen, nearest


if __name__ == "__main__":
    main()
