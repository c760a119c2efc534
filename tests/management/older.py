"""The served project, with HTTP+SSE enabled."""

import django_mcp

django_mcp.server.sse = True

from tests.spec.served.asgi import application  # noqa: E402

__all__ = ["application"]
