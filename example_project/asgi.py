"""The ASGI application of the example project: its Django pages, and the MCP server at /mcp."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
django = get_asgi_application()  # first: it loads the apps

from django_mcp.routing import mount  # noqa: E402

application = mount(django)
