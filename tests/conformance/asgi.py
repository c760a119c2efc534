"""The ASGI application of the conformance server."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.conformance.settings")
django = get_asgi_application()

from django_mcp.routing import mount  # noqa: E402

application = mount(django)
