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
from .authorization_request import (
    SITE,
    ConsentClient,
    consent_client,
    destination,
    displayable,
    scope_descriptions,
)
from .authorize import redirect_to_login_page, site, with_security_headers
from .client_registry import is_registered_by_staff
from .models import Activity, ClientProfile, Consent, Source
from .resource_indicators import is_mcp_token
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
    """What a client did on one day. ``at`` is the time of its last use."""

    at: datetime
    server: str  # title of the server
    method: str
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class ConnectedApp:
    """A client that may act for a user, or that was blocked."""

    client_id: str
    client: ConsentClient
    servers: Mapping[str, str]  # titles by URL
    scopes: Sequence[str]  # descriptions of the scopes of valid tokens
    since: datetime | None
    last_used: datetime | None
    redirect_host: str  # of the last consent
    blocked: datetime | None
    activities: Sequence[DailyActivity]  # the newest first
    is_machine: bool  # a machine client of this user: it gets new tokens without consent
    skips_consent: bool  # it may be authorized again without the consent page


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
    account = Account(user)
    return [account.connection(client_id) for client_id in account.client_ids]


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
        return _group(
            (row.client_id, row) for row in rows.order_by("-granted", "-pk")[:MAX_READ_ROWS]
        )

    @cached_property
    def tokens(self) -> dict[str, list[Any]]:
        """By client: access tokens that are valid, or can be renewed by a refresh token."""
        valid = Q(expires__gt=timezone.now()) | renewable(user=self.user)
        rows = get_access_token_model().objects.filter(valid, user=self.user)
        rows = (
            rows.exclude(application=None)
            .select_related("application")
            .order_by("-pk")[:MAX_READ_ROWS]
        )
        known = set(served())
        return _group((row.application.client_id, row) for row in rows if is_mcp_token(row, known))

    @cached_property
    def client_ids(self) -> list[str]:
        """At most ``MAX_SHOWN_CLIENTS`` clients.

        Prefer those with a token, so that users can revoke it.
        """
        all_ids = dict.fromkeys([*self.consents, *self.tokens])
        with_token_first = sorted(all_ids, key=lambda client_id: client_id not in self.tokens)
        shown = set(with_token_first[:MAX_SHOWN_CLIENTS])
        return [client_id for client_id in all_ids if client_id in shown]

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
    def activities(self) -> dict[str, list[DailyActivity]]:
        """By client: the last ``MAX_SHOWN_ACTIVITIES`` activities."""
        number = Window(
            RowNumber(), partition_by="client_id", order_by=[F("at").desc(), F("pk").desc()]
        )
        rows = Activity.objects.filter(user=self.user, client_id__in=self.client_ids)
        rows = rows.annotate(number=number).filter(number__lte=MAX_SHOWN_ACTIVITIES)
        rows = rows.order_by("-at", "-pk")
        return _group(
            (
                row.client_id,
                DailyActivity(row.at, _title(row.server), row.method, row.name, row.count),
            )
            for row in rows
        )

    def connection(self, client_id: str) -> ConnectedApp:
        consents, tokens = self.consents.get(client_id, []), self.tokens.get(client_id, [])
        activities, profile = self.activities.get(client_id, []), self.profiles.get(client_id)
        used = [*(consent.last_used for consent in consents), *(one.at for one in activities[:1])]
        scopes = [scope for row in tokens for scope in row.scope.split()]
        application = self.applications.get(client_id)
        return ConnectedApp(
            client_id=client_id,
            client=_client(client_id, application),
            servers=_titles([*(consent.resource for consent in consents), *_targets(tokens)]),
            scopes=scope_descriptions(_in_order(scopes)),
            since=min((consent.granted for consent in consents), default=None),
            last_used=max(filter(None, used), default=None),
            redirect_host=consents[0].redirect_host if consents else "",
            blocked=profile.blocked if profile else None,
            activities=activities,
            is_machine=_is_machine_of(application, self.user),
            skips_consent=_may_skip_consent(application),
        )


def _client(client_id: str, application: Any) -> ConsentClient:
    """Return how to show a client. A deleted one has only its id as an unverified name."""
    if application is None:
        return ConsentClient(displayable(client_id), Source.DCR)
    return consent_client(application)


