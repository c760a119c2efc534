"""
The token endpoint, django-oauth-toolkit's, and what its answers must not be.

Rule: whatever a client sends, the answer is JSON that no cache keeps, and never a 500; what it sent
is in no report of an error.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_post_parameters
from oauth2_provider import views
from oauth2_provider.models import get_access_token_model

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


class TokenView(views.TokenView):  # type: ignore[misc]
    """To be mounted instead of django-oauth-toolkit's own."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response = _refused(request) or super().post(request, *args, **kwargs)
        except get_access_token_model().DoesNotExist:
            # The token was revoked between its issue and this answer, as by the code's second use.
            response = _error("invalid_grant")
        response["Content-Type"], response["Cache-Control"] = "application/json", "no-store"
        found: HttpResponse = response
        return found

    @method_decorator(sensitive_post_parameters())
    def create_token_response(self, request: HttpRequest) -> Any:
        """Here, for what calls it names the password and the client's secret alone."""
        return super().create_token_response(request)


def _refused(request: HttpRequest) -> HttpResponse | None:
    if request.META.get("QUERY_STRING"):  # RFC 6749, 2.3.1: never in the URI
        return _error("invalid_request")
    return _error("unsupported_grant_type") if request.POST.get("grant_type") == DEVICE else None


def _error(code: str) -> HttpResponse:
    return JsonResponse({"error": code}, status=400)
