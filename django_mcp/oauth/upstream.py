"""
Accounts elsewhere by which people sign in here: which one it was, and whether it still stands.

Rule: who signs in elsewhere is asked here all the same, for each client. What is kept of their
account is its name; no token of theirs ever comes to a client, and none of ours goes there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from .conf import settings

if TYPE_CHECKING:
    from django.http import HttpRequest

LEAST_AGE = 10.0  # seconds: what was just told is known, however long it took to tell


class Upstream:
    """What a project knows of the accounts elsewhere: ``DJANGO_MCP["OAUTH"]["UPSTREAM"]``.

    Tokens are bound to the account by which the person had signed in who consented, and are good
    as long as that stands. It is asked for whenever tokens are given out, and at the use of one
    when what is known is older than ``max_age`` seconds, 10 or more; where nobody can tell, that
    is good for ``grace`` seconds longer (MCP, Authorization, "Third-Party Authorization Flow").
    """

    max_age: float = 300.0
    grace: float = 600.0

    def account(self, request: HttpRequest) -> str | None:
        """The account by which the person of ``request`` has signed in; None: by one of ours.

        A name of at most 255 characters that is nobody else's, as ``"google:1234"``. Raise
        ``PermissionDenied`` where clients may not be let in so.
        """
        raise NotImplementedError

    def stands(self, user: Any, account: str) -> bool:
        """Whether the account is ``user``'s, and may still be used there: whoever has it is asked.

        Called in a thread that may ask the database, and that waits: give what is fetched a
        timeout. False ends all that was let in by it; any exception says that nobody can tell.
        """
        raise NotImplementedError


def upstream() -> Upstream | None:
    """The project's, if it has one."""
    path = settings.UPSTREAM
    return None if path is None else _made(path)


@lru_cache(maxsize=8)
def _made(path: str) -> Upstream:
    found: Upstream = import_string(path)()
    return found
