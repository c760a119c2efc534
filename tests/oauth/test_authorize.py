"""The authorization endpoint: valid and invalid requests, sign-in, consent and redirects."""

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


def allow_nobody(user, server):
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


def login_redirect(response):
    """Return the path and the query of the page that the login returns to."""
    assert response.status_code == 302
    parts = urlsplit(response["Location"])
    assert parts.path == "/accounts/login/"
    back = urlsplit(parse_qs(parts.query)["next"][0])
    return back.path, parse_qs(back.query)


# The routes.


@pytest.mark.parametrize("name", ["authorize", "token", "revoke"])
def test_endpoints_have_url_names(name):
    assert reverse(f"django_mcp_oauth:{name}") == f"/oauth/{name}"


@pytest.fixture
def with_fallback():
    with override_settings(ROOT_URLCONF="tests.oauth.urls_with_fallback"):
        yield


@pytest.mark.parametrize("path", ["/oauth/authorize", "/oauth/authorize/", "/authorize"])
def test_authorize_works_at_every_path_that_clients_use(
    signed_in, public_client, with_fallback, path
):
    assert signed_in.get(path, query(public_client)).status_code == 200
    assert told(signed_in.post(url(public_client).replace(AUTHORIZE, path), ALLOW))["code"]


@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/token/", "/token"])
def test_token_endpoint_works_at_every_path_that_clients_use(
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
def test_root_paths_are_not_served_without_fallback_urls(web, name, slash):
    assert web.get(f"/{name}{slash}").status_code == 404


@pytest.mark.parametrize("name", ["authorize", "token", "register"])
def test_fallback_urls_do_not_match_a_trailing_slash(web, with_fallback, name):
    assert web.get(f"/{name}/").status_code == 404
    assert web.get(f"/{name}").status_code != 404


@pytest.mark.parametrize("path", ["/oauth/revoke", "/oauth/revoke/"])
def test_revocation_endpoint_works_with_and_without_a_slash(web, public_client, path):
    body = {"token": "unknown", "client_id": public_client.client_id}
    assert web.post(path, body).status_code == 200


@pytest.mark.parametrize("method", ["head", "options", "put", "delete", "patch"])
def test_methods_other_than_get_and_post_are_rejected(signed_in, public_client, method):
    response = getattr(signed_in, method)(url(public_client))
    assert response.status_code == 405 and response["Cache-Control"] == "no-store"


# Allow and cancel.


def test_allowing_redirects_with_a_code_and_stores_the_grant(signed_in, alice, public_client):
    answer = told(signed_in.post(url(public_client), ALLOW))
    assert answer == {"code": answer["code"], "state": "xyz", "iss": URL}
    grant = Grant.objects.get()
    assert (grant.user, grant.application, grant.code) == (alice, public_client, answer["code"])
    assert (grant.scope, grant.resource, grant.redirect_uri) == ("mcp", [RESOURCE], REDIRECT)
    assert (grant.code_challenge, grant.code_challenge_method) == (CHALLENGE, "S256")


@pytest.mark.parametrize("answer", [CANCEL, {}, {"allow": ""}])
def test_not_allowing_redirects_with_access_denied(signed_in, public_client, answer):
    response = told(signed_in.post(url(public_client), answer))
    assert response == {"error": "access_denied", "state": "xyz", "iss": URL}
    assert not Grant.objects.exists() and not Consent.objects.exists()


def test_query_of_the_redirect_uri_is_preserved(signed_in):
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
def test_redirect_contains_the_issuer_once(uri, named):
    assert with_issuer(uri) == named


def test_redirect_to_a_custom_scheme_is_allowed(signed_in):
    callback = "cursor://anysphere.cursor-mcp/oauth/callback"
    made = registered(redirect_uris=callback)
    response = signed_in.post(url(made, redirect_uri=callback), ALLOW)
    assert response["Location"].startswith(f"{callback}?code=") and told(response)["iss"] == URL


def test_redirect_to_a_disallowed_scheme_shows_an_error_page(signed_in):
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


# Stored consents.


def test_consent_is_stored_with_scopes_redirect_host_and_digest(signed_in, alice):
    made = registered("dcr")
    ClientProfile.objects.create(client_id=made.client_id, source="dcr", digest="d" * 64)
    signed_in.post(url(made, redirect_uri=SITE), ALLOW)
    row = Consent.objects.get()
    assert (row.user, row.client_id, row.resource) == (alice, made.client_id, RESOURCE)
    assert (row.scopes, row.redirect_host, row.digest) == (["mcp"], "agent.example", "d" * 64)
    assert row.revoked is None
    assert ClientProfile.objects.get().last_authorized is not None


def test_consent_is_stored_for_each_server(signed_in, public_client, books):
    both = [RESOURCE, f"{URL}/books"]
    signed_in.post(url(public_client, resource=both), ALLOW)
    assert sorted(Consent.objects.values_list("resource", flat=True)) == sorted(both)
    assert Grant.objects.get().resource == both


def test_consent_is_not_stored_when_the_redirect_has_an_error(
    signed_in, public_client, monkeypatch
):
    failed = f"{REDIRECT}?error=server_error&state=xyz"
    monkeypatch.setattr(
        MCPAuthorizationView, "create_authorization_response", lambda *a, **k: (failed, {}, "", 302)
    )
    answer = told(signed_in.post(url(public_client), ALLOW))
    assert answer["error"] == "server_error" and answer["iss"] == URL
    assert not Consent.objects.exists()


def test_consent_is_not_stored_when_the_response_raises(signed_in, public_client, monkeypatch):
    def fails(*args, **kwargs):
        raise RuntimeError

    monkeypatch.setattr(MCPAuthorizationView, "create_authorization_response", fails)
    with pytest.raises(RuntimeError):
        signed_in.post(url(public_client), ALLOW)
    assert not Consent.objects.exists()


# Servers.


def test_request_without_resource_is_for_the_only_server(signed_in, public_client):
    for over in ({"resource": None}, {"resource": ""}):
        told(signed_in.post(url(public_client, **over), ALLOW))
    assert [grant.resource for grant in Grant.objects.all()] == [[RESOURCE]] * 2


def test_user_chooses_the_server_if_the_request_names_none(signed_in, public_client, books):
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
def test_allowing_without_a_chosen_server_shows_the_page_again(
    signed_in, public_client, books, server
):
    answer = ALLOW if server is None else ALLOW | {"server": server}
    page = signed_in.post(url(public_client, resource=None), answer)
    assert page.status_code == 200 and page.context["question"].choices
    assert not Grant.objects.exists() and not Consent.objects.exists()


def test_chosen_server_does_not_replace_the_requested_one(signed_in, public_client, books):
    page = signed_in.get(url(public_client))
    assert not page.context["question"].choices
    told(signed_in.post(url(public_client), ALLOW | {"server": BOOKS}))
    assert Grant.objects.get().resource == [RESOURCE]


def test_default_server_setting_replaces_the_choice_of_server(signed_in, public_client, books):
    with override_settings(DJANGO_MCP={**MCP, "OAUTH": {"DEFAULT_SERVER": "books"}}):
        page = signed_in.get(url(public_client, resource=None))
        assert list(page.context["question"].servers) == [BOOKS]
        told(signed_in.post(url(public_client, resource=None), ALLOW))
    assert Grant.objects.get().resource == [BOOKS]


def test_user_can_cancel_without_choosing_a_server(signed_in, public_client, books):
    assert told(signed_in.post(url(public_client, resource=None), CANCEL))["error"] == (
        "access_denied"
    )


def test_choice_contains_only_servers_that_the_user_may_authorize(signed_in, public_client, books):
    with override_settings(
        DJANGO_MCP={**MCP, "OAUTH": {"MAY_AUTHORIZE": "tests.oauth.test_authorize.only_books"}}
    ):
        page = signed_in.get(url(public_client, resource=None))
        assert list(page.context["question"].choices) == [BOOKS]
        answer = signed_in.post(url(public_client, resource=None), ALLOW | {"server": RESOURCE})
        assert told(answer)["error"] == "access_denied"


def test_trusted_client_without_resource_still_shows_the_choice(signed_in, books):
    page = signed_in.get(url(trusted(), redirect_uri=SITE, resource=None))
    assert page.status_code == 200 and page.context["question"].choices
    silent = signed_in.get(url(trusted(), redirect_uri=SITE, resource=None, prompt="none"))
    assert told(silent)["error"] == "consent_required"


@pytest.mark.parametrize("spelled", ["HTTPS://SHOP.example/mcp", f"{URL}:443/mcp", f"{URL}/mcp/"])
def test_resource_is_normalized(signed_in, public_client, spelled):
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
def test_unknown_resource_is_an_invalid_target(signed_in, public_client, named, method):
    address = url(public_client, resource=named)
    answer = told(signed_in.get(address) if method == "get" else signed_in.post(address, ALLOW))
    assert answer["error"] == "invalid_target"
    assert answer["state"] == "xyz" and answer["iss"] == URL and not Grant.objects.exists()


# Invalid requests.


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
def test_invalid_request_redirects_with_an_error(signed_in, public_client, over, error, method):
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
def test_unknown_client_or_redirect_uri_shows_an_error_page(signed_in, public_client, over, method):
    address = url(public_client, **over)
    response = signed_in.get(address) if method == "get" else signed_in.post(address, ALLOW)
    assert response.status_code == 400 and b"This did not work" in response.content
    assert "Location" not in response and not Grant.objects.exists()


@pytest.mark.parametrize("name", ["redirect_uri", "scope", "resource", "response_mode", "prompt"])
def test_empty_optional_parameter_is_ignored(signed_in, public_client, name):
    """RFC 6749, 3.1: this client has one redirect URI, and there is one server."""
    answer = told(signed_in.post(url(public_client, **{name: ""}), ALLOW))
    assert answer["code"] and answer["state"] == "xyz"
    assert Grant.objects.get().scope == "mcp"


@pytest.mark.parametrize("name", ["response_type", "code_challenge", "code_challenge_method"])
def test_empty_required_parameter_is_an_invalid_request(signed_in, public_client, name):
    answer = told(signed_in.post(url(public_client, **{name: ""}), ALLOW))
    assert answer["error"] == "invalid_request" and not Grant.objects.exists()


def test_malformed_query_shows_an_error_page(signed_in, public_client):
    response = signed_in.get(f"{url(public_client)}&a=%zz")
    assert response.status_code == 400 and b"Malformed request." in response.content


def test_post_without_a_request_shows_an_error_page(signed_in):
    assert signed_in.post(AUTHORIZE, ALLOW).status_code == 400


def test_http_redirect_uri_to_another_host_is_rejected(signed_in):
    made = registered("manual", redirect_uris="http://agent.example/callback")
    for over in ({}, {"scope": "unheard"}):
        response = signed_in.get(url(made, redirect_uri="http://agent.example/callback", **over))
        assert response.status_code == 400 and "Location" not in response


def test_blocked_client_gets_an_error_page(signed_in, public_client):
    ClientProfile.objects.update(blocked="2026-01-01T00:00Z")
    for response in (signed_in.get(url(public_client)), signed_in.post(url(public_client), ALLOW)):
        assert response.status_code == 400 and "Location" not in response


# Signing in.


@pytest.mark.parametrize(
    "middleware", [[], ["django.contrib.auth.middleware.LoginRequiredMiddleware"]]
)
def test_anonymous_user_is_redirected_to_the_login(web, alice, public_client, settings, middleware):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, *middleware]
    path, asked = login_redirect(web.get(url(public_client)))
    assert path == AUTHORIZE and asked == {k: [v] for k, v in query(public_client).items()}
    assert login_redirect(web.post(url(public_client), ALLOW))[0] == AUTHORIZE
    web.force_login(alice)
    assert web.get(url(public_client)).status_code == 200


