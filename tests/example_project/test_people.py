import pytest
from django.contrib.auth import authenticate
from django.core.management import call_command

from example_project.atlas import passwords
from example_project.atlas.models import Trip
from example_project.atlas.trips import itinerary


@pytest.fixture
def people(atlas, django_user_model):
    call_command("demo_users", verbosity=0)
    return {user.username: user for user in django_user_model.objects.all()}


def test_two_people_have_trips_of_their_own(people):
    assert set(people) == {"alice", "bob"}
    titles = [
        set(Trip.objects.of(user).values_list("title", flat=True)) for user in people.values()
    ]
    assert all(titles)
    assert not titles[0] & titles[1]


def test_trips_go_through_cities_in_order_and_time(people):
    for trip in Trip.objects.all():
        trip.full_clean()
        for stop in trip.stops.all():
            stop.full_clean()
        assert len(itinerary(trip).cities) >= 2
        assert all(leg.nights >= 1 for leg in itinerary(trip).legs)


def test_alice_may_correct_the_atlas_and_bob_may_not(people):
    assert people["alice"].has_perm("atlas.change_city")
    assert not people["bob"].has_perm("atlas.change_city")
    assert people["bob"].has_perms(["atlas.view_city", "atlas.add_trip", "atlas.delete_stop"])


def test_nobody_can_log_in_unasked(people):
    assert not any(user.has_usable_password() for user in people.values())


def test_making_them_again_changes_nothing(people):
    before = list(Trip.objects.values())
    call_command("demo_users", verbosity=0)
    assert list(Trip.objects.values()) == before


def test_passwords_are_made_and_told_when_asked_for(people, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(passwords, "place", lambda: tmp_path / "passwords")
    call_command("demo_users", passwords=True)
    told = dict(
        line.removeprefix("  password of ").split(": ")
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("  password")
    )
    assert set(told) == {"alice", "bob"}
    assert told["alice"] != told["bob"]
    alice = authenticate(username="alice", password=told["alice"])
    assert alice == people["alice"]
    assert passwords.kept(alice, tmp_path / "passwords") == told["alice"]
