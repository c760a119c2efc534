"""
Read-only admin pages of sessions, streams, events and calls.

``ReadOnlyAdmin`` is the base of all admins of this app. ``SessionDatabaseAdmin`` reads rows from
``DJANGO_MCP["DATABASE"]``, which may differ from the project's database.

Messages between clients and the project may contain any data, so only superusers see the fields in
``private``. Session ids are stored as digests, and the pages show only their first characters.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.models import DELETION, LogEntry
from django.db.models import Model, QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from ..conf import settings
from ..models import Call, Event, Session, Stream

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin

MAX_VALUE_LENGTH = 20_000  # characters of one value on a page


class ReadOnlyAdmin(ModelAdmin):
    """Base of admins that list and show rows, and never change them.

    ``private`` maps fields that only superusers see to the database columns that they show.
    """

    private: dict[str, str] = {}
    linked: tuple[str, ...] = ()  # foreign keys by which links from other pages filter this list
    show_full_result_count = False  # counting all rows of a large table is slow
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
        is_filter = lookup.split(LOOKUP_SEP)[0] in {*filters, *self.linked}
        return is_filter and super().lookup_allowed(lookup, value, request)

    def has_perm(self, request: HttpRequest, codename: str) -> bool:
        user: Any = request.user
        return bool(user.has_perm(f"{self.opts.app_label}.{codename}"))

    def log_action(
        self, request: HttpRequest, rows: list[Any], flag: int, message: str = ""
    ) -> None:
        """Write one entry per row to the admin's history. ``flag`` is one of Django's."""
        LogEntry.objects.log_actions(request.user.pk, rows, flag, message)  # type: ignore[arg-type]

    def link(self, model: type[Model], text: object, **filters: Any) -> SafeString:
        """Return a link to a filtered list of another model."""
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
        url = reverse(name, current_app=self.admin_site.name)
        return format_html('<a href="{}?{}">{}</a>', url, urlencode(filters), text)


def is_superuser(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))


def as_text(value: Any) -> str:
    """Return a value as text or JSON, cut at ``MAX_VALUE_LENGTH`` characters."""
    text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"


class SessionDatabaseAdmin(ReadOnlyAdmin):
    """Base of admins of rows in the database ``DJANGO_MCP["DATABASE"]``."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(settings.DATABASE)


class SessionAdmin(SessionDatabaseAdmin):
    list_display = (
        "pk", "server", "user_key", "client", "revision", "transport", "created", "last_seen",
    )  # fmt: skip
    list_filter = ("server", "revision", "transport", "initialized")
    search_fields = ("=user",)
    search_help_text = _("The key of a user")
    fields = (
        "server", "user_key", "owner", "client", "revision", "transport", "host",
        "initialized", "log_level", "created", "last_seen", "id_digest", "streams_link",
        "calls_link", "subscriptions", "client_info_text", "capabilities_text",
        "pending_changes_text",
    )  # fmt: skip
    private = {"pending_changes_text": "pending_changes"}
    actions = ("end",)

    def has_end_permission(self, request: HttpRequest) -> bool:
        return self.has_perm(request, "end_session")

    @admin.action(description=_("End selected sessions"), permissions=["end"])
    def end(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        from ..storage import sessions  # no command needs it

        ended = [session for session in queryset if sessions.end(session)]
        self.log_action(request, ended, DELETION)
        message = ngettext("%d session was ended.", "%d sessions were ended.", len(ended))
        self.message_user(request, message % len(ended), messages.SUCCESS)

    @admin.display(description=_("user"), ordering="user")
    def user_key(self, session: Session) -> str | None:
        return session.user

    @admin.display(description=_("client"))
    def client(self, session: Session) -> str:
        info = session.client_info if isinstance(session.client_info, dict) else {}
        return as_text(f"{info.get('name', '')} {info.get('version', '')}".strip())[:100]

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
        return self.link(Event, _("events"), stream=stream.pk)


class EventAdmin(SessionDatabaseAdmin):
    list_display = ("name", "stream", "seq", "size", "final", "created")
    list_filter = ("final",)
    linked = ("stream",)
    list_select_related = ("stream",)
    fields = ("stream", "seq", "size", "final", "created", "message")
    private = {"message": "data"}

    @admin.display(description=_("event"))
    def name(self, event: Event) -> str:
        return str(event)

    @admin.display(description=_("message"))
    def message(self, event: Event) -> str:
        return as_text(event.data)


class CallAdmin(SessionDatabaseAdmin):
    list_display = ("pk", "method", "session", "user_key", "state", "cancelled", "created")
    list_filter = ("state", "cancelled", "method")
    linked = ("session",)
    list_select_related = ("session",)
    fields = (
        "session", "stream", "method", "user_key", "state", "cancelled", "rounds", "runs",
        "created", "process", "fence", "scopes_text", "id_text", "params_text", "meta_text",
        "known_text",
    )  # fmt: skip
    private = {
        "id_text": "request_id", "params_text": "params", "meta_text": "meta",
        "known_text": "known",
    }  # fmt: skip

    @admin.display(description=_("user"), ordering="user")
    def user_key(self, call: Call) -> str | None:
        return call.user

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
