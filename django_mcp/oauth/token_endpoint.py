"""
The token endpoint and the revocation endpoint, on django-oauth-toolkit's views.

Every response is JSON with ``no-store``, and no request causes a 500. Parameters are hidden in
error reports. Malformed requests are rejected before any query.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_post_parameters
from oauth2_provider import views
from oauth2_provider.models import get_access_token_model

from .authorization_request import OUR_TOKEN_VIEW

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
REPEATABLE = {"resource"}  # parameters that may be repeated (RFC 8707, 2)
RETRY_AFTER_SECONDS = 10  # the Retry-After of a 503
BASIC = 'Basic realm="oauth", charset="UTF-8"'

# Checks whether a request is malformed, with the error code to send (RFC 6749, 5.2).
RequestChecks = tuple[tuple[Callable[[HttpRequest], bool], str], ...]
CHECKS: RequestChecks = (
    # RFC 6749, 2.3.1: no parameters in the URI.
    (lambda request: bool(request.META.get("QUERY_STRING")), "invalid_request"),
    # RFC 6749, 3.2: parsers differ in which of two values they use.
    (lambda request: _repeats_parameter(request), "invalid_request"),
)
TOKEN_CHECKS: RequestChecks = (
    *CHECKS,
    (lambda request: not request.POST.get("grant_type"), "invalid_request"),
    (lambda request: request.POST.get("grant_type") == DEVICE, "unsupported_grant_type"),
)


class TokenView(views.TokenView):  # type: ignore[misc]
    """The token endpoint, instead of django-oauth-toolkit's view."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        request.META[OUR_TOKEN_VIEW] = True
        try:
            response = _first_error(request, TOKEN_CHECKS) or super().post(request, *args, **kwargs)
        except get_access_token_model().DoesNotExist:
            # The token was revoked after it was issued, as by a second use of the code.
            response = _error("invalid_grant")
        return _with_headers(request, response)

    @method_decorator(sensitive_post_parameters())
    def create_token_response(self, request: HttpRequest) -> Any:
        """Hide all parameters in error reports.

        The caller in django-oauth-toolkit hides only the password and the client secret.
        """
        return super().create_token_response(request)


class RevokeTokenView(views.RevokeTokenView):  # type: ignore[misc]
    """The revocation endpoint, instead of django-oauth-toolkit's view."""

    @method_decorator(sensitive_post_parameters())
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = _first_error(request, CHECKS) or super().post(request, *args, **kwargs)
        return _with_headers(request, response)


def _repeats_parameter(request: HttpRequest) -> bool:
    lists = request.POST.lists()
    return any(len(values) > 1 for name, values in lists if name not in REPEATABLE)


def _first_error(request: HttpRequest, checks: RequestChecks) -> HttpResponse | None:
    """Return the error response of the first check that the request fails, or None."""
    return next((_error(code) for is_malformed, code in checks if is_malformed(request)), None)


def _with_headers(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    response["Cache-Control"] = "no-store"
    if response.content:
        response["Content-Type"] = "application/json"
    if response.status_code == 503:
        response["Retry-After"] = str(RETRY_AFTER_SECONDS)
    scheme = request.headers.get("Authorization", "").partition(" ")[0]
    if response.status_code == 401 and scheme.lower() == "basic":
        # RFC 6749, 5.2: use the scheme that the client used. oauthlib always names another one.
        response["WWW-Authenticate"] = BASIC
    return response


def _error(code: str) -> HttpResponse:
    return JsonResponse({"error": code}, status=400)
