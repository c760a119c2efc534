"""The server of the tour, with static files: ``DEBUG`` is off, so no other part serves them."""

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

django = get_asgi_application()  # first: it loads the apps

from django_mcp.routing import mount  # noqa: E402

from .timing import noting_notifications  # noqa: E402

application = noting_notifications(mount(ASGIStaticFilesHandler(django)))
