"""The endpoints of the token tests: our door, another's door, and what is behind them."""

from __future__ import annotations

from django.http import HttpResponse
from django.urls import path
from oauth2_provider import views
from oauth2_provider.views import ProtectedResourceView

from django_mcp.oauth.authorization_request import OUR_VIEW
from django_mcp.oauth.token_endpoint import RevokeTokenView, TokenView


class OurDoor(views.AuthorizationView):
    """django-oauth-toolkit's page, passing for the one that marks its requests as ours."""

    def dispatch(self, request, *args, **kwargs):
        request.META[OUR_VIEW] = True
        return super().dispatch(request, *args, **kwargs)


class Photos(ProtectedResourceView):
    """Another API of the project's, below a server."""

    def get(self, request):
        return HttpResponse(f"of {request.resource_owner or 'nobody'}")


urlpatterns = [
    path("oauth/authorize", OurDoor.as_view()),
    path("second-door", views.AuthorizationView.as_view()),
    path("oauth/token", TokenView.as_view()),
    path("stock-token", views.TokenView.as_view()),
    path("oauth/revoke", RevokeTokenView.as_view()),
    path("api/photos", Photos.as_view()),
]
