"""System checks of the settings, apps, verifiers and URLs of an authorization server."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.conf.urls.i18n import i18n_patterns
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.mixins import PermissionRequiredMixin
from django.core.checks import Error, Warning, registry
from django.http import HttpResponse
from django.test import override_settings
from django.urls import include, path, re_path, resolve
from oauth2_provider.scopes import SettingsScopes
from oauth2_provider.views import ApplicationRegistration, AuthorizationView

import django_mcp as mcp
from django_mcp.oauth import checks
from django_mcp.oauth import checks as checks_of_urls
from django_mcp.oauth.conf import DEFAULTS, dot_settings
from django_mcp.oauth.scope_grants import MCPScopes
from django_mcp.oauth.upstream_accounts import Upstream
from django_mcp.oauth.verifier import OAuthTokens
from tests.storage.rows import given

from .conftest import URL

APPS = ["django.contrib.auth", "django.contrib.contenttypes"]
ALL = [
    checks.check_apps, checks.check_options, checks.check_provider, checks.check_verifier,
    checks_of_urls.check_urls,
]  # fmt: skip


def check_ids() -> list[str]:
    """Return the ids of all messages of all checks."""
    messages = [message for check in ALL for message in check()]
    assert all(message.hint and message.msg for message in messages)
    for message in messages:
        kind = {"E": Error, "W": Warning}[message.id.partition(".")[2][0]]
        assert type(message) is kind
    return [message.id.partition(".")[2] for message in messages]


def only_message(check) -> str:
    """Return the text and hint of the check's only message."""
    (message,) = check()
    return f"{message.msg} {message.hint}"


def provider(**over: Any) -> Any:
    return override_settings(OAUTH2_PROVIDER=dot_settings(URL, **over))


def options(**keys: Any) -> Any:
    return given(OAUTH=keys)


def test_documented_settings_have_no_messages():
    assert check_ids() == []


def test_checks_are_registered():
    assert set(ALL) <= registry.registry.registered_checks


def test_sse_server_and_server_at_the_root_have_no_messages():
    made = mcp.Server("spoken", path="spoken", sse=True), mcp.Server("at the root", path="")
    for server in made:
        server.tool(lambda request: "", name="tool")
    assert check_ids() == []


# The apps.


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (["oauth2_provider", "django_mcp", "django_mcp.oauth"], []),
        (["oauth2_provider", "django_mcp.apps.SimpleMCPConfig", "django_mcp.oauth"], []),
        (["django_mcp", "django_mcp.oauth", "oauth2_provider"], ["oauth2_provider"]),
        (["django_mcp", "django_mcp.oauth"], ["oauth2_provider"]),
        (["oauth2_provider", "django_mcp.oauth", "django_mcp"], ["django_mcp"]),
    ],
)
def test_missing_or_misplaced_apps_are_errors(names, wrong):
    with override_settings(INSTALLED_APPS=[*APPS, *names]):
        messages = checks.check_apps()
        assert [message.msg.split("'")[1] for message in messages] == wrong
        assert all(message.id == "django_mcp_oauth.E001" for message in messages)
        if names[-1] != "django_mcp.oauth" or len(names) == 2:
            assert set(check_ids()) <= {"E001"}  # and the others do not fail


# DJANGO_MCP["OAUTH"].


def test_unknown_option_is_an_error_with_a_suggestion():
    with options(REGISTRATON="open", FOO=1):
        messages = checks.check_options()
        assert [message.id for message in messages] == ["django_mcp_oauth.E002"] * 2
        assert messages[0].hint == "Did you mean 'REGISTRATION'?" and "STALE" in messages[1].hint


class Accounts(Upstream):
    def account(self, request):
        return None

    def is_account_valid(self, user, account):
        return True


class ShortMaxAge(Accounts):
    max_age = 9.0


class NegativeGrace(Accounts):
    grace = -1.0


class NoCheck(Upstream):
    def account(self, request):
        return None

    def stands(self, user, account):  # the name of earlier versions
        return True