def test_login_required_middleware_does_not_apply_to_the_token_endpoint(
    web, public_client, settings
):
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
def test_login_url_setting_is_used(web, public_client, settings, login, back):
    settings.LOGIN_URL = login
    location = web.get(url(public_client))["Location"]
    assert location.startswith(f"{login}?next=")
    assert parse_qs(urlsplit(location).query)["next"][0].startswith(f"{back}?")


def test_prompt_login_signs_in_again_and_keeps_the_other_parameters(
    signed_in, public_client, books
):
    both = [RESOURCE, f"{URL}/books"]
    for prompt, left in (("login", None), ("login consent", ["consent"])):
        address = url(public_client, resource=both, prompt=prompt)
        path, asked = login_redirect(signed_in.get(address))
        assert path == AUTHORIZE and asked["resource"] == both and asked.get("prompt") == left
        assert login_redirect(signed_in.post(address, ALLOW))[1]["resource"] == both
    assert not Grant.objects.exists()


@pytest.mark.parametrize("prompt", ["consent", "select_account", "create"])
def test_other_prompt_values_show_the_page(signed_in, public_client, prompt):
    assert signed_in.get(url(public_client, prompt=prompt)).status_code == 200


def test_switching_the_user_signs_out_and_redirects_to_the_login(signed_in, public_client):
    path, asked = login_redirect(signed_in.post(url(public_client), {"switch": "true"}))
    assert path == AUTHORIZE and asked["resource"] == [RESOURCE]
    assert "_auth_user_id" not in signed_in.session


