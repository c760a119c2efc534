"""Metadata documents of the authorization server, the protected resources and OpenID."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings
from django.urls import include, path, reverse

from django_mcp.declarations.server import Server, default_server
from django_mcp.oauth.conf import dot_settings
from django_mcp.verifiers.protected_resource import resource_metadata_url
from tests.storage.rows import given

from .conftest import URL

AS, PR = "/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource"
OIDC = "/.well-known/openid-configuration"


class urls_with_catch_all:
    """A project that answers every path, such as a single-page application."""

    @staticmethod
    def rest(request, rest=""):
        from django.http import HttpResponse

        return HttpResponse(f"<html>{rest}</html>")

    urlpatterns = [path("", include("django_mcp.oauth.urls")), path("<path:rest>", rest)]


@pytest.fixture(autouse=True)
def no_other_servers(monkeypatch):
    """Remove the servers of the test project."""
    from django_mcp.declarations import server as declared

    monkeypatch.setattr(declared, "_servers", {})


@pytest.fixture
def make_server():
    """Return a function that declares a server with a tool."""
    made = []

    def declared(where: str, name: str = "", **options: Any) -> Server:
        server = Server(name or f"at {where}", path=where, **options)
        server.tool(lambda request: "", name="tool")
        made.append(server)
        return server

    return declared


@pytest.fixture
def billing(make_server):
    return make_server("mcp/billing", "billing", title="Billing")


def document(web, where: str, **options: Any) -> dict[str, Any]:
    response = web.get(where, **options)
    assert (response.status_code, response["content-type"]) == (200, "application/json"), where
    found: dict[str, Any] = response.json()
    return found


def assert_not_ours(web, where: str) -> None:
    """Assert that the project's own view answers at this path."""
    with override_settings(ROOT_URLCONF=urls_with_catch_all):
        response = web.get(where)
    assert response.content.startswith(b"<html>"), where


def assert_missing(web, where: str) -> None:
    response = web.get(where)
    assert (response.status_code, response.json()) == (404, {"error": "not_found"}), where
    assert response["access-control-allow-origin"] == "*"


# The authorization server.


def test_authorization_server_metadata(web):
    assert document(web, AS) == {
        "issuer": URL,
        "authorization_endpoint": f"{URL}/oauth/authorize",
        "token_endpoint": f"{URL}/oauth/token",
        "revocation_endpoint": f"{URL}/oauth/revoke",
        "registration_endpoint": f"{URL}/oauth/register",
        "scopes_supported": ["mcp"],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": [
            "none", "client_secret_post", "client_secret_basic", "private_key_jwt",
        ],
        "token_endpoint_auth_signing_alg_values_supported": ["RS256", "PS256", "ES256", "EdDSA"],
        "revocation_endpoint_auth_methods_supported": [
            "none", "client_secret_post", "client_secret_basic", "private_key_jwt",
        ],
        "revocation_endpoint_auth_signing_alg_values_supported": [
            "RS256", "PS256", "ES256", "EdDSA",
        ],
        "client_id_metadata_document_supported": True,
        "authorization_response_iss_parameter_supported": True,
    }  # fmt: skip


def test_document_is_served_with_and_without_a_slash(web):
    assert document(web, AS) == document(web, AS + "/")
    assert reverse("django_mcp_oauth:authorization-server") == AS


def test_registration_endpoint_is_omitted_if_registration_is_off(web):
    with given(OAUTH={"REGISTRATION": "off"}):
        assert "registration_endpoint" not in document(web, AS)


def test_metadata_says_if_client_documents_are_disabled(web):
    with override_settings(OAUTH2_PROVIDER=dot_settings(URL, CIMD_ENABLED=False)):
        assert document(web, AS)["client_id_metadata_document_supported"] is False


def test_offline_access_is_not_listed(web, billing):
    with given(SCOPES={"offline_access": "Continue only", "mcp": "Use it"}):
        for where in (AS, PR):
            assert "offline_access" not in document(web, where).get("scopes_supported", [])


def test_only_the_first_scope_is_listed(web, billing):
    with given(SCOPES={"read": "Look", "write": "Change"}):
        assert document(web, AS)["scopes_supported"] == ["read"]
        assert document(web, PR)["scopes_supported"] == ["read"]


