"""
Read-only admin pages of sessions, streams, events and calls.

``ReadOnlyAdmin`` is the base of all admins of this app. ``SessionDatabaseAdmin`` reads rows from
``DJANGO_MCP["DATABASE"]``, which may differ from the project's database. The pages must be fast
with 100,000 sessions: no page counts all rows, and filters offer known values instead of reading
those in the table.

Messages between clients and the project may contain any data, so only superusers see the fields in
``private``. Session ids are stored as digests, and the pages show only their first characters.

With the admin, every command imports this module. So modules that only pages need are imported in
functions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from django.apps import apps
from django.conf import settings as project
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.functional import Promise, cached_property
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext, override

from ..calls.callers import usernames
from ..calls.records import RECORDED_METHODS
from ..conf import settings
from ..declarations.server import servers
from ..models import DONE, PARKED, RUNNING, Call, Event, Session, Stream, Switch
from ..storage.databases import rows

if TYPE_CHECKING:
    StrOrPromise = str | Promise
    ModelAdmin = admin.ModelAdmin[Any]
    BasePaginator = Paginator[Any]
else:
    ModelAdmin, BasePaginator = admin.ModelAdmin, Paginator

MAX_VALUE_LENGTH = 20_000  # characters of one value on a page
MAX_COUNTED_ROWS = 5_000  # of a list
# For which a session counts as active after its last request. While a client reads a stream,
# ``last_seen`` is updated every minute.
ACTIVE_SECONDS = 150


class AdminPaginator(BasePaginator):
    """Counts at most ``MAX_COUNTED_ROWS`` rows, because counting a large table is slow.

    A list with more rows shows the first ones only. Use filters to find others.
    """

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        # Without the order, the database can stop at the first rows that match.
        return int(rows.order_by()[:MAX_COUNTED_ROWS].count())

    @property
    def is_capped(self) -> bool:
        """Whether there may be more rows than it counts."""
        return self.count >= MAX_COUNTED_ROWS


class ReadOnlyAdmin(ModelAdmin):
    """Base of admins that list and show rows, and never change them.

    ``private`` maps fields that only superusers see to the database columns that they show.
    ``object_actions`` are the actions that the page of a row offers, with the texts of the buttons.
    """

    private: dict[str, str] = {}
    object_actions: dict[str, StrOrPromise] = {}
    linked: tuple[str, ...] = ()  # foreign keys by which links from other pages filter this list
    show_full_result_count = False  # counting all rows of a large table is slow
    paginator = AdminPaginator
    change_list_template = "django_mcp/admin/list.html"
    change_form_template = "django_mcp/admin/row.html"
    list_per_page = 50
    ordering = ("-pk",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # ``private`` columns may be large. They are loaded only when they are shown.
        return super().get_queryset(request).defer(*self.private.values())

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        fields = list(super().get_fields(request, obj))
        if is_superuser(request):
            return fields
        return [name for name in fields if name not in self.private]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow only filters of ``list_filter`` and ``linked``.

        A filter by another column would reveal its hidden value, one guess at a time.
        """
        filters = (item[0] if isinstance(item, tuple) else item for item in self.list_filter)
        names = {getattr(item, "parameter_name", item) for item in filters}
        is_filter = lookup.split(LOOKUP_SEP)[0] in {*names, *self.linked}
        return is_filter and super().lookup_allowed(lookup, value, request)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Add the actions that the user may run as buttons, which need no JavaScript."""
        allowed = self.get_actions(request)
        offered = {name: text for name, text in self.object_actions.items() if name in allowed}
        context = {"object_actions": offered, **context}
        return super().render_change_form(request, context, *args, **kwargs)

    def selected(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows for an action, at most ``MAX_COUNTED_ROWS``.

        The list counts no more rows, and "Select all" shows that number to the user.
        """
        return queryset[:MAX_COUNTED_ROWS]

    def has_perm(self, request: HttpRequest, codename: str) -> bool:
        user: Any = request.user
        return bool(user.has_perm(f"{self.opts.app_label}.{codename}"))

    def log_action(
        self, request: HttpRequest, rows: list[Any], flag: int, message: str | Promise = ""
    ) -> None:
        """Write one entry per row to the admin's history. ``flag`` is one of Django's.

        Entries are in the language of the site, because the history has readers of all languages.
        """
        user: Any = request.user
        with override(project.LANGUAGE_CODE):
            LogEntry.objects.log_actions(user.pk, rows, flag, str(message))

    def log_page_action(self, user: Any, about: str, message: str) -> None:
        """Write an entry that concerns no row to the admin's history.

        The caller chooses the language of the texts: that of the site.
        """
        LogEntry.objects.create(
            user_id=user.pk, action_flag=CHANGE, object_repr=about[:200], change_message=message,
            content_type=ContentType.objects.get_for_model(self.model, for_concrete_model=False),
        )  # fmt: skip

    def url(self, model: type[Model], page: str, *args: Any) -> str | None:
        """Return the URL of an admin page of ``model``; None if the model is not registered."""
        if not self.admin_site.is_registered(model):
            return None
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
        return reverse(name, args=args, current_app=self.admin_site.name)

    def kill_switch_url(self, request: HttpRequest, client: str, what: str = "") -> str | None:
        """Return the URL of the form for a kill switch that applies to an OAuth client.

        ``what`` is a value of the form's field. Return None if there is no such client, as for a
        personal token, or without the permission.
        """
        found = self.admin_site._registry.get(Switch)
        may_add = found is not None and found.has_add_permission(request)
        if not (client and may_add and client_exists(client)):
            return None
        query = {"client": client} | ({"what": what} if what else {})
        return f"{self.url(Switch, 'add')}?{urlencode(query)}"

    def link(self, model: type[Model], text: object, **filters: Any) -> SafeString:
        """Return a link to a filtered list of another model, or the text if it has no list."""
        url = self.url(model, "changelist")
        if url is None:
            return format_html("{}", text)
        return format_html('<a href="{}?{}">{}</a>', url, urlencode(filters), text)


