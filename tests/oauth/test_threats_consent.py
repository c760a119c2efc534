"""Attacks on the user at the consent page, and on the meaning of the consent."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlencode

import pytest
from django.contrib.auth.views import LoginView
from django.test import Client as Browser
from django.test import override_settings
from django.urls import include, path
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_grant_model
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauth2_provider.views import AuthorizationView

from django_mcp.declarations.server import Server
from django_mcp.oauth import dot_settings
from django_mcp.oauth.authorization_request import OUR_VIEW
from django_mcp.oauth.models import Consent

from .conftest import CHALLENGE, REDIRECT, URL
from .consent import (
    ALLOW,
    AUTHORIZE,
    CANCEL,
    FRESH,
    RESOURCE,
    SITE,
    forget_cores,
    fresh_cores,  # noqa: F401
    query,
    registered,
    told,
    url,
)

Grant = get_grant_model()
# This module as a project's URLs, with django-oauth-toolkit's own view beside ours.
urlpatterns = [
    path("", include("django_mcp.oauth.urls")),
    path("second/authorize", AuthorizationView.as_view()),
    path("accounts/login/", LoginView.as_view()),
]


@pytest.fixture
def signed_in(web, alice):
    web.force_login(alice)
    return web


@pytest.fixture
def books():
    made = Server("books", path="books")
    made.tool(lambda: 1)
    return made


def is_consent_page(response):
    return response.status_code == 200 and b">Allow<" in response.content


# T1: open redirect.

UNREGISTERED_REDIRECT_URIS = (
    "https://evil.example/callback", "http://127.0.0.1:7777/callback/../evil",
    "http://evil@127.0.0.1:7777/callback", "http://127.0.0.1:7777/callback#a",
    "http://127.0.0.1:7777/callback?a=1", "http://127.0.0.1:7777/callback;a=1",
    "http://127.0.0.1:7777\\.evil.example/callback", "http://127.0.0.1:port/callback",
    "http://127.0.0.1:7777/call\tback", "//evil.example", "javascript:alert(1)",
)  # fmt: skip


@pytest.mark.parametrize("uri", UNREGISTERED_REDIRECT_URIS)
@pytest.mark.parametrize("over", [{}, {"prompt": "none"}, {"scope": "unheard"}])
def test_unregistered_redirect_uri_is_never_redirected_to(web, alice, public_client, uri, over):
    """T1: with and without a user signed in."""
    address = url(public_client, redirect_uri=uri, **over)
    silent = web.get(address)
    if "prompt" in over:
        assert silent.status_code == 400 and "Location" not in silent
    else:
        assert silent["Location"].startswith("/accounts/login/")
    web.force_login(alice)
    for response in (web.get(address), web.post(address, CANCEL)):
        assert response.status_code == 400 and "Location" not in response
        assert uri.encode() not in response.content


@pytest.mark.parametrize("client_id", ["unheard", "", "https://evil.example/client.json"])
def test_unknown_client_id_never_redirects(signed_in, public_client, client_id):
    """T1: an unknown client id, with a redirect URI of the attacker."""
    response = signed_in.get(url(public_client, client_id=client_id, redirect_uri=SITE))
    assert response.status_code == 400 and "Location" not in response


def test_login_returns_only_to_the_authorization_endpoint(web, public_client):
    """T1: a path or a host of the attacker in the URL that the login returns to."""
    for host in ({}, {"headers": {"X-Forwarded-Host": "evil.example"}}):
        response = web.get(f"{url(public_client)}&next=//evil.example", **host)
        assert response["Location"].startswith("/accounts/login/?next=/oauth/authorize%3F")


# Each has one error, which the attacker who makes the link chose.
WRONG = [
    {"prompt": "none"}, {"scope": "unheard"}, {"resource": "https://evil.example"},
    {"code_challenge": None}, {"response_type": "token"}, {"response_mode": "fragment"},
]  # fmt: skip


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("over", WRONG)
@pytest.mark.parametrize("source", ["dcr", "cimd"])
def test_error_does_not_redirect_to_the_site_of_a_self_registered_client(
    web, alice, source, over, known
):
    """T1: a link to this server that leads on to the attacker's site."""
    address = url(registered(source), redirect_uri=SITE, **over)
    if known:
        web.force_login(alice)
    response = web.get(address)
    if known or "prompt" in over:
        assert response.status_code == 400 and "Location" not in response
        words = response.content.decode()
        assert "agent.example" in words and f'href="{SITE}?error=' in words
    else:
        assert response["Location"].startswith("/accounts/login/")


