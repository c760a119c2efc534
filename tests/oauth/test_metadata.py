"""What the authorization server and the servers say of themselves, and where."""

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


class urls_with_a_rest:
    """A project that answers every path, as those do whose pages are made in the browser."""

    @staticmethod
    def rest(request, rest=""):
        from django.http import HttpResponse

        return HttpResponse(f"<html>{rest}</html>")

    urlpatterns = [path("", include("django_mcp.oauth.urls")), path("<path:rest>", rest)]


@pytest.fixture(autouse=True)
def no_other_servers(monkeypatch):
    """The project's own are not there."""
    from django_mcp.declarations import server as declared

    monkeypatch.setattr(declared, "_servers", {})


@pytest.fixture
def serve():
    """Declares servers, each with a tool."""
    made = []

    def declared(where: str, name: str = "", **options: Any) -> Server:
        server = Server(name or f"at {where}", path=where, **options)
        server.tool(lambda request: "", name="tool")
        made.append(server)
        return server

    return declared


@pytest.fixture
def billing(serve):
    return serve("mcp/billing", "billing", title="Billing")


def document(web, where: str, **options: Any) -> dict[str, Any]:
    response = web.get(where, **options)
    assert (response.status_code, response["content-type"]) == (200, "application/json"), where
    found: dict[str, Any] = response.json()
    return found


def not_ours(web, where: str) -> None:
    """The project's own views answer there."""
    with override_settings(ROOT_URLCONF=urls_with_a_rest):
        response = web.get(where)
    assert response.content.startswith(b"<html>"), where


def missing(web, where: str) -> None:
    response = web.get(where)
    assert (response.status_code, response.json()) == (404, {"error": "not_found"}), where
    assert response["access-control-allow-origin"] == "*"


# The authorization server.


def test_what_the_authorization_server_says(web):
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


def test_with_and_without_a_slash_at_the_end(web):
    assert document(web, AS) == document(web, AS + "/")
    assert reverse("django_mcp_oauth:authorization-server") == AS


def test_where_nobody_may_register_nobody_is_told_where_to(web):
    with given(OAUTH={"REGISTRATION": "off"}):
        assert "registration_endpoint" not in document(web, AS)


def test_where_no_documents_of_clients_are_taken_it_is_said(web):
    with override_settings(OAUTH2_PROVIDER=dot_settings(URL, CIMD_ENABLED=False)):
        assert document(web, AS)["client_id_metadata_document_supported"] is False


def test_offline_access_is_not_asked_for_by_anybody(web, billing):
    with given(SCOPES={"offline_access": "Continue only", "mcp": "Use it"}):
        for where in (AS, PR):
            assert "offline_access" not in document(web, where).get("scopes_supported", [])


def test_only_the_least_scope_is_listed(web, billing):
    with given(SCOPES={"read": "Look", "write": "Change"}):
        assert document(web, AS)["scopes_supported"] == ["read"]
        assert document(web, PR)["scopes_supported"] == ["read"]


def test_no_other_issuer_is_told_of(web, billing):
    """T4: a suffix would be another's name, and lead clients to what it says there."""
    missing(web, f"{AS}/mcp/billing")  # a server is not an issuer
    for suffix in ("/evil", "/evil/tenant", "/%2e%2e", "/é"):
        assert web.get(AS + suffix).status_code == 404
        not_ours(web, AS + suffix)
    assert web.get(AS + "x").status_code == 404


# The servers.


