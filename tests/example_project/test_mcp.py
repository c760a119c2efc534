"""The atlas's declarations, as a client sees them; every message is held against the schema."""

import base64
import json
from datetime import date, timedelta

import pytest

from django_mcp.testing import DECLINE
from example_project.atlas.models import City, Country, Stop, Trip
from example_project.atlas.people import PEOPLE, make_person

PARIS, LONDON, TOKYO = 2988507, 2643743, 1850147
DATES = {"starts": "2027-05-01", "ends": "2027-05-09"}


@pytest.fixture
def people(atlas):
    """Alice and Bob, with what they may do and their trips."""
    return {person.username: make_person(person) for person in PEOPLE}


@pytest.fixture
def connect(atlas, mcp_client):
    return mcp_client.acting_as


@pytest.fixture
def anybody(connect, django_user_model):
    """A client of a user who may do nothing in particular."""
    return connect(django_user_model.objects.create_user("carol"))


@pytest.fixture
def alice(people, connect):
    """A client that answers every form of Alice's with `DATES` or yes."""
    return connect(people["alice"]).answers(elicit=accepted)


def accepted(message, schema):
    asked = schema["properties"]
    return {name: DATES.get(name) or answer(schema) for name, schema in asked.items()}


def answer(schema):
    return True if schema["type"] == "boolean" else schema["oneOf"][0]["const"]


def call(client, tool, **arguments):
    """The data of a tool's result, or its text."""
    told = client.call(tool, **arguments).assert_ok()
    return told.raw.get("structuredContent", told.text)


def refused(client, tool, **arguments):
    return client.call(tool, **arguments).assert_error().text


def read(client, uri):
    (contents,) = client.read(uri).assert_ok().contents
    return contents


# The world.


def test_every_user_sees_the_world_and_nobody_elses_trips(people, anybody):
    names = set(anybody.tools().names)
    assert {"search_city", "nearest_cities", "draw_map", "capital_quiz"} <= names
    assert not names & {"search_stop", "plan_trip", "delete_trip"}
    resources = anybody.resources().names
    assert "atlas://continent/EU" in resources
    assert not any("/trip/" in uri for uri in resources)


def test_nobody_sees_anything(connect):
    nobody = connect(None)
    assert nobody.tools() == nobody.resources() == nobody.prompts() == []
    nobody.call("distance_between", start=PARIS, end=LONDON).assert_unknown()


def test_a_city_is_found_by_what_it_is_called_elsewhere(anybody):
    for name in ("munich", "München", "Monaco di Baviera"):
        (city,) = call(anybody, "search_city", query=name, country="DE")["results"]
        assert city["_uri"] == "atlas://city/2867714"
        assert city["_links"] == {"country": "atlas://country/DE"}


def test_every_city_comes_once_over_all_pages(anybody):
    seen, cursor = [], {}
    while True:
        page = call(anybody, "search_city", limit=100, **cursor)
        seen += [(city["population"], city["_uri"]) for city in page["results"]]
        if "next_cursor" not in page:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert len(set(seen)) == City.objects.count()
    assert [population for population, _ in seen] == sorted(
        (population for population, _ in seen), reverse=True
    )


def test_a_country_shows_its_neighbours_and_its_flag(anybody):
    country = json.loads(read(anybody, "atlas://country/PT")["text"])
    assert (country["flag"], country["neighbours"]) == ("🇵🇹", ["ES"])
    assert read(anybody, "atlas://flag/PT")["text"] == "🇵🇹"


def test_the_nearest_city(anybody):
    (near,) = call(anybody, "nearest_cities", city=PARIS, count=1, smallest=1_000_000)
    assert (near["name"], near["direction"], near["country"]) == ("Brussels", "NE", "BE")


def test_a_city_goes_by_its_key_or_its_address(anybody):
    way = call(anybody, "distance_between", start=PARIS, end=f"atlas://city/{LONDON}")
    assert way == {"start": "Paris", "end": "London", "km": 344, "direction": "NW"}
    assert refused(anybody, "distance_between", start=PARIS, end=1) == "There is no city 1."


@pytest.mark.parametrize("area", [{}, {"country": "JP"}, {"continent": "OC"}, {"country": "AQ"}])
def test_a_map_is_a_picture_with_links(anybody, area):
    picture, told, *links = anybody.call("draw_map", **area).content
    assert base64.b64decode(picture["data"]).startswith(b"\x89PNG\r\n\x1a\n")
    assert "cities" in told["text"]
    assert all(link["type"] == "resource_link" for link in links)
    assert len(links) == (0 if area.get("country") == "AQ" else 5)


def test_what_can_be_read(anybody):
    assert f"{City.objects.count():,} cities" in read(anybody, "atlas://about")["text"]
    today = json.loads(read(anybody, "atlas://city-of-the-day")["text"])
    assert read(anybody, today["uri"])
    assert base64.b64decode(read(anybody, "atlas://map/IT")["blob"]).startswith(b"\x89PNG")


