"""Distances between cities, and the cities near a place.

The database finds the cities in a box, by an index, and the formula then decides. It treats the
Earth as a sphere, so a distance may be wrong by half a percent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import asin, atan2, cos, degrees, pi, radians, sin, sqrt

from django.db.models import Q

from example_project.atlas.models import City, CityQuerySet

EARTH = 6371.0088  # mean radius in km
FARTHEST = EARTH * pi  # half-way round: nothing is farther away
FIRST_RADIUS = 25.0  # km
POINTS = ("N", "NE", "E", "SE", "S", "SW", "W", "NW")

Place = tuple[float, float]  # latitude and longitude, in degrees


@dataclass(frozen=True)
class Neighbour:
    """A city and how many kilometres away it is."""

    city: City
    km: float


@dataclass(frozen=True)
class Near:
    """A nearby city, as `nearest_cities` returns it."""

    name: str
    country: str
    population: int
    km: float
    direction: str
    geonameid: int


@dataclass(frozen=True)
class Distance:
    """How far one city is from another as the crow flies, and where it lies."""

    start: str
    end: str
    km: int
    direction: str


def near(city: City, neighbour: Neighbour) -> Near:
    """Return the description of a neighbour of `city`."""
    other = neighbour.city
    towards, km = direction(place(city), place(other)), round(neighbour.km, 1)
    return Near(other.name, other.country_id, other.population, km, towards, other.geonameid)


def distance_between(start: City, end: City) -> Distance:
    here, there = place(start), place(end)
    return Distance(start.name, end.name, round(distance(here, there)), direction(here, there))


def place(city: City) -> Place:
    return city.latitude, city.longitude


def distance(one: Place, other: Place) -> float:
    """Return the kilometres along the great circle, by the haversine formula."""
    (lat1, lon1), (lat2, lon2) = (map(radians, where) for where in (one, other))
    h = sin((lat2 - lat1) / 2) ** 2 + cos(lat1) * cos(lat2) * sin((lon2 - lon1) / 2) ** 2
    return 2 * EARTH * asin(min(1.0, sqrt(h)))


def direction(one: Place, other: Place) -> str:
    """Return the initial direction as a point of the compass, such as "NE"."""
    (lat1, lon1), (lat2, lon2) = (map(radians, where) for where in (one, other))
    east = sin(lon2 - lon1) * cos(lat2)
    north = cos(lat1) * sin(lat2) - sin(lat1) * cos(lat2) * cos(lon2 - lon1)
    return POINTS[round(degrees(atan2(east, north)) / 45) % 8]


def box(centre: Place, km: float) -> Q:
    """Return a condition that every city within `km` meets, and few others."""
    latitude, longitude = centre
    high = degrees(km / EARTH)
    between = Q(latitude__gte=latitude - high, latitude__lte=latitude + high)
    if abs(latitude) + high >= 90:  # a pole is within reach: every meridian is
        return between
    wide = degrees(asin(min(1.0, sin(km / EARTH) / cos(radians(latitude)))))
    return between & around(longitude, wide)


def around(longitude: float, wide: float) -> Q:
    """Return a condition for longitudes at most `wide` degrees away, also across the date line."""
    west, east = longitude - wide, longitude + wide
    if west < -180:
        return Q(longitude__gte=west + 360) | Q(longitude__lte=east)
    if east > 180:
        return Q(longitude__gte=west) | Q(longitude__lte=east - 360)
    return Q(longitude__gte=west, longitude__lte=east)


def within(centre: Place, km: float, cities: CityQuerySet | None = None) -> list[Neighbour]:
    """Return the cities at most `km` away, the nearest first."""
    cities = City.objects.all() if cities is None else cities
    near = (
        Neighbour(city, distance(centre, place(city))) for city in cities.filter(box(centre, km))
    )
    return sorted(
        (one for one in near if one.km <= km), key=lambda one: (one.km, one.city.geonameid)
    )


def nearest(centre: Place, count: int, cities: CityQuerySet | None = None) -> list[Neighbour]:
    """Return the `count` cities nearest to a place, the nearest first."""
    found: list[Neighbour] = []
    for km in widening():
        found = within(centre, km, cities)
        if len(found) >= count:
            break
    return found[:count]


def widening() -> Iterator[float]:
    km = FIRST_RADIUS
    while km < FARTHEST:
        yield km
        km *= 2
    yield FARTHEST
