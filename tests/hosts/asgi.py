"""The endpoint and the two addresses of health, in a process whose lease is short."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.hosts.settings")

from django.core.asgi import get_asgi_application  # noqa: E402

django = get_asgi_application()

from django_mcp.delivery import leases  # noqa: E402
from django_mcp.routing import mount  # noqa: E402

leases.LEASE = float(os.environ.get("LEASE", leases.LEASE))
application = mount(django, health="health")
