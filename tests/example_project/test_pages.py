"""Pages of trips, for browsers and for MCP clients."""

from datetime import date

import pytest
from django.contrib.auth.models import Permission

import django_mcp as mcp
from example_project.atlas.models import Trip
from example_project.atlas.trips import add_stop
from tests.client import Client as McpClient
from tests.client import RpcError

pytestmark = pytest.mark.django_db


@pytest.fixture
def trip_with_stops(trip, city):
    add_stop(trip, city("Tokyo"), date(2027, 4, 1))
    add_stop(trip, city("Kyoto"), date(2027, 4, 5))
    return trip


@pytest.fixture
def alice_with_permission(alice):
    """Alice, with the permission to add trips."""
    alice.user_permissions.add(Permission.objects.get(codename="add_trip"))
    return type(alice).objects.get(pk=alice.pk)


@pytest.fixture
def connect():
    clients = []

    def connected(user, **options):
        clients.append(McpClient(user, **options))
        return clients[-1]

    yield connected
    for client in clients:
        client.__exit__(None, None, None)


def page(client, trip):
    (part,) = client.request("resources/read", uri=f"view://trips/page/{trip.pk}")["contents"]
    return part["text"]


def test_user_reads_a_trip_in_the_browser(client, alice, trip_with_stops):
    client.force_login(alice)
    assert "Kyoto" in client.get(f"/trips/{trip_with_stops.pk}/").content.decode()
    assert client.get(f"/trips/{trip_with_stops.pk}/again/").status_code == 403


def test_client_reads_the_page_as_markdown(connect, alice, trip_with_stops):
    read = page(connect(alice), trip_with_stops)
    assert read.startswith("# Japan\n\n2027-04-01 to 2027-04-12, 12 days, ")
    assert "| Tokyo | Kyoto |" in read and "Calendar" not in read


def test_page_of_another_user_is_not_found(connect, django_user_model, trip_with_stops):
    with pytest.raises(RpcError):
        page(connect(django_user_model.objects.create_user("bob")), trip_with_stops)


def test_trip_calendar_tool(connect, alice, trip_with_stops):
    result = connect(alice).call("trip_calendar", pk=trip_with_stops.pk)
    assert "SUMMARY:Kyoto" in result["content"][0]["text"]


def test_repeat_trip_tool_returns_the_new_page(connect, alice_with_permission, trip_with_stops):
    result = connect(alice_with_permission).call(
        "repeat_trip", pk=trip_with_stops.pk, starts="2028-04-01"
    )
    told, shown = (block["text"] for block in result["content"])
    assert told == "“Japan” is planned from 2028-04-01."
    assert shown.startswith("# Japan\n\n2028-04-01 to 2028-04-12")
    again = Trip.objects.exclude(pk=trip_with_stops.pk).get()
    assert [stop.arrival for stop in again.stops.all()] == [date(2028, 4, 1), date(2028, 4, 5)]


@pytest.mark.parametrize("starts", ["tomorrow", "9999-12-31"])
def test_invalid_form_plans_nothing(connect, alice_with_permission, trip_with_stops, starts):
    result = connect(alice_with_permission).call(
        "repeat_trip", pk=trip_with_stops.pk, starts=starts
    )
    assert result["isError"] and "starts" in result["content"][0]["text"]
    assert Trip.objects.count() == 1


def test_repeat_trip_tool_needs_the_permission(connect, alice, alice_with_permission):
    names = {
        user: {tool["name"] for tool in connect(user).request("tools/list")["tools"]}
        for user in (alice, alice_with_permission)
    }
    assert "repeat_trip" in names[alice_with_permission] and "trip_calendar" in names[alice]
    assert mcp.server.check() == []
