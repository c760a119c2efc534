"""The declarations of the atlas, as a client sees them.

Every message is validated by the schema.
"""

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
    """Alice and Bob, with their permissions and trips."""
    return {person.username: make_person(person) for person in PEOPLE}


@pytest.fixture
def connect(atlas, mcp_client):
    return mcp_client.acting_as


@pytest.fixture
def plain_client(connect, django_user_model):
    """A client of a user without permissions."""
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
    """Return the data of a tool's result, or its text."""
    told = client.call(tool, **arguments).assert_ok()
    return told.raw.get("structuredContent", told.text)


def error_text(client, tool, **arguments):
    return client.call(tool, **arguments).assert_error().text


def read(client, uri):
    (contents,) = client.read(uri).assert_ok().contents
    return contents


# The world.


def test_every_user_sees_the_world_but_no_trips_of_others(people, plain_client):
    names = set(plain_client.tools().names)
    assert {"search_city", "nearest_cities", "draw_map", "capital_quiz"} <= names
    assert not names & {"search_stop", "plan_trip", "delete_trip"}
    resources = plain_client.resources().names
    assert "atlas://continent/EU" in resources
    assert not any("/trip/" in uri for uri in resources)


def test_anonymous_client_sees_nothing(connect):
    nobody = connect(None)
    assert nobody.tools() == nobody.resources() == nobody.prompts() == []
    nobody.call("distance_between", start=PARIS, end=LONDON).assert_unknown()


def test_city_is_found_by_its_alternative_names(plain_client):
    for name in ("munich", "München", "Monaco di Baviera"):
        (city,) = call(plain_client, "search_city", query=name, country="DE")["results"]
        assert city["_uri"] == "atlas://city/2867714"
        assert city["_links"] == {"country": "atlas://country/DE"}


def test_people_are_counted_by_continent(plain_client):
    arguments = {"group_by": ["continent__name"], "measures": ["count", "population__sum"]}
    found = call(plain_client, "aggregate_country", **arguments, ordering="-population__sum")
    first, *others = found["groups"]
    countries = Country.objects.filter(continent="AS").values_list("population", flat=True)
    assert first == {
        "continent__name": "Asia",
        "count": len(countries),
        "population__sum": sum(countries),
    }
    assert len(others) == 6 and not found["more"]


def test_trips_of_others_are_not_counted(people, connect):
    for name, owner in people.items():
        found = call(connect(owner), "aggregate_trip", group_by=["starts__year", "status"])
        assert sum(group["count"] for group in found["groups"]) == owner.trips.count() > 0, name


def test_every_city_is_on_one_page_only(plain_client):
    seen, cursor = [], {}
    while True:
        page = call(plain_client, "search_city", limit=100, **cursor)
        seen += [(city["population"], city["_uri"]) for city in page["results"]]
        if "next_cursor" not in page:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert len(set(seen)) == City.objects.count()
    assert [population for population, _ in seen] == sorted(
        (population for population, _ in seen), reverse=True
    )


def test_country_shows_its_neighbours_and_flag(plain_client):
    country = json.loads(read(plain_client, "atlas://country/PT")["text"])
    assert (country["flag"], country["neighbours"]) == ("🇵🇹", ["ES"])
    assert read(plain_client, "atlas://flag/PT")["text"] == "🇵🇹"


def test_nearest_city(plain_client):
    (near,) = call(plain_client, "nearest_cities", city=PARIS, count=1, smallest=1_000_000)
    assert (near["name"], near["direction"], near["country"]) == ("Brussels", "NE", "BE")


def test_city_argument_accepts_a_key_or_a_uri(plain_client):
    way = call(plain_client, "distance_between", start=PARIS, end=f"atlas://city/{LONDON}")
    assert way == {"start": "Paris", "end": "London", "km": 344, "direction": "NW"}
    assert error_text(plain_client, "distance_between", start=PARIS, end=1) == "There is no city 1."


@pytest.mark.parametrize("area", [{}, {"country": "JP"}, {"continent": "OC"}, {"country": "AQ"}])
def test_map_is_an_image_with_links(plain_client, area):
    picture, told, *links = plain_client.call("draw_map", **area).content
    assert base64.b64decode(picture["data"]).startswith(b"\x89PNG\r\n\x1a\n")
    assert "cities" in told["text"]
    assert all(link["type"] == "resource_link" for link in links)
    assert len(links) == (0 if area.get("country") == "AQ" else 5)


def test_resources_can_be_read(plain_client):
    assert f"{City.objects.count():,} cities" in read(plain_client, "atlas://about")["text"]
    today = json.loads(read(plain_client, "atlas://city-of-the-day")["text"])
    assert read(plain_client, today["uri"])
    assert base64.b64decode(read(plain_client, "atlas://map/IT")["blob"]).startswith(b"\x89PNG")


