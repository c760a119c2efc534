"""URLs of the protected resource metadata, for projects without ``django_mcp.oauth``.

Include them at the root of the URLconf.
"""

from __future__ import annotations

from typing import Any

from django.urls import re_path

from .protected_resource import PATTERN, protected_resource

app_name = "django_mcp_verifiers"
urlpatterns: list[Any] = [re_path(PATTERN, protected_resource, name="protected-resource")]