def client_exists(client_id: str) -> bool:
    """Whether an OAuth client of django-oauth-toolkit has this client id, in this very spelling."""
    if not apps.is_installed("oauth2_provider"):
        return False
    from oauth2_provider.models import get_application_model

    found = get_application_model()._default_manager.filter(client_id=client_id)
    # Some databases ignore case. A switch for another spelling would apply to nobody.
    return client_id in found.values_list("client_id", flat=True)


def is_superuser(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))


def as_text(value: Any) -> str:
    """Return a value as text or JSON, cut at ``MAX_VALUE_LENGTH`` characters."""
    text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"


def active_since() -> datetime:
    """Return the time since which the client of an active session has been seen."""
    return timezone.now() - timedelta(seconds=ACTIVE_SECONDS)


# Filters whose choices are known, so that they are not read from the table.

Choices = Iterable[tuple[str, Any]]


def known_values_filter(column: str, label: Any, choices: Callable[[], Choices]) -> type[Any]:
    """Return a list filter by ``column``, which offers ``choices``."""

    class KnownValuesFilter(admin.SimpleListFilter):
        parameter_name, title = column, label

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
            return list(choices())

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            value = self.value()
            return queryset if value is None else queryset.filter(**{column: value})

    return KnownValuesFilter


def server_names() -> Choices:
    return [(server.name, server.public_name) for server in servers() if not server._is_empty]


def method_names() -> Choices:
    return [(name, name) for name in sorted(RECORDED_METHODS)]


def revision_names() -> Choices:
    from ..protocol.revisions import REVISIONS  # no command needs it

    return [(name, name) for name in REVISIONS]


