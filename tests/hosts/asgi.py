"""The endpoint and the health endpoints, in a process with a short lease."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.hosts.settings")

from django.core.asgi import get_asgi_application  # noqa: E402

django = get_asgi_application()

from django_mcp.routing import mount  # noqa: E402
from django_mcp.storage import leases  # noqa: E402

leases.LEASE_SECONDS = float(os.environ.get("LEASE", leases.LEASE_SECONDS))
application = mount(django, health="health")