def test_city_completion_depends_on_the_country(plain_client):
    assert (
        plain_client.complete("visit", "country", "ja")
        == ["ID", "JM", "JP"] + plain_client.complete("visit", "country", "ja")[3:]
    )  # Jakarta and Jamaica begin so, too; what only contains it comes later
    assert plain_client.complete("visit", "city", "kyo", country="JP") == ["Kyoto"]
    assert plain_client.complete("visit", "city", "kyo", country="FR") == []
    assert "Tokyo" in plain_client.complete("visit", "city", "to")
    assert plain_client.complete("atlas://flag/{country}", "country", "germ") == ["DE"]


def test_visit_prompt(plain_client):
    visit = {"country": "JP", "city": "Kyoto", "pace": "brisk"}
    asked, linked = plain_client.prompt("visit", **visit).messages
    assert asked["content"]["text"] == "Plan a brisk weekend in Kyoto, Japan 🇯🇵."
    assert linked["content"]["uri"] == "atlas://city/1857910"
    plain_client.prompt("visit", **visit | {"city": "Paris"}).assert_error(
        "knows no Paris in Japan"
    )


def test_only_a_superuser_may_load_the_atlas(django_user_model, plain_client, connect):
    plain_client.call("load_atlas").assert_unknown()
    client = connect(django_user_model.objects.create_superuser("root"))
    assert client.call("load_atlas", largest=100).text.startswith("The atlas is already loaded: ")
    loaded = client.call("load_atlas", largest=100, force=True)
    assert loaded.text.startswith("Loaded 100 cities in ")
    assert any("100 %" in log.data for log in client.logs)


# Trips.


def test_users_see_only_their_own_trips(people, connect):
    for name, other in (("alice", "bob"), ("bob", "alice")):
        client = connect(people[name])
        listed = set(client.resources().names)
        assert {trip.title for trip in people[name].trips.all()} <= listed
        foreign = people[other].trips.first()
        assert foreign.title not in listed
        client.read(foreign).assert_unknown()
        assert error_text(client, "itinerary", trip=foreign.pk) == f"There is no trip {foreign.pk}."
        stops = {stop["trip"] for stop in call(client, "search_stop", limit=100)["results"]}
        assert stops == set(people[name].trips.values_list("pk", flat=True))


def test_user_without_the_permission_has_no_trip_tools(django_user_model, connect):
    client = connect(django_user_model.objects.create_user("dora"))
    client.call("plan_trip", title="None", cities=[PARIS]).assert_unknown()
    assert "search_stop" not in client.tools()
    assert call(client, "search_trip")["results"] == []


def test_trip_is_planned_after_asking_for_dates(alice, people):
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


def test_given_dates_are_not_asked_for(people, connect):
    client = connect(people["alice"], capabilities={})
    dates = {"starts": "2027-05-01", "ends": "2027-05-02"}
    assert call(client, "plan_trip", title="Short", cities=[PARIS], **dates)["days"] == 2
    wrong = {"starts": "2027-05-02", "ends": "2027-05-01"}
    words = error_text(client, "plan_trip", title="Wrong", cities=[PARIS], **wrong)
    assert words == "A trip cannot end before it starts."
    assert not Trip.objects.filter(title="Wrong").exists()


def test_invalid_form_is_asked_again(people, connect):
    answers = iter([{"starts": "2027-05-09", "ends": "2027-05-01"}, DATES])

    client = connect(people["alice"]).answers(elicit=lambda message, schema: next(answers))
    assert call(client, "plan_trip", title="Spring", cities=[PARIS])["starts"] == "2027-05-01"
    assert next(answers, None) is None


def test_declined_form_plans_nothing(people, connect):
    client = connect(people["alice"]).answers(elicit=DECLINE)
    words = error_text(client, "plan_trip", title="Never", cities=[PARIS])
    assert words == "The user declined to answer."
    assert not Trip.objects.filter(title="Never").exists()


def test_stop_is_added_at_the_end(alice, people):
    trip = people["alice"].trips.first()
    count = trip.stops.count()
    stop = call(alice, "add_stop", trip=trip.pk, city=TOKYO)
    assert (stop["position"], stop["city__name"]) == (count + 1, "Tokyo")
    words = error_text(alice, "add_stop", trip=trip.pk, city=TOKYO, arrival="1999-01-01")
    assert words.startswith("arrival: Between")
    assert trip.stops.count() == count + 1


def test_full_trip_is_an_error(alice, people):
    trip = people["alice"].trips.first()
    trip.stops.all().delete()
    Stop.objects.bulk_create(Stop(trip=trip, city_id=PARIS, position=n) for n in range(1, 101))
    words = error_text(alice, "add_stop", trip=trip.pk, city=TOKYO)
    assert words == "A trip has at most 100 stops."


