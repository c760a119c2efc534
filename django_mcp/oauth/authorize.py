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

from ..storage.databases import retry_collisions
from .authorization_request import (
    OUR_VIEW,
    SITE,
    AuthorizationRequest,
    QueryOnlyCore,
    consent_question,
    destination,
    prompt,
    validate_request,
    with_issuer,
)
from .client_registry import ensure_profile, is_registered_by_staff
from .conf import issuer
from .models import ClientProfile, Consent
from .scope_grants import held_scopes, may_authorize
from .upstream_accounts import bind

# No form-action: browsers apply it to the redirect after the form too, which leads to the client's
# site. Not "no-referrer": the form's Origin would be "null", which Django's CSRF check rejects.
PAGE_HEADERS = {
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": (
        "frame-ancestors 'none'; base-uri 'none'; object-src 'none'; script-src 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
}


def with_security_headers(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Add ``PAGE_HEADERS`` to every response of a view, independently of the middleware."""

    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(*args, **kwargs)
        for name, value in PAGE_HEADERS.items():
            response[name] = value
        return response

    return wrapper


class ConsentForm(forms.Form):
    """The consent form. ``shown`` are the scopes that the page displayed, separated by spaces.

    ``server`` is the URL of the server that the user chose, if the request names none and there are
    several. The request itself is in the URL, not in the form.
    """

    allow = forms.BooleanField(required=False)
    shown = forms.CharField(required=False)
    server = forms.CharField(required=False)


@method_decorator([login_not_required, with_security_headers, csrf_protect], name="dispatch")
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
        # A project may also mount django-oauth-toolkit's view, which can skip the consent page. The
        # validator accepts self-registered clients and MCP scopes only in requests with this mark.
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

    def validated_request(
        self, shown: Collection[str] | None = None, server: str = ""
    ) -> AuthorizationRequest:
        """Return the validated request. Raise ``OAuthToolkitError``, which ``dispatch`` handles.

        If the client requests new scopes, those that it already holds are added, so that its next
        token does not lose them. With ``shown``, only scopes that the page displayed are added,
        because the client may have obtained others since then, and the user has not seen these.
        """
        validate = partial(self.validate_authorization_request, self.request)
        authorization = validate_request(self.request.GET, validate).for_server(server)
        user = self.request.user
        if not user.is_authenticated:
            return authorization
        held = held_scopes(user, authorization.application, authorization.servers)
        return authorization.with_held_scopes(
            tuple(scope for scope in held if shown is None or scope in shown)
        )

    def handle_no_permission(self) -> HttpResponse:
        if "none" in prompt(self.request.GET):
            raise self.validated_request().error("login_required")
        return self.to_login()

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        authorization = self.validated_request()
        if self.is_trusted(authorization):
            return self.issue_code(authorization)
        return self.redirect_without_page(authorization) or self.consent_page(authorization)

    def is_trusted(self, authorization: AuthorizationRequest) -> bool:
        """Whether a code is issued without the consent page, by ``skip_authorization``.

        That needs a client that the site's staff registered, and a redirect to a web site: any
        program on the device could receive a redirect to an app or to localhost (RFC 8252, 8.6).
        """
        application, servers = authorization.application, list(authorization.servers.values())
        is_own = authorization.destination.kind == SITE and is_registered_by_staff(application)
        skips_page = application.skip_authorization and authorization.prompt <= {"none"}
        if authorization.choices:  # the user has to choose a server
            return False
        return bool(is_own and skips_page and may_authorize(self.request.user, servers))

    def redirect_without_page(self, authorization: AuthorizationRequest) -> HttpResponse | None:
        """Return the login redirect for ``prompt=login``, or None to show the consent page.

        Raise ``OAuthToolkitError`` for ``prompt=none`` (OpenID Connect Core, 3.1.2.1).
        """
        if "none" in authorization.prompt:
            is_allowed = may_authorize(self.request.user, list(authorization.servers.values()))
            raise authorization.error("consent_required" if is_allowed else "interaction_required")
        return self.to_login() if "login" in authorization.prompt else None

    def consent_page(self, authorization: AuthorizationRequest) -> HttpResponse:
        question = consent_question(authorization, self.request.user)
        context = self.get_context_data(question=question, site=site())
        status = 200 if question.may_allow else 403
        response: HttpResponse = self.render_to_response(context, status=status)
        return response

    def to_login(self) -> HttpResponse:
        """Redirect to the project's login, and back here without ``prompt=login``."""
        query = self.request.GET.copy()
        query.pop("prompt", None)
        if others := sorted(prompt(self.request.GET) - {"login"}):
            query["prompt"] = " ".join(others)
        back = f"{escape_uri_path(self.request.path)}?{query.urlencode()}"
        return redirect_to_login_page(back, self.get_login_url(), self.get_redirect_field_name())

    # The user's decision, and the response.

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if "switch" in request.POST:
            logout(request)
            return self.to_login()
        response: HttpResponse = super().post(request, *args, **kwargs)
        return response

    def form_valid(self, form: ConsentForm) -> HttpResponse:
        authorization = self.validated_request(
            form.cleaned_data["shown"].split(), form.cleaned_data["server"]
        )
        # The ``prompt`` is checked here too: a form can be posted without loading the page first.
        if redirect := self.redirect_without_page(authorization):
            return redirect
        is_allowed = may_authorize(self.request.user, list(authorization.servers.values()))
        if not (is_allowed and form.cleaned_data["allow"]):
            raise authorization.error("access_denied")
        if authorization.choices:  # the user allowed it without choosing a server: ask again
            return self.consent_page(authorization)
        return self.issue_code(authorization)

    def issue_code(self, authorization: AuthorizationRequest) -> HttpResponse:
        """Issue a code and store the consent, in one transaction, and redirect to the client."""
        # The deletion of stale clients can cause a deadlock (see ``registration_limits``). A retry
        # calls ``Upstream.account`` of the project again. That is safe: it only returns how the
        # user signed in.
        uri = retry_collisions(
            partial(self._store_code, authorization), router.db_for_write(Consent)
        )
        return self.redirect(uri, authorization.application)

    def _store_code(self, authorization: AuthorizationRequest) -> str:
        """Return the redirect URI, with the code or an error."""
        with transaction.atomic(using=router.db_for_write(Consent)):
            _store_consents(authorization, self.request.user)
            uri, *_ = self.create_authorization_response(
                self.request,
                " ".join(authorization.scopes),
                dict(authorization.credentials),
                allow=True,
            )
            code = QueryDict(urlsplit(uri).query).get("code")
            if code:
                bind(code, self.request)
            else:  # an error: no code was issued, so store no consent
                transaction.set_rollback(True, using=router.db_for_write(Consent))
        return str(uri)

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
        details = error.oauthlib_error
        # A fatal error is about the client or its redirect URI, so that URI is not to be trusted.
        if isinstance(error, FatalClientError) or not details.redirect_uri:
            return self.error_page(details)
        separator = "&" if "?" in details.redirect_uri else "?"
        uri = f"{details.redirect_uri}{separator}{details.urlencoded}"
        if self.leads_to_unverified_site(uri):
            return self.error_page(details, with_issuer(uri))
        return self.redirect(uri, application)

    def leads_to_unverified_site(self, uri: str) -> bool:
        """Whether a redirect without user interaction would lead to an unverified client's site.

        Otherwise a link to this site could be used for phishing: it would redirect to any site at
        once (RFC 9700, 4.11.2).
        """
        to = destination(uri)
        if self.request.method == "POST" or to is None or to.kind != SITE:
            return False
        applications = get_application_model().objects.select_related("user")
        application = applications.filter(client_id=self.request.GET["client_id"]).first()
        return application is None or not is_registered_by_staff(application)

    def error_page(self, error: errors.OAuth2Error, back: str = "") -> HttpResponse:
        """Render the error page. It names the site of ``back``, if given, and links to it."""
        to = destination(back) if back else None
        context = {"error": error, "site": site(), "back": back, "to": to}
        return render(self.request, self.error_template_name, context, status=error.status_code)


def redirect_to_login_page(back: str, to: Any, field: str = REDIRECT_FIELD_NAME) -> HttpResponse:
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


def _store_consents(authorization: AuthorizationRequest, user: Any) -> None:
    """Store a consent for each server. It is a record, and never replaces asking the user."""
    ensure_profile(authorization.application)
    profiles = ClientProfile.objects.filter(client_id=authorization.application.client_id)
    profiles.update(last_authorized=timezone.now())
    digest = profiles.values_list("digest", flat=True).first() or ""
    Consent.objects.bulk_create(
        Consent(
            user=user, client_id=authorization.application.client_id, resource=resource,
            digest=digest, scopes=list(authorization.scopes),
            redirect_host=authorization.destination.name[:255],
        )
        for resource in authorization.servers
    )  # fmt: skip
