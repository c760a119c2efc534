"""The replaced models, each with an additional column."""

from __future__ import annotations

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


class Refresh(AbstractRefreshToken):
    more = models.CharField(max_length=10, blank=True)


class Identity(AbstractIDToken):
    more = models.CharField(max_length=10, blank=True)
