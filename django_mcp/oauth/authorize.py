"""
The authorization endpoint: a person lets a client act for them, or does not (RFC 6749, 4.1.1).

Rule: nobody's consent is remembered or taken for given. Every code was agreed to on a page that
said who asked, for what, and where the answer goes; only whom the project itself registered as its
own may do without, where no other program can answer to its name. Nobody is sent to a stranger's
site who did not press a button here. Every answer to a client says whose it is (RFC 9207).
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

from .asking import Asked, QueryAlone, asked, prompt, with_issuer
from .bindings import bind
from .by_hand import list_used
from .conf import issuer
from .consent import SITE, destination, question
from .held import held
from .marks import OUR_VIEW
from .models import ClientProfile, Consent, Source
from .people import may_authorize

# No form-action: browsers hold it against the redirect too, which leads elsewhere. No referrer at
# all would make the form's Origin "null", which Django refuses.
HEADERS = {
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": (
        "frame-ancestors 'none'; base-uri 'none'; object-src 'none'; script-src 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
}


def guarded(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Puts ``HEADERS`` on every answer of a view, whatever middleware there is."""

    @wraps(view)
    def answer(*args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(*args, **kwargs)
        for name, value in HEADERS.items():
            response[name] = value
        return response

    return answer


class Answer(forms.Form):
    """What a person says, and which scopes they were ``shown``. All else is in the URL."""

    allow = forms.BooleanField(required=False)
    shown = forms.CharField(required=False)


@method_decorator([login_not_required, guarded, csrf_protect], name="dispatch")
class MCPAuthorizationView(AuthorizationView):  # type: ignore[misc]
    """Asks the person who is signed in, and sends their answer to the client.

    Of django-oauth-toolkit's view this keeps the signing in and the issuing of codes, and nothing
    by which it would not ask: no ``approval_prompt``, no token that is still valid.
    """

    template_name = "django_mcp_oauth/authorize.html"
    error_template_name = "django_mcp_oauth/error.html"
    form_class = Answer
    http_method_names = ["get", "post"]  # a HEAD would be a GET that nobody sees

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        request.META[OUR_VIEW] = True

    @classmethod
    def get_oauthlib_core(cls) -> Any:
        """Never the one that another view has kept for all of django-oauth-toolkit's."""
        return QueryAlone(cls.get_server())

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response: HttpResponse = super().dispatch(request, *args, **kwargs)
        except OAuthToolkitError as error:
            response = self.error_response(error, None)
        return response

    # What is asked, and of whom.

    def asked(self, shown: Collection[str] | None = None) -> Asked:
        """Raises ``OAuthToolkitError``, which ``dispatch`` turns into an answer.

        Of what the client holds only that counts which the person was ``shown``, if they were:
        it may hold something else by the time of the answer.
        """
        validated = partial(self.validate_authorization_request, self.request)
        found = asked(self.request.GET, validated)
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

    def is_trusted(self, found: Asked) -> bool:
        """Whether the project said of a client of its own that nobody need be asked.

        One that registered itself is never, nor one whose answer any program of the device could
        take (RFC 8252, 8.6).
        """
        application, servers = found.application, list(found.servers.values())
        is_own = application.registration_source == Source.MANUAL and found.destination.kind == SITE
        wishes = found.prompt <= {"none"} and application.skip_authorization
        return bool(is_own and wishes and may_authorize(self.request.user, servers))

    def turned_away(self, found: Asked) -> HttpResponse | None:
        """What ``prompt`` has done instead of asking (OpenID Connect Core, 3.1.2.1)."""
        if "none" in found.prompt:
            may = may_authorize(self.request.user, list(found.servers.values()))
            raise found.refused("consent_required" if may else "interaction_required")
        return self.to_login() if "login" in found.prompt else None

    def shown(self, found: Asked) -> HttpResponse:
        told = question(found, self.request.user)
        response: HttpResponse = self.render_to_response(
            self.get_context_data(question=told, site=site()), status=200 if told.may else 403
        )
        return response

    def to_login(self) -> HttpResponse:
        """To the project's login, and back here with all that was asked, but not to log in."""
        query = self.request.GET.copy()
        query.pop("prompt", None)
        if left := sorted(prompt(self.request.GET) - {"login"}):
            query["prompt"] = " ".join(left)
        back = f"{escape_uri_path(self.request.path)}?{query.urlencode()}"
        return sent_to_login(back, self.get_login_url(), self.get_redirect_field_name())

    # What is answered.

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if "switch" in request.POST:
            logout(request)
            return self.to_login()
        answered: HttpResponse = super().post(request, *args, **kwargs)
        return answered

    def form_valid(self, form: Answer) -> HttpResponse:
        found = self.asked(form.cleaned_data["shown"].split())
        if away := self.turned_away(found):
            return away
        may = may_authorize(self.request.user, list(found.servers.values()))
        if not (may and form.cleaned_data["allow"]):
            raise found.refused("access_denied")
        return self.granted(found)

    def granted(self, found: Asked) -> HttpResponse:
        """A code, and what will be known of it. Both are kept, or neither is."""
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
        """Every answer to a client, good or bad, goes this way."""
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
        """Whether a link to us would lead on to the site of a client that registered itself.

        Our name is on the link, and nobody has pressed a button (RFC 9700, 4.11.2).
        """
        to = destination(uri)
        if self.request.method == "POST" or to is None or to.kind != SITE:
            return False
        named = get_application_model().objects.filter(client_id=self.request.GET["client_id"])
        return not named.filter(registration_source=Source.MANUAL).exists()

    def error_page(self, wrong: errors.OAuth2Error, back: str = "") -> HttpResponse:
        """Where ``back`` is a site, it is named, and a link for who knows it."""
        to = destination(back) if back else None
        context = {"error": wrong, "site": site(), "back": back, "to": to}
        return render(self.request, self.error_template_name, context, status=wrong.status_code)


def sent_to_login(back: str, to: Any, field: str = REDIRECT_FIELD_NAME) -> HttpResponse:
    """To the project's login, and ``back`` to a path of ours, wherever the login is."""
    login = resolve_url(to)
    if urlsplit(login).netloc not in ("", urlsplit(issuer()).netloc):
        back = issuer() + back
    return redirect_to_login(back, login, field)


def site() -> str:
    """Where people are, in the words of their browser."""
    return urlsplit(issuer()).netloc


def _write_down(found: Asked, user: Any) -> None:
    """Who agreed to what: to be found later, and never asked instead of the person."""
    list_used(found.application)
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
