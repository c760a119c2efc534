"""The PNG maps of city lights."""

import struct
import zlib

from example_project.atlas import pictures


def decoded(png):
    """Return width, height, palette and rows of a PNG, and verify every checksum."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, place = {}, 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        kind, data = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        (check,) = struct.unpack(">I", png[place + 8 + length : place + 12 + length])
        assert check == zlib.crc32(kind + data)
        chunks[kind], place = data, place + 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = zlib.decompress(chunks[b"IDAT"])
    assert len(rows) == height * (width + 1)
    lines = [rows[y * (width + 1) + 1 : (y + 1) * (width + 1)] for y in range(height)]
    return width, height, chunks[b"PLTE"], lines


def lit(lines):
    return {(x, y): level for y, row in enumerate(lines) for x, level in enumerate(row) if level}


def test_north_is_up_and_west_is_left():
    _, _, _, lines = decoded(pictures.night([(50.0, 0.0, 1000), (45.0, 5.0, 1000)]))
    (x1, y1), (x2, y2) = sorted(lit(lines))
    assert x1 < x2
    assert y1 < y2


def test_large_city_is_brighter_and_wider():
    village, metropolis = lit_alone(1_000), lit_alone(9_000_000)
    assert len(village) == 1
    assert len(metropolis) == 5
    assert max(metropolis.values()) > max(village.values())


def lit_alone(population):
    return lit(decoded(pictures.night([(0.0, 0.0, population)]))[3])


def test_picture_without_cities_is_dark():
    width, height, palette, lines = decoded(pictures.night([]))
    assert (width > 0, height > 0, lit(lines)) == (True, True, {})
    assert len(palette) == 3 * 256
    assert tuple(palette[:3]) == pictures.NIGHT


def test_size_of_a_picture_is_limited():
    corners = [(90.0, -180.0, 9_000_000), (-90.0, 180.0, 9_000_000), (0.0, 0.0, 0)]
    width, height, _, lines = decoded(pictures.night(corners))
    assert abs(width - pictures.WIDTH) <= 2 or height <= pictures.TALLEST + 2
    assert len(lit(lines)) == 11


def test_brightness_is_limited():
    levels = [pictures.brightness(people) for people in (0, 500, 10_000, 10**7, 10**9)]
    assert levels == sorted(levels)
    assert (levels[0], levels[-1]) == (pictures.DIM, 255)
