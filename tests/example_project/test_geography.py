"""Distances, directions, and the cities near a point."""

from random import Random

import pytest

from example_project.atlas.geography import (
    EARTH,
    FARTHEST,
    direction,
    distance,
    nearest,
    place,
    within,
)
from example_project.atlas.models import City, Country

PARIS, NEW_YORK, SYDNEY = (48.8566, 2.3522), (40.7128, -74.0060), (-33.8688, 151.2093)
CORNERS = [(90, 0), (-90, 0), (0, 180), (0, -180), (0, -179.99), (10, 179.99), (89.9, 12), (48, 2)]


@pytest.mark.parametrize(
    ("one", "other", "km"),
    [(PARIS, NEW_YORK, 5837), (PARIS, SYDNEY, 16960), (PARIS, PARIS, 0)],
)
def test_distance(one, other, km):
    assert distance(one, other) == pytest.approx(km, abs=5)
    assert distance(one, other) == pytest.approx(distance(other, one))


def test_largest_distance_is_half_the_circumference():
    assert distance((0, 0), (0, 180)) == pytest.approx(FARTHEST)
    assert distance((90, 0), (-90, 77)) == pytest.approx(FARTHEST)
    assert pytest.approx(20015, abs=1) == FARTHEST
    assert EARTH < FARTHEST


@pytest.mark.parametrize(
    ("other", "point"),
    [((10, 0), "N"), ((-10, 0), "S"), ((0, 10), "E"), ((0, -10), "W"), ((10, 10), "NE")],
)
def test_direction(other, point):
    assert direction((0, 0), other) == point


def test_direction_across_the_date_line():
    assert direction((0, 179), (0, -179)) == "E"


def cities_by_full_scan(centre, km):
    cities = City.objects.all()
    near = sorted((distance(centre, place(city)), city.pk) for city in cities)
    return [pk for far, pk in near if far <= km]


@pytest.mark.parametrize("centre", CORNERS)
@pytest.mark.parametrize("km", [50, 800, 9_000, 15_000, FARTHEST])
def test_within_equals_a_full_scan(atlas, centre, km):
    assert [one.city.pk for one in within(centre, km)] == cities_by_full_scan(centre, km)


def test_within_equals_a_full_scan_at_random_points(atlas):
    random = Random(7)
    for _ in range(20):
        centre = random.uniform(-90, 90), random.uniform(-180, 180)
        km = random.uniform(10, 12_000)
        found = [one.city.pk for one in within(centre, km)]
        assert found == cities_by_full_scan(centre, km), (centre, km)


@pytest.mark.parametrize("centre", CORNERS)
def test_nearest_equals_a_full_scan(atlas, centre):
    assert [one.city.pk for one in nearest(centre, 7)] == cities_by_full_scan(centre, FARTHEST)[:7]


def test_nearest_in_a_queryset(atlas):
    found = nearest(PARIS, 2, City.objects.filter(country__continent="OC"))
    assert len(found) == 2
    assert all(Country.objects.get(pk=one.city.country_id).continent_id == "OC" for one in found)


def test_nearest_returns_fewer_if_there_are_fewer(atlas):
    assert (
        len(nearest(PARIS, 50, City.objects.filter(country="IS")))
        == City.objects.filter(country="IS").count()
    )
    assert nearest(PARIS, 3, City.objects.none()) == []