@pytest.mark.parametrize(
    ("source", "redirect_uri"), [("manual", SITE), ("dcr", REDIRECT), ("cimd", REDIRECT)]
)
def test_error_redirects_to_loopback_and_to_manual_clients(signed_in, source, redirect_uri):
    """T1: no page of an attacker is shown, and the client gets the error at once."""
    address = url(registered(source), redirect_uri=redirect_uri, prompt="none")
    assert told(signed_in.get(address))["error"] == "consent_required"


def test_cancelling_redirects_to_the_shown_destination(signed_in):
    """T1: the user presses a button and goes where the page said."""
    address = url(registered(), redirect_uri=SITE)
    assert told(signed_in.post(address, CANCEL))["error"] == "access_denied"


# T2: PKCE.


@pytest.mark.parametrize(
    "over",
    [
        {"code_challenge": None, "code_challenge_method": None},
        {"code_challenge": None},
        {"code_challenge": ""},
        {"code_challenge_method": "plain"},
        {"code_challenge_method": None},
        {"code_challenge_method": "s256"},
        {"code_challenge": CHALLENGE[:-1]},
        {"code_challenge": CHALLENGE + "="},
        {"code_challenge": "x" * 300},
        {"code_challenge_method": ["S256", "plain"]},
    ],
)
@pytest.mark.parametrize("required", [True, False])
def test_request_without_an_s256_challenge_is_invalid(signed_in, public_client, over, required):
    """T2: no challenge, a plain one, or an impossible one, whatever the settings say."""
    with override_settings(OAUTH2_PROVIDER=dot_settings(URL, **FRESH, PKCE_REQUIRED=required)):
        for response in (
            signed_in.get(url(public_client, **over)),
            signed_in.post(url(public_client, **over), ALLOW),
        ):
            answer = told(response)
            assert answer["error"] == "invalid_request" and answer["iss"] == URL
    assert not Grant.objects.exists()


# T4: authorization servers mixed up.


@pytest.mark.parametrize(
    ("over", "answer", "error"),
    [
        ({}, ALLOW, None),
        ({}, CANCEL, "access_denied"),
        ({"scope": "unheard"}, None, "invalid_scope"),
        ({"resource": "https://evil.example"}, None, "invalid_target"),
        ({"code_challenge": None}, None, "invalid_request"),
        ({"response_type": "token"}, None, "unauthorized_client"),
        ({"prompt": "none"}, None, "consent_required"),
    ],
)
@pytest.mark.parametrize("gate", [True, False])
def test_every_redirect_contains_the_issuer(signed_in, public_client, over, answer, error, gate):
    """T4: the issuer from the settings, on success and on every error, whatever the host."""
    dot = dot_settings(URL, **FRESH, COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS=gate)
    with override_settings(OAUTH2_PROVIDER=dot, ALLOWED_HOSTS=["*"]):
        address, host = url(public_client, **over), {"SERVER_NAME": "evil.example"}
        response = signed_in.post(address, answer, **host) if answer else signed_in.get(address)
    found = told(response)
    assert found["iss"] == URL and found.get("error") == error and found["state"] == "xyz"


def test_login_required_redirect_contains_the_issuer(web, public_client):
    """T4: the issuer on login_required."""
    assert told(web.get(url(public_client, prompt="none"))) == {
        "error": "login_required", "state": "xyz", "iss": URL
    }  # fmt: skip


def test_iss_in_a_redirect_uri_is_replaced(signed_in):
    """T4: an iss in the registered redirect URI, plain or encoded."""
    callback = "https://agent.example/callback?iss=https://evil.example&i%73s=x"
    made = registered(redirect_uris=callback)
    for answer in (ALLOW, CANCEL):
        assert told(signed_in.post(url(made, redirect_uri=callback), answer))["iss"] == URL


# T12: deceptive names of clients.


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "{{ question.user.password }}{% csrf_token %}",
        "\u202eelgooG\u202c",
        "\u2066Google\u2069\u200f",
        "Google\nverified\r\nby shop.example",
        "Google" + "\u00a0" * 90 + "is trusted",
        "x" * 255,
        "\u0000Google".replace("\x00", "\u0001"),
    ],
)
def test_client_name_cannot_inject_html_or_text(signed_in, name):
    """T12: HTML, template code, direction marks, line breaks, control characters and length."""
    html = signed_in.get(url(registered(name=name))).content.decode()
    assert "<script" not in html and "<img" not in html and "onerror=alert(1)>" not in html
    for character in "\u202e\u202c\u2066\u2069\u200f\u0001\u00a0":
        assert character not in html
    assert "x" * 61 not in html
    assert "\nverified" not in html.replace("\nverified</span>", "") and "unverified" in html


