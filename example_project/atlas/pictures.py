"""Pictures of a part of the world at night, with a light for each city, as PNG.

The picture fits its cities. A kilometre is as long to the east as to the north. It uses only the
standard library.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import cos, log10, radians

from example_project.atlas.models import CityQuerySet

Light = tuple[float, float, int]  # latitude, longitude, population

WIDTH = 640
TALLEST = 640
MARGIN = 0.04  # of the width, on every side
NIGHT, LAMP, DAY = (8, 12, 34), (255, 190, 92), (255, 255, 240)
LEVELS = 256
HAMLET, METROPOLIS = 500, 10_000_000
DIM, LARGE = 48, 160  # levels of light


@dataclass(frozen=True)
class Frame:
    """The part of the world in the picture. It converts coordinates to pixels."""

    north: float
    west: float
    scale: float  # pixels per degree of latitude
    squeeze: float  # how much shorter a degree of longitude is
    width: int
    height: int

    def pixel(self, latitude: float, longitude: float) -> tuple[int, int]:
        across = (longitude - self.west) * self.scale * self.squeeze
        down = (self.north - latitude) * self.scale
        return int(across), int(down)


def of(cities: CityQuerySet) -> bytes:
    """Return a PNG with a light for each city."""
    return night(list(cities.order_by().values_list("latitude", "longitude", "population")))


def night(lights: Sequence[Light], width: int = WIDTH) -> bytes:
    """Return the lights as a PNG, which is dark if there are none."""
    frame = framed(lights, width)
    canvas = bytearray(frame.width * frame.height)
    for latitude, longitude, population in lights:
        shine(canvas, frame, frame.pixel(latitude, longitude), brightness(population))
    return png(frame.width, frame.height, bytes(canvas))


def framed(lights: Sequence[Light], width: int) -> Frame:
    """Return the frame around the lights, at most `TALLEST` pixels high."""
    south, north = bounds([light[0] for light in lights])
    west, east = bounds([light[1] for light in lights])
    squeeze = max(0.2, cos(radians((south + north) / 2)))
    inner = width * (1 - 2 * MARGIN)
    scale = min(inner / ((east - west) * squeeze), TALLEST * (1 - 2 * MARGIN) / (north - south))
    border = width * MARGIN / scale
    return Frame(
        north=north + border,
        west=west - border / squeeze,
        scale=scale,
        squeeze=squeeze,
        width=round((east - west) * squeeze * scale + 2 * width * MARGIN) + 1,
        height=round((north - south) * scale + 2 * width * MARGIN) + 1,
    )


def bounds(degrees: Sequence[float]) -> tuple[float, float]:
    """Return the least and the greatest, at least half a degree apart."""
    low, high = min(degrees, default=-1.0), max(degrees, default=1.0)
    missing = max(0.0, 0.5 - (high - low)) / 2
    return low - missing, high + missing


def brightness(population: int) -> int:
    """Return a level from `DIM` for a hamlet to 255 for a metropolis, on a logarithmic scale."""
    known = min(max(population, HAMLET), METROPOLIS)
    return DIM + round((255 - DIM) * log10(known / HAMLET) / log10(METROPOLIS / HAMLET))


def shine(canvas: bytearray, frame: Frame, at: tuple[int, int], level: int) -> None:
    """Light a pixel and, for a large city, those around it. Brighter pixels stay as they are."""
    place = at[1] * frame.width + at[0]
    for step, dimmed in halo(level, frame.width):
        canvas[place + step] = max(canvas[place + step], dimmed)


def halo(level: int, width: int) -> Iterable[tuple[int, int]]:
    """Return the offsets of the pixels to light, and their levels. The margin has room for them."""
    if level < LARGE:
        return ((0, level),)
    return ((0, level), *((step, level - 50) for step in (-1, 1, -width, width)))


def palette() -> bytes:
    """Return the colours from night over lamplight to day."""
    half = LEVELS // 2
    dusk = (mixed(NIGHT, LAMP, step / half) for step in range(half))
    dawn = (mixed(LAMP, DAY, step / (half - 1)) for step in range(half))
    return bytes(part for colours in (dusk, dawn) for colour in colours for part in colour)


def mixed(one: Sequence[int], other: Sequence[int], share: float) -> Iterator[int]:
    return (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))


def png(width: int, height: int, pixels: bytes) -> bytes:
    """Return a PNG with one byte per pixel, an index into the palette (RFC 2083)."""
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    rows = b"".join(b"\0" + pixels[y * width : (y + 1) * width] for y in range(height))
    chunks = (b"IHDR", header), (b"PLTE", palette()), (b"IDAT", zlib.compress(rows, 9))
    body = b"".join(chunk(kind, data) for kind, data in (*chunks, (b"IEND", b"")))
    return b"\x89PNG\r\n\x1a\n" + body


def chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
