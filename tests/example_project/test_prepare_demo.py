import pytest
from django.core.management import call_command

import django_mcp as mcp
from django_mcp.tokens import PersonalAccessTokens
from example_project.atlas import access
from example_project.atlas.models import Trip


@pytest.fixture
def prepare(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(access, "place", lambda: tmp_path / "token")

    def run():
        call_command("prepare_demo", largest=300)
        return capsys.readouterr()

    return run


@pytest.mark.django_db(databases="__all__")
def test_it_prints_a_token_of_alices_and_nothing_else(prepare):
    told = prepare()
    principal = PersonalAccessTokens().lookup(told.out.strip(), mcp.server)
    assert principal.user.username == "alice"
    assert "Loading the world: manage.py load_atlas" in told.err


@pytest.mark.django_db(databases="__all__")
def test_what_is_there_is_kept(prepare):
    first = prepare().out
    Trip.objects.filter(owner__username="alice").update(notes="Mine")
    assert prepare().out == first
    assert set(Trip.objects.filter(owner__username="alice").values_list("notes", flat=True)) == {
        "Mine"
    }
