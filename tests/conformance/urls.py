"""Beside its MCP server the site has an authorization server, and a page to sign in at."""

from django.contrib.auth.views import LoginView
from django.urls import include, path

urlpatterns = [
    path("", include("django_mcp.oauth.urls")),
    path("login/", LoginView.as_view(template_name="conformance/login.html"), name="login"),
]
