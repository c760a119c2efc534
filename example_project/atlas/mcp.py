"""What the atlas exposes to MCP clients: places to all its users, and trips to their owners.

This module only declares, as admin.py does. The logic is in the modules that it imports. Nothing is
`mcp.PUBLIC`, so a client without a token gets a 401 response, at which it starts to sign in.
"""

import asyncio
from collections.abc import Iterable
from datetime import date
from random import randrange
from typing import Annotated, Any, Literal

from django.contrib import admin
from pydantic import Field

import django_mcp as mcp
from django_mcp.bridges.forms import FormTool
from django_mcp.bridges.ninja import NinjaTools
from django_mcp.bridges.rest_framework import ViewSetTools
from django_mcp.bridges.views import ViewTools
from example_project.atlas import distances, geography, pictures, quiz, trips
from example_project.atlas.api import CountryViewSet, TripViewSet
from example_project.atlas.forms import TripDates, TripMove
from example_project.atlas.icons import emoji
from example_project.atlas.models import City, Continent, Country, Stop, Trip

mcp.server.public_name = "atlas"
mcp.server.title = "The atlas"
mcp.server.description = "The cities of the world, and the trips you plan through them."
mcp.server.icons = [emoji("🌍")]
mcp.server.instructions = (
    "Find cities with search_city: tools take a city by its GeoNames id or its atlas:// address. "
    "Countries and continents go by their codes, such as FR and EU. Trips are the user's own; "
    "plan_trip asks the user for dates it is not given, so do not invent them."
)


# Places. Every user may see all of them.


@mcp.register(Continent)
class ContinentResource(mcp.ModelResource):
    """A continent."""

    uri = "atlas://continent/{pk}"
    permission = mcp.AUTHENTICATED
    fields = ["name", "population"]
    ordering = ["name"]
    listed = True

    def get_queryset(self, request):
        return super().get_queryset(request).all()

    def get_title(self, request, row):
        return row.name


@mcp.register(Country)
class CountryResource(mcp.ModelResource):
    """A country: where it is, who lives there, what they speak and pay with."""

    uri = "atlas://country/{pk}"
    permission = mcp.AUTHENTICATED
    fields = [
        "name", "flag", "capital", "continent", "continent__name", "population", "area", "density",
        "currency", "currency_name", "languages", "calling_code", "neighbours",
    ]  # fmt: skip
    search_fields = ["name", "capital"]
    filter_fields = ["continent", "population", "currency", "neighbours"]
    aggregate_fields = ["population", "area"]
    group_fields = ["continent", "continent__name", "currency"]
    ordering = ["name", "population"]
    icons = [emoji("🏳️")]

    def get_queryset(self, request):
        return super().get_queryset(request).all()


@mcp.register(City)
class CityResource(mcp.ModelResource):
    """A city, by its GeoNames id."""

    uri = "atlas://city/{pk}"
    permission = mcp.AUTHENTICATED
    fields = [
        "name", "plain_name", "other_names", "country", "country__name", "admin_code",
        "population", "latitude", "longitude", "timezone",
    ]  # fmt: skip
    search_fields = ["plain_name", "name", "other_names"]
    filter_fields = ["country", "population", "timezone"]
    ordering = ["-population", "-pk"]
    icons = [emoji("🏙️")]

    def get_queryset(self, request):
        return super().get_queryset(request).all()


# Trips. Users see only their own.


@mcp.register(Trip)
class TripResource(mcp.ModelResource):
    """A trip of yours."""

    uri = "atlas://trip/{pk}"
    permission = mcp.AUTHENTICATED
    fields = ["title", "starts", "ends", "days", "status", "notes", "cities"]
    operations = ["update"]  # plan_trip creates trips, and delete_trip asks before it deletes one
    readonly_fields = ["starts", "ends"]  # move_trip changes them together with the arrivals
    search_fields = ["title", "notes"]
    filter_fields = ["starts", "status"]
    group_fields = ["starts", "status"]
    ordering = ["starts"]
    listed = True
    icons = [emoji("🧳")]

    def get_queryset(self, request):
        return super().get_queryset(request).of(request.user)

    def get_title(self, request, row):
        return row.title


