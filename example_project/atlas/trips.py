"""What one does with a trip: put a city on it, take one off, tell it as an itinerary.

The rule: whoever calls has found the trip among those the user may see (`Trip.objects.of(user)`);
nothing here looks at whose it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from django.db import transaction
from django.db.models import F, Max

from example_project.atlas.geography import direction, distance, place
from example_project.atlas.models import City, Stop, Trip

MOST_STOPS = 100


class TripFull(Exception):
    """A trip has at most 100 stops."""

    def __str__(self) -> str:
        return str(self.__doc__)


@dataclass(frozen=True)
class Leg:
    """The way from one stop to the next."""

    start: str
    end: str
    km: int
    direction: str
    nights: int | None  # at the start, where both arrivals are known


@dataclass(frozen=True)
class Itinerary:
    """A trip at a glance."""

    title: str
    starts: date
    ends: date
    days: int
    cities: list[str]
    countries: list[str]
    legs: list[Leg]
    km: int


def itinerary(trip: Trip) -> Itinerary:
    """The trip's stops in order, the ways between them and what they add up to; one query."""
    stops = list(trip.stops.select_related("city__country").order_by("position"))
    legs = [leg(one, other) for one, other in zip(stops, stops[1:], strict=False)]
    return Itinerary(
        title=trip.title,
        starts=trip.starts,
        ends=trip.ends,
        days=trip.days,
        cities=[stop.city.name for stop in stops],
        countries=list(dict.fromkeys(stop.city.country.name for stop in stops)),
        legs=legs,
        km=sum(one.km for one in legs),
    )


def leg(one: Stop, other: Stop) -> Leg:
    here, there = place(one.city), place(other.city)
    stayed = (other.arrival - one.arrival).days if one.arrival and other.arrival else None
    return Leg(
        start=one.city.name,
        end=other.city.name,
        km=round(distance(here, there)),
        direction=direction(here, there),
        nights=stayed,
    )


def plan(trip: Trip, cities: Sequence[City]) -> Iterator[Stop]:
    """Save a new trip and put the cities on it, one stop at a time, evenly over its days.

    Raises ValidationError for a trip that cannot be. Whoever calls sees to the transaction.
    """
    trip.full_clean()
    trip.save()
    for number, city in enumerate(cities):
        yield add_stop(trip, city, trip.starts + timedelta(trip.days * number // len(cities)))


@transaction.atomic
def add_stop(trip: Trip, city: City, arrival: date | None = None) -> Stop:
    """Put `city` at the end of the trip.

    Raises ValidationError for an arrival outside of the trip's dates, and TripFull.
    """
    last = trip.stops.aggregate(last=Max("position"))["last"] or 0
    if last >= MOST_STOPS:
        raise TripFull
    stop = Stop(trip=trip, city=city, position=last + 1, arrival=arrival)
    stop.full_clean()
    stop.save()
    return stop


def repeat(trip: Trip, starts: date) -> Trip:
    """Save a trip like this one, with the same stops, that starts on another day.

    Whoever calls sees to the transaction.
    """
    later = starts - trip.starts
    again = Trip(
        owner=trip.owner, title=trip.title, notes=trip.notes, starts=starts, ends=trip.ends + later
    )
    again.full_clean()
    again.save()
    Stop.objects.bulk_create(
        Stop(
            trip=again,
            city_id=stop.city_id,
            position=stop.position,
            arrival=stop.arrival and stop.arrival + later,
        )
        for stop in trip.stops.all()
    )
    return again


@transaction.atomic
def remove_stop(stop: Stop) -> None:
    """Take a stop off its trip; those behind it move up."""
    behind = Stop.objects.filter(trip=stop.trip_id, position__gt=stop.position)
    stop.delete()
    # One at a time and in order: a UNIQUE constraint is checked row by row.
    for later in behind.order_by("position"):
        Stop.objects.filter(pk=later.pk).update(position=F("position") - 1)
