"""The models of the atlas: searches, indexes, validation and constraints."""

from datetime import date

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction

from example_project.atlas.models import City, Continent, Country, Stop, Trip


def test_cities_are_found_by_the_start_of_their_name(atlas):
    assert [city.name for city in City.objects.named("SAO PAU")] == ["São Paulo"]
    assert [city.name for city in City.objects.named("são pau")] == ["São Paulo"]


def test_wildcards_in_a_name_are_escaped(atlas):
    assert not City.objects.named("%").exists()
    assert not City.objects.named("_").exists()


def test_empty_prefix_finds_every_city(atlas):
    assert City.objects.named("").count() == 3_000


def test_saved_city_is_found_by_its_new_name(atlas):
    city = City.objects.first()
    city.name = "Ångström"
    city.save()
    assert City.objects.named("angst").get() == city


@pytest.mark.parametrize(
    ("cities", "index"),
    [
        (lambda: City.objects.named("ber").order_by(), "city_by_name"),
        (lambda: City.objects.filter(country="FR").order_by("-population"), "city_by_country"),
        (lambda: City.objects.all(), "city_by_population"),
    ],
)
def test_common_queries_use_an_index(atlas, cities, index):
    plan = cities()[:20].explain()
    assert index in plan
    assert "TEMP B-TREE" not in plan


def test_geonames_id_is_the_row_id(atlas):
    assert "INTEGER PRIMARY KEY" in City.objects.filter(pk=1).explain()


def test_density_of_a_country():
    assert Country(population=100, area=8).density == 12.5
    assert Country(population=100, area=0).density is None


def test_trip_cannot_end_before_it_starts(trip):
    trip.ends = date(2027, 3, 1)
    with pytest.raises(ValidationError, match="cannot end before"):
        trip.full_clean()
    with pytest.raises(IntegrityError), transaction.atomic():
        trip.save()


def test_days_of_a_trip_include_the_first_and_last(trip):
    assert trip.days == 12


def test_trips_are_visible_only_to_their_owner(trip, alice, django_user_model):
    bob = django_user_model.objects.create_user("bob")
    assert Trip.objects.of(alice).get() == trip
    assert not Trip.objects.of(bob).exists()
    assert not Trip.objects.of(AnonymousUser()).exists()


def test_position_of_a_stop_is_unique(trip, city):
    Stop.objects.create(trip=trip, city=city("Tokyo"), position=1)
    with pytest.raises(IntegrityError), transaction.atomic():
        Stop.objects.create(trip=trip, city=city("Osaka"), position=1)


def test_arrival_must_be_within_the_trip(trip, city):
    stop = Stop(trip=trip, city=city("Tokyo"), position=1, arrival=date(2028, 1, 1))
    with pytest.raises(ValidationError, match="as the trip is"):
        stop.full_clean()
    stop.arrival = trip.ends
    stop.full_clean()


def test_incomplete_stop_can_be_validated():
    Stop(arrival=date(2027, 4, 2)).clean()
    Stop(arrival=date(2027, 4, 2), trip=Trip()).clean()


def test_string_representations(trip, city):
    assert str(Continent(name="Europe")) == "Europe"
    assert str(Country(name="France")) == "France"
    assert str(trip) == "Japan"
    assert str(Stop(trip=trip, city=city("Tokyo"), position=2)) == "2. Tokyo (JP)"


@pytest.mark.django_db(databases="__all__")
def test_migrations_are_complete():
    from django.core.management import call_command

    call_command("makemigrations", "atlas", check=True, dry_run=True, verbosity=0)
    assert "atlas_city" in connection.introspection.table_names()
