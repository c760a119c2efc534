"""The site has nothing but its MCP server."""

from __future__ import annotations

from typing import Any

urlpatterns: list[Any] = []
