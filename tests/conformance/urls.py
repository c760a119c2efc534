"""The URLs of the site: its authorization server and a login page."""

from django.contrib.auth.views import LoginView
from django.urls import include, path

urlpatterns = [
    path("", include("django_mcp.oauth.urls")),
    path("login/", LoginView.as_view(template_name="conformance/login.html"), name="login"),
]