def test_a_country_then_one_of_its_cities(anybody):
    assert (
        anybody.complete("visit", "country", "ja")
        == ["ID", "JM", "JP"] + anybody.complete("visit", "country", "ja")[3:]
    )  # Jakarta and Jamaica begin so, too; what only contains it comes later
    assert anybody.complete("visit", "city", "kyo", country="JP") == ["Kyoto"]
    assert anybody.complete("visit", "city", "kyo", country="FR") == []
    assert "Tokyo" in anybody.complete("visit", "city", "to")
    assert anybody.complete("atlas://flag/{country}", "country", "germ") == ["DE"]


def test_a_visit(anybody):
    visit = {"country": "JP", "city": "Kyoto", "pace": "brisk"}
    asked, linked = anybody.prompt("visit", **visit).messages
    assert asked["content"]["text"] == "Plan a brisk weekend in Kyoto, Japan 🇯🇵."
    assert linked["content"]["uri"] == "atlas://city/1857910"
    anybody.prompt("visit", **visit | {"city": "Paris"}).assert_error("knows no Paris in Japan")


# Trips.


def test_everybody_sees_their_own_trips(people, connect):
    for name, other in (("alice", "bob"), ("bob", "alice")):
        client = connect(people[name])
        listed = set(client.resources().names)
        assert {trip.title for trip in people[name].trips.all()} <= listed
        foreign = people[other].trips.first()
        assert foreign.title not in listed
        client.read(foreign).assert_unknown()
        assert refused(client, "itinerary", trip=foreign.pk) == f"There is no trip {foreign.pk}."
        stops = {stop["trip"] for stop in call(client, "search_stop", limit=100)["results"]}
        assert stops == set(people[name].trips.values_list("pk", flat=True))


def test_who_may_not_add_trips_has_no_such_tool(django_user_model, connect):
    client = connect(django_user_model.objects.create_user("dora"))
    client.call("plan_trip", title="None", cities=[PARIS]).assert_unknown()
    assert "search_stop" not in client.tools()
    assert call(client, "search_trip")["results"] == []


def test_a_trip_is_planned_once_its_dates_are_known(alice, people):
    trip = call(alice, "plan_trip", title="Spring", cities=[PARIS, LONDON, TOKYO])
    assert (trip["starts"], trip["ends"], trip["days"]) == ("2027-05-01", "2027-05-09", 9)
    made = Trip.objects.get(title="Spring")
    assert made.owner == people["alice"]
    stops = made.stops.order_by("position").values_list("city", "arrival")
    assert list(stops) == [
        (PARIS, date(2027, 5, 1)),
        (LONDON, date(2027, 5, 4)),
        (TOKYO, date(2027, 5, 7)),
    ]


def test_dates_that_are_given_are_not_asked_for(people, connect):
    client = connect(people["alice"], capabilities={})
    dates = {"starts": "2027-05-01", "ends": "2027-05-02"}
    assert call(client, "plan_trip", title="Short", cities=[PARIS], **dates)["days"] == 2
    wrong = {"starts": "2027-05-02", "ends": "2027-05-01"}
    words = refused(client, "plan_trip", title="Wrong", cities=[PARIS], **wrong)
    assert words == "A trip cannot end before it starts."
    assert not Trip.objects.filter(title="Wrong").exists()


def test_a_form_that_is_wrong_is_asked_again(people, connect):
    answers = iter([{"starts": "2027-05-09", "ends": "2027-05-01"}, DATES])

    client = connect(people["alice"]).answers(elicit=lambda message, schema: next(answers))
    assert call(client, "plan_trip", title="Spring", cities=[PARIS])["starts"] == "2027-05-01"
    assert next(answers, None) is None


def test_a_declined_form_plans_nothing(people, connect):
    client = connect(people["alice"]).answers(elicit=DECLINE)
    words = refused(client, "plan_trip", title="Never", cities=[PARIS])
    assert words == "The user declined to answer."
    assert not Trip.objects.filter(title="Never").exists()


def test_a_stop_is_added_at_the_end(alice, people):
    trip = people["alice"].trips.first()
    count = trip.stops.count()
    stop = call(alice, "add_stop", trip=trip.pk, city=TOKYO)
    assert (stop["position"], stop["city__name"]) == (count + 1, "Tokyo")
    words = refused(alice, "add_stop", trip=trip.pk, city=TOKYO, arrival="1999-01-01")
    assert words.startswith("arrival: Between")
    assert trip.stops.count() == count + 1


def test_a_full_trip_is_told_so(alice, people):
    trip = people["alice"].trips.first()
    trip.stops.all().delete()
    Stop.objects.bulk_create(Stop(trip=trip, city_id=PARIS, position=n) for n in range(1, 101))
    words = refused(alice, "add_stop", trip=trip.pk, city=TOKYO)
    assert words == "A trip has at most 100 stops."


