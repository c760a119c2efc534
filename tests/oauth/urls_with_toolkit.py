"""A project that mounts django-oauth-toolkit's own pages, too."""

from django.urls import include, path

urlpatterns = [
    path("", include("django_mcp.oauth.urls")),
    path("o/", include("oauth2_provider.urls")),
]