def test_self_registered_client_with_a_famous_name_is_unverified(signed_in):
    """T12: a client that registered itself with a well-known name."""
    html = signed_in.get(url(registered(name="Google"), redirect_uri=SITE)).content.decode()
    title = html.partition("<h1>")[2].partition("</h1>")[0]
    assert "Google" not in title and ">unverified<" in html and ">verified<" not in html


def test_homograph_host_is_shown_in_punycode(signed_in):
    """T12: in the URL of a document and in a redirect URI."""
    evil = "https://gооgle.example/callback"  # with Cyrillic letters
    html = signed_in.get(url(registered("cimd", client_id=evil))).content.decode()
    assert "xn--ggle-55da.example" in html and "gооgle.example" not in html
    answered = signed_in.get(url(registered(redirect_uris=evil), redirect_uri=evil))
    assert "gооgle" not in answered.content.decode()


def test_whole_host_of_a_client_id_is_shown(signed_in):
    """T12: the URL of a document that begins like that of another client."""
    made = registered("cimd", client_id="https://claude.ai.evil.example/claude.ai")
    html = signed_in.get(url(made, redirect_uri=SITE)).content.decode()
    assert "<strong>claude.ai.evil.example</strong>" in html


# T16: more than the page showed.


@pytest.mark.parametrize(
    "more",
    [
        {"scope": "mcp mcp:admin"},
        {"resource": f"{URL}/books"},
        {"redirect_uri": SITE},
        {"client_id": "another"},
        {"state": "of another"},
        {"code_challenge": "x" * 43},
        {"code_challenge_method": "plain"},
        {"response_type": "token"},
        {"nonce": "n" * 300},
    ],
    ids=lambda more: next(iter(more)),
)
def test_posted_form_cannot_change_the_request(signed_in, alice, books, more):
    """T16: hidden fields of the consent form, changed or added."""
    made = registered()
    with override_settings(DJANGO_MCP={"URL": URL, "SCOPES": {"mcp": "Look", "mcp:admin": "Rule"}}):
        answer = told(signed_in.post(url(made), {**query(made), **more, **ALLOW}))
    assert answer["state"] == "xyz"
    grant, consent = Grant.objects.get(), Consent.objects.get()
    assert (grant.scope, grant.resource, grant.redirect_uri) == ("mcp", [RESOURCE], REDIRECT)
    assert (grant.application, grant.code_challenge) == (made, CHALLENGE)
    assert (consent.scopes, consent.resource) == (["mcp"], RESOURCE)


def test_request_parameters_in_the_form_are_ignored(signed_in):
    """T16: everything in the form, nothing in the URL."""
    response = signed_in.post(AUTHORIZE, {**query(registered()), **ALLOW})
    assert response.status_code == 400 and not Grant.objects.exists()


# T17: consent without a question.


@pytest.fixture
def authorized_client(signed_in, alice):
    """A client that was authorized, and has a valid token."""
    made = registered()
    signed_in.post(url(made), ALLOW)
    get_access_token_model().objects.create(
        user=alice, application=made, token="valid", scope="mcp", resource=[RESOURCE],
        expires=timezone.now() + timedelta(hours=1),
    )  # fmt: skip
    return made


@pytest.mark.parametrize(
    "over",
    [
        {},
        {"approval_prompt": "auto"},
        {"approval_prompt": ""},
        {"approval_prompt": "auto", "redirect_uri": "http://127.0.0.1:6666/callback"},
        {"approval_prompt": "auto", "redirect_uri": SITE},
        {"approval_prompt": "auto", "resource": f"{URL}/books"},
        {"prompt": "consent"},
    ],
)
@pytest.mark.parametrize("setting", ["force", "auto"])
def test_consent_is_asked_each_time(signed_in, authorized_client, books, over, setting):
    """T17: despite an earlier consent, for the same or another port, site or server."""
    dot = dot_settings(URL, **FRESH, REQUEST_APPROVAL_PROMPT=setting)
    with override_settings(OAUTH2_PROVIDER=dot):
        assert is_consent_page(signed_in.get(url(authorized_client, **over)))
    assert Grant.objects.count() == 1


