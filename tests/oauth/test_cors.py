"""Pages of other origins: what they may do, and what they never may."""

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
    """A view that has ideas of its own."""
    assert request.method == "POST", "OPTIONS came through"
    response = HttpResponse("told", status=401, headers={"WWW-Authenticate": "Basic"})
    response["Access-Control-Allow-Origin"] = "https://other.example"
    response["Access-Control-Allow-Credentials"] = "true"
    return response


def allowed(response) -> dict[str, str]:
    found = {name.lower(): value for name, value in response.items()}
    return {name[15:]: value for name, value in found.items() if name.startswith("access-control-")}


def test_a_preflight_is_answered_before_the_view():
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


def test_an_options_request_that_is_none_is_told_the_methods_alone():
    response = token(REQUESTS.options("/oauth/token"))
    assert response.status_code == 204 and response["allow"] == "POST, OPTIONS"
    assert set(allowed(response)) == {"allow-origin", "expose-headers"}


def test_everybody_may_read_the_answer_and_nobodys_cookies_come_along():
    response = token(REQUESTS.post("/oauth/token", headers=PAGE))
    assert response.status_code == 401 and response.content == b"told"
    assert allowed(response) == {
        "allow-origin": "*", "expose-headers": "www-authenticate, retry-after",
    }  # fmt: skip


def test_what_other_decorators_say_of_the_view_is_kept():
    assert token.csrf_exempt is True and token.__name__ == "token"


@pytest.mark.parametrize("where", [AS, PR, PR + "/mcp", OIDC])
def test_every_document_may_be_read_by_pages(web, where):
    preflight = web.options(where, headers=PREFLIGHT)
    assert preflight.status_code == 204
    assert allowed(preflight)["allow-methods"] == "GET, HEAD"
    answer = web.get(where, headers=PAGE)
    assert answer["access-control-allow-origin"] == "*"
    assert not answer.has_header("access-control-allow-credentials")
