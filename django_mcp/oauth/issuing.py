"""
The token and the revocation endpoint, django-oauth-toolkit's, and what their answers must not be.

Rule: whatever a client sends, the answer is JSON that no cache keeps, and never a 500; what it sent
is in no report of an error. What no request may be is refused before any of it is looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_post_parameters
from oauth2_provider import views
from oauth2_provider.models import get_access_token_model

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
SEVERAL = {"resource"}  # of which a request may name more than one (RFC 8707, 2)
SOON = 10  # seconds, after which what nobody can tell now may be asked again
BASIC = 'Basic realm="oauth", charset="UTF-8"'

# What is wrong with a request, and its error (RFC 6749, 5.2): the first that is true is told.
Wrongs = tuple[tuple[Callable[[HttpRequest], bool], str], ...]
OF_ANY: Wrongs = (
    # RFC 6749, 2.3.1: never in the URI.
    (lambda request: bool(request.META.get("QUERY_STRING")), "invalid_request"),
    (
        # 3.2. Two that read it would not read the same.
        lambda request: any(len(v) > 1 for n, v in request.POST.lists() if n not in SEVERAL),
        "invalid_request",
    ),
)
OF_TOKENS: Wrongs = (
    *OF_ANY,
    (lambda request: not request.POST.get("grant_type"), "invalid_request"),
    (lambda request: request.POST.get("grant_type") == DEVICE, "unsupported_grant_type"),
)


class TokenView(views.TokenView):  # type: ignore[misc]
    """To be mounted instead of django-oauth-toolkit's own."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response = _refused(request, OF_TOKENS) or super().post(request, *args, **kwargs)
        except get_access_token_model().DoesNotExist:
            # The token was revoked between its issue and this answer, as by the code's second use.
            response = _error("invalid_grant")
        return _answered(request, response)

    @method_decorator(sensitive_post_parameters())
    def create_token_response(self, request: HttpRequest) -> Any:
        """Here, for what calls it names the password and the client's secret alone."""
        return super().create_token_response(request)


class RevokeTokenView(views.RevokeTokenView):  # type: ignore[misc]
    """To be mounted instead of django-oauth-toolkit's own."""

    @method_decorator(sensitive_post_parameters())
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = _refused(request, OF_ANY) or super().post(request, *args, **kwargs)
        return _answered(request, response)


def _refused(request: HttpRequest, wrongs: Wrongs) -> HttpResponse | None:
    found = (error for is_wrong, error in wrongs if is_wrong(request))
    return next((_error(error) for error in found), None)


def _answered(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    response["Cache-Control"] = "no-store"
    if response.content:
        response["Content-Type"] = "application/json"
    if response.status_code == 503:
        response["Retry-After"] = str(SOON)
    scheme = request.headers.get("Authorization", "").partition(" ")[0]
    if response.status_code == 401 and scheme.lower() == "basic":
        # RFC 6749, 5.2: in the scheme that the client used. oauthlib always names another.
        response["WWW-Authenticate"] = BASIC
    return response


def _error(code: str) -> HttpResponse:
    return JsonResponse({"error": code}, status=400)