BAD: dict[str, list[Any]] = {
    "REGISTRATION": ["closed", True, None, "OPEN", []],
    "REGISTRATION_RATE": ["20", "20/h", "0/1", "1/0", 20, None, "20/3600\n"],
    "UNUSED": [0, -1, "1", None, True],
    "REDIRECT_SCHEMES": [
        "cursor", ["javascript"], ["data"], ["file"], ["http"], ["https"], ["Cursor"], [""],
        ["cursor:"], [None], ["a b"], None, ["vbscript"], ["blob"],
    ],
    "DEFAULT_SERVER": ["nowhere", "", 1, ["default"]],
    "CLIENT_HOSTS": ["*", None, [1], [""], {}],
    "STALE": [-1, "7d", None],
    "REFRESH_GRACE": [-1, 601, "60", None, True],
    "MAY_AUTHORIZE": ["nowhere.at_all", "os.path", 1, "os.no_such_thing", ""],
    "UPSTREAM": ["nowhere.at_all", "os.path", 1, "", "os.path.join", f"{__name__}.ShortMaxAge",
                 f"{__name__}.NegativeGrace", f"{__name__}.NoCheck",
                 "django_mcp.oauth.upstream_accounts.Upstream"],
}  # fmt: skip
GOOD: dict[str, list[Any]] = {
    "REGISTRATION": ["open", "off"], "REGISTRATION_RATE": ["1/1"], "UNUSED": [1, 0.5 + 1],
    "REDIRECT_SCHEMES": [[], ("cursor",)], "DEFAULT_SERVER": [None, "default"],
    "CLIENT_HOSTS": [[], ["*"], [".example.com"]],
    "STALE": [0], "REFRESH_GRACE": [0, 600],
    "MAY_AUTHORIZE": [None, "os.path.join"],
    "UPSTREAM": [None, f"{__name__}.Accounts"],
}  # fmt: skip


def test_every_option_is_checked_and_every_default_is_valid():
    assert set(checks.OPTION_CHECKS) == set(DEFAULTS) == set(BAD) == set(GOOD)
    with options(**DEFAULTS):
        assert check_ids() == []


@pytest.mark.parametrize(("key", "value"), [(key, v) for key in BAD for v in BAD[key]])
def test_invalid_option_value_is_an_error(key, value):
    with options(**{key: value}):
        assert "E003" in check_ids()


@pytest.mark.parametrize(("key", "value"), [(key, v) for key in GOOD for v in GOOD[key]])
def test_valid_option_value_has_no_messages(key, value):
    with options(**{key: value}):
        assert check_ids() == []


@pytest.mark.parametrize("whole", [None, [], "x", {"OAUTH": []}, {"OAUTH": None}])
def test_malformed_settings_are_left_to_the_general_check(whole):
    with override_settings(DJANGO_MCP=whole):
        assert not {"E002", "E003"} & set(check_ids())


# The origin.


def test_http_origin_is_a_warning_unless_debug():
    with given(URL="http://shop.example"), provider(OIDC_ISS_ENDPOINT="http://shop.example"):
        assert check_ids() == ["W004"]
        with override_settings(DEBUG=True):
            assert check_ids() == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_http_origin_on_localhost_is_allowed(host):
    origin = f"http://{host}:8000"
    with given(URL=origin), provider(OIDC_ISS_ENDPOINT=origin):
        assert check_ids() == []


@pytest.mark.parametrize("named", [URL + "/", "http://shop.example", "", None, f"{URL}/o"])
def test_issuer_other_than_the_url_is_an_error(named):
    with provider(OIDC_ISS_ENDPOINT=named):
        assert check_ids() == ["E011"]


def test_trailing_slash_of_the_url_is_not_part_of_the_issuer():
    with given(URL=URL + "/"):
        assert check_ids() == []


def test_script_name_is_a_warning():
    with override_settings(FORCE_SCRIPT_NAME="/site"):
        assert check_ids() == ["W005"]


# OAUTH2_PROVIDER.


@pytest.mark.parametrize("whole", [{}, []])
def test_missing_oauth2_provider_setting_is_an_error(whole):
    with override_settings(OAUTH2_PROVIDER=whole):
        assert [message.id for message in checks.check_provider()] == ["django_mcp_oauth.E010"]


