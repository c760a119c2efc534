"""The replaced models, each with an additional column. Keys of refresh tokens descend."""

from __future__ import annotations

from itertools import count
from uuid import UUID

from django.db import models
from oauth2_provider.models import (
    AbstractAccessToken,
    AbstractApplication,
    AbstractGrant,
    AbstractIDToken,
    AbstractRefreshToken,
)


class Client(AbstractApplication):
    more = models.CharField(max_length=10, blank=True)


class Code(AbstractGrant):
    more = models.CharField(max_length=10, blank=True)


class Access(AbstractAccessToken):
    more = models.CharField(max_length=10, blank=True)


_numbers = count(2**100, -1)


def descending() -> UUID:
    return UUID(int=next(_numbers))


class Refresh(AbstractRefreshToken):
    id = models.UUIDField(primary_key=True, default=descending)
    more = models.CharField(max_length=10, blank=True)


class Identity(AbstractIDToken):
    more = models.CharField(max_length=10, blank=True)
