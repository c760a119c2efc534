"""
The authorization endpoint and its consent page (RFC 6749, 4.1.1).

A user consents to each request on a page that shows the client, the scopes and the redirect target.
Earlier consents are never reused. The only exception is a client that the project itself registered
with ``skip_authorization``, if no other program can receive the code. The browser is redirected to
the site of an unverified client only after the user has submitted the form. Every response to a
client contains ``iss`` (RFC 9207).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial, wraps
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.contrib.auth import REDIRECT_FIELD_NAME, logout
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import DisallowedRedirect
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import render, resolve_url
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.encoding import escape_uri_path
from django.views.decorators.csrf import csrf_protect
from oauth2_provider.exceptions import FatalClientError, OAuthToolkitError
from oauth2_provider.models import get_application_model
from oauth2_provider.views import AuthorizationView
from oauthlib.oauth2.rfc6749 import errors

from .authorization_request import (
    OUR_VIEW,
    SITE,
    AuthorizationRequest,
    QueryOnlyCore,
    destination,
    prompt,
    question,
    validate_request,
    with_issuer,
)
from .client_registry import ensure_profile, is_registered_by_staff
from .conf import issuer
from .models import ClientProfile, Consent
from .scope_grants import held, may_authorize
from .upstream_accounts import bind

# No form-action: browsers apply it to the redirect after the form too, which leads to the client's
# site. Not "no-referrer": the form's Origin would be "null", which Django's CSRF check rejects.
HEADERS = {
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": (
        "frame-ancestors 'none'; base-uri 'none'; object-src 'none'; script-src 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
}


def guarded(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Add ``HEADERS`` to every response of a view, independently of the middleware."""

    @wraps(view)
    def answer(*args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(*args, **kwargs)
        for name, value in HEADERS.items():
            response[name] = value
        return response

    return answer


class ConsentForm(forms.Form):
    """The consent form. ``shown`` are the scopes that the page displayed, separated by spaces.

    ``server`` is the URL of the server that the user chose, if the request names none and there are
    several. The request itself is in the URL, not in the form.
    """

    allow = forms.BooleanField(required=False)
    shown = forms.CharField(required=False)
    server = forms.CharField(required=False)


@method_decorator([login_not_required, guarded, csrf_protect], name="dispatch")
class MCPAuthorizationView(AuthorizationView):  # type: ignore[misc]
    """Ask the signed-in user for consent, and redirect the browser to the client with the result.

    It uses the login redirect and the issuing of codes of django-oauth-toolkit's view. It does not
    use what would skip the consent page: ``approval_prompt``, and tokens that are still valid.
    """

    template_name = "django_mcp_oauth/authorize.html"
    error_template_name = "django_mcp_oauth/error.html"
    form_class = ConsentForm
    http_method_names = ["get", "post"]  # no HEAD: it would run ``get``, which may issue a code

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        request.META[OUR_VIEW] = True

    @classmethod
    def get_oauthlib_core(cls) -> Any:
        """Return a new core: django-oauth-toolkit caches one for all its views."""
        return QueryOnlyCore(cls.get_server())

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response: HttpResponse = super().dispatch(request, *args, **kwargs)
        except OAuthToolkitError as error:
            response = self.error_response(error, None)
        return response

    # The request, and the consent page.

    def asked(self, shown: Collection[str] | None = None, server: str = "") -> AuthorizationRequest:
        """Return the validated request. Raise ``OAuthToolkitError``, which ``dispatch`` handles.

        Scopes that the client already holds are added. With ``shown``, only those that the page
        displayed are, because the client may have got others since then.
        """
        validated = partial(self.validate_authorization_request, self.request)
        found = validate_request(self.request.GET, validated).for_server(server)
        user = self.request.user
        if not user.is_authenticated:
            return found
        has = held(user, found.application, found.servers)
        return found.holding(tuple(one for one in has if shown is None or one in shown))

    def handle_no_permission(self) -> HttpResponse:
        if "none" in prompt(self.request.GET):
            raise self.asked().refused("login_required")
        return self.to_login()

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        found = self.asked()
        if self.is_trusted(found):
            return self.granted(found)
        return self.turned_away(found) or self.shown(found)

    def is_trusted(self, found: AuthorizationRequest) -> bool:
        """Whether a code is issued without the consent page, by ``skip_authorization``.

        That needs a client that the site's staff registered, and a redirect to a web site: any
        program on the device could receive a redirect to an app or to localhost (RFC 8252, 8.6).
        """
        application, servers = found.application, list(found.servers.values())
        is_own = found.destination.kind == SITE and is_registered_by_staff(application)
        if found.choices:  # the user has to choose a server
            return False
        wishes = found.prompt <= {"none"} and application.skip_authorization
        return bool(is_own and wishes and may_authorize(self.request.user, servers))

    def turned_away(self, found: AuthorizationRequest) -> HttpResponse | None:
        """Return the login redirect for ``prompt=login``, or None to show the consent page.

        Raise ``OAuthToolkitError`` for ``prompt=none`` (OpenID Connect Core, 3.1.2.1).
        """
        if "none" in found.prompt:
            may = may_authorize(self.request.user, list(found.servers.values()))
            raise found.refused("consent_required" if may else "interaction_required")
        return self.to_login() if "login" in found.prompt else None

    def shown(self, found: AuthorizationRequest) -> HttpResponse:
        told = question(found, self.request.user)
        response: HttpResponse = self.render_to_response(
            self.get_context_data(question=told, site=site()), status=200 if told.may_allow else 403
        )
        return response

    def to_login(self) -> HttpResponse:
        """Redirect to the project's login, and back here without ``prompt=login``."""
        query = self.request.GET.copy()
        query.pop("prompt", None)
        if left := sorted(prompt(self.request.GET) - {"login"}):
            query["prompt"] = " ".join(left)
        back = f"{escape_uri_path(self.request.path)}?{query.urlencode()}"
        return sent_to_login(back, self.get_login_url(), self.get_redirect_field_name())

    # The user's decision, and the response.

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if "switch" in request.POST:
            logout(request)
            return self.to_login()
        answered: HttpResponse = super().post(request, *args, **kwargs)
        return answered

    def form_valid(self, form: ConsentForm) -> HttpResponse:
        found = self.asked(form.cleaned_data["shown"].split(), form.cleaned_data["server"])
        if away := self.turned_away(found):
            return away
        may = may_authorize(self.request.user, list(found.servers.values()))
        if not (may and form.cleaned_data["allow"]):
            raise found.refused("access_denied")
        return self.shown(found) if found.choices else self.granted(found)

    def granted(self, found: AuthorizationRequest) -> HttpResponse:
        """Issue a code and store the consent, in one transaction, and redirect to the client."""
        with transaction.atomic(using=router.db_for_write(Consent)):
            _write_down(found, self.request.user)
            uri, *_ = self.create_authorization_response(
                self.request, " ".join(found.scopes), dict(found.credentials), allow=True
            )
            code = QueryDict(urlsplit(uri).query).get("code")
            if code:
                bind(code, self.request)
            else:
                transaction.set_rollback(True, using=router.db_for_write(Consent))
        return self.redirect(uri, found.application)

    def redirect(self, redirect_to: str, application: Any) -> HttpResponse:
        """Redirect to the client, with ``iss``. Every response to a client, also errors, uses it.

        If the URI is not allowed, show an error page.
        """
        if destination(redirect_to) is None:
            return self.error_page(errors.InvalidRedirectURIError())
        try:
            response: HttpResponse = super().redirect(with_issuer(redirect_to), application)
        except DisallowedRedirect:
            return self.error_page(errors.InvalidRedirectURIError())
        return response

    def error_response(
        self, error: OAuthToolkitError, application: Any, **kwargs: Any
    ) -> HttpResponse:
        wrong = error.oauthlib_error
        if isinstance(error, FatalClientError) or not wrong.redirect_uri:
            return self.error_page(wrong)
        separator = "&" if "?" in wrong.redirect_uri else "?"
        uri = f"{wrong.redirect_uri}{separator}{wrong.urlencoded}"
        if self.is_strangers(uri):
            return self.error_page(wrong, with_issuer(uri))
        return self.redirect(uri, application)

    def is_strangers(self, uri: str) -> bool:
        """Whether a redirect without user interaction would lead to an unverified client's site.

        Otherwise a link to this site could be used for phishing: it would redirect to any site at
        once (RFC 9700, 4.11.2).
        """
        to = destination(uri)
        if self.request.method == "POST" or to is None or to.kind != SITE:
            return False
        applications = get_application_model().objects.select_related("user")
        named = applications.filter(client_id=self.request.GET["client_id"]).first()
        return named is None or not is_registered_by_staff(named)

    def error_page(self, wrong: errors.OAuth2Error, back: str = "") -> HttpResponse:
        """Render the error page. It names the site of ``back``, if given, and links to it."""
        to = destination(back) if back else None
        context = {"error": wrong, "site": site(), "back": back, "to": to}
        return render(self.request, self.error_template_name, context, status=wrong.status_code)


def sent_to_login(back: str, to: Any, field: str = REDIRECT_FIELD_NAME) -> HttpResponse:
    """Redirect to the login page ``to``, which redirects ``back`` to a path of this site.

    If the login is on another host, ``back`` becomes an absolute URL.
    """
    login = resolve_url(to)
    if urlsplit(login).netloc not in ("", urlsplit(issuer()).netloc):
        back = issuer() + back
    return redirect_to_login(back, login, field)


def site() -> str:
    """Return this site's host and port, as the browser's address bar shows them."""
    return urlsplit(issuer()).netloc


def _write_down(found: AuthorizationRequest, user: Any) -> None:
    """Store a consent for each server. It is a record, and never replaces asking the user."""
    ensure_profile(found.application)
    profiles = ClientProfile.objects.filter(client_id=found.application.client_id)
    profiles.update(last_authorized=timezone.now())
    digest = profiles.values_list("digest", flat=True).first() or ""
    Consent.objects.bulk_create(
        Consent(
            user=user, client_id=found.application.client_id, resource=resource, digest=digest,
            scopes=list(found.scopes), redirect_host=found.destination.name[:255],
        )
        for resource in found.servers
    )  # fmt: skip