def test_prompt_none_without_a_session_returns_login_required(web, public_client):
    answer = told(web.get(url(public_client, prompt="none")))
    assert answer == {"error": "login_required", "state": "xyz", "iss": URL}


# Users who may not authorize clients.


def test_user_who_may_not_authorize_cannot_allow_by_posting(signed_in, public_client):
    with override_settings(
        DJANGO_MCP={**MCP, "OAUTH": {"MAY_AUTHORIZE": "tests.oauth.test_authorize.allow_nobody"}}
    ):
        answer = told(signed_in.post(url(public_client), ALLOW))
        silent = told(signed_in.get(url(public_client, prompt="none")))
    assert answer["error"] == "access_denied" and silent["error"] == "interaction_required"
    assert not Grant.objects.exists()


@pytest.mark.parametrize("backend", ["ModelBackend", "AllowAllUsersModelBackend"])
def test_inactive_user_cannot_allow(web, alice, public_client, settings, backend):
    settings.AUTHENTICATION_BACKENDS = [f"django.contrib.auth.backends.{backend}"]
    web.force_login(alice)
    get_user_model().objects.update(is_active=False)
    response = web.post(url(public_client), ALLOW)
    assert "code=" not in response["Location"] and not Grant.objects.exists()
    assert b">Allow<" not in web.get(url(public_client)).content


