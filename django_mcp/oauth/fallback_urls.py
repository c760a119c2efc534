"""URLs of the endpoints that clients of 2025-03-26 use when they read no metadata.

Include them at the root, last, and only if you have such clients: they take ``/authorize``,
``/token`` and ``/register``. Without a trailing slash, because sites use ``/register/`` for people.
"""

from __future__ import annotations

from django.urls import path

from .urls import authorize, register, token

app_name = "django_mcp_oauth_fallback"
urlpatterns = [
    path("authorize", authorize, name="authorize"),
    path("token", token, name="token"),
    path("register", register, name="register"),
]
