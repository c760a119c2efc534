"""The endpoints of the token tests: our view, a second authorization view, and another API."""

from __future__ import annotations

from django.http import HttpResponse
from django.urls import path
from oauth2_provider import views
from oauth2_provider.views import ProtectedResourceView

from django_mcp.oauth.authorization_request import OUR_VIEW
from django_mcp.oauth.token_endpoint import RevokeTokenView, TokenView


class OurView(views.AuthorizationView):
    """The page of django-oauth-toolkit, which marks its requests as ours."""

    def dispatch(self, request, *args, **kwargs):
        request.META[OUR_VIEW] = True
        return super().dispatch(request, *args, **kwargs)


class Photos(ProtectedResourceView):
    """Another API of the project, below a server."""

    def get(self, request):
        return HttpResponse(f"of {request.resource_owner or 'nobody'}")


urlpatterns = [
    path("oauth/authorize", OurView.as_view()),
    path("second-view", views.AuthorizationView.as_view()),
    path("oauth/token", TokenView.as_view()),
    path("stock-token", views.TokenView.as_view()),
    path("oauth/revoke", RevokeTokenView.as_view()),
    path("api/photos", Photos.as_view()),
]
