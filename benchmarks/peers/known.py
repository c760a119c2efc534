"""
A floor: the lean consumer, which looks up whose the token of each request is, as anybody would.

One row by its checksum, with its user and its client, in a thread of the pool that looks up for
the project as well. What the token is for, and whether its client is blocked, it does not ask.
"""

import hashlib
from typing import Any

import benchmarks.server  # noqa: F401  the project, with its tables and rows

# isort: split
from django.utils import timezone
from oauth2_provider.models import AccessToken

from benchmarks.peers.bare import answer, respond
from benchmarks.peers.lean import Lean
from django_mcp.runtime import threads


class Known(Lean):
    async def http_request(self, message: Any) -> None:
        self.body += message.get("body", b"")
        if not message.get("more_body"):
            token = dict(self.scope["headers"])[b"authorization"].removeprefix(b"Bearer ")
            row = await threads.lookups.run(look_up, token)
            known = row.user.is_active and row.expires > timezone.now()
            await respond(answer(self.body) if known else b"{}", self.send)
            self.answered = True


def look_up(token: bytes) -> AccessToken:
    checksum = hashlib.sha256(token).hexdigest()
    found = AccessToken.objects.select_related("user", "application")
    return found.get(token_checksum=checksum)


consumer = Known.as_asgi()


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await consumer(scope, receive, send)
