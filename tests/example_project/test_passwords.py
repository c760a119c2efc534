"""The passwords of the demo users: created once, stored privately, and replaced if invalid."""

import os
import stat
import sys

import pytest
from django.contrib.auth import authenticate

from example_project.atlas import passwords
from example_project.atlas.people import PEOPLE, make_person


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db.sqlite3.passwords"


@pytest.fixture(autouse=True)
def fast_hasher(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def people(atlas):
    return [make_person(person) for person in PEOPLE]


def test_passwords_are_created_once_and_returned_again(people, path):
    made = [passwords.kept(user, path) for user in people]
    assert len(set(made)) == len(made) == 2
    assert [passwords.kept(user, path) for user in people] == made
    for user, password in zip(people, made, strict=True):
        assert authenticate(username=user.username, password=password) == user


def test_new_password_replaces_the_old_one(people, path):
    alice, bob = people
    old, other = passwords.kept(alice, path), passwords.kept(bob, path)
    new = passwords.made(alice, path)
    assert passwords.kept(alice, path) == new != old
    assert passwords.kept(bob, path) == other
    assert authenticate(username="alice", password=old) is None


def test_chosen_password_is_neither_returned_nor_changed(people, path):
    alice, _ = people
    passwords.kept(alice, path)
    alice.set_password("around the world")
    assert passwords.kept(alice, path) is None
    assert alice.check_password("around the world")


@pytest.mark.parametrize("held", ["no passwords", "[]"])
def test_file_without_passwords_is_replaced(people, path, held):
    path.write_text(held)
    made = passwords.kept(people[0], path)
    assert made and passwords.kept(people[0], path) == made


def test_password_of_another_database_is_replaced(people, path):
    first = passwords.kept(people[0], path)
    people[0].set_unusable_password()
    assert passwords.kept(people[0], path) != first


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_file_is_readable_only_by_the_owner(people, path):
    path.write_text("an old file that anybody may read")
    passwords.kept(people[0], path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_file_is_next_to_the_database(settings):
    assert passwords.place().parent == settings.DATABASE.parent
    assert passwords.place().name.startswith(settings.DATABASE.name)
