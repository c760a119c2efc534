"""
Who is looking at the page, and where they may go from there.

Rule: the site's own session says who it is; a link is shown to whom it would open, and
leads back by a path alone, never to another site.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.conf import global_settings
from django.conf import settings as django_settings
from django.contrib.auth.views import redirect_to_login
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve, reverse
from django.utils.encoding import escape_uri_path
from django.utils.functional import LazyObject

from ..principal import Principal, anonymous

if TYPE_CHECKING:
    from django.http import HttpRequest


def principal(request: HttpRequest) -> Principal:
    """Whom the site's middleware has found the visitor to be; nobody where it looks for none."""
    user: Any = getattr(request, "user", None)
    while isinstance(user, LazyObject):
        bool(user.is_authenticated)  # it is loaded now
        user = vars(user)["_wrapped"]
    return anonymous() if user is None else Principal(user)


def login_url(request: HttpRequest) -> str | None:
    """Where to sign in and come back from; None where the site has no such page that we know."""
    way = _login_page()
    here = escape_uri_path(get_script_prefix() + request.path_info.lstrip("/"))
    return None if way is None else redirect_to_login(here, way).url


def _login_page() -> str | None:
    """LOGIN_URL, where somebody chose it or it is there; else the admin's."""
    try:
        chosen = resolve_url(django_settings.LOGIN_URL)
    except NoReverseMatch:
        return _reversed("admin:login")
    if django_settings.LOGIN_URL != global_settings.LOGIN_URL or _is_there(chosen):
        return chosen
    return _reversed("admin:login")


def _is_there(url: str) -> bool:
    try:
        resolve("/" + urlsplit(url).path.removeprefix(get_script_prefix()).lstrip("/"))
    except Resolver404:
        return False
    return True


def admin_url(user: Any) -> str | None:
    return _reversed("admin:index") if _is_staff(user) else None


def token_url(user: Any) -> str | None:
    """Where the admin makes an access token, for those who may."""
    may = _is_staff(user) and user.has_perm("django_mcp.add_token")
    return _reversed("admin:django_mcp_token_add") if may else None


def connections_url(user: Any) -> str | None:
    """Where people see what is connected, if the project has that page."""
    return _reversed("django_mcp_oauth:connections") if user.is_authenticated else None


def token_command(user: Any) -> list[str]:
    """What makes an access token for ``user``, in the words of a shell."""
    name = user.get_username() if user.is_authenticated else "NAME"
    command = ["python", "manage.py", "mcp_token", "create", "--user", name, "--name", "laptop"]
    return [shlex.quote(word) for word in command]


def _is_staff(user: Any) -> bool:
    return bool(user.is_authenticated and getattr(user, "is_staff", False))


def _reversed(name: str) -> str | None:
    try:
        return reverse(name)
    except NoReverseMatch:
        return None
