"""The page of connected apps: a user's clients and personal tokens, and the means to revoke them.

Users see and revoke only their own connections. A client or token of another user in a form counts
as not found. Revoking takes one POST with a CSRF token and no confirmation, because it is safe. A
machine client of the user has no button, because it would get a new token without consent.

``connections`` and ``own_tokens`` return the data. The number of queries does not depend on the
number of clients.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings as django_settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, F, OuterRef, Q, Window
from django.db.models.functions import RowNumber
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.encoding import escape_uri_path
from django.views import View
from django.views.decorators.csrf import csrf_protect
from oauth2_provider.models import (
    AbstractApplication,
    get_access_token_model,
    get_application_model,
)

from ..auth.scopes import offered
from ..declarations.server import servers
from ..models import Token
from ..verifiers.personal_tokens import revoke
from ..verifiers.protected_resource import canonical, resource, served
from .authorization_request import SITE, ConsentClient, client, destination, in_words, plain
from .authorize import guarded, sent_to_login, site
from .client_registry import is_registered_by_staff
from .models import Activity, ClientProfile, Consent, Source
from .resource_indicators import is_ours
from .revocation import revoke_consents
from .scope_grants import may_sign_in, renewable

if TYPE_CHECKING:
    from ..declarations.server import Server

T = TypeVar("T")
MAX_SHOWN_CLIENTS = 100  # clients, and personal tokens, that are shown, the newest first
MAX_READ_ROWS = 1000  # consents, and tokens, of a user that are read, the newest first
MAX_SHOWN_ACTIVITIES = 15  # activities of a client that are shown


@dataclass(frozen=True, slots=True)
class DailyActivity:
    """What a client did on one day: ``times`` is the count, ``at`` the time of the last one."""

    at: datetime
    server: str  # title of the server
    method: str
    name: str
    times: int


@dataclass(frozen=True, slots=True)
class ConnectedApp:
    """A client that may act for a user, or that was blocked."""

    client_id: str
    client: ConsentClient
    servers: Mapping[str, str]  # titles by URL
    scopes: Sequence[str]  # descriptions of the scopes of valid tokens
    since: datetime | None
    last_used: datetime | None
    answered: str  # redirect host of the last consent
    blocked: datetime | None
    lately: Sequence[DailyActivity]
    alone: bool  # a machine client of this user: it gets new tokens without consent
    unasked: bool  # it may be authorized again without the consent page


@dataclass(frozen=True, slots=True)
class OwnToken:
    """A personal access token."""

    pk: str
    name: str
    prefix: str
    server: str  # title of the server; "" for all servers
    scopes: Sequence[str]  # descriptions; empty if the token may do all that the user may do
    created: datetime
    expires: datetime | None
    last_used: datetime | None


def connections(user: Any) -> list[ConnectedApp]:
    """Return the clients that may act for ``user`` and those that were blocked, newest first."""
    found = Account(user)
    return [found.connection(client_id) for client_id in found.client_ids]


class Account:
    """The rows of one user. Each property runs its query once."""

    def __init__(self, user: Any) -> None:
        self.user = user

    @cached_property
    def consents(self) -> dict[str, list[Consent]]:
        """By client. Includes consents that a block revoked, so that the user sees the block."""
        profiles = ClientProfile.objects.filter(client_id=OuterRef("client_id"))
        blocked = Exists(profiles.filter(blocked__lte=OuterRef("revoked")))
        rows = Consent.objects.filter(Q(revoked=None) | blocked, user=self.user)
        return _grouped(
            (row.client_id, row) for row in rows.order_by("-granted", "-pk")[:MAX_READ_ROWS]
        )

    @cached_property
    def tokens(self) -> dict[str, list[Any]]:
        """By client: access tokens that are valid, or can be renewed by a refresh token."""
        good = Q(expires__gt=timezone.now()) | renewable(user=self.user)
        rows = get_access_token_model().objects.filter(good, user=self.user)
        rows = (
            rows.exclude(application=None)
            .select_related("application")
            .order_by("-pk")[:MAX_READ_ROWS]
        )
        known = set(served())
        return _grouped((row.application.client_id, row) for row in rows if is_ours(row, known))

    @cached_property
    def client_ids(self) -> list[str]:
        """At most ``MAX_SHOWN_CLIENTS`` clients.

        Prefer those with a token, so that users can revoke it.
        """
        known = dict.fromkeys([*self.consents, *self.tokens])
        shown = set(sorted(known, key=lambda one: one not in self.tokens)[:MAX_SHOWN_CLIENTS])
        return [one for one in known if one in shown]

    @cached_property
    def applications(self) -> dict[str, Any]:
        rows = get_application_model().objects.select_related("user")
        rows = rows.filter(client_id__in=self.client_ids)
        return {row.client_id: row for row in rows}

    @cached_property
    def profiles(self) -> dict[str, ClientProfile]:
        rows = ClientProfile.objects.filter(client_id__in=self.client_ids)
        return {row.client_id: row for row in rows}

    @cached_property
    def doings(self) -> dict[str, list[DailyActivity]]:
        """By client: the last ``MAX_SHOWN_ACTIVITIES`` activities."""
        place = Window(
            RowNumber(), partition_by="client_id", order_by=[F("at").desc(), F("pk").desc()]
        )
        rows = Activity.objects.filter(user=self.user, client_id__in=self.client_ids)
        rows = (
            rows.annotate(place=place)
            .filter(place__lte=MAX_SHOWN_ACTIVITIES)
            .order_by("-at", "-pk")
        )
        return _grouped(
            (
                row.client_id,
                DailyActivity(row.at, _title(row.server), row.method, row.name, row.count),
            )
            for row in rows
        )

    def connection(self, client_id: str) -> ConnectedApp:
        consents, tokens = self.consents.get(client_id, []), self.tokens.get(client_id, [])
        lately, profile = self.doings.get(client_id, []), self.profiles.get(client_id)
        used = [*(one.last_used for one in consents), *(one.at for one in lately[:1])]
        application = self.applications.get(client_id)
        return ConnectedApp(
            client_id=client_id,
            client=_client(client_id, application),
            servers=_titles([*(one.resource for one in consents), *_targets(tokens)]),
            scopes=in_words(_in_order(scope for row in tokens for scope in row.scope.split())),
            since=min((one.granted for one in consents), default=None),
            last_used=max(filter(None, used), default=None),
            answered=consents[0].redirect_host if consents else "",
            blocked=profile.blocked if profile else None,
            lately=lately,
            alone=_acts_alone(application, self.user),
            unasked=_is_let_in(application),
        )


def _client(client_id: str, application: Any) -> ConsentClient:
    """Return how to show a client. A deleted one has only its id as an unverified name."""
    return client(application) if application else ConsentClient(plain(client_id), Source.DCR)


def _acts_alone(application: Any, user: Any) -> bool:
    """Whether a client gets tokens of ``user`` without consent (client credentials grant)."""
    if application is None or application.registration_source != Source.MANUAL:
        return False
    machine = AbstractApplication.GRANT_CLIENT_CREDENTIALS
    return bool(application.authorization_grant_type == machine and application.user_id == user.pk)


def _is_let_in(application: Any) -> bool:
    """Whether the authorization endpoint issues codes to a client without the consent page."""
    if application is None or not application.skip_authorization:
        return False
    if not is_registered_by_staff(application):
        return False
    found = map(destination, application.redirect_uris.split())
    return any(one is not None and one.kind == SITE for one in found)


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    found: defaultdict[str, list[T]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def _targets(tokens: Iterable[Any]) -> list[str]:
    return [uri for row in tokens for uri in row.resource or () if isinstance(uri, str)]


def _titles(uris: Iterable[str]) -> dict[str, str]:
    """Return the titles of servers by URL; "" for a server that no longer exists."""
    known = served()
    named = dict.fromkeys(canonical(uri) or uri for uri in uris)
    return {uri: title_of(known[uri]) if uri in known else "" for uri in named}


def _in_order(scopes: Iterable[str]) -> list[str]:
    """Return the scopes in the order in which they are offered, then the others, sorted."""
    found = set(scopes)
    return [*(one for one in offered() if one in found), *sorted(found - offered().keys())]


def title_of(server: Server) -> str:
    return str(server.title or server.public_name)


def _title(name: str) -> str:
    """Return the title of a server by its name; the name if the server no longer exists."""
    return next((title_of(one) for one in servers() if one.name == name), name)


# Personal access tokens, and servers.


def own_tokens(user: Any) -> list[OwnToken]:
    """Return the valid personal access tokens of ``user``, newest first."""
    good = Q(expires=None) | Q(expires__gt=timezone.now())
    rows = Token.objects.filter(good, user=user, revoked=None).order_by("-pk")[:MAX_SHOWN_CLIENTS]
    return [_own(row) for row in rows]


def _own(row: Token) -> OwnToken:
    return OwnToken(
        str(row.pk), plain(row.name), row.prefix, _title(row.server) if row.server else "",
        in_words(_in_order(row.scopes)), row.created, row.expires, row.last_used,
    )  # fmt: skip


def places() -> dict[str, str]:
    """Return the titles of all servers by URL."""
    return {resource(server): title_of(server) for server in served().values()}


TEMPLATE = "django_mcp_oauth/connections.html"


@method_decorator([login_not_required, guarded, csrf_protect], name="dispatch")
class ConnectionsView(View):
    """Show the connected clients and personal tokens of the signed-in user, and revoke them."""

    http_method_names = ["get", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        user: Any = getattr(request, "user", None)
        if user is None or not user.is_authenticated:
            return sent_to_login(escape_uri_path(request.path), django_settings.LOGIN_URL)
        if not may_sign_in(user):
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.shown()

    def post(self, request: HttpRequest) -> HttpResponse:
        ended = _disconnected if "client" in request.POST else _revoked
        named = request.POST.get("client") or request.POST.get("token") or ""
        gone = ended(request.user, named)
        return self.shown(200 if gone is not None else 404, asked=True, gone=gone)

    def shown(self, status: int = 200, **said: Any) -> HttpResponse:
        """Render the page, with the result of a POST in ``said``."""
        user = self.request.user
        context = {
            "site": site(), "you": user, "connections": connections(user),
            "tokens": own_tokens(user), "places": places(), **said,
        }  # fmt: skip
        return render(self.request, TEMPLATE, context, status=status)


def _disconnected(user: Any, client_id: str) -> Any:
    """Revoke a client's consents. Return its connection, or None if the user cannot revoke it."""
    theirs = (one for one in connections(user) if not one.alone)
    found = next((one for one in theirs if one.client_id == client_id), None)
    if found is not None:
        revoke_consents(user, found.client_id)
    return found


def _revoked(user: Any, pk: str) -> Any:
    """Revoke a personal token. Return it, or None if the user has no such token."""
    found = next((one for one in own_tokens(user) if one.pk == pk), None)
    if found is not None:
        revoke(Token.objects.filter(user=user, pk=found.pk))
    return found