# Trusted clients of the project.


def trusted(source="manual", **over):
    return registered(source, skip_authorization=True, **over)


def test_trusted_client_gets_a_code_without_a_page(signed_in):
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
def test_other_clients_cannot_skip_the_page(signed_in, source, over):
    response = signed_in.get(url(trusted(source), **over))
    assert response.status_code == 200 and not Grant.objects.exists()


def test_user_who_may_not_authorize_cannot_use_trusted_clients(signed_in):
    with override_settings(
        DJANGO_MCP={**MCP, "OAUTH": {"MAY_AUTHORIZE": "tests.oauth.test_authorize.allow_nobody"}}
    ):
        response = signed_in.get(url(trusted(), redirect_uri=SITE))
    assert response.status_code == 403 and not Grant.objects.exists()


# Unusual projects.


def test_project_without_servers_answers_invalid_target(signed_in, public_client, monkeypatch):
    monkeypatch.setattr("django_mcp.oauth.authorization_request.served", dict)
    monkeypatch.setattr("django_mcp.oauth.resource_indicators.served", dict)
    assert told(signed_in.get(url(public_client, resource=None)))["error"] == "invalid_target"


def test_project_can_override_the_template(web, alice, public_client, settings, tmp_path):
    (tmp_path / "django_mcp_oauth").mkdir()
    (tmp_path / "django_mcp_oauth/authorize.html").write_text("{{ question.client.name }}!")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]
    web.force_login(alice)
    assert web.get(url(public_client)).content == b"Agent!"