def test_document_of_another_issuer_is_not_found(web, billing):
    """T4: a suffix names another issuer, and clients would trust its metadata."""
    assert_missing(web, f"{AS}/mcp/billing")  # a server is not an issuer
    for suffix in ("/evil", "/evil/tenant", "/%2e%2e", "/é"):
        assert web.get(AS + suffix).status_code == 404
        assert_not_ours(web, AS + suffix)
    assert web.get(AS + "x").status_code == 404


# The servers.


def test_protected_resource_metadata(web, billing):
    assert document(web, f"{PR}/mcp/billing") == {
        "resource": f"{URL}/mcp/billing",
        "authorization_servers": [URL],
        "scopes_supported": ["mcp"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Billing",
    }


def test_resource_name_falls_back_to_the_name_of_the_server(web, make_server):
    make_server("mcp", "tools")
    assert document(web, PR)["resource_name"] == "tools"


def test_issuer_equals_the_authorization_server_of_the_resources(web, billing):
    (named,) = document(web, PR)["authorization_servers"]
    assert document(web, AS)["issuer"] == named == settings.OAUTH2_PROVIDER["OIDC_ISS_ENDPOINT"]


def test_resource_repeats_the_trailing_slash_of_the_request(web, billing, make_server):
    assert document(web, f"{PR}/mcp/billing/")["resource"] == f"{URL}/mcp/billing/"
    make_server("")
    assert document(web, PR)["resource"] == URL
    assert document(web, f"{PR}/")["resource"] == f"{URL}/"


def test_each_server_has_a_document(web, billing, make_server):
    make_server("mcp")
    for where in ("mcp", "mcp/billing"):
        assert document(web, f"{PR}/{where}")["resource"] == f"{URL}/{where}"


def test_root_document_is_that_of_the_only_server(web, billing, make_server):
    assert document(web, PR)["resource"] == f"{URL}/mcp/billing"
    assert document(web, PR + "/")["resource"] == f"{URL}/mcp/billing"
    empty = Server("nothing declared", path="mcp")
    assert document(web, PR)["resource"] == f"{URL}/mcp/billing" and empty._is_empty
    make_server("mcp/shipping")
    assert_missing(web, PR)
    assert_missing(web, PR + "/")


def test_project_without_servers_has_no_document(web):
    assert_missing(web, PR)
    assert_not_ours(web, f"{PR}/{default_server.path}")


def test_path_of_a_server_is_not_an_issuer(web, billing):
    for suffix in ("/mcp/billing", "/mcp/billing/"):
        assert_missing(web, AS + suffix)


def test_documents_of_other_paths_are_left_to_the_project(web, billing):
    for suffix in (
        "/mcp", "/mcp/billing//", "//mcp/billing", "/mcp/billing/x", "/MCP/billing", "/admin",
        "/mcp%2Fbilling%2F..",
        "/https://evil.example/mcp", "/mcp/billing%00", "/mcp/billing;x",
    ):  # fmt: skip
        assert web.get(PR + suffix).status_code == 404
        assert_not_ours(web, PR + suffix)


def test_path_with_non_ascii_characters_is_percent_encoded(web, make_server):
    server = make_server("mcp/büro eins")
    found = document(web, f"{PR}/mcp/b%C3%BCro%20eins")
    assert found["resource"] == f"{URL}/mcp/b%C3%BCro%20eins"
    assert document(web, resource_metadata_url(server).removeprefix(URL)) == found


def test_script_name_is_part_of_the_resource(web, billing):
    with override_settings(FORCE_SCRIPT_NAME="/site"):
        assert resource_metadata_url(billing) == f"{URL}{PR}/site/mcp/billing"
        found = document(web, f"{PR}/site/mcp/billing", SCRIPT_NAME="")
        assert found["resource"] == f"{URL}/site/mcp/billing"
        assert_missing(web, f"{PR}/mcp/billing")
        assert document(web, AS)["token_endpoint"] == f"{URL}/site/oauth/token"


def test_challenge_contains_the_url_of_the_document(web, billing):
    where = resource_metadata_url(billing)
    assert where == f"{URL}{PR}/mcp/billing"
    assert document(web, where.removeprefix(URL))["resource"] == f"{URL}/mcp/billing"
    assert reverse("django_mcp_oauth:protected-resource") == PR


# OpenID.


PLACES = [
    OIDC, OIDC + "/", OIDC + "/mcp/billing", OIDC + "/mcp/billing/", "/mcp/billing" + OIDC,
    "/mcp/billing" + OIDC + "/",
]  # fmt: skip


@pytest.mark.parametrize("debug", [False, True])
def test_openid_document_is_a_json_404(web, billing, debug):
    with override_settings(ROOT_URLCONF=urls_with_catch_all, DEBUG=debug):
        for where in PLACES:
            assert_missing(web, where)


@pytest.mark.parametrize("where", ["/o" + OIDC, OIDC + "/tenant", "/tenant" + OIDC + "/x"])
def test_openid_documents_of_other_paths_are_left_to_the_project(web, billing, where):
    assert_not_ours(web, where)


def test_project_with_openid_serves_its_own_document(web):
    with override_settings(
        ROOT_URLCONF=urls_with_catch_all, OAUTH2_PROVIDER=dot_settings(URL, OIDC_ENABLED=True)
    ):
        for where in PLACES:
            assert web.get(where).content.startswith(b"<html>.well-known") or where[1] != "."
            assert web.get(where)["content-type"].startswith("text/html")


class urls_with_openid:
    """A project that is also an OpenID provider, by django-oauth-toolkit."""

    urlpatterns = [
        path("", include("django_mcp.oauth.urls")),
        path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
    ]


def test_openid_document_lists_only_s256(web):
    """Clients reject an OpenID document that lists no method, and ``plain`` does not protect."""
    dot = dot_settings(URL, OIDC_ENABLED=True)
    with override_settings(ROOT_URLCONF=urls_with_openid, OAUTH2_PROVIDER=dot):
        found = document(web, "/o" + OIDC)
    assert found["issuer"] == URL
    assert found["code_challenge_methods_supported"] == ["S256"]


# Paths below a server.


@pytest.mark.parametrize("end", [AS, PR, AS + "/", PR + "/x"])
def test_documents_below_a_server_are_a_json_404(web, make_server, billing, end):
    make_server("a shop")
    with override_settings(ROOT_URLCONF=urls_with_catch_all):
        for server in ("/a%20shop", "/mcp/billing"):
            assert_missing(web, server + end)
        for other in ("/o", "/mcp/other", "/mcp", "/mcp/billing/"):
            assert web.get(other + end).content.startswith(b"<html>")


# All documents.


@pytest.mark.parametrize("where", [AS, PR, f"{PR}/mcp/billing", OIDC])
def test_documents_allow_only_get_head_and_options(web, billing, where):
    got, head = web.get(where), web.head(where)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head["content-type"] == "application/json"
    for method in ("post", "put", "patch", "delete"):
        response = getattr(web, method)(where)
        assert (response.status_code, response["allow"]) == (405, "GET, HEAD, OPTIONS")
        assert response.json() == {"error": "method_not_allowed"}
    assert web.options(where).status_code == 204


def test_documents_are_cacheable_and_errors_are_not(web, billing):
    for where in (AS, PR, f"{PR}/mcp/billing"):
        assert web.get(where)["cache-control"] == "public, max-age=3600"
        assert not web.get(where).has_header("vary") and not web.get(where).cookies
    for where in (AS + "/mcp/billing", OIDC):
        assert web.get(where)["cache-control"] == "no-store"


def test_documents_need_no_login(web, billing):
    middleware = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    with override_settings(MIDDLEWARE=middleware):
        for where in (AS, PR, f"{PR}/mcp/billing"):
            document(web, where)
        assert_missing(web, OIDC)


def test_documents_make_no_query(web, billing):
    """The database fixture is absent, so a query would raise."""
    document(web, AS)
    document(web, PR)


def test_server_without_an_oauth_verifier_has_no_document(web, billing):
    with given(VERIFIERS=["django_mcp.verifiers.PersonalAccessTokens"]):
        assert_missing(web, PR)
        assert_missing(web, f"{PR}/mcp/billing")
