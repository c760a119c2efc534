"""The demo users: their permissions, trips and passwords."""

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


def test_two_users_have_different_trips(people):
    assert set(people) == {"alice", "bob"}
    titles = [
        set(Trip.objects.of(user).values_list("title", flat=True)) for user in people.values()
    ]
    assert all(titles)
    assert not titles[0] & titles[1]


def test_trips_are_valid_and_visit_several_cities(people):
    for trip in Trip.objects.all():
        trip.full_clean()
        for stop in trip.stops.all():
            stop.full_clean()
        assert len(itinerary(trip).cities) >= 2
        assert all(leg.nights >= 1 for leg in itinerary(trip).legs)


def test_only_alice_may_change_cities(people):
    assert people["alice"].has_perm("atlas.change_city")
    assert not people["bob"].has_perm("atlas.change_city")
    assert people["bob"].has_perms(["atlas.view_city", "atlas.add_trip", "atlas.delete_stop"])


def test_users_have_no_usable_password_by_default(people):
    assert not any(user.has_usable_password() for user in people.values())


def test_command_is_idempotent(people):
    before = list(Trip.objects.values())
    call_command("demo_users", verbosity=0)
    assert list(Trip.objects.values()) == before


def test_passwords_option_creates_and_prints_passwords(people, capsys, monkeypatch, tmp_path):
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
