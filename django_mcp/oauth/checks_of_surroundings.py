"""
What ``manage.py check`` says of what is around the authorization server: the project's login, its
middleware, its cache, its proxy.

Rule: whatever would keep people from agreeing, though all of ours is right, is a warning here. What
only many processes or a proxy make wrong is for ``check --deploy``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.auth.views import LoginView
from django.core.cache import DEFAULT_CACHE_ALIAS, caches
from django.core.cache.backends.base import InvalidCacheBackendError
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.checks import CheckMessage, Info, Warning, register
from django.shortcuts import resolve_url
from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve

from .checks import Problem, origin, wrong_class

AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"


@register("django_mcp")
def check_login(**kwargs: Any) -> Sequence[CheckMessage]:
    """People can sign in: there is a page for it, and requests know who has."""
    if not getattr(django_settings, "ROOT_URLCONF", None):
        return []
    return [*_no_login_page(), *_nobody_known()]


def _no_login_page() -> Iterator[CheckMessage]:
    if problem := _wrong_login(django_settings.LOGIN_URL):
        message = f"LOGIN_URL is {str(django_settings.LOGIN_URL)!r}: {problem}"
        hint = "It is the page at which people sign in, before they are asked."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W040")


def _wrong_login(login: Any) -> Problem:
    """A page of another site is for that one to know."""
    try:
        url = urlsplit(resolve_url(login))
        match = None if url.netloc else resolve(_below_prefix(url.path))
    except (NoReverseMatch, Resolver404):
        return "there is no such page."
    return _without_template(match.func) if match else None


def _below_prefix(path: str) -> str:
    return "/" + path.removeprefix(get_script_prefix()).lstrip("/")


def _without_template(view: Any) -> Problem:
    """Django's own view has a template only where the admin, or the project, brings one."""
    made = getattr(view, "view_class", None)
    if not (isinstance(made, type) and issubclass(made, LoginView)):
        return None
    name = view.view_initkwargs.get("template_name", made.template_name)
    try:
        get_template(name)
    except TemplateDoesNotExist:
        return f"its template {name!r} is missing."
    except TemplateSyntaxError:
        return f"its template {name!r} cannot be read."
    return None


def _nobody_known() -> Iterator[CheckMessage]:
    if all(wrong_class(path, AUTHENTICATION) for path in django_settings.MIDDLEWARE):
        message = "MIDDLEWARE has no AuthenticationMiddleware: nobody can be asked, or agree."
        hint = f"Add SessionMiddleware and {AUTHENTICATION}, in this order."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W041")


@register("django_mcp")
def check_signing_in(**kwargs: Any) -> Sequence[CheckMessage]:
    """Who is asked is who they say they are, where django-allauth signs people in."""
    there = apps.is_installed("allauth.socialaccount")
    return [*_known_by_address(), *_signed_in_by_links()] if there else []


def _known_by_address() -> Iterator[CheckMessage]:
    if getattr(django_settings, "SOCIALACCOUNT_EMAIL_AUTHENTICATION", False):
        message = "SOCIALACCOUNT_EMAIL_AUTHENTICATION is on: at any provider an address is enough."
        hint = "Let people connect accounts themselves, or name providers that verify addresses."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W044")


def _signed_in_by_links() -> Iterator[CheckMessage]:
    if getattr(django_settings, "SOCIALACCOUNT_LOGIN_ON_GET", False):
        message = "SOCIALACCOUNT_LOGIN_ON_GET is on: a link signs people in as somebody else."
        hint = "Turn it off: people press a button, and then it is they who sign in."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W045")


@register("django_mcp", deploy=True)
def check_surroundings(**kwargs: Any) -> Sequence[CheckMessage]:
    """Of ``check --deploy``: what several processes share, and what a proxy tells."""
    return [*_own_cache(), *_hidden_https()]


def _own_cache() -> Iterator[CheckMessage]:
    try:
        cache = caches[DEFAULT_CACHE_ALIAS]
    except InvalidCacheBackendError:
        return
    if isinstance(cache, LocMemCache | DummyCache):
        what = type(cache).__name__
        message = f"The cache is a {what}: what one process sees of a client, no other knows."
        hint = "A signed assertion is good once in all of them with a cache that they share."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W042")


def _hidden_https() -> Iterator[CheckMessage]:
    trusted = origin() in django_settings.CSRF_TRUSTED_ORIGINS
    told = trusted or django_settings.SECURE_PROXY_SSL_HEADER
    if origin().startswith("https:") and not told:
        message = "SECURE_PROXY_SSL_HEADER is not set: behind a proxy nobody could agree."
        hint = (
            "Django takes the form for another site's, and answers 403. Set it, unless the server "
            "knows of https: it has the certificate, or runs with --proxy-headers."
        )
        yield Info(message, hint=hint, id="django_mcp_oauth.I043")
