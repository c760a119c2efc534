"""
The page as an ASGI application: Django's own handler, for a view that is in no URLconf.

Rule: only the way to the view is ours; the project's MIDDLEWARE runs as for any page of
the site, so that sessions, languages and headers are what they are there. Nothing of it
is loaded before somebody visits.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from django.core.handlers.asgi import ASGIHandler
from django.urls import ResolverMatch

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..declare.servers import Server
    from ..transports.http.exchanges import Application


def page_of(server: Server) -> Application:
    """The page of ``server``, for requests that were found to be visits."""
    handler = cache(lambda: PageASGIHandler(server))

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await handler()(scope, receive, send)

    return application


class PageASGIHandler(ASGIHandler):
    """Answers every request with the page of ``server``."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server

    def resolve_request(self, request: HttpRequest) -> ResolverMatch:
        from .page import page

        match = ResolverMatch(page, (), {"server": self.server}, route=self.server.path)
        request.resolver_match = match
        return match
