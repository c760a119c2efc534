"""Where people of the demonstration sign in."""

import pytest

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
