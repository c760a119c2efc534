"""Verifiers of a project, named by their paths."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

import django_mcp as mcp
from django_mcp.auth.principal import LookupVerifier
from django_mcp.verifiers.personal_tokens import PersonalAccessTokens

asked: list[tuple[str, str]] = []


class Named:
    """Knows tokens that are the names of users, by the ORM, asynchronously."""

    async def verify(self, token: str, server: Any) -> mcp.Principal | None:
        asked.append(("Named", token))
        user = await User.objects.filter(username=token).afirst()
        return None if user is None else mcp.Principal(user, mcp.Auth(key="named"))

    def lookup(self, token: str) -> None:
        raise AssertionError("This is no method that the endpoint knows.")


class Listed(LookupVerifier):
    """Knows tokens that are the names of users, by nothing but a look at the database."""

    def lookup(self, token: str, server: Any) -> mcp.Principal | None:
        asked.append(("Listed", token))
        user = User.objects.filter(username=token).first()
        return None if user is None else mcp.Principal(user, mcp.Auth(key="listed"))


class Threaded:
    """Asks for users in the one thread that asgiref has for everybody, if it may."""

    async def verify(self, token: str, server: Any) -> mcp.Principal | None:
        asked.append(("Threaded", token))
        return await sync_to_async(lambda: None)()


class Guarded(PersonalAccessTokens):
    """Personal tokens, but only on Sundays; and today is none."""

    async def verify(self, token: str, server: Any) -> mcp.Principal | None:
        asked.append(("Guarded", token))
        assert await super().verify(token, server)
        return None


class Careless:
    """Says who somebody is without a look whether they may come in."""

    async def verify(self, token: str, server: Any) -> mcp.Principal | None:
        user = User(username=token, pk=4711, is_active=token != "inactive")
        return mcp.Principal(user, mcp.Auth(key="careless"))


class Told(Careless):
    """Tells where its tokens are to be had."""

    where = ""

    def challenge(self, server: Any) -> dict[str, str]:
        return {"resource_metadata": self.where}


class Broken:
    """Cannot reach what it needs."""

    async def verify(self, token: str, server: Any) -> mcp.Principal | None:
        raise ConnectionRefusedError("nobody there")


broken = Broken()
