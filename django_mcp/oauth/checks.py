"""System checks of the authorization server: settings, login, cache, proxy and URLs.

Mistakes that weaken security are errors. Those that only keep clients or users from authorizing are
warnings. An invalid setting gets its own message and does not hide the messages of others. Problems
that occur only with several processes or behind a proxy are in ``check --deploy``.

The URL checks resolve the endpoints' paths in the project's URLconf, as a request would. Then they
walk all routes, to find other views that would answer in place of ours or beside them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.auth.mixins import PermissionRequiredMixin, UserPassesTestMixin
from django.contrib.auth.views import LoginView
from django.core.cache import DEFAULT_CACHE_ALIAS, caches
from django.core.cache.backends.base import InvalidCacheBackendError
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.checks import CheckMessage, Error, Info, Warning, register
from django.shortcuts import resolve_url
from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template
from django.urls import (
    NoReverseMatch,
    Resolver404,
    ResolverMatch,
    get_resolver,
    get_script_prefix,
    resolve,
)
from django.utils.module_loading import import_string

from ..conf import settings as mcp
from ..declarations.server import servers
from .conf import BEHAVIOUR, DEFAULTS, dot_settings

BEFORE = ("oauth2_provider", "django_mcp")
HINT = 'OAUTH2_PROVIDER = django_mcp.oauth.dot_settings("https://shop.example")'
VERIFIER = "django_mcp.oauth.verifier.OAuthTokens"
DAY_SECONDS = 86_400  # seconds
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")  # RFC 3986, section 3.1
RATE = re.compile(r"[1-9][0-9]*/[1-9][0-9]*")
# Schemes that a browser runs, shows as its own page, or reads from the machine.
NO_REDIRECTS = {"javascript", "data", "vbscript", "file", "blob", "about", "view-source", "http"}

Problem = str | None  # a description of the mistake, or None
Judge = Callable[[Any], bool]


@register("django_mcp")
def check_apps(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check that the required apps are installed, and before this one."""
    names = [config.name for config in apps.get_app_configs()]
    own = names.index("django_mcp.oauth") if "django_mcp.oauth" in names else len(names)
    return [
        Error(
            f"{name!r} is not in INSTALLED_APPS before 'django_mcp.oauth'.",
            hint="Name them in this order: " + ", ".join((*BEFORE, "django_mcp.oauth")) + ".",
            id="django_mcp_oauth.E001",
        )
        for name in BEFORE
        if name not in names[:own]
    ]


# DJANGO_MCP["OAUTH"].


def _number(value: Any, least: float = 0) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= least


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) and one for one in value)


def _schemes(value: Any) -> bool:
    return _texts(value) and all(
        SCHEME.fullmatch(one) and one not in NO_REDIRECTS | {"https"} for one in value
    )


def _callable(value: Any) -> bool:
    try:
        return value is None or callable(import_string(value))
    except (ImportError, AttributeError, TypeError):
        return False


def _upstream(value: Any) -> bool:
    from .upstream_accounts import MIN_AGE_SECONDS, Upstream

    try:
        found = None if value is None else import_string(value)
    except (ImportError, AttributeError, TypeError):
        return False
    if found is None:
        return True
    fits = isinstance(found, type) and issubclass(found, Upstream)
    return fits and _number(found.max_age, MIN_AGE_SECONDS) and _number(found.grace)


OPTIONS: dict[str, tuple[Judge, str]] = {
    "REGISTRATION": (lambda value: value in ("open", "off"), '"open" or "off".'),
    "REGISTRATION_RATE": (
        lambda value: isinstance(value, str) and bool(RATE.fullmatch(value)),
        '"number/seconds", as "20/3600".',
    ),
    "UNUSED": (lambda value: _number(value, 1), "A number of seconds."),
    "REDIRECT_SCHEMES": (_schemes, "A list of schemes of apps, as cursor; no browser's own."),
    "DEFAULT_SERVER": (
        lambda value: value is None or value in [one.name for one in servers()],
        "The name of a server of this project, or None.",
    ),
    "CLIENT_HOSTS": (_texts, "A list of hosts, as ALLOWED_HOSTS has them."),
    "STALE": (_number, "A number of seconds."),
    "REFRESH_GRACE": (lambda value: _number(value) and value <= 600, "Seconds, at most 600."),
    "MAY_AUTHORIZE": (_callable, "The dotted path of a function (user, server) -> bool, or None."),
    "UPSTREAM": (
        _upstream,
        "The dotted path of an Upstream, with a max_age of 10 seconds or more.",
    ),
}


