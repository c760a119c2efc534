"""The access token of the demonstration: made once, and shown again at each start.

A project should store no token, only its digest. This one works for a demonstration on one machine,
so it is kept beside its database, in a file that only its owner may read.
"""

from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.utils import timezone

import django_mcp as mcp
from django_mcp.models import Token
from django_mcp.verifiers.personal_tokens import PersonalAccessTokens
from example_project.secret import keep

NAME = "the demonstration"
LIFETIME = timedelta(days=365)


def place() -> Path:
    """Return the path of the file: `db.sqlite3.token`."""
    return settings.DATABASE.with_name(f"{settings.DATABASE.name}.token")


def kept(user: AbstractUser, path: Path) -> str:
    """Return the token in `path`, or a new one if that is not, or no longer, valid for `user`."""
    secret = path.read_text().strip() if path.exists() else ""
    found = PersonalAccessTokens().lookup(secret, mcp.server)
    if found is not None and found.user == user:
        return secret
    return made(user, path)


def made(user: AbstractUser, path: Path) -> str:
    token, secret = Token.make(user, NAME, expires=timezone.now() + LIFETIME)
    keep(path, secret)
    return secret
