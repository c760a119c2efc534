"""The ASGI application of the served project."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.spec.served.settings")
django = get_asgi_application()

from django_mcp.routing import mount  # noqa: E402

application = mount(django)
