"""The REST API of the atlas, over HTTP and as tools of MCP clients."""

from datetime import date

import pytest
from django.contrib.auth.models import Permission
from django.urls import reverse
from rest_framework.test import APIClient

from example_project.atlas.models import Trip
from example_project.atlas.trips import add_stop

pytestmark = pytest.mark.django_db
ARRIVALS = {"Tokyo": date(2027, 4, 1), "Kyoto": date(2027, 4, 5), "Osaka": None}


@pytest.fixture
def trip_with_stops(trip, city):
    for name, arrival in ARRIVALS.items():
        add_stop(trip, city(name), arrival)
    return trip


@pytest.fixture
def editor(alice):
    """Alice, with the permission to change trips."""
    alice.user_permissions.add(Permission.objects.get(codename="change_trip"))
    return type(alice).objects.get(pk=alice.pk)


def http(user=None):
    client = APIClient()
    client.force_authenticate(user)
    return client


def data(client, tool, **arguments):
    return client.call(tool, **arguments).assert_ok().data


def test_api_needs_a_signed_in_user(client):
    for name in ("country-list", "trip-list", "api-root"):
        assert client.get(reverse(name)).status_code == 403


def test_tool_and_api_return_the_same_page(alice, mcp_client):
    asked = {"continent": "EU", "speaks": "fr", "ordering": "-area", "page_size": 2}
    page = http(alice).get("/api/countries/", asked).json()
    told = data(mcp_client.acting_as(alice), "rank_countries", **asked | {"ordering": ["-area"]})
    assert told["results"] == page["results"] and told["count"] == page["count"] > 2
    assert [country["name"] for country in told["results"]] == ["France", "Italy"]
    # In place of a URL, the tool returns the arguments for the next page.
    assert told["next"] == asked | {"ordering": ["-area"], "page": 2}
    further = data(mcp_client.acting_as(alice), "rank_countries", **told["next"])
    assert further["results"] and further["previous"] == asked | {"ordering": ["-area"]}


def test_countries_are_filtered_by_population_and_language(alice, mcp_client):
    client = mcp_client.acting_as(alice)
    large = data(client, "rank_countries", population_min=10**9)
    assert sorted(country["code"] for country in large["results"]) == ["CN", "IN"]
    assert large["results"][0]["density"] > 100
    assert data(client, "rank_countries", speaks="f(r")["results"] == []


def test_only_listed_actions_are_tools(editor, mcp_client):
    names = set(mcp_client.acting_as(editor).tools().names)
    assert {"rank_countries", "reverse_trip"} <= names
    assert not names & {"list_trip", "retrieve_trip", "list_country", "retrieve_country"}


def test_trip_is_reversed_and_keeps_its_arrivals(editor, mcp_client, trip_with_stops):
    told = data(mcp_client.acting_as(editor), "reverse_trip", pk=trip_with_stops.pk)
    assert [stop["city"]["name"] for stop in told["stops"]] == ["Osaka", "Kyoto", "Tokyo"]
    stops = trip_with_stops.stops.order_by("position")
    assert [stop.arrival for stop in stops] == [*ARRIVALS.values()]
    assert told == http(editor).get(f"/api/trips/{trip_with_stops.pk}/").json()


def test_trip_that_is_over_or_of_another_user_is_not_reversed(
    editor, mcp_client, trip_with_stops, django_user_model
):
    client = mcp_client.acting_as(editor)
    Trip.objects.update(status=Trip.Status.DONE)
    told = client.call("reverse_trip", pk=trip_with_stops.pk).assert_error()
    assert told.text == "This trip is over."
    Trip.objects.update(owner=django_user_model.objects.create_user("bob"))
    told = client.call("reverse_trip", pk=trip_with_stops.pk).assert_error()
    assert told.text == "Not found."
    assert [stop.city.name for stop in trip_with_stops.stops.all()] == [*ARRIVALS]


def test_reversing_needs_the_permission_over_http_too(alice, mcp_client, trip_with_stops):
    assert "reverse_trip" not in mcp_client.acting_as(alice).tools().names
    assert http(alice).post(f"/api/trips/{trip_with_stops.pk}/reverse/").status_code == 403