def test_insecure_defaults_of_django_oauth_toolkit_are_errors():
    """An unset option counts with its default."""
    with override_settings(OAUTH2_PROVIDER={"SCOPES": {"read": "Read"}}):
        named = {message.msg.split("'")[1] for message in checks.check_provider()}
    assert named >= {
        "OIDC_ISS_ENDPOINT", "REFRESH_TOKEN_REUSE_PROTECTION", "REFRESH_TOKEN_EXPIRE_SECONDS",
        "ALLOW_LOCALHOST_LOOPBACK", "ALLOWED_REDIRECT_URI_SCHEMES", "OAUTH2_VALIDATOR_CLASS",
        "SCOPES_BACKEND_CLASS", "COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT",
        "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT", "COMPLIANT_BCP_RFC9700_PKCE_METHOD",
        "COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT", "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS",
        "COMPLIANT_BCP_RFC9700_TOKEN_STORAGE",
    }  # fmt: skip


WEAK: dict[str, list[Any]] = {
    "PKCE_REQUIRED": [False, None, lambda client_id: False],
    "REQUEST_APPROVAL_PROMPT": ["auto", None],
    "ROTATE_REFRESH_TOKEN": [False],
    "REFRESH_TOKEN_REUSE_PROTECTION": [False],
    "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": [60, None],
    "ALLOW_LOCALHOST_LOOPBACK": [False],
    "ALLOW_URI_WILDCARDS": [True],
    "DCR_ENABLED": [True],
    "AUTHORIZATION_CODE_EXPIRE_SECONDS": [0, None, 601],
    "ACCESS_TOKEN_EXPIRE_SECONDS": [0, None, 10**9, timedelta(days=365)],
    "REFRESH_TOKEN_EXPIRE_SECONDS": [None, 0, timedelta(days=4000)],
    "ALLOWED_REDIRECT_URI_SCHEMES": [
        ["https"], ["https", "http"], ["https", "http", "cursor", "JavaScript"], None, "https",
    ],
    **{name: [False, None] for name in checks.PROVIDER_CHECKS if name.startswith("COMPLIANT")},
}  # fmt: skip


def test_every_checked_value_has_weak_examples():
    assert set(WEAK) == set(checks.PROVIDER_CHECKS) and len(WEAK) == 18


@pytest.mark.parametrize(("name", "value"), [(name, v) for name in WEAK for v in WEAK[name]])
def test_weak_toolkit_value_is_an_error(name, value):
    with provider(**{name: value}):
        assert check_ids() == ["E012"] and repr(name) in only_message(checks.check_provider)


def test_other_safe_toolkit_values_have_no_messages():
    with provider(
        ACCESS_TOKEN_EXPIRE_SECONDS=timedelta(minutes=5), REFRESH_TOKEN_EXPIRE_SECONDS=3600,
        ALLOWED_REDIRECT_URI_SCHEMES=("https", "http", "cursor", "myapp"), SCOPES={"a": "b"},
        OIDC_ENABLED=True, CIMD_MAX_DOCUMENT_SIZE=1,
    ):  # fmt: skip
        assert check_ids() == []


def test_registrable_redirect_schemes_must_be_allowed_by_the_toolkit():
    with options(REDIRECT_SCHEMES=["cursor", "zed"]):
        assert check_ids() == ["E012"]


class Narrower(MCPScopes):
    """A project's own."""


CLASSES: list[tuple[str, Any, bool]] = [
    ("SCOPES_BACKEND_CLASS", "tests.oauth.test_checks.Narrower", True),
    ("SCOPES_BACKEND_CLASS", Narrower, True),
    ("SCOPES_BACKEND_CLASS", SettingsScopes, False),
    ("SCOPES_BACKEND_CLASS", "oauth2_provider.scopes.SettingsScopes", False),
    ("SCOPES_BACKEND_CLASS", "nowhere.at_all", False),
    ("SCOPES_BACKEND_CLASS", None, False),
    ("SCOPES_BACKEND_CLASS", "os.path.join", False),
    ("OAUTH2_VALIDATOR_CLASS", "oauth2_provider.oauth2_validators.OAuth2Validator", False),
    ("CIMD_METADATA_FETCHER", "oauth2_provider.cimd.SafeMetadataFetcher", False),
    ("CIMD_REGISTRATION_PERMISSION_CLASSES", [], False),
    ("CIMD_REGISTRATION_PERMISSION_CLASSES", None, False),
    (
        "CIMD_REGISTRATION_PERMISSION_CLASSES",
        ["oauth2_provider.cimd.AllowAllCIMDPermission"],
        False,
    ),
    (
        "CIMD_REGISTRATION_PERMISSION_CLASSES",
        [
            "django_mcp.oauth.client_metadata_documents.CIMDPolicy",
            "oauth2_provider.cimd.AllowAllCIMDPermission",
        ],
        True,
    ),
]


