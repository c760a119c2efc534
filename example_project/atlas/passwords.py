"""The passwords of the users of the demonstration: made once, and shown again at each start.

They are random, and kept beside the database in a file that only its owner may read. So the person
who starts the demonstration can sign in, and other users of the machine cannot. A button without a
password would let any web page sign in that reaches the port. A password that was changed elsewhere
stays, and is not known here.
"""

import json
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.utils.crypto import get_random_string

from example_project.secret import keep

LENGTH = 16


def place() -> Path:
    """Return the path of the file: `db.sqlite3.passwords`."""
    return settings.DATABASE.with_name(f"{settings.DATABASE.name}.passwords")


def kept(user: AbstractUser, path: Path) -> str | None:
    """Return the password in `path`, made if the user has none; None if it was changed."""
    password, encoded = _read(path).get(user.get_username(), [None, ""])
    if not user.has_usable_password():
        return made(user, path)
    # Compares the encoded passwords, because checking a password is slow on purpose.
    return password if encoded == user.password else None


def made(user: AbstractUser, path: Path) -> str:
    """Set a new password for `user`, keep it in `path`, and return it."""
    password = get_random_string(LENGTH)
    user.set_password(password)
    user.save(update_fields=["password"])
    keep(path, json.dumps(_read(path) | {user.get_username(): [password, user.password]}))
    return password


def _read(path: Path) -> dict[str, list[str]]:
    """Return each password and its encoded form, by user name."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
