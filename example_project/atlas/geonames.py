"""The data files of the atlas, read one row at a time.

No file is read into memory as a whole. ATTRIBUTION.md describes their contents.
"""

import csv
import gzip
import json
from collections.abc import Iterator
from heapq import nlargest
from pathlib import Path

DATA = Path(__file__).parent / "data"

Row = dict[str, str]


def counts() -> dict[str, int]:
    """Return the numbers of countries and cities in the files."""
    return json.loads((DATA / "counts.json").read_text())


def continents() -> Iterator[Row]:
    with open(DATA / "continents.csv", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def countries() -> Iterator[Row]:
    with open(DATA / "countries.csv", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def cities(largest: int | None = None) -> Iterator[Row]:
    """Yield every city, or only the `largest` ones."""
    with gzip.open(DATA / "cities.csv.gz", "rt", encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        yield from rows if largest is None else nlargest(largest, rows, key=by_population)


def by_population(row: Row) -> tuple[int, int]:
    return int(row["population"]), int(row["geonameid"])
