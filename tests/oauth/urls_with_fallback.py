"""A project that also serves the paths that clients without metadata assume."""

from django.urls import include, path

urlpatterns = [
    path("", include("django_mcp.oauth.urls")),
    path("", include("django_mcp.oauth.fallback_urls")),
]
