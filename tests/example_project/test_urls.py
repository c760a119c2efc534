"""Sign-in of the demo users."""

import pytest

import django_mcp as mcp
from django_mcp.web.clients import connection_methods
from example_project.atlas.people import PEOPLE, make_person


@pytest.fixture
def user_without_admin(atlas):
    user = make_person(PEOPLE[1])
    user.set_password("around the world")
    user.save()
    return user


def test_user_without_admin_access_can_sign_in(client, user_without_admin):
    asked = {
        "username": user_without_admin.username,
        "password": "around the world",
        "next": "/mcp",
    }
    page = client.get("/accounts/login/?next=/mcp")
    assert page.status_code == 200 and "The atlas" in page.content.decode()
    answer = client.post("/accounts/login/", asked)
    assert (answer.status_code, answer["Location"]) == (302, "/mcp")
    assert client.session["_auth_user_id"] == str(user_without_admin.pk)


def test_login_does_not_redirect_to_another_site(client, user_without_admin):
    asked = {"username": user_without_admin.username, "password": "around the world"}
    answer = client.post("/accounts/login/", asked | {"next": "https://evil.example/"})
    assert answer.status_code == 302 and "evil.example" not in answer["Location"]


def test_connection_methods_contain_no_token():
    """Clients sign in by OAuth, because nothing of the atlas is public."""
    methods = connection_methods(mcp.server, "http://127.0.0.1:8000/mcp")
    lines = [method.snippet.text for method in methods]
    assert len(lines) > 5 and not any("TOKEN" in line for line in lines)
