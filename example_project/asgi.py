"""The ASGI application of the example project: Django's pages, and the atlas at /mcp."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
django = get_asgi_application()  # first: it loads the apps

from django_mcp.routing import mount  # noqa: E402

application = mount(django)