def test_a_trip_is_moved_with_its_arrivals(people, alice):
    trip = Trip.objects.of(people["alice"]).exclude(status="done").first()
    starts, days = trip.starts, trip.days
    arrivals = [stop.arrival for stop in trip.stops.order_by("position")]
    later = starts + timedelta(days=400)
    moved = call(alice, "move_trip", trip=trip.pk, starts=str(later))
    assert (moved["starts"], moved["days"]) == (str(later), days)
    assert [stop.arrival for stop in trip.stops.order_by("position")] == [
        arrival and arrival + timedelta(days=400) for arrival in arrivals
    ]
    assert refused(alice, "move_trip", trip=trip.pk, starts="soon") == (
        "starts: 'soon' is not a date (YYYY-MM-DD)."
    )
    far = refused(alice, "move_trip", trip=trip.pk, starts="9999-12-31")
    assert far == "the form: No calendar goes that far."
    Trip.objects.filter(pk=trip.pk).update(status="done")
    over = refused(alice, "move_trip", trip=trip.pk, starts=str(starts))
    assert over == "the form: This trip is over."
    foreign = Trip.objects.exclude(owner=people["alice"]).first()
    assert "There is no trip" in refused(alice, "move_trip", trip=foreign.pk, starts=str(starts))


def test_a_trip_is_updated(people, alice):
    trip, foreign = people["alice"].trips.first(), people["bob"].trips.first()
    row = call(alice, "update_trip", trip=trip.pk, status="booked", notes="Bring a map.")
    assert (row["status"], row["notes"], row["title"]) == ("booked", "Bring a map.", trip.title)
    assert "'done'" in refused(alice, "update_trip", trip=trip.pk, status="sunk")
    assert "Additional" in refused(alice, "update_trip", trip=trip.pk, starts="2030-01-01")
    words = refused(alice, "update_trip", trip=foreign.pk, notes="x")
    assert words == f"There is no trip {foreign.pk} that you may change."


def test_a_stop_is_changed_or_left_out_until_the_trip_is_over(people, alice):
    trip = people["alice"].trips.first()
    first, second, *_ = trip.stops.order_by("position")
    row = call(alice, "update_stop", stop=first.pk, city=PARIS)
    assert row["city__name"] == "Paris"
    words = refused(alice, "update_stop", stop=first.pk, arrival="1999-01-01")
    assert words == f"arrival: Between {trip.starts} and {trip.ends}, as the trip is."
    call(alice, "delete_stop", stop=second.pk)
    call(alice, "update_trip", trip=trip.pk, status="done")
    words = refused(alice, "delete_stop", stop=first.pk)
    assert words == f"There is no stop {first.pk} that you may delete."


def test_a_trip_is_deleted_after_a_yes(alice, people):
    trip = people["alice"].trips.first()
    assert call(alice, "delete_trip", trip=trip.pk) == f"“{trip.title}” is deleted."
    assert not Trip.objects.filter(pk=trip.pk).exists()


def test_a_no_keeps_the_trip(people, connect):
    client = connect(people["alice"]).answers(elicit=False)
    trip = people["alice"].trips.first()
    assert refused(client, "delete_trip", trip=trip.pk) == "The trip was kept."
    assert Trip.objects.filter(pk=trip.pk).exists()


def test_packing_is_for_trips_of_ones_own(alice, people):
    trip, foreign = people["alice"].trips.first(), people["bob"].trips.first()
    assert str(trip.pk) in alice.complete("pack", "trip", "")
    assert str(foreign.pk) not in alice.complete("pack", "trip", "")
    alice.prompt("pack", trip=trip).assert_sees(trip.starts)


# Asking back.


def test_an_itinerary_is_written_by_the_clients_model(anybody):
    asked = []

    def model(messages):
        asked.append(messages[0]["content"]["text"])
        return "Go east."

    client = anybody.answers(sample=model)
    assert call(client, "suggest_itinerary", country="JP", days=3) == "Go east."
    assert "3 days in Japan" in asked[0]
    assert "Tokyo" in asked[0]


def test_without_a_model_to_lend_the_caller_gets_the_facts(people, connect):
    client = connect(people["bob"], capabilities={})
    assert "write it yourself" in call(client, "suggest_itinerary", country="JP")


def test_the_quiz_asks_each_riddle_once(anybody):
    asked = []

    def player(message, schema):
        asked.append(message)
        return Country.objects.get(name=message[len("What is the capital of ") : -1]).pk

    client = anybody.answers(elicit=player)
    score = call(client, "capital_quiz", questions=4, continent="EU")
    assert (score["right"], score["of"]) == (4, 4)
    assert len(set(asked)) == len(asked) == 4
    assert all(answer.endswith(": right.") for answer in score["answers"])


def test_a_wrong_guess_is_corrected(anybody):
    def player(message, schema):
        name = message[len("What is the capital of ") : -1]
        codes = [one["const"] for one in schema["properties"]["answer"]["oneOf"]]
        return next(code for code in codes if Country.objects.get(pk=code).name != name)

    client = anybody.answers(elicit=player)
    score = call(client, "capital_quiz", questions=1)
    assert (score["right"], score["of"]) == (0, 1)
    assert "no, it is" in score["answers"][0]
