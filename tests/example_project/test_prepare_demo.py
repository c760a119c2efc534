"""``prepare_demo``: the token and passwords it prints, and what it keeps."""

import json
from types import SimpleNamespace

import pytest
from django.contrib.auth import authenticate
from django.core.management import call_command
from django.db import connection

import django_mcp as mcp
from django_mcp.verifiers.personal_tokens import PersonalAccessTokens
from example_project.atlas import access, passwords
from example_project.atlas.models import Trip


@pytest.fixture
def prepare(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(access, "place", lambda: tmp_path / "token")
    monkeypatch.setattr(passwords, "place", lambda: tmp_path / "passwords")

    def run():
        call_command("prepare_demo", largest=300)
        out, err = capsys.readouterr()
        return SimpleNamespace(**json.loads(out), err=err)

    return run


@pytest.mark.django_db(databases="__all__")
def test_command_prints_a_token_of_alice_and_all_passwords(prepare):
    told = prepare()
    principal = PersonalAccessTokens().lookup(told.token, mcp.server)
    assert principal.user.username == "alice"
    assert set(told.passwords) == {"alice", "bob"}
    for name, password in told.passwords.items():
        assert authenticate(username=name, password=password).username == name
    assert "Loading the world: manage.py load_atlas" in told.err


@pytest.mark.django_db(databases="__all__")
def test_cache_table_is_created(prepare):
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE cache")
    prepare()
    assert "cache" in connection.introspection.table_names()


@pytest.mark.django_db(databases="__all__")
def test_existing_data_is_kept(prepare):
    first = prepare()
    Trip.objects.filter(owner__username="alice").update(notes="Mine")
    again = prepare()
    assert (again.token, again.passwords) == (first.token, first.passwords)
    assert set(Trip.objects.filter(owner__username="alice").values_list("notes", flat=True)) == {
        "Mine"
    }


@pytest.mark.django_db(databases="__all__")
def test_chosen_password_is_neither_printed_nor_changed(prepare, django_user_model):
    prepare()
    bob = django_user_model.objects.get(username="bob")
    bob.set_password("around the world")
    bob.save()
    assert set(prepare().passwords) == {"alice"}
    assert authenticate(username="bob", password="around the world") == bob
