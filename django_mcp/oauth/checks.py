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

from ..conf import is_function_path
from ..conf import settings as mcp
from ..declarations.server import servers
from .conf import DEFAULTS, RFC9700_OPTIONS, dot_settings

BEFORE = ("oauth2_provider", "django_mcp")
HINT = 'OAUTH2_PROVIDER = django_mcp.oauth.dot_settings("https://shop.example")'
VERIFIER = "django_mcp.oauth.verifier.OAuthTokens"
DAY_SECONDS = 86_400
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")  # RFC 3986, section 3.1
RATE = re.compile(r"[1-9][0-9]*/[1-9][0-9]*")
# Schemes that a browser runs, shows as its own page, or reads from the machine.
FORBIDDEN_SCHEMES = {
    "javascript", "data", "vbscript", "file", "blob", "about", "view-source", "http",
}  # fmt: skip

Problem = str | None  # a description of the mistake, or None
ValueCheck = Callable[[Any], bool]


@register("django_mcp")
def check_apps(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check that the required apps are installed, and before this one."""
    names = [config.name for config in apps.get_app_configs()]
    own = names.index("django_mcp.oauth") if "django_mcp.oauth" in names else len(names)
    return [
        Error(
            f"{name!r} is not in INSTALLED_APPS before 'django_mcp.oauth'.",
            hint="Install them in this order: " + ", ".join((*BEFORE, "django_mcp.oauth")) + ".",
            id="django_mcp_oauth.E001",
        )
        for name in BEFORE
        if name not in names[:own]
    ]


# DJANGO_MCP["OAUTH"].


def _is_number(value: Any, minimum: float = 0) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= minimum


def _is_strings(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) and one for one in value)


def _is_schemes(value: Any) -> bool:
    return _is_strings(value) and all(
        SCHEME.fullmatch(one) and one not in FORBIDDEN_SCHEMES | {"https"} for one in value
    )


def _is_upstream_path(value: Any) -> bool:
    from .upstream_accounts import MIN_AGE_SECONDS, Upstream

    try:
        found = None if value is None else import_string(value)
    except (ImportError, AttributeError, TypeError):
        return False
    if found is None:
        return True
    if not (isinstance(found, type) and issubclass(found, Upstream)):
        return False
    # Without its own methods every check would fail with an error, and clients would get 503.
    own = found.account is not Upstream.account
    own = own and found.is_account_valid is not Upstream.is_account_valid
    return own and _is_number(found.max_age, MIN_AGE_SECONDS) and _is_number(found.grace)


OPTION_CHECKS: dict[str, tuple[ValueCheck, str]] = {
    "REGISTRATION": (lambda value: value in ("open", "off"), '"open" or "off".'),
    "REGISTRATION_RATE": (
        lambda value: isinstance(value, str) and bool(RATE.fullmatch(value)),
        '"number/seconds", as "20/3600".',
    ),
    "UNUSED": (lambda value: _is_number(value, 1), "A number of seconds."),
    "REDIRECT_SCHEMES": (_is_schemes, "A list of URI schemes of apps, none that browsers handle."),
    "DEFAULT_SERVER": (
        lambda value: value is None or value in [one.name for one in servers()],
        "The name of a server of this project, or None.",
    ),
    "CLIENT_HOSTS": (_is_strings, "A list of hosts, as ALLOWED_HOSTS has them."),
    "STALE": (_is_number, "A number of seconds."),
    "REFRESH_GRACE": (lambda value: _is_number(value) and value <= 600, "Seconds, at most 600."),
    "MAY_AUTHORIZE": (
        is_function_path,
        "The dotted path of a function (user, server) -> bool, or None.",
    ),
    "UPSTREAM": (
        _is_upstream_path,
        "The dotted path of a subclass of Upstream that defines account() and is_account_valid(), "
        "with a max_age of 10 seconds or more.",
    ),
}


@register("django_mcp")
def check_options(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check the keys and values of ``DJANGO_MCP["OAUTH"]``, and that the URL is safe."""
    given = _options()
    return [*_unknown_keys(given), *_bad_values(given), *_bad_url()]


def _options() -> dict[str, Any]:
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
        fits, hint = OPTION_CHECKS.get(key, (lambda value: True, ""))
        if not fits(value):
            message = f"DJANGO_MCP['OAUTH'][{key!r}] is {value!r}."
            yield Error(message, hint=hint, id="django_mcp_oauth.E003")


def origin() -> str:
    whole = getattr(django_settings, "DJANGO_MCP", None) or {}
    return str(mcp.URL).rstrip("/") if isinstance(whole, dict) else ""


def _bad_url() -> Iterator[CheckMessage]:
    if origin() and not django_settings.DEBUG and not _is_safe(urlsplit(origin())):
        message = f"DJANGO_MCP['URL'] is {origin()!r}: tokens would be sent without encryption."
        hint = "Serve the project over https, and set URL to that origin."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W004")
    if root := (django_settings.FORCE_SCRIPT_NAME or "").strip("/"):
        message = f"The project is below /{root}, and clients look for metadata at the root."
        hint = "Let the proxy forward /.well-known/oauth-* and openid-configuration unchanged."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W005")


def _is_safe(url: SplitResult) -> bool:
    """Whether nobody can read the traffic: it uses https, or stays on this machine."""
    from .client_metadata import LOOPBACK

    return url.scheme == "https" or url.hostname in LOOPBACK


# OAUTH2_PROVIDER.


def _is_seconds(value: Any, maximum: float) -> bool:
    seconds = value.total_seconds() if hasattr(value, "total_seconds") else value
    return _is_number(seconds, 1) and seconds <= maximum


def _allows_redirect_schemes(value: Any) -> bool:
    own = _options().get("REDIRECT_SCHEMES", DEFAULTS["REDIRECT_SCHEMES"])
    wanted = {"https", "http", *(own if _is_strings(own) else ())}
    forbidden = FORBIDDEN_SCHEMES - {"http"}
    if not _is_strings(value) or not wanted <= {*value}:
        return False
    return not forbidden & {scheme.lower() for scheme in value}


# The test that each value must pass, and the reason.
PROVIDER_CHECKS: dict[str, tuple[ValueCheck, str]] = {
    "PKCE_REQUIRED": (lambda value: value is True, "True: otherwise stolen codes can be used."),
    "REQUEST_APPROVAL_PROMPT": (lambda value: value == "force", '"force": users must consent.'),
    "ROTATE_REFRESH_TOKEN": (bool, "True: a refresh token can be used once."),
    "REFRESH_TOKEN_REUSE_PROTECTION": (bool, "True: reuse revokes the token family."),
    "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": (
        lambda value: value == 0,
        '0: DJANGO_MCP["OAUTH"]["REFRESH_GRACE"] replaces it, and works with hashed tokens.',
    ),
    "ALLOW_LOCALHOST_LOOPBACK": (bool, "True: local programs listen on any free port."),
    "ALLOW_URI_WILDCARDS": (lambda value: not value, "False: redirect URIs must match exactly."),
    "DCR_ENABLED": (lambda value: not value, "False: django_mcp.oauth registers clients."),
    "AUTHORIZATION_CODE_EXPIRE_SECONDS": (
        lambda value: _is_seconds(value, 600),
        "60, and at most 600: a code is redeemed at once (RFC 6749, 4.1.2).",
    ),
    "ACCESS_TOKEN_EXPIRE_SECONDS": (
        lambda value: _is_seconds(value, DAY_SECONDS),
        "3600: a leaked access token is valid for an hour.",
    ),
    "REFRESH_TOKEN_EXPIRE_SECONDS": (
        lambda value: _is_seconds(value, 366 * DAY_SECONDS),
        "30 days, in seconds: without a number refresh tokens never expire.",
    ),
    "ALLOWED_REDIRECT_URI_SCHEMES": (
        _allows_redirect_schemes,
        'https, http and DJANGO_MCP["OAUTH"]["REDIRECT_SCHEMES"], and none that browsers handle.',
    ),
    **{
        f"COMPLIANT_BCP_RFC9700_{name}": (bool, "True (RFC 9700).") for name in RFC9700_OPTIONS
    },
}  # fmt: skip
CLASSES = ("OAUTH2_VALIDATOR_CLASS", "SCOPES_BACKEND_CLASS", "CIMD_METADATA_FETCHER")
POLICIES = "CIMD_REGISTRATION_PERMISSION_CLASSES"


@register("django_mcp")
def check_provider(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check that ``OAUTH2_PROVIDER`` is at least as strict as ``dot_settings``."""
    given = getattr(django_settings, "OAUTH2_PROVIDER", None)
    if not isinstance(given, dict) or not given:
        message = "OAUTH2_PROVIDER is not set, and the defaults of the toolkit are too weak."
        return [Error(message, hint=HINT, id="django_mcp_oauth.E010")]
    if not apps.is_installed("oauth2_provider"):
        return []
    return [*_bad_issuer(given), *_weaker(given), *_other_classes(given)]


def _bad_issuer(given: dict[str, Any]) -> Iterator[CheckMessage]:
    if origin() and (value := given.get("OIDC_ISS_ENDPOINT")) != origin():
        message = f"OAUTH2_PROVIDER['OIDC_ISS_ENDPOINT'] is {value!r}, the issuer {origin()!r}."
        hint = f'Set it to DJANGO_MCP["URL"], without a slash at the end. {HINT}'
        yield Error(message, hint=hint, id="django_mcp_oauth.E011")


def _weaker(given: dict[str, Any]) -> Iterator[CheckMessage]:
    from oauth2_provider.settings import DEFAULTS as STOCK

    for name, (fits, reason) in PROVIDER_CHECKS.items():
        value = given.get(name, STOCK.get(name))
        if not fits(value):
            message = f"OAUTH2_PROVIDER[{name!r}] is {value!r}."
            yield Error(message, hint=f"It must be {reason}", id="django_mcp_oauth.E012")


def _other_classes(given: dict[str, Any]) -> Iterator[CheckMessage]:
    ours = dot_settings("")
    names = CLASSES if given.get("CIMD_ENABLED") else CLASSES[:2]
    problems = [(name, wrong_class(given.get(name), ours[name])) for name in names]
    if given.get("CIMD_ENABLED"):
        problems.append((POLICIES, _wrong_policies(given.get(POLICIES), ours[POLICIES][0])))
    for name, problem in problems:
        if problem:
            hint = f"Set it to {ours[name]!r} or a subclass."
            message = f"OAUTH2_PROVIDER[{name!r}]: {problem}"
            yield Error(message, hint=hint, id="django_mcp_oauth.E013")


def _wrong_policies(given: Any, base: str) -> Problem:
    if not isinstance(given, list | tuple):
        return f"{given!r} is not a list."
    wrong = [wrong_class(one, base) for one in given]
    return None if None in wrong else f"{list(given)!r} does not contain {base} or a subclass."


def wrong_class(given: Any, base: str) -> Problem:
    """Return why ``given`` is not the class at the path ``base`` or a subclass; None if it is."""
    if given == base:
        return None
    try:
        found = import_string(given) if isinstance(given, str) else given
        fits = isinstance(found, type) and issubclass(found, import_string(base))
    except ImportError as error:
        return str(error)
    return None if fits else f"{given!r} is not a subclass of {base}."


# VERIFIERS.


@register("django_mcp")
def check_verifier(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check that a verifier accepts the tokens that the authorization server issues."""
    whole = getattr(django_settings, "DJANGO_MCP", None) or {}
    paths = whole.get("VERIFIERS", ()) if isinstance(whole, dict) else ()
    if not isinstance(paths, list | tuple) or any(map(_accepts_our_tokens, paths)):
        return []
    message = f"DJANGO_MCP['VERIFIERS'] lacks {VERIFIER!r}: no server accepts the issued tokens."
    hint = f'Add "{VERIFIER}" to the list DJANGO_MCP["VERIFIERS"].'
    return [Warning(message, hint=hint, id="django_mcp_oauth.W020")]


def _accepts_our_tokens(path: Any) -> bool:
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
    return [*_missing_login_page(), *_missing_middleware()]


def _missing_login_page() -> Iterator[CheckMessage]:
    if problem := _login_problem(django_settings.LOGIN_URL):
        message = f"LOGIN_URL is {str(django_settings.LOGIN_URL)!r}: {problem}"
        hint = "Users who are not signed in are redirected to it before the consent page."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W040")


def _login_problem(login: Any) -> Problem:
    """Return what is wrong with the login page. Pages of other sites are not checked."""
    try:
        url = urlsplit(resolve_url(login))
        match = None if url.netloc else resolve(_below_prefix(url.path))
    except (NoReverseMatch, Resolver404):
        return "no URL pattern matches it."
    return _template_problem(match.func) if match else None


def _below_prefix(path: str) -> str:
    return "/" + path.removeprefix(get_script_prefix()).lstrip("/")


def _template_problem(view: Any) -> Problem:
    """Return a problem if the template of Django's login view is missing.

    Django has none outside the admin: the project must have it.
    """
    view_class = getattr(view, "view_class", None)
    if not (isinstance(view_class, type) and issubclass(view_class, LoginView)):
        return None
    name = view.view_initkwargs.get("template_name", view_class.template_name)
    try:
        get_template(name)
    except TemplateDoesNotExist:
        return f"its template {name!r} does not exist."
    except TemplateSyntaxError:
        return f"its template {name!r} has a syntax error."
    return None


def _missing_middleware() -> Iterator[CheckMessage]:
    if all(wrong_class(path, AUTHENTICATION) for path in django_settings.MIDDLEWARE):
        message = "MIDDLEWARE has no AuthenticationMiddleware: users cannot consent."
        hint = f"Add SessionMiddleware and {AUTHENTICATION}, in this order."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W041")


@register("django_mcp")
def check_signing_in(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check settings of django-allauth that let users sign in to accounts of others."""
    has_social_accounts = apps.is_installed("allauth.socialaccount")
    return [*_email_authentication(), *_login_by_get()] if has_social_accounts else []


def _email_authentication() -> Iterator[CheckMessage]:
    if getattr(django_settings, "SOCIALACCOUNT_EMAIL_AUTHENTICATION", False):
        message = (
            "SOCIALACCOUNT_EMAIL_AUTHENTICATION is on: any provider can sign users in by claiming "
            "their email addresses."
        )
        hint = "Let users connect accounts themselves, or list providers that verify addresses."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W044")


def _login_by_get() -> Iterator[CheckMessage]:
    if getattr(django_settings, "SOCIALACCOUNT_LOGIN_ON_GET", False):
        message = "SOCIALACCOUNT_LOGIN_ON_GET is on: a link can sign users in as an attacker."
        hint = "Turn it off, so that users sign in by pressing a button."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W045")


@register("django_mcp", deploy=True)
def check_surroundings(**kwargs: Any) -> Sequence[CheckMessage]:
    """Check the cache and the proxy settings, for ``check --deploy`` only."""
    return [*_unshared_cache(), *_unknown_https()]


def _unshared_cache() -> Iterator[CheckMessage]:
    try:
        cache = caches[DEFAULT_CACHE_ALIAS]
    except InvalidCacheBackendError:
        return
    if isinstance(cache, LocMemCache | DummyCache):
        name = type(cache).__name__
        message = f"The default cache is a {name}, which processes do not share."
        hint = "Use a shared cache. Otherwise each process accepts a client assertion once more."
        yield Warning(message, hint=hint, id="django_mcp_oauth.W042")


def _unknown_https() -> Iterator[CheckMessage]:
    trusted = origin() in django_settings.CSRF_TRUSTED_ORIGINS
    is_known = trusted or django_settings.SECURE_PROXY_SSL_HEADER
    if origin().startswith("https:") and not is_known:
        message = "SECURE_PROXY_SSL_HEADER is not set: behind a proxy, consent fails with 403."
        hint = (
            "Django's CSRF check takes the form for another site's. Set it, unless the ASGI server "
            "has the certificate, or runs with --proxy-headers."
        )
        yield Info(message, hint=hint, id="django_mcp_oauth.I043")


OURS = "django_mcp.oauth.urls"
NAMESPACE = "django_mcp_oauth"
INCLUDE = 'path("", include("django_mcp.oauth.urls")), first in ROOT_URLCONF.'
# Paths that clients request, with and without a trailing slash, and without being signed in.
METADATA_PATHS = (
    "/.well-known/oauth-authorization-server",
    "/.well-known/oauth-protected-resource",
)
CLIENT_PATHS = ("/oauth/token", "/oauth/register", "/oauth/revoke")
USER_PATHS = ("/oauth/authorize",)  # pages for users
# Paths at which a project may have a view of its own, before ours.
REPLACEABLE = ("/oauth/connections", "/.well-known/openid-configuration")
FALLBACK_PATHS = ("/authorize", "/token", "/register")  # of fallback_urls
MOVE = "Move the page, or remove django_mcp.oauth.fallback_urls if the path is one of those."
# Views of django-oauth-toolkit that bypass the checks of ours, or publish other endpoints.
BYPASSING_VIEWS = (
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
    return [
        *_hidden_endpoints(),
        *_behind_a_login(),
        *_bypassing_views(),
        *_collisions(),
        *_open_registration(),
    ]


def _matches(path: str) -> tuple[ResolverMatch | None, ResolverMatch | None]:
    """Return the project's match for ``path`` and ours; None for each without a match."""
    return _resolve(path, None), _resolve(path, OURS)


def _resolve(path: str, urlconf: str | None) -> ResolverMatch | None:
    try:
        return resolve(path, urlconf)
    except Resolver404:
        return None


def _is_ours(match: ResolverMatch | None) -> bool:
    return match is not None and match.app_names[-1:] == [NAMESPACE]


def _hidden_endpoints() -> Iterator[CheckMessage]:
    """Yield one error for all hidden endpoints, because one ``include`` adds them together."""
    paths = (*METADATA_PATHS, *CLIENT_PATHS, *USER_PATHS)
    hidden = {}
    for path in (path + slash for path in paths for slash in ("", "/")):
        match, ours = _matches(path)
        if ours is not None and not _is_ours(match):
            hidden[path] = match
    if not hidden:
        return
    path, match = next(iter(hidden.items()))
    view = match.view_name if match else "no view"
    message = f"The endpoints of django_mcp.oauth are not at the root: {path} is served by {view}."
    yield Error(message, hint=INCLUDE, id="django_mcp_oauth.E030")


def _behind_a_login() -> Iterator[CheckMessage]:
    if all(wrong_class(path, LOGIN_REQUIRED) for path in django_settings.MIDDLEWARE):
        return
    for path in (*METADATA_PATHS, *CLIENT_PATHS):
        match, _ = _matches(path)
        if match is not None and _is_ours(match) and getattr(match.func, "login_required", True):
            message = f"LoginRequiredMiddleware redirects clients from {path} to the login page."
            hint = "Decorate the function that wraps the view with login_not_required."
            yield Error(message, hint=hint, id="django_mcp_oauth.E031")


def _bypassing_views() -> Iterator[CheckMessage]:
    named = ((route, _bypassing_name(view)) for route, view in _routes(get_resolver()))
    found = {route: name for route, name in named if name}
    if not found:
        return
    views = ", ".join(f"{name} at /{route}" for route, name in found.items())
    message = f"Views of django-oauth-toolkit bypass the checks of django_mcp.oauth: {views}."
    hint = "Include only those of its URLs that the project's other APIs need, and none of these."
    yield Warning(message, hint=hint, id="django_mcp_oauth.W032")


def _open_registration() -> Iterator[CheckMessage]:
    """Find pages at which any user can register clients or change their redirect URIs."""
    from oauth2_provider import views

    pages = (views.ApplicationRegistration, views.ApplicationUpdate)
    guards = (PermissionRequiredMixin, UserPassesTestMixin)
    classes = {
        route: getattr(view, "view_class", object) for route, view in _routes(get_resolver())
    }
    unguarded = [
        route
        for route, view_class in classes.items()
        if issubclass(view_class, pages) and not issubclass(view_class, guards)
    ]
    if unguarded:
        message = f"Any signed-in user can register OAuth clients at /{', /'.join(unguarded)}."
        hint = (
            "Remove these pages of django-oauth-toolkit, or use subclasses with "
            "PermissionRequiredMixin. Clients of other users are shown as unverified."
        )
        yield Warning(message, hint=hint, id="django_mcp_oauth.W034")


def _routes(resolver: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every route and its view."""
    for pattern in resolver.url_patterns:
        route = above + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from _routes(pattern, route)
        else:
            yield route, pattern.callback


def _bypassing_name(view: Any) -> str | None:
    """Return the name in ``BYPASSING_VIEWS`` of the view or of a base class of it, or None.

    Our own subclasses do not count.
    """
    from oauth2_provider import views

    view_class = getattr(view, "view_class", None)
    if view_class is None or view_class.__module__.startswith("django_mcp.oauth."):
        return None
    return next(
        (name for name in BYPASSING_VIEWS if issubclass(view_class, getattr(views, name))), None
    )


def _collisions() -> Iterator[CheckMessage]:
    """Find pages of the project at the paths of endpoints: one of the two cannot be reached.

    Each path is looked up with and without a trailing slash. The fallback endpoints have none, but
    they still take ``/register`` from a page at ``/register/``, to which Django would redirect
    otherwise.
    """
    ours = {view for _, view in _routes(get_resolver(OURS))}
    for path in (*METADATA_PATHS, *CLIENT_PATHS, *USER_PATHS, *REPLACEABLE, *FALLBACK_PATHS):
        views = [found for end in ("", "/") for found in _views_at(path + end)]
        if path in REPLACEABLE and views[:1] and views[0][0] not in ours:
            continue
        pages = [name for view, name in views if view not in ours and not _is_toolkit_view(view)]
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


def _is_toolkit_view(view: Any) -> bool:
    module: str = getattr(view, "view_class", view).__module__
    return module.startswith("oauth2_provider.")
