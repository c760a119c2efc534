"""Where people of the demonstration sign in."""

import pytest

import django_mcp as mcp
from django_mcp.web.clients import connection_methods
from example_project.atlas.people import PEOPLE, make_person


@pytest.fixture
def traveller(atlas):
    user = make_person(PEOPLE[1])
    user.set_password("around the world")
    user.save()
    return user


def test_who_does_not_work_in_the_admin_signs_in_too(client, traveller):
    asked = {"username": traveller.username, "password": "around the world", "next": "/mcp"}
    page = client.get("/accounts/login/?next=/mcp")
    assert page.status_code == 200 and "The atlas" in page.content.decode()
    answer = client.post("/accounts/login/", asked)
    assert (answer.status_code, answer["Location"]) == (302, "/mcp")
    assert client.session["_auth_user_id"] == str(traveller.pk)


def test_nobody_is_led_elsewhere(client, traveller):
    asked = {"username": traveller.username, "password": "around the world"}
    answer = client.post("/accounts/login/", asked | {"next": "https://evil.example/"})
    assert answer.status_code == 302 and "evil.example" not in answer["Location"]


def test_clients_are_given_the_address_alone():
    """For they sign in: nothing of the atlas is for everybody."""
    methods = connection_methods(mcp.server, "http://127.0.0.1:8000/mcp")
    lines = [method.snippet.text for method in methods]
    assert len(lines) > 5 and not any("TOKEN" in line for line in lines)
