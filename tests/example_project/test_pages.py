"""Pages of trips, for people and for clients."""

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
def planned(trip, city):
    add_stop(trip, city("Tokyo"), date(2027, 4, 1))
    add_stop(trip, city("Kyoto"), date(2027, 4, 5))
    return trip


@pytest.fixture
def planner(alice):
    """Alice, when she may add trips."""
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


def test_a_person_reads_a_trip(client, alice, planned):
    client.force_login(alice)
    assert "Kyoto" in client.get(f"/trips/{planned.pk}/").content.decode()
    assert client.get(f"/trips/{planned.pk}/again/").status_code == 403


def test_a_client_reads_the_same_page(connect, alice, planned):
    read = page(connect(alice), planned)
    assert read.startswith("# Japan\n\n2027-04-01 to 2027-04-12, 12 days, ")
    assert "| Tokyo | Kyoto |" in read and "Calendar" not in read


def test_nobody_reads_anothers(connect, django_user_model, planned):
    with pytest.raises(RpcError):
        page(connect(django_user_model.objects.create_user("bob")), planned)


def test_a_calendar(connect, alice, planned):
    result = connect(alice).call("trip_calendar", pk=planned.pk)
    assert "SUMMARY:Kyoto" in result["content"][0]["text"]


def test_a_trip_is_taken_again_and_its_page_is_shown(connect, planner, planned):
    result = connect(planner).call("repeat_trip", pk=planned.pk, starts="2028-04-01")
    told, shown = (block["text"] for block in result["content"])
    assert told == "“Japan” is planned from 2028-04-01."
    assert shown.startswith("# Japan\n\n2028-04-01 to 2028-04-12")
    again = Trip.objects.exclude(pk=planned.pk).get()
    assert [stop.arrival for stop in again.stops.all()] == [date(2028, 4, 1), date(2028, 4, 5)]


@pytest.mark.parametrize("starts", ["tomorrow", "9999-12-31"])
def test_a_form_that_is_refused_plans_nothing(connect, planner, planned, starts):
    result = connect(planner).call("repeat_trip", pk=planned.pk, starts=starts)
    assert result["isError"] and "starts" in result["content"][0]["text"]
    assert Trip.objects.count() == 1


def test_without_the_permission_there_is_no_such_tool(connect, alice, planner):
    names = {
        user: {tool["name"] for tool in connect(user).request("tools/list")["tools"]}
        for user in (alice, planner)
    }
    assert "repeat_trip" in names[planner] and "trip_calendar" in names[alice]
    assert mcp.server.check() == []
