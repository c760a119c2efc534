"""The MCP endpoint, next to Django."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.oauth.project.settings")

from django.core.asgi import get_asgi_application  # noqa: E402

django = get_asgi_application()

from django_mcp.routing import mount  # noqa: E402

application = mount(django)
