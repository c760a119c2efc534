"""Load the data files into the tables.

It is one transaction, so an interrupted load changes nothing. Rows keep the keys of the files, so
loading again does not affect trips.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from django.db import connection, models, transaction

from example_project.atlas import geonames
from example_project.atlas.models import City, Continent, Country
from example_project.atlas.names import plain

BATCH = 5_000

Borders = Country.neighbours.through


def is_loaded(largest: int | None = None) -> bool:
    """Whether the tables have at least as many cities as a load would add."""
    return City.objects.count() >= expected(largest)


def expected(largest: int | None = None) -> int:
    everything = geonames.counts()["cities"]
    return everything if largest is None else min(largest, everything)


def load(largest: int | None = None, on_batch: Callable[[int], None] = lambda done: None) -> int:
    """Load the atlas, and return the number of its cities.

    Load only the `largest` cities if given. `on_batch` is called with the number of loaded cities.
    """
    with transaction.atomic():
        write(Continent, map(continent, geonames.continents()))
        write(Country, map(country, geonames.countries()))
        draw_borders()
        done, add = 0, write if City.objects.exists() else insert
        for rows in batches(geonames.cities(largest)):
            add(City, map(city, rows))
            done += len(rows)
            on_batch(done)
    return done


def write(model: type[models.Model], instances: Iterable[models.Model]) -> None:
    """Insert rows, or update those whose keys exist."""
    key = model._meta.pk
    others = [field.name for field in model._meta.concrete_fields if field is not key]
    model._default_manager.bulk_create(
        instances, update_conflicts=True, unique_fields=[key.name], update_fields=others
    )


def insert(model: type[models.Model], instances: Iterable[models.Model]) -> None:
    """Insert into an empty table, by plain SQL, because the ORM takes five times as long."""
    fields = model._meta.concrete_fields
    columns = ", ".join(connection.ops.quote_name(field.column) for field in fields)
    names = [field.attname for field in fields]
    sql = "INSERT INTO {} ({}) VALUES ({})".format(
        connection.ops.quote_name(model._meta.db_table), columns, ", ".join(["%s"] * len(fields))
    )
    with connection.cursor() as cursor:
        cursor.executemany(sql, [[vars(one)[name] for name in names] for one in instances])


def batches(rows: Iterable[geonames.Row]) -> Iterator[list[geonames.Row]]:
    rows = iter(rows)
    while batch := list(islice(rows, BATCH)):
        yield batch


def draw_borders() -> None:
    """Store which countries border on each other, in both directions, as Django does."""
    codes = {row["code"]: row["neighbours"].split(",") for row in geonames.countries()}
    pairs = {(one, other) for one in codes for other in codes[one] if other in codes}
    pairs |= {(other, one) for one, other in pairs}
    Borders.objects.all().delete()
    Borders.objects.bulk_create(
        Borders(from_country_id=one, to_country_id=other) for one, other in sorted(pairs)
    )


def continent(row: geonames.Row) -> Continent:
    return Continent(code=row["code"], name=row["name"], population=int(row["population"]))


def country(row: geonames.Row) -> Country:
    same = {name: row[name] for name in SAME}
    return Country(
        continent_id=row["continent"],
        population=int(row["population"]),
        area=float(row["area"]),
        **same,
    )


SAME = (
    "code",
    "iso3",
    "name",
    "capital",
    "currency",
    "currency_name",
    "languages",
    "calling_code",
    "domain",
)


def city(row: geonames.Row) -> City:
    return City(
        geonameid=int(row["geonameid"]),
        name=row["name"],
        plain_name=plain(row["name"]),
        other_names=row["other_names"],
        country_id=row["country"],
        admin_code=row["admin_code"],
        population=int(row["population"]),
        latitude=float(row["latitude"]),
        longitude=float(row["longitude"]),
        timezone=row["timezone"],
    )
