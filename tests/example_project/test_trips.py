"""Itineraries and stops of trips."""

from datetime import date

import pytest
from django.core.exceptions import ValidationError

from example_project.atlas import trips
from example_project.atlas.models import Stop
from example_project.atlas.trips import TripFull, add_stop, itinerary, remove_stop


@pytest.fixture
def stops(trip, city):
    arrivals = {"Tokyo": date(2027, 4, 1), "Kyoto": date(2027, 4, 5), "Hiroshima": None}
    return [add_stop(trip, city(name), arrival) for name, arrival in arrivals.items()]


def test_itinerary(trip, stops):
    told = itinerary(trip)
    assert told.cities == ["Tokyo", "Kyoto", "Hiroshima"]
    assert told.countries == ["Japan"]
    assert told.days == 12
    assert [(leg.start, leg.end, leg.nights) for leg in told.legs] == [
        ("Tokyo", "Kyoto", 4),
        ("Kyoto", "Hiroshima", None),
    ]
    assert told.legs[0].km == pytest.approx(365, abs=15)
    assert told.legs[0].direction == "W"
    assert told.km == sum(leg.km for leg in told.legs)


def test_itinerary_makes_one_query(trip, stops, django_assert_num_queries):
    with django_assert_num_queries(1):
        itinerary(trip)


@pytest.mark.parametrize("count", [0, 1])
def test_itinerary_with_fewer_than_two_stops(trip, city, count):
    for _ in range(count):
        add_stop(trip, city("Tokyo"))
    assert len(itinerary(trip).cities) == count
    assert itinerary(trip).legs == []
    assert itinerary(trip).km == 0


def test_stops_are_numbered_in_order(stops):
    assert [stop.position for stop in stops] == [1, 2, 3]


def test_stop_outside_of_the_trip_is_rejected(trip, city):
    with pytest.raises(ValidationError):
        add_stop(trip, city("Tokyo"), date(2030, 1, 1))
    assert not trip.stops.exists()


def test_number_of_stops_is_limited(trip, stops, city, monkeypatch):
    monkeypatch.setattr(trips, "MOST_STOPS", 3)
    with pytest.raises(TripFull, match="at most 100 stops"):
        add_stop(trip, city("Osaka"))


def test_removing_a_stop_closes_the_gap(trip, stops):
    remove_stop(stops[0])
    assert list(trip.stops.values_list("position", "city__name")) == [
        (1, "Kyoto"),
        (2, "Hiroshima"),
    ]


def test_removing_a_stop_does_not_change_other_trips(trip, stops, alice, city):
    other = type(trip).objects.create(
        owner=alice, title="Other", starts=trip.starts, ends=trip.ends
    )
    kept = [add_stop(other, city("Tokyo")), add_stop(other, city("Osaka"))]
    remove_stop(stops[0])
    assert [Stop.objects.get(pk=stop.pk).position for stop in kept] == [1, 2]