@register("django_mcp")
def check_options(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check the keys and values of ``DJANGO_MCP["OAUTH"]``, and that the URL is safe."""
    given = _given()
    return [*_unknown_keys(given), *_bad_values(given), *_bad_url()]


def _given() -> dict[str, Any]:
    """Return ``DJANGO_MCP["OAUTH"]``; empty if it is no dict (reported by ``django_mcp.E094``)."""
    whole = getattr(django_settings, "DJANGO_MCP", None) or {}
    given = whole.get("OAUTH", {}) if isinstance(whole, dict) else {}
    return given if isinstance(given, dict) else {}


def _unknown_keys(given: Iterable[Any]) -> Iterator[CheckMessage]:
    for key in given:
        if key not in DEFAULTS:
            near = difflib.get_close_matches(str(key), DEFAULTS, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(DEFAULTS)}."
            message = f"DJANGO_MCP['OAUTH'] has no key {key!r}."
            yield Error(message, hint=hint, id="django_mcp_oauth.E002")


def _bad_values(given: dict[str, Any]) -> Iterator[CheckMessage]:
    for key, value in given.items():
        fits, hint = OPTIONS.get(key, (lambda value: True, ""))
        if not fits(value):
            message = f"DJANGO_MCP['OAUTH'][{key!r}] is {value!r}."
            yield Error(message, hint=hint, id="django_mcp_oauth.E003")


def origin() -> str:
    whole = getattr(django_settings, "DJANGO_MCP", None) or {}
    return str(mcp.URL).rstrip("/") if isinstance(whole, dict) else ""


def _bad_url() -> Iterator[CheckMessage]:
    if origin() and not django_settings.DEBUG and not _is_safe(urlsplit(origin())):
        message = f"DJANGO_MCP['URL'] is {origin()!r}: tokens would be read on their way."
        hint = "Serve the project over https, and name that origin."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W004")
    if root := (django_settings.FORCE_SCRIPT_NAME or "").strip("/"):
        message = f"The project is below /{root}, and clients look for metadata at the root."
        hint = "Let the proxy pass /.well-known/oauth-* and openid-configuration on, unchanged."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W005")


def _is_safe(url: SplitResult) -> bool:
    """Whether nobody can read the traffic: it uses https, or stays on this machine."""
    from .client_metadata import LOOPBACK

    return url.scheme == "https" or url.hostname in LOOPBACK


# OAUTH2_PROVIDER.


def _seconds(value: Any, most: float) -> bool:
    seconds = value.total_seconds() if hasattr(value, "total_seconds") else value
    return _number(seconds, 1) and seconds <= most


def _redirects(value: Any) -> bool:
    own = _given().get("REDIRECT_SCHEMES", DEFAULTS["REDIRECT_SCHEMES"])
    wanted = {"https", "http", *(own if _texts(own) else ())}
    forbidden = NO_REDIRECTS - {"http"}
    return _texts(value) and wanted <= {*value} and not forbidden & {one.lower() for one in value}


# The test that each value must pass, and the reason.
VALUES: dict[str, tuple[Judge, str]] = {
    "PKCE_REQUIRED": (lambda value: value is True, "True: codes are stolen otherwise."),
    "REQUEST_APPROVAL_PROMPT": (lambda value: value == "force", '"force": people are asked.'),
    "ROTATE_REFRESH_TOKEN": (bool, "True: a refresh token is good once."),
    "REFRESH_TOKEN_REUSE_PROTECTION": (bool, "True: who shows a used one ends all of them."),
    "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": (
        lambda value: value == 0,
        '0: DJANGO_MCP["OAUTH"]["REFRESH_GRACE"] is the grace, and works with hashed tokens.',
    ),
    "ALLOW_LOCALHOST_LOOPBACK": (bool, "True: programs listen on whatever port is free."),
    "ALLOW_URI_WILDCARDS": (lambda value: not value, "False: redirect URIs are compared whole."),
    "DCR_ENABLED": (lambda value: not value, "False: django_mcp.oauth registers clients."),
    "AUTHORIZATION_CODE_EXPIRE_SECONDS": (
        lambda value: _seconds(value, 600),
        "60, and at most 600: a code is redeemed at once (RFC 6749, 4.1.2).",
    ),
    "ACCESS_TOKEN_EXPIRE_SECONDS": (
        lambda value: _seconds(value, DAY_SECONDS),
        "3600: an access token that was lost is good for an hour.",
    ),
    "REFRESH_TOKEN_EXPIRE_SECONDS": (
        lambda value: _seconds(value, 366 * DAY_SECONDS),
        "30 days, in seconds: without a number a refresh token is good for ever.",
    ),
    "ALLOWED_REDIRECT_URI_SCHEMES": (
        _redirects,
        'https, http and those of DJANGO_MCP["OAUTH"]["REDIRECT_SCHEMES"]; no browser\'s own.',
    ),
    **{
        f"COMPLIANT_BCP_RFC9700_{name}": (bool, "True (RFC 9700).") for name in BEHAVIOUR
    },
}  # fmt: skip
CLASSES = ("OAUTH2_VALIDATOR_CLASS", "SCOPES_BACKEND_CLASS", "CIMD_METADATA_FETCHER")
POLICIES = "CIMD_REGISTRATION_PERMISSION_CLASSES"


@register("django_mcp")
def check_provider(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check that ``OAUTH2_PROVIDER`` is at least as strict as ``dot_settings``."""
    given = getattr(django_settings, "OAUTH2_PROVIDER", None)
    if not isinstance(given, dict) or not given:
        message = "OAUTH2_PROVIDER is not set: django-oauth-toolkit would do what it likes."
        return [Error(message, hint=HINT, id="django_mcp_oauth.E010")]
    if not apps.is_installed("oauth2_provider"):
        return []
    return [*_bad_issuer(given), *_weaker(given), *_other_classes(given)]


def _bad_issuer(given: dict[str, Any]) -> Iterator[CheckMessage]:
    if origin() and (named := given.get("OIDC_ISS_ENDPOINT")) != origin():
        message = f"OAUTH2_PROVIDER['OIDC_ISS_ENDPOINT'] is {named!r}, and the issuer {origin()!r}."
        hint = f'It is DJANGO_MCP["URL"], without a slash at the end. {HINT}'
        yield Error(message, hint=hint, id="django_mcp_oauth.E011")


def _weaker(given: dict[str, Any]) -> Iterator[CheckMessage]:
    from oauth2_provider.settings import DEFAULTS as STOCK

    for name, (fits, why) in VALUES.items():
        value = given.get(name, STOCK.get(name))
        if not fits(value):
            message = f"OAUTH2_PROVIDER[{name!r}] is {value!r}."
            yield Error(message, hint=f"It must be {why}", id="django_mcp_oauth.E012")


def _other_classes(given: dict[str, Any]) -> Iterator[CheckMessage]:
    ours = dot_settings("")
    named = CLASSES if given.get("CIMD_ENABLED") else CLASSES[:2]
    found = [(name, wrong_class(given.get(name), ours[name])) for name in named]
    if given.get("CIMD_ENABLED"):
        found.append((POLICIES, _wrong_policies(given.get(POLICIES), ours[POLICIES][0])))
    for name, wrong in found:
        if wrong:
            hint = f"It is {ours[name]!r}, or a subclass of that."
            message = f"OAUTH2_PROVIDER[{name!r}]: {wrong}"
            yield Error(message, hint=hint, id="django_mcp_oauth.E013")


def _wrong_policies(given: Any, base: str) -> Problem:
    if not isinstance(given, list | tuple):
        return f"{given!r} is no list."
    wrong = [wrong_class(one, base) for one in given]
    return None if None in wrong else f"{list(given)!r} has none that is {base}."


def wrong_class(given: Any, base: str) -> Problem:
    """Return why ``given`` is not the class at the path ``base`` or a subclass; None if it is."""
    if given == base:
        return None
    try:
        found = import_string(given) if isinstance(given, str) else given
        fits = isinstance(found, type) and issubclass(found, import_string(base))
    except ImportError as error:
        return str(error)
    return None if fits else f"{given!r} is not made of {base}."


# VERIFIERS.


@register("django_mcp")
def check_verifier(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check that a verifier accepts the tokens that the authorization server issues."""
    whole = getattr(django_settings, "DJANGO_MCP", None) or {}
    paths = whole.get("VERIFIERS", ()) if isinstance(whole, dict) else ()
    if not isinstance(paths, list | tuple) or any(map(_takes_tokens, paths)):
        return []
    message = f"DJANGO_MCP['VERIFIERS'] lacks {VERIFIER!r}: tokens are given out that open nothing."
    hint = f'DJANGO_MCP = {{"VERIFIERS": ["{VERIFIER}"]}}, with others beside it if need be.'
    return [Warning(message, hint=hint, id="django_mcp_oauth.W020")]


def _takes_tokens(path: Any) -> bool:
    """Whether the path names our verifier. Failed imports are reported by ``django_mcp.E096``."""
    if path == VERIFIER:
        return True
    try:
        found, ours = import_string(path), import_string(VERIFIER)
    except Exception:
        return False
    return isinstance(found, ours) or (isinstance(found, type) and issubclass(found, ours))


AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"


@register("django_mcp")
def check_login(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check that there is a login page, and middleware that sets ``request.user``."""
    if not getattr(django_settings, "ROOT_URLCONF", None):
        return []
    return [*_no_login_page(), *_nobody_known()]


def _no_login_page() -> Iterator[CheckMessage]:
    if problem := _wrong_login(django_settings.LOGIN_URL):
        message = f"LOGIN_URL is {str(django_settings.LOGIN_URL)!r}: {problem}"
        hint = "It is the page at which people sign in, before they are asked."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W040")


def _wrong_login(login: Any) -> Problem:
    """Return what is wrong with the login page. Pages of other sites are not checked."""
    try:
        url = urlsplit(resolve_url(login))
        match = None if url.netloc else resolve(_below_prefix(url.path))
    except (NoReverseMatch, Resolver404):
        return "there is no such page."
    return _without_template(match.func) if match else None


def _below_prefix(path: str) -> str:
    return "/" + path.removeprefix(get_script_prefix()).lstrip("/")


def _without_template(view: Any) -> Problem:
    """Return a problem if the template of Django's login view is missing.

    Django has none outside the admin: the project must have it.
    """
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
    """Check settings of django-allauth that let users sign in to accounts of others."""
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
    """Check the cache and the proxy settings, for ``check --deploy`` only."""
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


OURS = "django_mcp.oauth.urls"
NAMESPACE = "django_mcp_oauth"
INCLUDE = 'path("", include("django_mcp.oauth.urls")), first in ROOT_URLCONF.'
# Paths that clients request, with and without a trailing slash, and without being signed in.
METADATA = ("/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource")
CALLED = ("/oauth/token", "/oauth/register", "/oauth/revoke")
SEEN = ("/oauth/authorize",)  # pages for users
# Paths at which a project may have a view of its own, before ours.
REPLACEABLE = ("/oauth/connections", "/.well-known/openid-configuration")
FALLBACK = ("/authorize", "/token", "/register")  # of fallback_urls
MOVE = "Move the page. Leave out django_mcp.oauth.fallback_urls if the path is one of those."
# Views of django-oauth-toolkit that bypass the checks of ours, or publish other endpoints.
BESIDE = (
    "AuthorizationView", "DeviceAuthorizationView", "DeviceUserCodeView", "DeviceConfirmView",
    "DynamicClientRegistrationView", "DynamicClientRegistrationManagementView",
    "IntrospectTokenView", "OAuthServerMetadataView", "OAuthProtectedResourceMetadataView",
)  # fmt: skip
LOGIN_REQUIRED = "django.contrib.auth.middleware.LoginRequiredMiddleware"


@register("django_mcp")
def check_urls(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check that the endpoints are at the root, need no login, and have no views beside them."""
    usable = apps.is_installed("oauth2_provider") and getattr(django_settings, "ROOT_URLCONF", None)
    if not usable:
        return []
    return [*_hidden(), *_behind_a_login(), *_beside(), *_collisions(), *_open_to_users()]


def _answering(path: str) -> tuple[ResolverMatch | None, ResolverMatch | None]:
    """Return the project's match for ``path`` and ours; None for each without a match."""
    return _resolved(path, None), _resolved(path, OURS)


def _resolved(path: str, urlconf: str | None) -> ResolverMatch | None:
    try:
        return resolve(path, urlconf)
    except Resolver404:
        return None


def _is_ours(match: ResolverMatch | None) -> bool:
    return match is not None and match.app_names[-1:] == [NAMESPACE]


def _hidden() -> Iterator[CheckMessage]:
    """Yield one error for all hidden endpoints, because one ``include`` adds them together."""
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


def _open_to_users() -> Iterator[CheckMessage]:
    """Find pages at which any user can register clients or change their redirect URIs."""
    from oauth2_provider import views

    pages = (views.ApplicationRegistration, views.ApplicationUpdate)
    guards = (PermissionRequiredMixin, UserPassesTestMixin)
    made = {route: getattr(view, "view_class", object) for route, view in _walk(get_resolver())}
    found = [
        route
        for route, one in made.items()
        if issubclass(one, pages) and not issubclass(one, guards)
    ]
    if found:
        message = f"Whoever is signed in may register OAuth clients, at /{', /'.join(found)}."
        hint = (
            "Leave these pages of django-oauth-toolkit out, or mount subclasses with "
            "PermissionRequiredMixin. Clients of users who are no staff are shown as unverified."
        )
        yield Warning(message, hint=hint, id="django_mcp_oauth.W034")


def _walk(resolver: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every route and its view."""
    for pattern in resolver.url_patterns:
        route = above + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from _walk(pattern, route)
        else:
            yield route, pattern.callback


def _toolkits(view: Any) -> str | None:
    """Return the name of the view in ``BESIDE`` that ``view`` is or inherits from, or None.

    Our own subclasses do not count.
    """
    from oauth2_provider import views

    made = getattr(view, "view_class", None)
    if made is None or made.__module__.startswith("django_mcp.oauth."):
        return None
    return next((name for name in BESIDE if issubclass(made, getattr(views, name))), None)


def _collisions() -> Iterator[CheckMessage]:
    """Find pages of the project at the paths of endpoints: one of the two cannot be reached.

    Each path is looked up with and without a trailing slash. The fallback endpoints have none, but
    they still take ``/register`` from a page at ``/register/``, to which Django would redirect
    otherwise.
    """
    ours = {view for _, view in _walk(get_resolver(OURS))}
    for path in (*METADATA, *CALLED, *SEEN, *REPLACEABLE, *FALLBACK):
        views = [found for end in ("", "/") for found in _views_at(path + end)]
        if path in REPLACEABLE and views[:1] and views[0][0] not in ours:
            continue
        pages = [name for view, name in views if view not in ours and not _is_toolkits(view)]
        if pages and len(pages) < len(views):
            message = f"An endpoint of django_mcp.oauth and {pages[0]} are both at {path}."
            yield Error(message, hint=MOVE, id="django_mcp_oauth.E033")


def _views_at(path: str) -> Iterator[tuple[Any, str]]:
    """Yield every view with a route of its own for ``path``, and its name.

    Routes with parameters match many paths, so they are left out: they also match the path with its
    last segment spelled backwards.
    """
    folder, name = path.rstrip("/").rsplit("/", 1)
    backwards = f"{folder}/{name[::-1]}{path[len(path.rstrip('/')) :]}"
    routes = {id(pattern) for pattern in _matching(get_resolver(), backwards)}
    for pattern in _matching(get_resolver(), path):
        if id(pattern) not in routes:
            yield pattern.callback, pattern.lookup_str


def _matching(resolver: Any, path: str) -> Iterator[Any]:
    """Yield every route that matches, not only the first."""
    below = resolver.pattern.match(path)
    for pattern in resolver.url_patterns if below else ():
        if hasattr(pattern, "url_patterns"):
            yield from _matching(pattern, below[0])
        elif pattern.pattern.match(below[0]):
            yield pattern


def _is_toolkits(view: Any) -> bool:
    module: str = getattr(view, "view_class", view).__module__
    return module.startswith("oauth2_provider.")
