"""The authorization server at the root, and Django's own login."""

from django.contrib.auth.views import LoginView
from django.urls import include, path

urlpatterns = [
    path("", include("django_mcp.oauth.urls")),
    path("login/", LoginView.as_view(template_name="login.html"), name="login"),
]
