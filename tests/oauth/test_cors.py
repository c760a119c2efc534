"""CORS headers of the token endpoint and of the metadata documents."""

from __future__ import annotations

import pytest
from django.http import HttpResponse
from django.test import RequestFactory
from django.views.decorators.csrf import csrf_exempt

from django_mcp.verifiers.protected_resource import cors

from .test_metadata import AS, OIDC, PR

REQUESTS = RequestFactory()
PAGE = {"origin": "http://localhost:6274"}
PREFLIGHT = PAGE | {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, mcp-protocol-version",
}


@cors("POST")
@csrf_exempt
def token(request, **kwargs):
    """A view that sets CORS headers itself."""
    assert request.method == "POST", "OPTIONS came through"
    response = HttpResponse("told", status=401, headers={"WWW-Authenticate": "Basic"})
    response["Access-Control-Allow-Origin"] = "https://other.example"
    response["Access-Control-Allow-Credentials"] = "true"
    return response


def allowed(response) -> dict[str, str]:
    found = {name.lower(): value for name, value in response.items()}
    return {name[15:]: value for name, value in found.items() if name.startswith("access-control-")}


def test_preflight_is_answered_before_the_view():
    response = token(REQUESTS.options("/oauth/token", headers=PREFLIGHT))
    assert (response.status_code, response.content) == (204, b"")
    assert allowed(response) == {
        "allow-origin": "*",
        "allow-methods": "POST",
        "allow-headers": "authorization, content-type, mcp-protocol-version",
        "max-age": "7200",
        "expose-headers": "www-authenticate, retry-after",
    }
    assert response["allow"] == "POST, OPTIONS"


def test_options_request_without_preflight_headers_gets_only_the_methods():
    response = token(REQUESTS.options("/oauth/token"))
    assert response.status_code == 204 and response["allow"] == "POST, OPTIONS"
    assert set(allowed(response)) == {"allow-origin", "expose-headers"}


def test_any_origin_may_read_the_response_without_credentials():
    response = token(REQUESTS.post("/oauth/token", headers=PAGE))
    assert response.status_code == 401 and response.content == b"told"
    assert allowed(response) == {
        "allow-origin": "*", "expose-headers": "www-authenticate, retry-after",
    }  # fmt: skip


def test_attributes_of_the_decorated_view_are_kept():
    assert token.csrf_exempt is True and token.__name__ == "token"


@pytest.mark.parametrize("where", [AS, PR, PR + "/mcp", OIDC])
def test_metadata_documents_may_be_read_by_any_origin(web, where):
    preflight = web.options(where, headers=PREFLIGHT)
    assert preflight.status_code == 204
    assert allowed(preflight)["allow-methods"] == "GET, HEAD"
    answer = web.get(where, headers=PAGE)
    assert answer["access-control-allow-origin"] == "*"
    assert not answer.has_header("access-control-allow-credentials")