class ActiveFilter(admin.SimpleListFilter):
    """Sessions whose client was seen lately, or not."""

    parameter_name, title = "active", _("active")

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("yes", _("Yes")), ("no", _("No"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "yes":
            return queryset.filter(last_seen__gte=active_since())
        return queryset.filter(last_seen__lt=active_since()) if self.value() == "no" else queryset


class SessionDatabaseAdmin(ReadOnlyAdmin):
    """Base of admins of rows in the database ``DJANGO_MCP["DATABASE"]``."""

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Add the name of its user to each row that has one."""
        changelist: Any = super().get_changelist_instance(request)
        listed = [row for row in changelist.result_list if hasattr(row, "user")]
        names = usernames({row.user for row in listed}) if listed else {}
        for row in listed:
            row.username = names.get(row.user)
        return changelist

    @admin.display(description=_("user"), ordering="user")
    def user_key(self, row: Any) -> str | None:
        """Return the name of the user of a session or call, or the key of a deleted one."""
        if not hasattr(row, "username"):  # not in a list
            row.username = usernames({row.user}).get(row.user)
        name: str | None = row.username
        return f"{name} ({row.user})" if name else row.user

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(settings.DATABASE)


def client_name(session: Session) -> str:
    """Return the name and version of the client, as it calls itself."""
    info = session.client_info if isinstance(session.client_info, dict) else {}
    return as_text(f"{info.get('name', '')} {info.get('version', '')}".strip())[:100]


class SessionAdmin(SessionDatabaseAdmin):
    list_display = (
        "pk", "is_active", "user_key", "client", "server", "revision", "transport", "created",
        "last_seen",
    )  # fmt: skip
    list_filter = (
        ActiveFilter,
        known_values_filter("server", _("server"), server_names),
        known_values_filter("revision", _("revision"), revision_names),
        known_values_filter(
            "transport", _("transport"), lambda: [("http", "http"), ("sse", "sse")]
        ),
    )
    ordering = ("-last_seen",)
    search_fields = ("=user",)
    search_help_text = _("The key of a user")
    fields = (
        "server", "user_key", "owner", "client", "oauth_client", "revision", "transport", "host",
        "initialized", "log_level", "created", "last_seen", "id_digest", "streams_link",
        "calls_link", "subscriptions", "client_info_text", "capabilities_text",
        "pending_changes_text",
    )  # fmt: skip
    private = {"pending_changes_text": "pending_changes"}
    actions = ("end",)
    object_actions = {"end": _("End this session")}

    def has_end_permission(self, request: HttpRequest) -> bool:
        return self.has_perm(request, "end_session")

    @admin.action(description=_("End selected sessions"), permissions=["end"])
    def end(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        from ..calls.administration import end_session  # no command needs it

        ended = [session for session in self.selected(queryset) if end_session(session)]
        self.log_action(request, ended, DELETION)
        message = ngettext("%d session was ended.", "%d sessions were ended.", len(ended))
        self.message_user(request, message % len(ended), messages.SUCCESS)

    @admin.display(description=_("active"), boolean=True)
    def is_active(self, session: Session) -> bool:
        return session.last_seen >= active_since()

    @admin.display(description=_("OAuth client"))
    def oauth_client(self, session: Session) -> str:
        """The OAuth client that the token of the session was given to."""
        from ..auth.principal import applications

        application = applications([session.owner]).get(session.owner)
        if application is None:
            return "-"
        client_id = str(getattr(application, "client_id", application.pk))
        return f"{getattr(application, 'name', '')} ({client_id})".strip()

    @admin.display(description=_("client"))
    def client(self, session: Session) -> str:
        return client_name(session)

    @admin.display(description=_("digest of the id"))
    def id_digest(self, session: Session) -> str:
        return f"{session.digest[:12]}…"

    @admin.display(description=_("streams"))
    def streams_link(self, session: Session) -> SafeString:
        return self.link(Stream, session.streams, session=session.pk)

    @admin.display(description=_("calls"))
    def calls_link(self, session: Session) -> SafeString:
        return self.link(Call, _("calls"), session=session.pk)

    @admin.display(description=_("client info"))
    def client_info_text(self, session: Session) -> str:
        return as_text(session.client_info)

    @admin.display(description=_("capabilities"))
    def capabilities_text(self, session: Session) -> str:
        return as_text(session.capabilities)

    @admin.display(description=_("changes that are not sent yet"))
    def pending_changes_text(self, session: Session) -> str:
        return as_text(session.pending_changes)


MESSAGES_PER_PAGE = 50


class StreamMessage(NamedTuple):
    """An event of a stream, decoded: what kind of message it is. ``text`` is "" if it is hidden."""

    seq: int
    kind: str
    size: int
    created: datetime
    text: str


def stream_messages(stream: int, after: int, *, with_text: bool) -> list[StreamMessage]:
    """Return the next events of a stream after a number, decoded."""
    from ..storage import event_log  # no command needs it

    # At most about 256 KB, so that a page of large events does not fill the memory.
    found = dict(event_log.read(stream, after, MESSAGES_PER_PAGE))
    events = rows(Event).filter(stream=stream, seq__in=list(found)).order_by("seq")
    return [
        StreamMessage(
            seq, message_kind(found[seq]), size, created, pretty(found[seq]) if with_text else ""
        )
        for seq, size, created in events.values_list("seq", "size", "created")
    ]


def message_kind(text: str) -> str:
    """Return the method of a message, or whether it is a result or an error. No content."""
    message = json.loads(text)
    if isinstance(message, list):
        return str(_("batch"))
    if method := message.get("method"):
        return str(method)[:100]
    return str(_("error response") if "error" in message else _("response"))


def pretty(text: str) -> str:
    return as_text(json.loads(text))


class StreamAdmin(SessionDatabaseAdmin):
    list_display = (
        "pk",
        "session",
        "standalone",
        "last",
        "size",
        "pending_responses",
        "closed",
        "created",
    )
    list_filter = ("standalone", "closed")
    linked = ("session",)
    list_select_related = ("session",)
    fields = (
        "session", "standalone", "events_link", "first", "last", "size", "pending_responses",
        "closed", "ended", "reader", "released", "created",
    )  # fmt: skip

    @admin.display(description=_("events"))
    def events_link(self, stream: Stream) -> SafeString:
        name = "admin:django_mcp_stream_messages"
        url = reverse(name, args=[stream.pk], current_app=self.admin_site.name)
        return format_html('<a href="{}">{}</a>', url, _("messages in order"))

    def get_urls(self) -> list[URLPattern]:
        messages = self.admin_site.admin_view(self.messages)
        own = path("<int:pk>/messages/", messages, name="django_mcp_stream_messages")
        return [own, *super().get_urls()]

    def messages(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the requests and events of a stream by number, one page after the other.

        ``?after=`` is the number after which the page begins, so every page takes the same time.
        """
        if not (self.has_view_permission(request) and self.has_perm(request, "view_event")):
            raise PermissionDenied
        stream = self.get_queryset(request).select_related("session").filter(pk=pk).first()
        if stream is None:
            raise Http404
        start = request.GET.get("after", "")
        after = int(start) if start.isascii() and start.isdigit() and len(start) < 19 else 0
        page = stream_messages(pk, after, with_text=is_superuser(request))
        context = self.admin_site.each_context(request)
        context |= {"title": _("Messages of stream #{}").format(pk), "opts": self.opts}
        context |= {"stream": stream, "events": page, "with_text": is_superuser(request)}
        context |= {"first": not after, "following": page[-1].seq if page else None}
        context["is_last"] = not page or page[-1].seq >= stream.last
        if self.has_perm(request, "view_call"):
            columns = ("method", "name", "user", "state", "cancelled", "created")
            calls = rows(Call).filter(stream=pk).order_by("pk").only(*columns)
            context["calls"] = calls[:MESSAGES_PER_PAGE]
        return render(request, "django_mcp/admin/messages.html", context)


class EventAdmin(SessionDatabaseAdmin):
    list_display = ("label", "stream", "seq", "size", "final", "created")
    list_filter = ("final",)
    linked = ("stream",)
    list_select_related = ("stream",)
    fields = ("stream", "seq", "size", "final", "created", "message")
    private = {"message": "data"}

    @admin.display(description=_("event"))
    def label(self, event: Event) -> str:
        return str(event)

    @admin.display(description=_("message"))
    def message(self, event: Event) -> str:
        return as_text(event.data)


STATES = {RUNNING: _("running"), PARKED: _("waiting for an answer"), DONE: _("done")}


class CallAdmin(SessionDatabaseAdmin):
    list_display = (
        "pk", "method", "name", "user_key", "session", "state", "cancelled", "created",
    )  # fmt: skip
    list_filter = (
        known_values_filter("state", _("state"), lambda: STATES.items()),
        "cancelled",
        known_values_filter("method", _("method"), method_names),
    )
    linked = ("session",)
    list_select_related = ("session",)
    fields = (
        "session", "stream", "method", "name", "user_key", "state", "cancelled", "rounds", "runs",
        "created", "process", "fence", "scopes_text", "id_text", "params_text", "meta_text",
        "known_text",
    )  # fmt: skip
    actions = ("cancel",)
    object_actions = {"cancel": _("Cancel this call")}
    private = {
        "id_text": "request_id", "params_text": "params", "meta_text": "meta",
        "known_text": "known",
    }  # fmt: skip

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return self.has_perm(request, "cancel_call")

    @admin.action(description=_("Cancel selected calls"), permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Call]) -> None:
        """Cancel those that have not ended. The client gets an error response."""
        from ..calls.administration import cancel_call  # no command needs it

        cancelled = [call for call in self.selected(queryset) if cancel_call(call.pk)]
        self.log_action(request, cancelled, CHANGE, _("Cancelled."))
        message = ngettext("%d call was cancelled.", "%d calls were cancelled.", len(cancelled))
        self.message_user(request, message % len(cancelled), messages.SUCCESS)

    @admin.display(description=_("scopes"))
    def scopes_text(self, call: Call) -> str:
        return " ".join(call.scopes or ())

    @admin.display(description=_("request id"))
    def id_text(self, call: Call) -> str:
        return as_text(call.request_id)

    @admin.display(description=_("params"))
    def params_text(self, call: Call) -> str:
        return as_text(call.params)

    @admin.display(description=_("meta"))
    def meta_text(self, call: Call) -> str:
        return as_text(call.meta)

    @admin.display(description=_("answers"))
    def known_text(self, call: Call) -> str:
        return as_text(call.known)