@pytest.mark.parametrize("setting", ["force", "auto"])
def test_prompt_none_never_gives_a_code_after_an_earlier_consent(
    signed_in, authorized_client, setting
):
    """T17: by GET or POST."""
    asked = url(authorized_client, prompt="none", approval_prompt="auto")
    with override_settings(
        OAUTH2_PROVIDER=dot_settings(URL, **FRESH, REQUEST_APPROVAL_PROMPT=setting)
    ):
        for response in (signed_in.get(asked), signed_in.post(asked, ALLOW)):
            assert told(response) == {"error": "consent_required", "state": "xyz", "iss": URL}
    assert Grant.objects.count() == 1


@pytest.mark.parametrize("source", ["dcr", "cimd", "", "unheard"])
def test_self_registered_client_cannot_skip_the_consent(signed_in, source):
    """T17: skip_authorization on a client that the project did not register."""
    made = registered(source, skip_authorization=True)
    for over in ({}, {"redirect_uri": SITE}, {"approval_prompt": "auto"}):
        assert is_consent_page(signed_in.get(url(made, **over)))
    assert not Grant.objects.exists()


class ValidatorOfOurView(OAuth2Validator):
    """Accepts only requests of our view."""

    def validate_client_id(self, client_id, request, *args, **kwargs):
        found = super().validate_client_id(client_id, request, *args, **kwargs)
        return found and request.headers.get(OUR_VIEW) is True


FORGED = {"mcp.oauth.view": "1", "HTTP_MCP_OAUTH_VIEW": "1", "HTTP_MCP.OAUTH.VIEW": "True"}


def test_second_authorization_view_is_told_apart_from_ours(signed_in):
    """T17: the view of django-oauth-toolkit next to ours, and headers that claim to be ours."""
    made = registered()
    dot = dot_settings(URL, **FRESH | {"OAUTH2_VALIDATOR_CLASS": f"{__name__}.ValidatorOfOurView"})
    with override_settings(OAUTH2_PROVIDER=dot, ROOT_URLCONF=__name__):
        headers = {name: value for name, value in FORGED.items() if name.startswith("HTTP_")}
        second = f"/second/authorize?{urlencode(query(made))}"
        assert signed_in.get(second, **headers).status_code == 400
        assert is_consent_page(signed_in.get(url(made)))
        assert told(signed_in.post(url(made), ALLOW))["code"]


@pytest.mark.parametrize("source", ["dcr", "cimd"])
def test_second_authorization_view_gives_no_code_to_self_registered_clients(signed_in, source):
    """T17: its page shows neither the source of the client nor the destination."""
    made = registered(source)
    with override_settings(ROOT_URLCONF=__name__):
        second = f"/second/authorize?{urlencode(query(made))}"
        form = {**query(made), "allow": "Authorize"}
        for response in (signed_in.get(second), signed_in.post(second, form)):
            assert response.status_code == 400 and "Location" not in response
    assert not Grant.objects.exists()


def test_our_view_does_not_share_the_core_of_a_second_view(signed_in):
    """T17: django-oauth-toolkit caches its core on the class; posted forms would count in ours."""
    made = registered("manual")
    forget_cores()
    dot = dot_settings(URL, **FRESH | {"ALWAYS_RELOAD_OAUTHLIB_CORE": False})
    with override_settings(OAUTH2_PROVIDER=dot, ROOT_URLCONF=__name__):
        assert signed_in.get(f"/second/authorize?{urlencode(query(made))}").status_code == 302
        signed_in.post(url(made), {**query(made), "redirect_uri": SITE, **ALLOW})
    assert Grant.objects.get().redirect_uri == REDIRECT


# T18: forged requests.


class SecureBrowser(Browser):
    def generic(self, *args, **options):
        return super().generic(*args, **options | {"secure": True})


def csrf_checking_browser(user):
    """Return a browser whose forms need a CSRF token."""
    browser = SecureBrowser(enforce_csrf_checks=True, SERVER_NAME="shop.example")
    browser.force_login(user)
    return browser


def form_token(browser, asked):
    page = browser.get(asked).content.decode()
    return page.partition('csrfmiddlewaretoken" value="')[2].partition('"')[0]


@pytest.mark.parametrize("middleware", [[], ["django.middleware.csrf.CsrfViewMiddleware"]])
@pytest.mark.parametrize("answer", [ALLOW, {"switch": "true"}])
def test_consent_needs_a_csrf_token(alice, settings, middleware, answer):
    """T18: a form of another site, with and without the middleware."""
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, *middleware]
    made = registered()
    browser = csrf_checking_browser(alice)
    response = browser.post(url(made), answer, headers={"Origin": "https://evil.example"})
    assert response.status_code == 403 and b"<form" not in response.content
    assert not Grant.objects.exists() and browser.session["_auth_user_id"] == str(alice.pk)