@mcp.register(Stop)
class StopResource(mcp.ModelResource):
    """A stop of a trip. A trip that is over stays as it was."""

    # Without `permission`, Django's model permissions are required: `view_stop` and so on.
    fields = ["trip", "position", "city", "city__name", "arrival"]
    operations = ["update", "delete"]
    readonly_fields = ["trip"]
    filter_fields = ["trip", "city"]
    ordering = ["position"]

    def get_queryset(self, request):
        stops = super().get_queryset(request).filter(trip__owner=request.user)
        return stops.select_related("trip")

    def has_object_permission(self, request, obj, action):
        return action == "view" or obj.trip.status != Trip.Status.DONE


# Geography.


@mcp.tool(read_only=True)
def nearest_cities(
    request: mcp.Request,
    city: City,
    count: Annotated[int, Field(ge=1, le=50)] = 10,
    smallest: Annotated[int, Field(ge=0)] = 0,
) -> list[geography.Near]:
    """Find the cities nearest to a city, the nearest first.

    Args:
        count: How many.
        smallest: Leave out cities with fewer inhabitants.
    """
    others = City.objects.filter(population__gte=smallest).exclude(pk=city.pk)
    found = geography.nearest(geography.place(city), count, others)
    return [geography.near(city, neighbour) for neighbour in found]


@mcp.tool(read_only=True)
def distance_between(request: mcp.Request, start: City, end: City) -> geography.Distance:
    """Tell how far, and in which direction, one city lies from another."""
    return geography.distance_between(start, end)


@mcp.register
class DrawMap(mcp.Tool):
    """Draw the world, a continent or a country by the lights of its cities at night."""

    read_only = True
    idempotent = True
    open_world = False
    icons = [emoji("🗺️")]

    def handle(
        self,
        request: mcp.Request,
        country: Country | None = None,
        continent: Continent | None = None,
    ) -> list[Any]:
        wanted = {"country": country, "country__continent": continent}
        cities = City.objects.filter(**{name: place for name, place in wanted.items() if place})
        links = [
            mcp.ResourceLink(f"atlas://city/{city.pk}", city.name, mime_type="application/json")
            for city in cities[:5]
        ]
        picture = mcp.Image(pictures.of(cities), annotations=mcp.Annotations(audience=["user"]))
        return [picture, f"{cities.count():,} cities; the largest are linked.", *links]


@mcp.tool
async def ride_slow_train(
    request: mcp.Request,
    country: Country,
    stops: Annotated[int, Field(ge=1, le=50)] = 5,
    seconds: Annotated[float, Field(ge=0, le=10)] = 0.5,
) -> list[str]:
    """Ride a slow train through a country's largest cities. Cancel it to get off.

    Args:
        stops: How many cities it stops in.
        seconds: How long it takes from one to the next.
    """
    cities = [city async for city in country.cities.all()[:stops]]
    for number, city in enumerate(cities, start=1):
        await request.aprogress(number, len(cities), f"{city.name}, {city.population:,} people")
        await request.alog("info", {"stop": number, "city": city.name}, logger="atlas.train")
        await asyncio.sleep(seconds)
    return [city.name for city in cities]


# Trips.


@mcp.tool(permission="atlas.add_trip")
def plan_trip(
    request: mcp.Request,
    title: Annotated[str, Field(min_length=1, max_length=120)],
    cities: Annotated[list[City], Field(min_length=1, max_length=20)],
    starts: date | None = None,
    ends: date | None = None,
    notes: str = "",
) -> Trip:
    """Plan a trip of the user's through cities, in the order given.

    Args:
        starts: The first day. The user is asked for it if it is left out.
        ends: The last day. The user is asked for it if it is left out.
    """
    dates = {"starts": starts, "ends": ends}
    if not all(dates.values()):
        dates = request.elicit(f"When does “{title}” take place?", TripDates)
    trip = Trip(owner=request.user, title=title, notes=notes, **dates)
    for number, stop in enumerate(trips.plan(trip, cities), start=1):
        request.progress(number, len(cities), f"Arriving in {stop.city.name} on {stop.arrival}")
    return trip


