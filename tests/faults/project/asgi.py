"""The ASGI application, with a short lease and fault injection."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.faults.project.settings")

from django.core.asgi import get_asgi_application  # noqa: E402

django = get_asgi_application()

from django_mcp.routing import mount  # noqa: E402
from django_mcp.storage import leases  # noqa: E402

from . import injection, mutants  # noqa: E402

leases.LEASE_SECONDS = float(os.environ.get("FAULTS_LEASE", leases.LEASE_SECONDS))
application = mutants.mutated(injection.watched(mount(django)), os.environ.get("FAULTS_MUTANT", ""))
if "FAULTS_GRANIAN" in os.environ:  # not started by the fork server
    injection.begin()