def test_form_of_the_page_is_accepted(alice):
    """T18: the form of the page, as a browser sends it."""
    made = registered()
    browser = csrf_checking_browser(alice)
    body = {**ALLOW, "csrfmiddlewaretoken": form_token(browser, url(made))}
    assert told(browser.post(url(made), body, headers={"Origin": URL}))["code"]


def test_page_shown_to_one_user_cannot_be_answered_as_another(alice, django_user_model):
    """T18: somebody else signed in, in another tab, since the page was shown."""
    django_user_model.objects.create_user("bob", password="secret")
    made, browser = registered(), csrf_checking_browser(alice)
    token = form_token(browser, url(made))
    body = {"username": "bob", "password": "secret", "csrfmiddlewaretoken": token}
    with override_settings(ROOT_URLCONF=__name__):
        assert browser.post("/accounts/login/", body, headers={"Origin": URL}).status_code == 302
    stale = {**ALLOW, "csrfmiddlewaretoken": token}
    assert browser.post(url(made), stale, headers={"Origin": URL}).status_code == 403
    fresh = {**ALLOW, "csrfmiddlewaretoken": form_token(browser, url(made))}
    assert told(browser.post(url(made), fresh, headers={"Origin": URL}))["code"]
    assert Grant.objects.get().user.username == "bob"


# T19: clickjacking, and what stays in the browser.


def test_responses_forbid_frames_and_caching(web, alice, public_client):
    """T19: every response, without any middleware of Django."""
    asked = url(public_client)
    login = web.get(asked)
    web.force_login(alice)
    answers = {
        302: [login, web.get(url(public_client, prompt="none")), web.post(asked, ALLOW)],
        200: [web.get(asked)],
        400: [web.get(AUTHORIZE)],
        405: [web.put(asked)],
    }
    for status, responses in answers.items():
        for response in responses:
            assert response.status_code == status
            policy = response["Content-Security-Policy"]
            assert response["X-Frame-Options"] == "DENY" and response["Cache-Control"] == "no-store"
            assert "frame-ancestors 'none'" in policy and "form-action" not in policy
            assert response["Referrer-Policy"] == "same-origin"


# T21: other origins.


def test_consent_page_has_no_cors_headers(signed_in, public_client):
    """T21: neither the consent page nor its preflight."""
    for method in ("get", "post", "options"):
        response = getattr(signed_in, method)(
            url(public_client), headers={"Origin": "https://evil.example"}
        )
        assert not [name for name in response.headers if name.startswith("Access-Control")]


# T25: logs.


def test_log_contains_no_code_state_or_challenge(signed_in, public_client, caplog):
    """T25: at INFO, for success and for a refusal."""
    caplog.set_level("INFO")
    state = "state-that-proves-who-asked"
    answer = told(signed_in.post(url(public_client, state=state), ALLOW))
    refused = told(signed_in.post(url(public_client, state=state), CANCEL))
    assert answer["state"] == refused["state"] == state
    assert not any(one in caplog.text for one in (answer["code"], state, CHALLENGE))


# T27: header injection.


@pytest.mark.parametrize("state", ['a"b', "a&code=b", "a#b", "a b+c", "ä", "%0d%0aX: y", "a;b"])
def test_state_is_returned_unchanged(signed_in, public_client, state):
    """T27: quotes, separators and line ends in what is repeated in a header."""
    for answer in (ALLOW, CANCEL):
        response = signed_in.post(url(public_client, state=state), answer)
        assert told(response)["state"] == state and response["Location"].isascii()


@pytest.mark.parametrize("name", ["scope", "state", "resource", "prompt", "nonce", "x"])
def test_parameter_with_a_line_end_is_rejected(signed_in, public_client, name):
    """T27: line ends in parameters."""
    response = signed_in.get(url(public_client, **{name: "a\r\nSet-Cookie: a=b"}))
    assert response.status_code == 400 and "Location" not in response


def test_description_of_a_scope_is_escaped(signed_in, public_client):
    """T27: markup in the description of a scope."""
    words = {"mcp": '<b>"Everything"</b>\r\n'}
    with override_settings(DJANGO_MCP={"URL": URL, "SCOPES": words}):
        html = signed_in.get(url(public_client)).content.decode()
    assert "&lt;b&gt;&quot;Everything&quot;" in html and "<b>" not in html
