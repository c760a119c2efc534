"""The endpoint, beside Django."""

from django.core.asgi import get_asgi_application

django = get_asgi_application()

from django_mcp.routing import mount  # noqa: E402

application = mount(django)