def test_moving_a_trip_moves_its_arrivals(people, alice):
    trip = Trip.objects.of(people["alice"]).exclude(status="done").first()
    starts, days = trip.starts, trip.days
    arrivals = [stop.arrival for stop in trip.stops.order_by("position")]
    later = starts + timedelta(days=400)
    moved = call(alice, "move_trip", trip=trip.pk, starts=str(later))
    assert (moved["starts"], moved["days"]) == (str(later), days)
    assert [stop.arrival for stop in trip.stops.order_by("position")] == [
        arrival and arrival + timedelta(days=400) for arrival in arrivals
    ]
    assert error_text(alice, "move_trip", trip=trip.pk, starts="soon") == (
        "starts: 'soon' is not a date (YYYY-MM-DD)."
    )
    far = error_text(alice, "move_trip", trip=trip.pk, starts="9999-12-31")
    assert far == "the form: No calendar goes that far."
    Trip.objects.filter(pk=trip.pk).update(status="done")
    over = error_text(alice, "move_trip", trip=trip.pk, starts=str(starts))
    assert over == "the form: This trip is over."
    foreign = Trip.objects.exclude(owner=people["alice"]).first()
    assert "There is no trip" in error_text(alice, "move_trip", trip=foreign.pk, starts=str(starts))


def test_update_trip(people, alice):
    trip, foreign = people["alice"].trips.first(), people["bob"].trips.first()
    row = call(alice, "update_trip", trip=trip.pk, status="booked", notes="Bring a map.")
    assert (row["status"], row["notes"], row["title"]) == ("booked", "Bring a map.", trip.title)
    assert "'done'" in error_text(alice, "update_trip", trip=trip.pk, status="sunk")
    assert "Additional" in error_text(alice, "update_trip", trip=trip.pk, starts="2030-01-01")
    words = error_text(alice, "update_trip", trip=foreign.pk, notes="x")
    assert words == f"There is no trip {foreign.pk} that you may change."


def test_stop_can_be_updated_or_deleted_until_the_trip_is_over(people, alice):
    trip = people["alice"].trips.first()
    first, second, *_ = trip.stops.order_by("position")
    row = call(alice, "update_stop", stop=first.pk, city=PARIS)
    assert row["city__name"] == "Paris"
    words = error_text(alice, "update_stop", stop=first.pk, arrival="1999-01-01")
    assert words == f"arrival: Between {trip.starts} and {trip.ends}, as the trip is."
    call(alice, "delete_stop", stop=second.pk)
    call(alice, "update_trip", trip=trip.pk, status="done")
    words = error_text(alice, "delete_stop", stop=first.pk)
    assert words == f"There is no stop {first.pk} that you may delete."


def test_trip_is_deleted_after_confirmation(alice, people):
    trip = people["alice"].trips.first()
    assert call(alice, "delete_trip", trip=trip.pk) == f"“{trip.title}” is deleted."
    assert not Trip.objects.filter(pk=trip.pk).exists()


def test_trip_is_kept_without_confirmation(people, connect):
    client = connect(people["alice"]).answers(elicit=False)
    trip = people["alice"].trips.first()
    assert error_text(client, "delete_trip", trip=trip.pk) == "The trip was kept."
    assert Trip.objects.filter(pk=trip.pk).exists()


def test_pack_prompt_accepts_only_own_trips(alice, people):
    trip, foreign = people["alice"].trips.first(), people["bob"].trips.first()
    assert str(trip.pk) in alice.complete("pack", "trip", "")
    assert str(foreign.pk) not in alice.complete("pack", "trip", "")
    alice.prompt("pack", trip=trip).assert_sees(trip.starts)


# Elicitation and sampling.


def test_itinerary_is_written_by_sampling(plain_client):
    asked = []

    def model(messages):
        asked.append(messages[0]["content"]["text"])
        return "Go east."

    client = plain_client.answers(sample=model)
    assert call(client, "suggest_itinerary", country="JP", days=3) == "Go east."
    assert "3 days in Japan" in asked[0]
    assert "Tokyo" in asked[0]


def test_itinerary_without_sampling_returns_the_facts(people, connect):
    client = connect(people["bob"], capabilities={})
    assert "write it yourself" in call(client, "suggest_itinerary", country="JP")


def test_quiz_asks_each_question_once(plain_client):
    asked = []

    def player(message, schema):
        asked.append(message)
        return Country.objects.get(name=message[len("What is the capital of ") : -1]).pk

    client = plain_client.answers(elicit=player)
    score = call(client, "capital_quiz", questions=4, continent="EU")
    assert (score["right"], score["of"]) == (4, 4)
    assert len(set(asked)) == len(asked) == 4
    assert all(answer.endswith(": right.") for answer in score["answers"])


def test_wrong_answer_is_corrected(plain_client):
    def player(message, schema):
        name = message[len("What is the capital of ") : -1]
        codes = [one["const"] for one in schema["properties"]["answer"]["oneOf"]]
        return next(code for code in codes if Country.objects.get(pk=code).name != name)

    client = plain_client.answers(elicit=player)
    score = call(client, "capital_quiz", questions=1)
    assert (score["right"], score["of"]) == (0, 1)
    assert "no, it is" in score["answers"][0]
