"""Token verifiers of a project, for the setting ``VERIFIERS``."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

import django_mcp as mcp
from django_mcp.auth.principal import LookupVerifier
from django_mcp.verifiers.personal_tokens import PersonalAccessTokens

asked: list[tuple[str, str]] = []


class Named:
    """Accepts the name of a user as a token; queries with the asynchronous ORM."""

    async def verify(self, token: str, server: Any) -> mcp.Principal | None:
        asked.append(("Named", token))
        user = await User.objects.filter(username=token).afirst()
        return None if user is None else mcp.Principal(user, mcp.Auth(key="named"))

    def lookup(self, token: str) -> None:
        raise AssertionError("The endpoint does not call this method.")


class Listed(LookupVerifier):
    """Accepts the name of a user as a token; implements only ``lookup``."""

    def lookup(self, token: str, server: Any) -> mcp.Principal | None:
        asked.append(("Listed", token))
        user = User.objects.filter(username=token).first()
        return None if user is None else mcp.Principal(user, mcp.Auth(key="listed"))


class Threaded:
    """Calls ``sync_to_async``, which may use the one thread that asgiref shares."""

    async def verify(self, token: str, server: Any) -> mcp.Principal | None:
        asked.append(("Threaded", token))
        return await sync_to_async(lambda: None)()


class Guarded(PersonalAccessTokens):
    """Verifies personal tokens and then rejects them all."""

    async def verify(self, token: str, server: Any) -> mcp.Principal | None:
        asked.append(("Guarded", token))
        assert await super().verify(token, server)
        return None


class Careless:
    """Returns a principal without checking whether the user is active."""

    async def verify(self, token: str, server: Any) -> mcp.Principal | None:
        user = User(username=token, pk=4711, is_active=token != "inactive")
        return mcp.Principal(user, mcp.Auth(key="careless"))


class WithMetadata(Careless):
    """Names the URL of its resource metadata in the challenge."""

    where = ""

    def challenge(self, server: Any) -> dict[str, str]:
        return {"resource_metadata": self.where}


class Broken:
    """Raises as if a server that it needs cannot be reached."""

    async def verify(self, token: str, server: Any) -> mcp.Principal | None:
        raise ConnectionRefusedError("nobody there")


broken = Broken()
