"""
What is connected to somebody's account, as a value: clients, what they may and what they did.

Rule: all of it is this one person's; nothing tells what a client does for others. However many
clients there are, it takes the same few queries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from django.db.models import Exists, F, OuterRef, Q, Window
from django.db.models.functions import RowNumber
from django.utils import timezone
from oauth2_provider.models import (
    AbstractApplication,
    get_access_token_model,
    get_application_model,
)

from ..declare.servers import servers
from ..models import Token
from ..protected.names import canonical, resource, served
from ..scopes import offered
from .consent import SITE, Client, client, destination, in_words, plain
from .held import renewable
from .models import Activity, ClientProfile, Consent, Source
from .targets import is_ours

if TYPE_CHECKING:
    from ..declare.servers import Server

T = TypeVar("T")
MOST = 100  # clients, and personal tokens, that are shown: the newest
ROWS = 1000  # consents and tokens of one person that are looked at: the newest
SHOWN = 15  # of the things that a client did


@dataclass(frozen=True, slots=True)
class Doing:
    """Something that a client did on one day: ``times``, and when last ``at``."""

    at: datetime
    server: str  # its title
    method: str
    name: str
    times: int


@dataclass(frozen=True, slots=True)
class Connection:
    """A client that somebody let in."""

    client_id: str
    client: Client
    servers: Mapping[str, str]  # titles by URL
    scopes: Sequence[str]  # in words, of the tokens that are good
    since: datetime | None
    last_used: datetime | None
    answered: str  # where the last answer to it went
    blocked: datetime | None
    lately: Sequence[Doing]
    alone: bool  # it acts as this person by itself, and what is ended it has again at once
    unasked: bool  # it may come back, and nobody is asked


@dataclass(frozen=True, slots=True)
class OwnToken:
    """A personal access token."""

    pk: str
    name: str
    prefix: str
    server: str  # its title; "" is every one
    scopes: Sequence[str]  # in words; none is all that the person may do
    created: datetime
    expires: datetime | None
    last_used: datetime | None


def connections(user: Any) -> list[Connection]:
    """The clients that may act for ``user``, and those that were blocked, the newest first."""
    found = Account(user)
    return [found.connection(client_id) for client_id in found.client_ids]


class Account:
    """The rows of one person, each kind of them had once."""

    def __init__(self, user: Any) -> None:
        self.user = user

    @cached_property
    def consents(self) -> dict[str, list[Consent]]:
        """By client. Those that a block ended are among them: who let it in is told of it."""
        profiles = ClientProfile.objects.filter(client_id=OuterRef("client_id"))
        blocked = Exists(profiles.filter(blocked__lte=OuterRef("revoked")))
        rows = Consent.objects.filter(Q(revoked=None) | blocked, user=self.user)
        return _grouped((row.client_id, row) for row in rows.order_by("-granted", "-pk")[:ROWS])

    @cached_property
    def tokens(self) -> dict[str, list[Any]]:
        """By client: access tokens that are good, or would be again by a refresh token."""
        good = Q(expires__gt=timezone.now()) | renewable(user=self.user)
        rows = get_access_token_model().objects.filter(good, user=self.user)
        rows = rows.exclude(application=None).select_related("application").order_by("-pk")[:ROWS]
        known = set(served())
        return _grouped((row.application.client_id, row) for row in rows if is_ours(row, known))

    @cached_property
    def client_ids(self) -> list[str]:
        """Where there are too many, those with a token: what is connected is to be ended."""
        known = dict.fromkeys([*self.consents, *self.tokens])
        shown = set(sorted(known, key=lambda one: one not in self.tokens)[:MOST])
        return [one for one in known if one in shown]

    @cached_property
    def applications(self) -> dict[str, Any]:
        rows = get_application_model().objects.filter(client_id__in=self.client_ids)
        return {row.client_id: row for row in rows}

    @cached_property
    def profiles(self) -> dict[str, ClientProfile]:
        rows = ClientProfile.objects.filter(client_id__in=self.client_ids)
        return {row.client_id: row for row in rows}

    @cached_property
    def doings(self) -> dict[str, list[Doing]]:
        """By client, the last of them."""
        place = Window(
            RowNumber(), partition_by="client_id", order_by=[F("at").desc(), F("pk").desc()]
        )
        rows = Activity.objects.filter(user=self.user, client_id__in=self.client_ids)
        rows = rows.annotate(place=place).filter(place__lte=SHOWN).order_by("-at", "-pk")
        return _grouped(
            (row.client_id, Doing(row.at, _title(row.server), row.method, row.name, row.count))
            for row in rows
        )

    def connection(self, client_id: str) -> Connection:
        consents, tokens = self.consents.get(client_id, []), self.tokens.get(client_id, [])
        lately, profile = self.doings.get(client_id, []), self.profiles.get(client_id)
        used = [*(one.last_used for one in consents), *(one.at for one in lately[:1])]
        application = self.applications.get(client_id)
        return Connection(
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


def _client(client_id: str, application: Any) -> Client:
    """One that is no more has but its id for a name, of which nobody answers."""
    return client(application) if application else Client(plain(client_id), Source.DCR)


def _acts_alone(application: Any, user: Any) -> bool:
    """Whether the project gave a client ``user`` to act as: it needs nobody's consent."""
    machine = AbstractApplication.GRANT_CLIENT_CREDENTIALS
    return _is_own(application) and (application.authorization_grant_type, application.user_id) == (
        machine, user.pk,
    )  # fmt: skip


def _is_let_in(application: Any) -> bool:
    """Whether the page of consent lets a client in without a question: at a site of its own."""
    if not (_is_own(application) and application.skip_authorization):
        return False
    found = map(destination, application.redirect_uris.split())
    return any(one is not None and one.kind == SITE for one in found)


def _is_own(application: Any) -> bool:
    return application is not None and application.registration_source == Source.MANUAL


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    found: defaultdict[str, list[T]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def _targets(tokens: Iterable[Any]) -> list[str]:
    return [uri for row in tokens for uri in row.resource or () if isinstance(uri, str)]


def _titles(uris: Iterable[str]) -> dict[str, str]:
    """Titles of servers by URL; one that is there no more has none."""
    known = served()
    named = dict.fromkeys(canonical(uri) or uri for uri in uris)
    return {uri: title_of(known[uri]) if uri in known else "" for uri in named}


def _in_order(scopes: Iterable[str]) -> list[str]:
    """As they are offered, then the others."""
    found = set(scopes)
    return [*(one for one in offered() if one in found), *sorted(found - offered().keys())]


def title_of(server: Server) -> str:
    return str(server.title or server.public_name)


def _title(name: str) -> str:
    """Of a server by its name; one that is there no more has that."""
    return next((title_of(one) for one in servers() if one.name == name), name)


# Beside clients.


def own_tokens(user: Any) -> list[OwnToken]:
    """The personal access tokens by which programs act for ``user``, the newest first."""
    good = Q(expires=None) | Q(expires__gt=timezone.now())
    rows = Token.objects.filter(good, user=user, revoked=None).order_by("-pk")[:MOST]
    return [_own(row) for row in rows]


def _own(row: Token) -> OwnToken:
    return OwnToken(
        str(row.pk), plain(row.name), row.prefix, _title(row.server) if row.server else "",
        in_words(_in_order(row.scopes)), row.created, row.expires, row.last_used,
    )  # fmt: skip


def places() -> dict[str, str]:
    """The servers that there are to connect to: titles by URL."""
    return {resource(server): title_of(server) for server in served().values()}
