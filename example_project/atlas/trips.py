"""Operations on trips: add and remove stops, repeat or reverse a trip, describe it as an itinerary.

They do not check to whom a trip belongs. Callers fetch it by `Trip.objects.of(user)`.
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
    nights: int | None  # at the start, if both arrivals are known


@dataclass(frozen=True)
class Itinerary:
    """A summary of a trip."""

    title: str
    starts: date
    ends: date
    days: int
    cities: list[str]
    countries: list[str]
    legs: list[Leg]
    km: int


def itinerary(trip: Trip) -> Itinerary:
    """Return the stops of a trip in order, the legs between them, and totals, by one query."""
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
    """Save a new trip, and yield its stops as they are saved, evenly over its days.

    Raise `ValidationError` if the trip is invalid. The caller opens the transaction.
    """
    trip.full_clean()
    trip.save()
    for number, city in enumerate(cities):
        yield add_stop(trip, city, trip.starts + timedelta(trip.days * number // len(cities)))


@transaction.atomic
def add_stop(trip: Trip, city: City, arrival: date | None = None) -> Stop:
    """Add a stop at the end of the trip.

    Raise `ValidationError` if it arrives outside the dates of the trip, and `TripFull`.
    """
    last = trip.stops.aggregate(last=Max("position"))["last"] or 0
    if last >= MOST_STOPS:
        raise TripFull
    stop = Stop(trip=trip, city=city, position=last + 1, arrival=arrival)
    stop.full_clean()
    stop.save()
    return stop


def repeat(trip: Trip, starts: date) -> Trip:
    """Save a copy of a trip, with the same stops, that starts on another day.

    The caller opens the transaction.
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
def turn_round(trip: Trip) -> None:
    """Travel a trip in the other direction: its cities change places, and the arrivals stay."""
    stops = list(trip.stops.order_by("position"))
    for stop, city in zip(stops, [stop.city_id for stop in reversed(stops)], strict=True):
        stop.city_id = city
        stop.save(update_fields=["city"])


@transaction.atomic
def remove_stop(stop: Stop) -> None:
    """Remove a stop. Later stops of the trip move up."""
    behind = Stop.objects.filter(trip=stop.trip_id, position__gt=stop.position)
    stop.delete()
    # One at a time and in order, because the UNIQUE constraint is checked row by row.
    for later in behind.order_by("position"):
        Stop.objects.filter(pk=later.pk).update(position=F("position") - 1)