@mcp.tool(permission="atlas.change_trip")
def add_stop(request: mcp.Request, trip: Trip, city: City, arrival: date | None = None) -> Stop:
    """Put a city at the end of one of the user's trips."""
    try:
        return trips.add_stop(trip, city, arrival)
    except trips.TripFull as full:
        raise mcp.ToolError(str(full)) from None


@mcp.tool(permission="atlas.view_trip", read_only=True, ui="atlas/itinerary.html")
def itinerary(request: mcp.Request, trip: Trip) -> trips.Itinerary:
    """Tell one of the user's trips leg by leg: ways, distances, nights."""
    return trips.itinerary(trip)


@mcp.register(TripMove)
class MoveTrip(FormTool):
    """Move one of the user's trips to another first day: it lasts as long, arrivals move along."""

    update = True
    idempotent = True


@mcp.tool(permission="atlas.delete_trip", destructive=True)
def delete_trip(request: mcp.Request, trip: Trip) -> str:
    """Delete one of the user's trips for good. The user is asked first."""
    if not request.elicit(f"Delete “{trip}” and its {trip.stops.count()} stops for good?", bool):
        raise mcp.ToolError("The trip was kept.")
    trip.delete()
    return f"“{trip}” is deleted."


@mcp.tool(read_only=True)
def suggest_itinerary(
    request: mcp.Request,
    country: Country,
    days: Annotated[int, Field(ge=1, le=30)] = 7,
    interests: str = "whatever is worth seeing",
) -> str:
    """Let the user's own model write an itinerary through a country, from what the atlas knows."""
    cities = ", ".join(f"{city.name} ({city.population:,})" for city in country.cities.all()[:10])
    where = f"{days} days in {country.name}, whose largest cities are {cities}"
    wish = f"Suggest an itinerary for {where}. Interests: {interests}."
    if not request.can.sample:
        return f"This client has no model to lend; write it yourself. {wish}"
    return request.sample(wish, system="You know every railway timetable.", max_tokens=800).text


# For fun.


@mcp.tool(read_only=True)
def capital_quiz(
    request: mcp.Request,
    questions: Annotated[int, Field(ge=1, le=10)] = 3,
    continent: Continent | None = None,
) -> quiz.Score:
    """Ask the user for capitals, four to choose from, and tell how many were right."""
    countries = Country.objects.filter(continent=continent) if continent else Country.objects.all()
    # The call runs again after each answer, and must then ask the same riddles.
    seed = request.once("seed", lambda: randrange(2**32))
    solved = []
    for riddle in quiz.riddles(countries, seed, questions):
        guess = request.elicit(str(riddle), riddle.choices)
        solved.append(quiz.Solved(riddle, guess))
        request.log("notice", str(solved[-1]), logger="atlas.quiz")
    return quiz.scored(solved)


@mcp.register
class TripPages(ViewTools):
    """Pages of trips, which users also open in a browser."""

    get = ["trips:calendar"]
    post = ["trips:again"]
    resources = ["trips:page"]
    names = {"trips:calendar": "trip_calendar", "trips:again": "repeat_trip"}
    icons = [emoji("🧳")]


# The REST API. Programs use it at /api/, and MCP clients only these actions.


@mcp.register(CountryViewSet)
class CountryApi(ViewSetTools):
    """Countries by their size, language and currency, which search_country does not have."""

    actions = ["list"]
    names = {"list": "rank_countries"}
    descriptions = {"list": "List countries by population or area, the largest first."}
    icons = [emoji("🏳️")]


@mcp.register(TripViewSet)
class TripApi(ViewSetTools):
    """What the API does with trips, and no other tool does."""

    permission = "atlas.change_trip"
    actions = ["reverse"]
    icons = [emoji("🧳")]


