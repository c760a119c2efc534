"""No pages: the tests of fields speak MCP."""

from typing import Any

urlpatterns: list[Any] = []
