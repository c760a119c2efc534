"""The metadata of the servers, for one ``include`` at the root: of a project without our OAuth."""

from __future__ import annotations

from typing import Any

from django.urls import re_path

from ..protected.metadata import PATTERN, protected_resource

app_name = "django_mcp_issuers"
urlpatterns: list[Any] = [re_path(PATTERN, protected_resource, name="protected-resource")]