@pytest.mark.parametrize(("name", "value", "fine"), CLASSES)
def test_toolkit_class_must_be_ours_or_a_subclass(name, value, fine):
    with provider(**{name: value}):
        assert check_ids() == ([] if fine else ["E013"])


def test_document_fetcher_is_not_checked_if_documents_are_disabled():
    with provider(CIMD_ENABLED=False, CIMD_METADATA_FETCHER="x", **{checks.POLICIES: []}):
        assert check_ids() == []


# VERIFIERS.


class OwnTokens(OAuthTokens):
    """A project's own."""


own_tokens = OwnTokens()


@pytest.mark.parametrize(
    ("paths", "fine"),
    [
        (["django_mcp.verifiers.PersonalAccessTokens"], False),
        ([], False),
        (["nowhere.at_all"], False),
        (["django_mcp.verifiers.PersonalAccessTokens", checks.VERIFIER], True),
        (["tests.oauth.test_checks.OwnTokens"], True),
        (["tests.oauth.test_checks.own_tokens"], True),
    ],
)
def test_missing_token_verifier_is_a_warning(paths, fine):
    with given(VERIFIERS=paths):
        assert check_ids() == ([] if fine else ["W020"])


# URLs.


def page(request, rest=""):
    return HttpResponse("a page")


OURS = include("django_mcp.oauth.urls")
FALLBACK = include("django_mcp.oauth.fallback_urls")
TOOLKIT = include("oauth2_provider.urls")


def urls(*patterns):
    return override_settings(ROOT_URLCONF=type("urls", (), {"urlpatterns": list(patterns)}))


@pytest.mark.parametrize(
    ("patterns", "what"),
    [
        ([], "is served by no view"),
        ([path("api/", OURS)], "is served by no view"),
        ([path("", OURS), path("", page)], None),
        ([path("<path:rest>", page, name="rest"), path("", OURS)], "is served by rest"),
        ([path("<path:rest>", page), path("", OURS)], "is served by tests.oauth.test_checks.page"),
        ([path("", TOOLKIT), path("", OURS)], "is served by oauth2_provider:oauth-server-metadata"),
        (i18n_patterns(path("", OURS)), "is served by no view"),
    ],
)  # fmt: skip
def test_include_must_be_reachable_at_the_root(patterns, what):
    with urls(*patterns):
        messages = [one for one in checks_of_urls.check_urls() if one.id.endswith("E030")]
        assert [what in one.msg for one in messages] == ([] if what is None else [True])


def test_catch_all_route_with_a_slash_before_the_include_is_an_error():
    """A client that requests a URL with a slash would get the page (compare APPEND_SLASH)."""
    with urls(path("<path:rest>/", page, name="rest"), path("", OURS)):
        assert check_ids() == ["E030"] and "server/ is served by rest" in only_message(
            checks_of_urls.check_urls
        )


class OwnLoginRequired(LoginRequiredMiddleware):
    """A project's own."""


LOGINS = ["django.contrib.auth.middleware.LoginRequiredMiddleware", f"{__name__}.OwnLoginRequired"]


@pytest.mark.parametrize("name", LOGINS)
def test_login_required_middleware_must_exempt_public_views(name, monkeypatch):
    with override_settings(MIDDLEWARE=[*settings.MIDDLEWARE, "nowhere.at_all", name]):
        assert check_ids() == []
        monkeypatch.setattr(
            "django_mcp.verifiers.protected_resource.protected_resource.login_required", True
        )
        assert check_ids() == ["E031"]
        assert "oauth-protected-resource" in only_message(checks_of_urls.check_urls)


