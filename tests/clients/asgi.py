"""The ASGI application of the atlas, with HTTP+SSE."""

import django_mcp

django_mcp.server.sse = True

from example_project.asgi import application  # noqa: E402

__all__ = ["application"]
