"""The pictures of the docs: small, complete, and true to their colours, rare ones too."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray
from tools.pictures import BYTES_MAX, IMAGES, shown, write_png

RARE = 0x6FD6A4


def read_png(text: bytes) -> NDArray[np.uint32]:
    """Read what `write_png` writes: a palette, and rows without a filter."""
    chunks, at = {}, 8
    while at < len(text):
        (size,) = struct.unpack(">I", text[at : at + 4])
        kind, data = text[at + 4 : at + 8], text[at + 8 : at + 8 + size]
        assert struct.unpack(">I", text[at + 8 + size : at + 12 + size]) == (zlib.crc32(kind + data),)
        chunks[kind], at = data, at + 12 + size
    wide, high = struct.unpack(">II", chunks[b"IHDR"][:8])
    parts = np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3).astype(np.uint32)
    palette: NDArray[np.uint32] = parts @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(high, wide + 1)
    return palette[rows[:, 1:]].reshape(-1)


@pytest.mark.parametrize("shades", [1, 2, 200, 256])
def test_few_colours_stay_what_they_are(shades: int) -> None:
    colours = np.resize(np.arange(shades, dtype=np.uint32) * 7919 % (1 << 24), 40 * 30)
    assert (read_png(write_png(colours, 40, 30)) == colours).all()


def test_a_rare_colour_is_kept_among_very_many_greys() -> None:
    many = np.random.default_rng(1).integers(0, 40, (100 * 100, 3), dtype=np.uint32)
    colours: NDArray[np.uint32] = many @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)
    colours[5000] = RARE
    written = read_png(write_png(colours, 100, 100))
    assert written[5000] == RARE
    off = [np.abs((written >> shift & 255).astype(int) - (colours >> shift & 255).astype(int)) for shift in (16, 8, 0)]
    assert max(int(each.max()) for each in off) <= 12


def test_the_docs_have_the_pictures_that_they_show_and_none_is_large() -> None:
    found = {path.name: path.stat().st_size for path in IMAGES.glob("*.png")}
    assert found.keys() == shown()
    assert not {name: size for name, size in found.items() if size > BYTES_MAX}
