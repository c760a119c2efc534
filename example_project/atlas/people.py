"""The users of the demonstration, their permissions and trips.

They have no password until `passwords` makes one, so that nobody can sign in as them before. Alice
may also correct the atlas; Bob may not.
"""

from dataclasses import dataclass
from datetime import date, timedelta

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser, Permission
from django.db import transaction
from django.utils import timezone

from example_project.atlas.models import City, Stop, Trip

READING = ("view_continent", "view_country", "view_city")
TRAVELLING = tuple(f"{do}_{what}" for what in ("trip", "stop") for do in ("add", "change", "view"))
TRAVELLER = (*READING, *TRAVELLING, "delete_trip", "delete_stop")
EDITOR = (*TRAVELLER, "change_country", "change_city")


@dataclass(frozen=True)
class Journey:
    """A trip that begins so many days from today, with GeoNames ids and nights of its cities."""

    title: str
    begins: int
    stops: tuple[tuple[int, int], ...]
    notes: str = ""


@dataclass(frozen=True)
class Person:
    """A user to create, with permissions and trips."""

    username: str
    permissions: tuple[str, ...]
    journeys: tuple[Journey, ...]


LISBON, SEVILLA, GRANADA = 2267057, 2510911, 2517117
TOKYO, KANAZAWA, KYOTO, HIROSHIMA = 1850147, 1860243, 1857910, 1862415
TASHKENT, SAMARKAND, BUKHARA = 1512569, 1216265, 1217662
VIENNA, LJUBLJANA, TRIESTE = 2761369, 3196359, 3165185

PEOPLE = (
    Person(
        "alice",
        EDITOR,
        (
            Journey("Iberia", 30, ((LISBON, 3), (SEVILLA, 2), (GRANADA, 2)), "By rail."),
            Journey("Japan", 150, ((TOKYO, 4), (KANAZAWA, 2), (KYOTO, 4), (HIROSHIMA, 1))),
        ),
    ),
    Person(
        "bob",
        TRAVELLER,
        (
            Journey("The Silk Road", 60, ((TASHKENT, 2), (SAMARKAND, 3), (BUKHARA, 2))),
            Journey("A birthday surprise", 12, ((VIENNA, 2), (LJUBLJANA, 1), (TRIESTE, 2))),
        ),
    ),
)


@transaction.atomic
def make_person(person: Person) -> AbstractUser:
    """Return the user with these permissions and trips. Create what is missing."""
    user, made = get_user_model().objects.get_or_create(username=person.username)
    if made:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    user.user_permissions.add(*permissions(person))
    for journey in person.journeys:
        if not user.trips.filter(title=journey.title).exists():
            make_trip(user, journey)
    return user


def permissions(person: Person) -> list[Permission]:
    atlas = Permission.objects.filter(content_type__app_label="atlas")
    return list(atlas.filter(codename__in=person.permissions))


def make_trip(user: AbstractUser, journey: Journey) -> Trip:
    starts = timezone.localdate() + timedelta(days=journey.begins)
    ends = starts + timedelta(days=sum(nights for city, nights in journey.stops))
    trip = Trip.objects.create(
        owner=user, title=journey.title, starts=starts, ends=ends, notes=journey.notes
    )
    Stop.objects.bulk_create(stops(trip, journey))
    return trip


def stops(trip: Trip, journey: Journey) -> list[Stop]:
    """Return the stops in cities that were loaded. A small atlas may lack some."""
    known = City.objects.in_bulk([city for city, nights in journey.stops])
    made: list[Stop] = []
    arrival: date = trip.starts
    for city, nights in journey.stops:
        if city in known:
            made.append(Stop(trip=trip, city=known[city], position=len(made) + 1, arrival=arrival))
        arrival += timedelta(days=nights)
    return made