def test_what_a_server_says(web, billing):
    assert document(web, f"{PR}/mcp/billing") == {
        "resource": f"{URL}/mcp/billing",
        "authorization_servers": [URL],
        "scopes_supported": ["mcp"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Billing",
    }


def test_a_server_without_a_title_goes_by_its_name(web, serve):
    serve("mcp", "tools")
    assert document(web, PR)["resource_name"] == "tools"


def test_the_issuer_is_the_one_that_servers_name_byte_by_byte(web, billing):
    (named,) = document(web, PR)["authorization_servers"]
    assert document(web, AS)["issuer"] == named == settings.OAUTH2_PROVIDER["OIDC_ISS_ENDPOINT"]


def test_a_slash_at_the_end_is_echoed(web, billing, serve):
    assert document(web, f"{PR}/mcp/billing/")["resource"] == f"{URL}/mcp/billing/"
    serve("")
    assert document(web, PR)["resource"] == URL
    assert document(web, f"{PR}/")["resource"] == f"{URL}/"


def test_each_server_has_its_own(web, billing, serve):
    serve("mcp")
    for where in ("mcp", "mcp/billing"):
        assert document(web, f"{PR}/{where}")["resource"] == f"{URL}/{where}"


def test_at_the_root_is_the_only_one(web, billing, serve):
    assert document(web, PR)["resource"] == f"{URL}/mcp/billing"
    assert document(web, PR + "/")["resource"] == f"{URL}/mcp/billing"
    empty = Server("nothing declared", path="mcp")
    assert document(web, PR)["resource"] == f"{URL}/mcp/billing" and empty._is_empty
    serve("mcp/shipping")
    missing(web, PR)
    missing(web, PR + "/")


def test_without_any_server_there_is_none(web):
    missing(web, PR)
    not_ours(web, f"{PR}/{default_server.path}")


def test_issuer_of_a_servers_path_has_no_document(web, billing):
    for suffix in ("/mcp/billing", "/mcp/billing/"):
        missing(web, AS + suffix)


def test_documents_of_other_paths_are_the_projects_own(web, billing):
    for suffix in (
        "/mcp", "/mcp/billing//", "//mcp/billing", "/mcp/billing/x", "/MCP/billing", "/admin",
        "/mcp%2Fbilling%2F..",
        "/https://evil.example/mcp", "/mcp/billing%00", "/mcp/billing;x",
    ):  # fmt: skip
        assert web.get(PR + suffix).status_code == 404
        not_ours(web, PR + suffix)


def test_a_path_with_other_letters(web, serve):
    server = serve("mcp/büro eins")
    found = document(web, f"{PR}/mcp/b%C3%BCro%20eins")
    assert found["resource"] == f"{URL}/mcp/b%C3%BCro%20eins"
    assert document(web, resource_metadata_url(server).removeprefix(URL)) == found


def test_a_mount_point_is_part_of_a_servers_name(web, billing):
    with override_settings(FORCE_SCRIPT_NAME="/site"):
        assert resource_metadata_url(billing) == f"{URL}{PR}/site/mcp/billing"
        found = document(web, f"{PR}/site/mcp/billing", SCRIPT_NAME="")
        assert found["resource"] == f"{URL}/site/mcp/billing"
        missing(web, f"{PR}/mcp/billing")
        assert document(web, AS)["token_endpoint"] == f"{URL}/site/oauth/token"


def test_the_challenge_names_where_it_is(web, billing):
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
def test_who_looks_for_openid_goes_on(web, billing, debug):
    with override_settings(ROOT_URLCONF=urls_with_a_rest, DEBUG=debug):
        for where in PLACES:
            missing(web, where)


@pytest.mark.parametrize("where", ["/o" + OIDC, OIDC + "/tenant", "/tenant" + OIDC + "/x"])
def test_openid_documents_of_other_paths_are_the_projects_own(web, billing, where):
    not_ours(web, where)


def test_a_project_with_openid_has_its_own_document(web):
    with override_settings(
        ROOT_URLCONF=urls_with_a_rest, OAUTH2_PROVIDER=dot_settings(URL, OIDC_ENABLED=True)
    ):
        for where in PLACES:
            assert web.get(where).content.startswith(b"<html>.well-known") or where[1] != "."
            assert web.get(where)["content-type"].startswith("text/html")


class urls_with_openid:
    """A project that is an OpenID provider too, by django-oauth-toolkit."""

    urlpatterns = [
        path("", include("django_mcp.oauth.urls")),
        path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
    ]


def test_the_openid_document_of_a_project_names_no_other_challenge_than_s256(web):
    """Clients refuse an OpenID document that names none; ``plain`` would be no protection."""
    dot = dot_settings(URL, OIDC_ENABLED=True)
    with override_settings(ROOT_URLCONF=urls_with_openid, OAUTH2_PROVIDER=dot):
        found = document(web, "/o" + OIDC)
    assert found["issuer"] == URL
    assert found["code_challenge_methods_supported"] == ["S256"]


# Below a server.


@pytest.mark.parametrize("end", [AS, PR, AS + "/", PR + "/x"])
def test_who_looks_below_a_server_goes_on(web, serve, billing, end):
    serve("a shop")
    with override_settings(ROOT_URLCONF=urls_with_a_rest):
        for server in ("/a%20shop", "/mcp/billing"):
            missing(web, server + end)
        for other in ("/o", "/mcp/other", "/mcp", "/mcp/billing/"):
            assert web.get(other + end).content.startswith(b"<html>")


# All of them.


@pytest.mark.parametrize("where", [AS, PR, f"{PR}/mcp/billing", OIDC])
def test_by_which_methods(web, billing, where):
    got, head = web.get(where), web.head(where)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head["content-type"] == "application/json"
    for method in ("post", "put", "patch", "delete"):
        response = getattr(web, method)(where)
        assert (response.status_code, response["allow"]) == (405, "GET, HEAD, OPTIONS")
        assert response.json() == {"error": "method_not_allowed"}
    assert web.options(where).status_code == 204


def test_what_is_there_may_be_kept_for_an_hour_and_mistakes_not_at_all(web, billing):
    for where in (AS, PR, f"{PR}/mcp/billing"):
        assert web.get(where)["cache-control"] == "public, max-age=3600"
        assert not web.get(where).has_header("vary") and not web.get(where).cookies
    for where in (AS + "/mcp/billing", OIDC):
        assert web.get(where)["cache-control"] == "no-store"


def test_nobody_need_be_signed_in(web, billing):
    middleware = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    with override_settings(MIDDLEWARE=middleware):
        for where in (AS, PR, f"{PR}/mcp/billing"):
            document(web, where)
        missing(web, OIDC)


def test_it_costs_no_query(web, billing):
    """The database fixture is absent: a query would be an error."""
    document(web, AS)
    document(web, PR)


def test_whose_tokens_nobody_takes_has_no_document(web, billing):
    with given(VERIFIERS=["django_mcp.verifiers.PersonalAccessTokens"]):
        missing(web, PR)
        missing(web, f"{PR}/mcp/billing")