def _is_machine_of(application: Any, user: Any) -> bool:
    """Whether a client gets tokens of ``user`` without consent (client credentials grant)."""
    if application is None or application.registration_source != Source.MANUAL:
        return False
    machine = AbstractApplication.GRANT_CLIENT_CREDENTIALS
    return bool(application.authorization_grant_type == machine and application.user_id == user.pk)


def _may_skip_consent(application: Any) -> bool:
    """Whether the authorization endpoint issues codes to a client without the consent page."""
    if application is None or not application.skip_authorization:
        return False
    if not is_registered_by_staff(application):
        return False
    targets = map(destination, application.redirect_uris.split())
    return any(target is not None and target.kind == SITE for target in targets)


def _group(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    groups: defaultdict[str, list[T]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return dict(groups)


def _targets(tokens: Iterable[Any]) -> list[str]:
    return [uri for row in tokens for uri in row.resource or () if isinstance(uri, str)]


def _titles(uris: Iterable[str]) -> dict[str, str]:
    """Return the titles of servers by URL; "" for a server that no longer exists."""
    known = served()
    unique = dict.fromkeys(canonical(uri) or uri for uri in uris)
    return {uri: title_of(known[uri]) if uri in known else "" for uri in unique}


def _in_order(scopes: Iterable[str]) -> list[str]:
    """Return the scopes in the order in which they are offered, then the others, sorted."""
    found = set(scopes)
    known = [scope for scope in offered() if scope in found]
    return [*known, *sorted(found - offered().keys())]


def title_of(server: Server) -> str:
    return str(server.title or server.public_name)


def _title(name: str) -> str:
    """Return the title of a server by its name; the name if the server no longer exists."""
    return next((title_of(one) for one in servers() if one.name == name), name)


# Personal access tokens, and servers.


def own_tokens(user: Any) -> list[OwnToken]:
    """Return the valid personal access tokens of ``user``, newest first."""
    valid = Q(expires=None) | Q(expires__gt=timezone.now())
    rows = Token.objects.filter(valid, user=user, revoked=None).order_by("-pk")[:MAX_SHOWN_CLIENTS]
    return [_own_token(row) for row in rows]


def _own_token(row: Token) -> OwnToken:
    return OwnToken(
        str(row.pk), displayable(row.name), row.prefix, _title(row.server) if row.server else "",
        scope_descriptions(_in_order(row.scopes)), row.created, row.expires, row.last_used,
    )  # fmt: skip


def server_titles() -> dict[str, str]:
    """Return the titles of all servers by URL."""
    return {resource(server): title_of(server) for server in served().values()}


TEMPLATE = "django_mcp_oauth/connections.html"


@method_decorator([login_not_required, with_security_headers, csrf_protect], name="dispatch")
class ConnectionsView(View):
    """Show the connected clients and personal tokens of the signed-in user, and revoke them."""

    http_method_names = ["get", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        user: Any = getattr(request, "user", None)
        if user is None or not user.is_authenticated:
            return redirect_to_login_page(escape_uri_path(request.path), django_settings.LOGIN_URL)
        if not may_sign_in(user):
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.render_page()

    def post(self, request: HttpRequest) -> HttpResponse:
        revoke_access = _disconnect_client if "client" in request.POST else _revoke_token
        key = request.POST.get("client") or request.POST.get("token") or ""
        revoked = revoke_access(request.user, key)
        status = 200 if revoked is not None else 404
        return self.render_page(status, is_result=True, revoked=revoked)

    def render_page(self, status: int = 200, **result: Any) -> HttpResponse:
        """Render the page, with the result of a POST."""
        user = self.request.user
        context = {
            "site": site(), "visitor": user, "connections": connections(user),
            "tokens": own_tokens(user), "servers": server_titles(), **result,
        }  # fmt: skip
        return render(self.request, TEMPLATE, context, status=status)


def _disconnect_client(user: Any, client_id: str) -> Any:
    """Revoke a client's consents. Return its connection, or None if the user cannot revoke it."""
    app = next((app for app in connections(user) if app.client_id == client_id), None)
    if app is None or app.is_machine:
        return None
    revoke_consents(user, app.client_id)
    return app


def _revoke_token(user: Any, pk: str) -> Any:
    """Revoke a personal token. Return it, or None if the user has no such token."""
    token = next((token for token in own_tokens(user) if token.pk == pk), None)
    if token is not None:
        revoke(Token.objects.filter(user=user, pk=token.pk))
    return token
