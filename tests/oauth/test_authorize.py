"""The authorization endpoint: from a client's request to its answer."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import DisallowedRedirect
from django.test import override_settings
from django.urls import reverse
from oauth2_provider.models import get_access_token_model, get_grant_model

from django_mcp.declarations.server import Server
from django_mcp.oauth.authorization_request import with_issuer
from django_mcp.oauth.authorize import MCPAuthorizationView
from django_mcp.oauth.models import ClientProfile, Consent

from .conftest import CHALLENGE, MCP, REDIRECT, URL, VERIFIER
from .consent import (
    ALLOW,
    AUTHORIZE,
    CANCEL,
    FRESH,
    RESOURCE,
    SITE,
    fresh_cores,  # noqa: F401
    query,
    registered,
    told,
    url,
)

Grant = get_grant_model()


BOOKS = f"{URL}/books"


def nobody(user, server):
    return False


def only_books(user, server):
    return server.name == "books"


@pytest.fixture
def signed_in(web, alice):
    web.force_login(alice)
    return web


@pytest.fixture
def books():
    made = Server("books", path="books")
    made.tool(lambda: 1)
    return made


def login_of(response):
    """Where the login is to send the browser, and with what."""
    assert response.status_code == 302
    parts = urlsplit(response["Location"])
    assert parts.path == "/accounts/login/"
    back = urlsplit(parse_qs(parts.query)["next"][0])
    return back.path, parse_qs(back.query)


# The routes.


@pytest.mark.parametrize("name", ["authorize", "token", "revoke"])
def test_each_endpoint_has_a_name(name):
    assert reverse(f"django_mcp_oauth:{name}") == f"/oauth/{name}"


@pytest.fixture
def with_fallback():
    with override_settings(ROOT_URLCONF="tests.oauth.urls_with_fallback"):
        yield


@pytest.mark.parametrize("path", ["/oauth/authorize", "/oauth/authorize/", "/authorize"])
def test_consent_is_asked_at_every_path_that_clients_know(
    signed_in, public_client, with_fallback, path
):
    assert signed_in.get(path, query(public_client)).status_code == 200
    assert told(signed_in.post(url(public_client).replace(AUTHORIZE, path), ALLOW))["code"]


@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/token/", "/token"])
def test_codes_are_redeemed_at_every_path_that_clients_know(
    signed_in, public_client, with_fallback, path
):
    code = told(signed_in.post(url(public_client), ALLOW))["code"]
    body = {
        "grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT,
        "client_id": public_client.client_id, "code_verifier": VERIFIER, "resource": RESOURCE,
    }  # fmt: skip
    response = signed_in.post(path, body)
    assert response.status_code == 200, response.content
    token = get_access_token_model().objects.get()
    assert token.resource == [RESOURCE] and token.scope == "mcp"


@pytest.mark.parametrize("name", ["authorize", "token", "register"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_pages_at_the_root_stay_the_projects(web, name, slash):
    assert web.get(f"/{name}{slash}").status_code == 404


@pytest.mark.parametrize("name", ["authorize", "token", "register"])
def test_fallback_urls_take_no_path_with_a_slash(web, with_fallback, name):
    assert web.get(f"/{name}/").status_code == 404
    assert web.get(f"/{name}").status_code != 404


@pytest.mark.parametrize("path", ["/oauth/revoke", "/oauth/revoke/"])
def test_tokens_are_revoked(web, public_client, path):
    body = {"token": "unknown", "client_id": public_client.client_id}
    assert web.post(path, body).status_code == 200


@pytest.mark.parametrize("method", ["head", "options", "put", "delete", "patch"])
def test_there_is_no_other_method(signed_in, public_client, method):
    response = getattr(signed_in, method)(url(public_client))
    assert response.status_code == 405 and response["Cache-Control"] == "no-store"


# An answer.


def test_who_agrees_sends_the_client_a_code(signed_in, alice, public_client):
    answer = told(signed_in.post(url(public_client), ALLOW))
    assert answer == {"code": answer["code"], "state": "xyz", "iss": URL}
    grant = Grant.objects.get()
    assert (grant.user, grant.application, grant.code) == (alice, public_client, answer["code"])
    assert (grant.scope, grant.resource, grant.redirect_uri) == ("mcp", [RESOURCE], REDIRECT)
    assert (grant.code_challenge, grant.code_challenge_method) == (CHALLENGE, "S256")


@pytest.mark.parametrize("answer", [CANCEL, {}, {"allow": ""}])
def test_who_does_not_agree_sends_the_client_away(signed_in, public_client, answer):
    response = told(signed_in.post(url(public_client), answer))
    assert response == {"error": "access_denied", "state": "xyz", "iss": URL}
    assert not Grant.objects.exists() and not Consent.objects.exists()


def test_the_query_of_a_redirect_uri_stays_as_it_is(signed_in):
    callback = "https://agent.example/callback?flag&b=%C3%A4+1&iss=https://other.example"
    made = registered(redirect_uris=callback)
    response = signed_in.post(url(made, redirect_uri=callback), CANCEL)
    assert response["Location"] == (
        "https://agent.example/callback?flag&b=%C3%A4+1&error=access_denied&state=xyz"
        "&iss=https%3A%2F%2Fshop.example"
    )


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("https://a.example/cb", "https://a.example/cb?iss=https%3A%2F%2Fshop.example"),
        ("https://a.example/?%69ss=x&a=", "https://a.example/?a=&iss=https%3A%2F%2Fshop.example"),
        ("app:/cb?a=1#b", "app:/cb?a=1&iss=https%3A%2F%2Fshop.example"),
    ],
)
def test_an_issuer_is_named_once(uri, named):
    assert with_issuer(uri) == named


def test_an_app_is_answered_by_its_own_scheme(signed_in):
    callback = "cursor://anysphere.cursor-mcp/oauth/callback"
    made = registered(redirect_uris=callback)
    response = signed_in.post(url(made, redirect_uri=callback), ALLOW)
    assert response["Location"].startswith(f"{callback}?code=") and told(response)["iss"] == URL


def test_a_scheme_that_the_toolkit_does_not_allow_is_a_page(signed_in):
    callback = "cursor://anysphere.cursor-mcp/oauth/callback"
    made = registered(redirect_uris=callback)
    over = {**FRESH, "ALLOWED_REDIRECT_URI_SCHEMES": ["https"]}
    with override_settings(OAUTH2_PROVIDER=_dot(**over)):
        response = signed_in.post(url(made, redirect_uri=callback), ALLOW)
    assert response.status_code == 400 and b"This did not work" in response.content
    assert DisallowedRedirect.__name__.encode() not in response.content


def _dot(**over):
    from django_mcp.oauth import dot_settings

    return dot_settings(URL, **over)


# The trail.


def test_what_was_agreed_to_is_written_down(signed_in, alice):
    made = registered("dcr")
    ClientProfile.objects.create(client_id=made.client_id, source="dcr", digest="d" * 64)
    signed_in.post(url(made, redirect_uri=SITE), ALLOW)
    row = Consent.objects.get()
    assert (row.user, row.client_id, row.resource) == (alice, made.client_id, RESOURCE)
    assert (row.scopes, row.redirect_host, row.digest) == (["mcp"], "agent.example", "d" * 64)
    assert row.revoked is None
    assert ClientProfile.objects.get().last_authorized is not None


def test_of_each_server_it_is_written_down(signed_in, public_client, books):
    both = [RESOURCE, f"{URL}/books"]
    signed_in.post(url(public_client, resource=both), ALLOW)
    assert sorted(Consent.objects.values_list("resource", flat=True)) == sorted(both)
    assert Grant.objects.get().resource == both


def test_without_a_code_nothing_is_written_down(signed_in, public_client, monkeypatch):
    failed = f"{REDIRECT}?error=server_error&state=xyz"
    monkeypatch.setattr(
        MCPAuthorizationView, "create_authorization_response", lambda *a, **k: (failed, {}, "", 302)
    )
    answer = told(signed_in.post(url(public_client), ALLOW))
    assert answer["error"] == "server_error" and answer["iss"] == URL
    assert not Consent.objects.exists()


def test_what_fails_leaves_no_consent(signed_in, public_client, monkeypatch):
    def fails(*args, **kwargs):
        raise RuntimeError

    monkeypatch.setattr(MCPAuthorizationView, "create_authorization_response", fails)
    with pytest.raises(RuntimeError):
        signed_in.post(url(public_client), ALLOW)
    assert not Consent.objects.exists()


# Servers.


def test_a_request_that_names_no_server_is_for_the_only_one(signed_in, public_client):
    for over in ({"resource": None}, {"resource": ""}):
        told(signed_in.post(url(public_client, **over), ALLOW))
    assert [grant.resource for grant in Grant.objects.all()] == [[RESOURCE]] * 2


def test_person_chooses_the_server_where_the_request_names_none_of_several(
    signed_in, public_client, books
):
    page = signed_in.get(url(public_client, resource=None))
    assert page.status_code == 200 and list(page.context["question"].choices) == [RESOURCE, BOOKS]
    assert page.text.count('type="radio"') == 2 and "checked" not in page.text
    code = told(signed_in.post(url(public_client, resource=None), ALLOW | {"server": BOOKS}))[
        "code"
    ]
    assert Grant.objects.get().resource == [BOOKS]
    assert [one.resource for one in Consent.objects.all()] == [BOOKS]
    body = {
        "grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT,
        "client_id": public_client.client_id, "code_verifier": VERIFIER,
    }  # fmt: skip
    tokens = signed_in.post("/oauth/token", body).json()
    again = {"grant_type": "refresh_token", "client_id": public_client.client_id}
    again["refresh_token"] = tokens["refresh_token"]
    assert signed_in.post("/oauth/token", again).status_code == 200
    assert all(row.resource == [BOOKS] for row in get_access_token_model().objects.all())


@pytest.mark.parametrize("server", [None, "", "https://evil.example/mcp", f"{URL}/mcp/nowhere"])
def test_answer_without_a_chosen_server_shows_the_page_again(
    signed_in, public_client, books, server
):
    answer = ALLOW if server is None else ALLOW | {"server": server}
    page = signed_in.post(url(public_client, resource=None), answer)
    assert page.status_code == 200 and page.context["question"].choices
    assert not Grant.objects.exists() and not Consent.objects.exists()


def test_chosen_server_does_not_replace_the_one_that_the_request_names(
    signed_in, public_client, books
):
    page = signed_in.get(url(public_client))
    assert not page.context["question"].choices
    told(signed_in.post(url(public_client), ALLOW | {"server": BOOKS}))
    assert Grant.objects.get().resource == [RESOURCE]


def test_nobody_is_asked_which_server_where_the_project_names_one(signed_in, public_client, books):
    with override_settings(DJANGO_MCP={**MCP, "OAUTH": {"DEFAULT_SERVER": "books"}}):
        page = signed_in.get(url(public_client, resource=None))
        assert list(page.context["question"].servers) == [BOOKS]
        told(signed_in.post(url(public_client, resource=None), ALLOW))
    assert Grant.objects.get().resource == [BOOKS]


def test_person_may_say_no_without_choosing_a_server(signed_in, public_client, books):
    assert told(signed_in.post(url(public_client, resource=None), CANCEL))["error"] == (
        "access_denied"
    )


def test_only_servers_that_the_person_may_use_are_offered(signed_in, public_client, books):
    with override_settings(
        DJANGO_MCP={**MCP, "OAUTH": {"MAY_AUTHORIZE": "tests.oauth.test_authorize.only_books"}}
    ):
        page = signed_in.get(url(public_client, resource=None))
        assert list(page.context["question"].choices) == [BOOKS]
        answer = signed_in.post(url(public_client, resource=None), ALLOW | {"server": RESOURCE})
        assert told(answer)["error"] == "access_denied"


def test_trusted_client_that_names_no_server_of_several_asks(signed_in, books):
    page = signed_in.get(url(trusted(), redirect_uri=SITE, resource=None))
    assert page.status_code == 200 and page.context["question"].choices
    silent = signed_in.get(url(trusted(), redirect_uri=SITE, resource=None, prompt="none"))
    assert told(silent)["error"] == "consent_required"


@pytest.mark.parametrize("spelled", ["HTTPS://SHOP.example/mcp", f"{URL}:443/mcp", f"{URL}/mcp/"])
def test_a_server_has_one_name_however_it_is_spelled(signed_in, public_client, spelled):
    told(signed_in.post(url(public_client, resource=spelled), ALLOW))
    assert Grant.objects.get().resource == [RESOURCE]


@pytest.mark.parametrize(
    "named",
    [
        URL, f"{URL}/mcp2", f"{URL}/mcp/x", "https://evil.example/mcp", "http://shop.example/mcp",
        f"{URL}/mcp?a=1", f"{URL}/mcp#a", "https://u@shop.example/mcp", "http://[::1", "mcp", "%",
        [RESOURCE, "https://evil.example/mcp"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_server_that_is_none_of_ours_is_an_invalid_target(
    signed_in, public_client, named, method
):
    address = url(public_client, resource=named)
    answer = told(signed_in.get(address) if method == "get" else signed_in.post(address, ALLOW))
    assert answer["error"] == "invalid_target"
    assert answer["state"] == "xyz" and answer["iss"] == URL and not Grant.objects.exists()


# Requests that are wrong.


@pytest.mark.parametrize(
    ("over", "error"),
    [
        ({"response_type": None}, "invalid_request"),
        ({"response_type": "token"}, "unauthorized_client"),
        ({"response_type": "code token"}, "unauthorized_client"),
        ({"response_mode": "fragment"}, "invalid_request"),
        ({"response_mode": ["query", "fragment"]}, "invalid_request"),
        ({"scope": "unheard"}, "invalid_scope"),
        ({"nonce": "n" * 256}, "invalid_request"),
        ({"prompt": "none login"}, "invalid_request"),
        ({"code_challenge": [CHALLENGE, CHALLENGE]}, "invalid_request"),
    ],
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_client_hears_what_is_wrong(signed_in, public_client, over, error, method):
    address = url(public_client, **over)
    answer = told(signed_in.get(address) if method == "get" else signed_in.post(address, ALLOW))
    assert (answer["error"], answer["state"], answer["iss"]) == (error, "xyz", URL)
    assert not Grant.objects.exists()


@pytest.mark.parametrize(
    "over",
    [
        {"client_id": None}, {"client_id": "unheard"}, {"client_id": "nul\0"},
        {"client_id": ["a", "b"]}, {"redirect_uri": "https://evil.example/"},
        {"redirect_uri": "http://127.0.0.1:port/callback"}, {"redirect_uri": "http://[::1"},
        {"redirect_uri": "http://127.0.0.1:99999/callback"},
        {"redirect_uri": "http://127.0.0.1:7777/call\nback"}, {"state": "a\r\nb"}, {"a\0b": "c"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["get", "post"])
def test_what_no_client_may_hear_is_a_page(signed_in, public_client, over, method):
    address = url(public_client, **over)
    response = signed_in.get(address) if method == "get" else signed_in.post(address, ALLOW)
    assert response.status_code == 400 and b"This did not work" in response.content
    assert "Location" not in response and not Grant.objects.exists()


@pytest.mark.parametrize("name", ["redirect_uri", "scope", "resource", "response_mode", "prompt"])
def test_a_parameter_without_a_value_is_none(signed_in, public_client, name):
    """RFC 6749, 3.1: this client has one redirect URI, and there is one server."""
    answer = told(signed_in.post(url(public_client, **{name: ""}), ALLOW))
    assert answer["code"] and answer["state"] == "xyz"
    assert Grant.objects.get().scope == "mcp"


@pytest.mark.parametrize("name", ["response_type", "code_challenge", "code_challenge_method"])
def test_what_must_be_said_is_not_said_by_an_empty_value(signed_in, public_client, name):
    answer = told(signed_in.post(url(public_client, **{name: ""}), ALLOW))
    assert answer["error"] == "invalid_request" and not Grant.objects.exists()


def test_a_query_that_is_none_is_a_page(signed_in, public_client):
    response = signed_in.get(f"{url(public_client)}&a=%zz")
    assert response.status_code == 400 and b"Malformed request." in response.content


def test_an_answer_without_a_request_is_a_page(signed_in):
    assert signed_in.post(AUTHORIZE, ALLOW).status_code == 400


def test_plain_http_to_another_machine_is_never_answered(signed_in):
    made = registered("manual", redirect_uris="http://agent.example/callback")
    for over in ({}, {"scope": "unheard"}):
        response = signed_in.get(url(made, redirect_uri="http://agent.example/callback", **over))
        assert response.status_code == 400 and "Location" not in response


def test_a_blocked_client_is_not_answered(signed_in, public_client):
    ClientProfile.objects.update(blocked="2026-01-01T00:00Z")
    for response in (signed_in.get(url(public_client)), signed_in.post(url(public_client), ALLOW)):
        assert response.status_code == 400 and "Location" not in response


# Signing in.


@pytest.mark.parametrize(
    "middleware", [[], ["django.contrib.auth.middleware.LoginRequiredMiddleware"]]
)
def test_whoever_is_nobody_signs_in_first(web, alice, public_client, settings, middleware):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, *middleware]
    path, asked = login_of(web.get(url(public_client)))
    assert path == AUTHORIZE and asked == {k: [v] for k, v in query(public_client).items()}
    assert login_of(web.post(url(public_client), ALLOW))[0] == AUTHORIZE
    web.force_login(alice)
    assert web.get(url(public_client)).status_code == 200


def test_under_the_middleware_a_token_needs_no_login(web, public_client, settings):
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"
    ]  # fmt: skip
    assert web.post("/oauth/token", {"client_id": public_client.client_id}).status_code == 400
    assert told(web.get(url(public_client, prompt="none")))["error"] == "login_required"


@pytest.mark.parametrize(
    ("login", "back"),
    [
        ("/in/", AUTHORIZE),
        (f"{URL}/in/", AUTHORIZE),
        ("https://sso.example/in/", f"{URL}{AUTHORIZE}"),
    ],
)
def test_the_login_is_the_projects(web, public_client, settings, login, back):
    settings.LOGIN_URL = login
    location = web.get(url(public_client))["Location"]
    assert location.startswith(f"{login}?next=")
    assert parse_qs(urlsplit(location).query)["next"][0].startswith(f"{back}?")


def test_a_prompt_to_log_in_comes_back_with_everything_else(signed_in, public_client, books):
    both = [RESOURCE, f"{URL}/books"]
    for prompt, left in (("login", None), ("login consent", ["consent"])):
        address = url(public_client, resource=both, prompt=prompt)
        path, asked = login_of(signed_in.get(address))
        assert path == AUTHORIZE and asked["resource"] == both and asked.get("prompt") == left
        assert login_of(signed_in.post(address, ALLOW))[1]["resource"] == both
    assert not Grant.objects.exists()


@pytest.mark.parametrize("prompt", ["consent", "select_account", "create"])
def test_other_prompts_are_asked_anyway(signed_in, public_client, prompt):
    assert signed_in.get(url(public_client, prompt=prompt)).status_code == 200


def test_who_would_be_somebody_else_signs_in_again(signed_in, public_client):
    path, asked = login_of(signed_in.post(url(public_client), {"switch": "true"}))
    assert path == AUTHORIZE and asked["resource"] == [RESOURCE]
    assert "_auth_user_id" not in signed_in.session


def test_of_who_is_nobody_a_silent_client_hears_just_that(web, public_client):
    answer = told(web.get(url(public_client, prompt="none")))
    assert answer == {"error": "login_required", "state": "xyz", "iss": URL}


# Who may not.


def test_who_may_not_is_not_let_by_a_form(signed_in, public_client):
    with override_settings(
        DJANGO_MCP={**MCP, "OAUTH": {"MAY_AUTHORIZE": "tests.oauth.test_authorize.nobody"}}
    ):
        answer = told(signed_in.post(url(public_client), ALLOW))
        silent = told(signed_in.get(url(public_client, prompt="none")))
    assert answer["error"] == "access_denied" and silent["error"] == "interaction_required"
    assert not Grant.objects.exists()


@pytest.mark.parametrize("backend", ["ModelBackend", "AllowAllUsersModelBackend"])
def test_who_may_not_sign_in_lets_nobody_in(web, alice, public_client, settings, backend):
    settings.AUTHENTICATION_BACKENDS = [f"django.contrib.auth.backends.{backend}"]
    web.force_login(alice)
    get_user_model().objects.update(is_active=False)
    response = web.post(url(public_client), ALLOW)
    assert "code=" not in response["Location"] and not Grant.objects.exists()
    assert b">Allow<" not in web.get(url(public_client)).content


# The project's own clients.


def trusted(source="manual", **over):
    return registered(source, skip_authorization=True, **over)


def test_a_client_of_the_project_may_do_without_a_page(signed_in):
    made = trusted()
    answer = told(signed_in.get(url(made, redirect_uri=SITE)))
    assert answer["code"] and answer["iss"] == URL
    assert told(signed_in.get(url(made, redirect_uri=SITE, prompt="none")))["code"]
    assert Consent.objects.count() == 2 and Grant.objects.first().resource == [RESOURCE]


@pytest.mark.parametrize(
    ("source", "over"),
    [
        ("dcr", {"redirect_uri": SITE}),
        ("cimd", {"redirect_uri": SITE}),
        ("manual", {"redirect_uri": REDIRECT}),
        ("manual", {"redirect_uri": SITE, "prompt": "consent"}),
    ],
)
def test_no_other_may(signed_in, source, over):
    response = signed_in.get(url(trusted(source), **over))
    assert response.status_code == 200 and not Grant.objects.exists()


def test_who_may_not_let_clients_in_does_not_let_in_the_projects(signed_in):
    with override_settings(
        DJANGO_MCP={**MCP, "OAUTH": {"MAY_AUTHORIZE": "tests.oauth.test_authorize.nobody"}}
    ):
        response = signed_in.get(url(trusted(), redirect_uri=SITE))
    assert response.status_code == 403 and not Grant.objects.exists()


# What an empty project says.


def test_where_nothing_is_served_nothing_is_for_anybody(signed_in, public_client, monkeypatch):
    monkeypatch.setattr("django_mcp.oauth.authorization_request.served", dict)
    monkeypatch.setattr("django_mcp.oauth.resource_indicators.served", dict)
    assert told(signed_in.get(url(public_client, resource=None)))["error"] == "invalid_target"


def test_a_project_may_have_a_page_of_its_own(web, alice, public_client, settings, tmp_path):
    (tmp_path / "django_mcp_oauth").mkdir()
    (tmp_path / "django_mcp_oauth/authorize.html").write_text("{{ question.client.name }}!")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]
    web.force_login(alice)
    assert web.get(url(public_client)).content == b"Agent!"
