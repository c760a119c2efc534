"""The passwords of the demonstration's people: made once, and shown again whenever asked for.

The rule: they are random, and kept as the access token is: beside the database, for the eyes of
its owner. So whoever started the demonstration can sign in, and nobody else: not who has an
account on the same machine, nor a page that finds its way to the port, as with a button that
signs in whoever comes. Whoever was given another password keeps that; it is not known here.
"""

import json
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.utils.crypto import get_random_string

from example_project.secret import keep

LENGTH = 16


def place() -> Path:
    """The file of the passwords: `db.sqlite3.passwords`."""
    return settings.DATABASE.with_name(f"{settings.DATABASE.name}.passwords")


def kept(user: AbstractUser, path: Path) -> str | None:
    """The password in `path`, made for a user who has none; None for one who has another."""
    password, encoded = _read(path).get(user.get_username(), [None, ""])
    if not user.has_usable_password():
        return made(user, path)
    # By how it was encoded: to check a password takes long, on purpose.
    return password if encoded == user.password else None


def made(user: AbstractUser, path: Path) -> str:
    """A new password for `user`, kept in `path`."""
    password = get_random_string(LENGTH)
    user.set_password(password)
    user.save(update_fields=["password"])
    keep(path, json.dumps(_read(path) | {user.get_username(): [password, user.password]}))
    return password


def _read(path: Path) -> dict[str, list[str]]:
    """Passwords, and how each was encoded, by user names."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
