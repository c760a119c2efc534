"""URLs of the protected resource metadata, for projects without ``django_mcp.oauth``.

Include them at the root of the URLconf.
"""

from __future__ import annotations

from typing import Any

from .protected_resource import PATH, protected_resource, well_known

app_name = "django_mcp_verifiers"
urlpatterns: list[Any] = well_known(PATH, protected_resource, "protected-resource")
