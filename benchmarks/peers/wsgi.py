"""The REST API of `benchmarks.rest_api` under Django's WSGI handler."""

import benchmarks.server  # noqa: F401

# isort: split
from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
