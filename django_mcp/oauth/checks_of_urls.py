"""
What ``manage.py check`` says of where the endpoints are.

Rule: the project's URLconf is asked as a request would ask it, for what clients will ask: whether
ours is what answers there, to everybody. Then it is walked, for what else would answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.urls import Resolver404, ResolverMatch, get_resolver, resolve

from .checks import wrong_class

OURS = "django_mcp.oauth.urls"
NAMESPACE = "django_mcp_oauth"
INCLUDE = 'path("", include("django_mcp.oauth.urls")), first in ROOT_URLCONF.'
# What clients ask for, with and without a slash at the end, and who need not be signed in for it.
METADATA = ("/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource")
CALLED = ("/oauth/token", "/oauth/register", "/oauth/revoke")
SEEN = ("/oauth/authorize",)  # by people
# Of django-oauth-toolkit: each is another way to what ours guards, or tells of another place.
BESIDE = (
    "AuthorizationView", "DeviceAuthorizationView", "DeviceUserCodeView", "DeviceConfirmView",
    "DynamicClientRegistrationView", "DynamicClientRegistrationManagementView",
    "IntrospectTokenView", "OAuthServerMetadataView", "OAuthProtectedResourceMetadataView",
)  # fmt: skip
LOGIN_REQUIRED = "django.contrib.auth.middleware.LoginRequiredMiddleware"


@register("django_mcp")
def check_urls(**kwargs: Any) -> Sequence[CheckMessage]:
    """The endpoints are at the root, open to clients, and alone."""
    usable = apps.is_installed("oauth2_provider") and getattr(django_settings, "ROOT_URLCONF", None)
    if not usable:
        return []
    return [*_hidden(), *_behind_a_login(), *_beside()]


def _answering(path: str) -> tuple[ResolverMatch | None, ResolverMatch | None]:
    """What answers there, and what should: None if nothing does."""
    return _resolved(path, None), _resolved(path, OURS)


def _resolved(path: str, urlconf: str | None) -> ResolverMatch | None:
    try:
        return resolve(path, urlconf)
    except Resolver404:
        return None


def _is_ours(match: ResolverMatch | None) -> bool:
    return match is not None and match.app_names[-1:] == [NAMESPACE]


def _hidden() -> Iterator[CheckMessage]:
    """One message for all: they are at the root together, or are not."""
    asked = [path + end for path in (*METADATA, *CALLED, *SEEN) for end in ("", "/")]
    found = {path: answers for path in asked for answers in [_answering(path)] if answers[1]}
    hidden = {path: match for path, (match, _) in found.items() if not _is_ours(match)}
    if not hidden:
        return
    path, match = next(iter(hidden.items()))
    what = f"{match.view_name} answers" if match else "nothing answers"
    message = f"The endpoints of django_mcp.oauth are not at the root: at {path} {what}."
    yield Error(message, hint=INCLUDE, id="django_mcp_oauth.E030")


def _behind_a_login() -> Iterator[CheckMessage]:
    if all(wrong_class(path, LOGIN_REQUIRED) for path in django_settings.MIDDLEWARE):
        return
    for path in (*METADATA, *CALLED):
        match, _ = _answering(path)
        if match is not None and _is_ours(match) and getattr(match.func, "login_required", True):
            message = f"{path} is for clients, and LoginRequiredMiddleware sends them to a login."
            hint = "Decorate what wraps our view with login_not_required."
            yield Error(message, hint=hint, id="django_mcp_oauth.E031")


def _beside() -> Iterator[CheckMessage]:
    found = {route: name for route, view in _walk(get_resolver()) if (name := _toolkits(view))}
    if not found:
        return
    told = ", ".join(f"{name} at /{route}" for route, name in found.items())
    message = f"django-oauth-toolkit's own views are beside those of django_mcp.oauth: {told}."
    hint = "Mount of its URLs only what the project's other APIs need, and none of these."
    yield Warning(message, hint=hint, id="django_mcp_oauth.W032")


def _walk(resolver: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every route and its view."""
    for pattern in resolver.url_patterns:
        route = above + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from _walk(pattern, route)
        else:
            yield route, pattern.callback


def _toolkits(view: Any) -> str | None:
    """Which view of django-oauth-toolkit it is, or is made of; ours are none."""
    from oauth2_provider import views

    made = getattr(view, "view_class", None)
    if made is None or made.__module__.startswith("django_mcp.oauth."):
        return None
    return next((name for name in BESIDE if issubclass(made, getattr(views, name))), None)
