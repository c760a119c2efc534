"""
The page on which people see what is connected to their account, and end it.

Rule: whoever asks is shown their own, and ends their own: what a form names that is not theirs is
not there. Only a form of this page ends anything, and nobody is asked twice: it is the safe thing
to do. What would not stay ended is not theirs to end: no button promises it.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings as django_settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.decorators import method_decorator
from django.utils.encoding import escape_uri_path
from django.views import View
from django.views.decorators.csrf import csrf_protect

from ..models import Token
from ..tokens import revoke
from .authorize import guarded, sent_to_login, site
from .connections import connections, own_tokens, places
from .people import may_sign_in
from .revoking import revoke_consents

TEMPLATE = "django_mcp_oauth/connections.html"


@method_decorator([login_not_required, guarded, csrf_protect], name="dispatch")
class ConnectionsView(View):
    """Shows the connected clients and the tokens of the person who is signed in, and ends them."""

    http_method_names = ["get", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        user: Any = getattr(request, "user", None)
        if user is None or not user.is_authenticated:
            return sent_to_login(escape_uri_path(request.path), django_settings.LOGIN_URL)
        if not may_sign_in(user):
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.shown()

    def post(self, request: HttpRequest) -> HttpResponse:
        ended = _disconnected if "client" in request.POST else _revoked
        named = request.POST.get("client") or request.POST.get("token") or ""
        gone = ended(request.user, named)
        return self.shown(200 if gone is not None else 404, asked=True, gone=gone)

    def shown(self, status: int = 200, **said: Any) -> HttpResponse:
        """What there is now, and what was said and done before."""
        user = self.request.user
        context = {
            "site": site(), "you": user, "connections": connections(user),
            "tokens": own_tokens(user), "places": places(), **said,
        }  # fmt: skip
        return render(self.request, TEMPLATE, context, status=status)


def _disconnected(user: Any, client_id: str) -> Any:
    """The connection that was ended; None where there is none, or none of theirs to end."""
    theirs = (one for one in connections(user) if not one.alone)
    found = next((one for one in theirs if one.client_id == client_id), None)
    if found is not None:
        revoke_consents(user, found.client_id)
    return found


def _revoked(user: Any, pk: str) -> Any:
    """The personal token that was ended; None where there is none."""
    found = next((one for one in own_tokens(user) if one.pk == pk), None)
    if found is not None:
        revoke(Token.objects.filter(user=user, pk=found.pk))
    return found
