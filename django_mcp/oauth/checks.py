"""
What ``manage.py check`` says of the authorization server: each mistake, with an id and a hint.

Rule: what weakens it is an error, what only keeps clients away or stands beside it a warning. A
setting that cannot be read is told of, and hides no other.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.utils.module_loading import import_string

from ..conf import settings as mcp
from .conf import BEHAVIOUR, DEFAULTS, dot_settings

BEFORE = ("oauth2_provider", "django_mcp")
HINT = 'OAUTH2_PROVIDER = django_mcp.oauth.dot_settings("https://shop.example")'
VERIFIER = "django_mcp.oauth.verifier.OAuthTokens"
DAY = 86_400  # seconds
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")  # RFC 3986, section 3.1
RATE = re.compile(r"[1-9][0-9]*/[1-9][0-9]*")
# What a browser runs, shows as its own page, or reads from the machine.
NO_REDIRECTS = {"javascript", "data", "vbscript", "file", "blob", "about", "view-source", "http"}

Problem = str | None  # what is wrong, in words
Judge = Callable[[Any], bool]


@register("django_mcp")
def check_apps(**kwargs: Any) -> Sequence[CheckMessage]:
    """The apps that this one stands on are there, and before it."""
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
    from .upstream import LEAST_AGE, Upstream

    try:
        found = None if value is None else import_string(value)
    except (ImportError, AttributeError, TypeError):
        return False
    if found is None:
        return True
    fits = isinstance(found, type) and issubclass(found, Upstream)
    return fits and _number(found.max_age, LEAST_AGE) and _number(found.grace)


OPTIONS: dict[str, tuple[Judge, str]] = {
    "REGISTRATION": (lambda value: value in ("open", "off"), '"open" or "off".'),
    "REGISTRATION_RATE": (
        lambda value: isinstance(value, str) and bool(RATE.fullmatch(value)),
        '"number/seconds", as "20/3600".',
    ),
    "UNUSED": (lambda value: _number(value, 1), "A number of seconds."),
    "REDIRECT_SCHEMES": (_schemes, "A list of schemes of apps, as cursor; no browser's own."),
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
    """Known keys, values of the right kind, and an origin that clients can reach safely."""
    given = _given()
    return [*_unknown_keys(given), *_bad_values(given), *_bad_url()]


def _given() -> dict[str, Any]:
    """Nothing where the whole is told to be wrong already (``django_mcp.E094``)."""
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
    """Whether nobody reads on the way: by https, or because there is none."""
    from .redirects import LOOPBACK

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


# What each must be, and why it is not otherwise.
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
        lambda value: _seconds(value, DAY),
        "3600: an access token that was lost is good for an hour.",
    ),
    "REFRESH_TOKEN_EXPIRE_SECONDS": (
        lambda value: _seconds(value, 366 * DAY),
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
    """What django-oauth-toolkit is told: nothing of ``dot_settings`` is weaker."""
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
    """Why it is not the class at this path, or one that is made of it."""
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
    """Somebody at the endpoint knows the tokens that are given out."""
    whole = getattr(django_settings, "DJANGO_MCP", None) or {}
    paths = whole.get("VERIFIERS", ()) if isinstance(whole, dict) else ()
    if not isinstance(paths, list | tuple) or any(map(_takes_tokens, paths)):
        return []
    message = f"DJANGO_MCP['VERIFIERS'] lacks {VERIFIER!r}: tokens are given out that open nothing."
    hint = f'DJANGO_MCP = {{"VERIFIERS": ["{VERIFIER}"]}}, with others beside it if need be.'
    return [Warning(message, hint=hint, id="django_mcp_oauth.W020")]


def _takes_tokens(path: Any) -> bool:
    """What cannot be imported is told of already (``django_mcp.E096``)."""
    if path == VERIFIER:
        return True
    try:
        found, ours = import_string(path), import_string(VERIFIER)
    except Exception:
        return False
    return isinstance(found, ours) or (isinstance(found, type) and issubclass(found, ours))
