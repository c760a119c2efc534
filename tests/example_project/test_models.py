from datetime import date

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction

from example_project.atlas.models import City, Continent, Country, Stop, Trip


def test_cities_are_found_by_the_beginning_of_their_name(atlas):
    assert [city.name for city in City.objects.named("SAO PAU")] == ["São Paulo"]
    assert [city.name for city in City.objects.named("são pau")] == ["São Paulo"]


def test_wildcards_in_a_name_stand_for_themselves(atlas):
    assert not City.objects.named("%").exists()
    assert not City.objects.named("_").exists()


def test_an_empty_beginning_finds_every_city(atlas):
    assert City.objects.named("").count() == 3_000


def test_a_saved_city_is_found_by_its_new_name(atlas):
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
def test_the_usual_questions_are_answered_from_an_index(atlas, cities, index):
    plan = cities()[:20].explain()
    assert index in plan
    assert "TEMP B-TREE" not in plan


def test_a_geonames_id_is_the_row_id_itself(atlas):
    assert "INTEGER PRIMARY KEY" in City.objects.filter(pk=1).explain()


def test_a_country_tells_its_density():
    assert Country(population=100, area=8).density == 12.5
    assert Country(population=100, area=0).density is None


def test_a_trip_cannot_end_before_it_starts(trip):
    trip.ends = date(2027, 3, 1)
    with pytest.raises(ValidationError, match="cannot end before"):
        trip.full_clean()
    with pytest.raises(IntegrityError), transaction.atomic():
        trip.save()


def test_a_trip_counts_its_first_and_last_day(trip):
    assert trip.days == 12


def test_trips_are_seen_by_their_owner_alone(trip, alice, django_user_model):
    bob = django_user_model.objects.create_user("bob")
    assert Trip.objects.of(alice).get() == trip
    assert not Trip.objects.of(bob).exists()
    assert not Trip.objects.of(AnonymousUser()).exists()


def test_two_stops_cannot_have_one_position(trip, city):
    Stop.objects.create(trip=trip, city=city("Tokyo"), position=1)
    with pytest.raises(IntegrityError), transaction.atomic():
        Stop.objects.create(trip=trip, city=city("Osaka"), position=1)


def test_one_arrives_while_the_trip_lasts(trip, city):
    stop = Stop(trip=trip, city=city("Tokyo"), position=1, arrival=date(2028, 1, 1))
    with pytest.raises(ValidationError, match="as the trip is"):
        stop.full_clean()
    stop.arrival = trip.ends
    stop.full_clean()


def test_a_half_filled_stop_is_no_crash():
    Stop(arrival=date(2027, 4, 2)).clean()
    Stop(arrival=date(2027, 4, 2), trip=Trip()).clean()


def test_things_have_names(trip, city):
    assert str(Continent(name="Europe")) == "Europe"
    assert str(Country(name="France")) == "France"
    assert str(trip) == "Japan"
    assert str(Stop(trip=trip, city=city("Tokyo"), position=2)) == "2. Tokyo (JP)"


@pytest.mark.django_db(databases="__all__")
def test_the_migrations_are_complete():
    from django.core.management import call_command

    call_command("makemigrations", "atlas", check=True, dry_run=True, verbosity=0)
    assert "atlas_city" in connection.introspection.table_names()