class OtherAuthorizationView(AuthorizationView):
    """Another authorization endpoint."""


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        (path("o/", TOOLKIT), "AuthorizationView at /o/authorize/"),
        (path("o/ask", OtherAuthorizationView.as_view()), "AuthorizationView at /o/ask"),
        (
            path(
                "a/", include([path("b/", include([path("c", OtherAuthorizationView.as_view())]))])
            ),
            "/a/b/c",
        ),
    ],
)
def test_second_authorization_view_is_a_warning(pattern, named):
    with urls(path("", OURS), path("page", page), pattern):
        beside = [one for one in checks_of_urls.check_urls() if one.id.endswith("W032")]
        assert len(beside) == 1 and named in beside[0].msg


def test_pages_where_users_register_clients_are_a_warning():
    with urls(path("", OURS), path("o/", include("oauth2_provider.urls"))):
        (message,) = (one for one in checks_of_urls.check_urls() if one.id.endswith("W034"))
        assert "/o/applications/register/, /o/applications/<slug:pk>/update/" in message.msg


class GuardedRegistration(PermissionRequiredMixin, ApplicationRegistration):
    permission_required = "oauth2_provider.add_application"


class UnguardedRegistration(ApplicationRegistration):
    pass


@pytest.mark.parametrize(
    ("view", "ids"), [(GuardedRegistration, []), (UnguardedRegistration, ["W034"])]
)
def test_registration_page_that_needs_a_permission_is_allowed(view, ids):
    with urls(path("", OURS), path("new", view.as_view())):
        assert check_ids() == ids


def test_other_views_of_the_toolkit_are_allowed():
    from oauth2_provider.views import ApplicationList, TokenView

    with urls(
        path("", OURS), path("o/token/", TokenView.as_view()), path("a", ApplicationList.as_view())
    ):
        assert check_ids() == []


@pytest.mark.parametrize(
    ("pattern", "where"),
    [
        (path("register/", page, name="sign-up"), "test_checks.page are both at /register."),
        (path("token", page, name="coin"), "page are both at /token."),
        (path("", include([path("authorize/", page, name="a")])), "page are both at /authorize."),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_page_at_the_path_of_an_endpoint_is_an_error(pattern, where, is_first):
    patterns = [pattern, path("", OURS), path("", FALLBACK)]
    with urls(*patterns if is_first else reversed(patterns)):
        assert check_ids() == ["E033"] and where in only_message(checks_of_urls.check_urls)


@pytest.mark.parametrize(
    ("pattern", "where"),
    [
        (re_path("^oauth/connections/?$", page), "page are both at /oauth/connections."),
        (path(".well-known/openid-configuration", page), "page are both at /.well-known/openid-"),
    ],
)
def test_project_can_override_a_page_by_an_earlier_route(pattern, where):
    with urls(pattern, path("", OURS)):
        assert check_ids() == []
    with urls(path("", OURS), pattern):
        assert check_ids() == ["E033"] and where in only_message(checks_of_urls.check_urls)


@pytest.mark.parametrize(
    "pattern",
    [
        path("<slug:name>/", page, name="profile"),
        re_path(r"^((?:[\w\-]+/)*)$", page, name="wagtail_serve"),
        path("<path:rest>", page, name="flatpage"),
        path("register/confirm/", page, name="confirm"),
        path("o/register/", page, name="other"),
    ],
)
def test_route_with_parameters_does_not_collide(pattern):
    with urls(path("", OURS), path("", FALLBACK), pattern):
        assert check_ids() == []


@pytest.mark.parametrize("name", ["register", "token", "authorize"])
def test_pages_next_to_the_include_do_not_collide(name):
    with urls(path("", OURS), path(f"{name}/", page, name=name)):
        assert check_ids() == [] and resolve(f"/{name}/").url_name == name


def test_project_without_urls_has_no_messages():
    with override_settings(ROOT_URLCONF=None):
        assert check_ids() == []


def test_messages_contain_no_secret():
    with provider(OIDC_RSA_PRIVATE_KEY="-----BEGIN", PKCE_REQUIRED=False, DCR_ENABLED=True):
        messages = [str(message) for check in ALL for message in check()]
        assert len(messages) == 2 and "BEGIN" not in json.dumps(messages)