@mcp.register(distances.router)
class DistanceApi(NinjaTools):
    """Distances from points and along routes, by the API that is written with django-ninja."""

    operations = ["cities_around", "measure_route"]
    icons = [emoji("📏")]


# The admin. Staff see the trips of all users there, and may correct them with the stops.

mcp.register_admin(admin.site, models=[Trip], operations=["update"], prefix="admin_")


# A management command, for superusers.


def is_superuser(request: mcp.Request) -> bool:
    return request.user.is_superuser


mcp.command_tool("load_atlas", permission=is_superuser, icons=[emoji("🌍")])


# Resources.


@mcp.resource("atlas://about", mime_type="text/markdown", cache=3600, icons=[emoji("📖")])
def about(request: mcp.Request) -> str:
    """What the atlas holds and where it comes from."""
    counts = (
        f"{model.objects.count():,} {model._meta.verbose_name_plural}"
        for model in (Continent, Country, City)
    )
    return (
        f"# The atlas\n\n{', '.join(counts)}.\n\n"
        "From [GeoNames](https://www.geonames.org/), under CC BY 4.0.\n"
    )


@mcp.resource("atlas://city-of-the-day")
def city_of_the_day(request: mcp.Request) -> dict[str, Any]:
    """A city to read about today."""
    large = City.objects.filter(population__gte=100_000).select_related("country")
    city = large[date.today().toordinal() % max(1, large.count())]
    return {"name": city.name, "country": city.country.name, "uri": f"atlas://city/{city.pk}"}


@mcp.resource("atlas://flag/{country}", mime_type="text/plain")
def flag(request: mcp.Request, country: Country) -> str:
    """The flag of a country."""
    return country.flag


@mcp.resource("atlas://map/{country}", mime_type="image/png")
def map_of(request: mcp.Request, country: Country) -> bytes:
    """A country by night."""
    return pictures.of(country.cities.all())


# Prompts.


def city_names(request: mcp.Request, text: str, context: dict[str, str]) -> Iterable[str]:
    """Return cities whose names begin with `text`, in the country that was chosen before."""
    found = City.objects.named(text).order_by("-population")
    if country := context.get("country"):
        found = found.filter(country=country)
    return dict.fromkeys(found.values_list("name", flat=True)[:100])


@mcp.prompt(icons=[emoji("✈️")])
def visit(
    request: mcp.Request,
    country: Country,
    city: Annotated[str, mcp.Complete(city_names)],
    pace: Literal["slow", "brisk"] = "slow",
) -> list[Any]:
    """A weekend in a city.

    Args:
        city: Its name.
        pace: How much to put into a day.
    """
    asked = f"Plan a {pace} weekend in {city}, {country.name} {country.flag}."
    found = country.cities.named(city).first()
    if found is None:
        raise mcp.ToolError(f"The atlas knows no {city} in {country.name}.")
    return [asked, mcp.ResourceLink(f"atlas://city/{found.pk}", found.name)]


@mcp.prompt
def pack(request: mcp.Request, trip: Trip) -> list[mcp.Message]:
    """A packing list for one of your trips."""
    journey = trips.itinerary(trip)
    where, when = ", ".join(journey.cities), f"{journey.starts} to {journey.ends}"
    return [
        mcp.Message(f"I travel to {where} from {when}. What do I pack?"),
        mcp.Message("Gladly. Do you travel with a suitcase or a backpack?", role="assistant"),
        mcp.Message("With a backpack, as light as can be."),
    ]


# A second server, at /mcp/tables: the rows, and five tools for all models.

tables = mcp.Server("tables", title="The tables of the atlas", icons=[emoji("🗂️")])
tables.register(Continent, ContinentResource)
tables.register(Country, CountryResource)
tables.register(City, CityResource)
tables.register(Trip, TripResource)
tables.register(Stop, StopResource)
mcp.register_models("atlas", generic=True, server=tables)
