"""
Sessions, and what is said in them: streams, events and calls.

Rule: the rows are read where the log is kept, which need not be where the
project's own are. Ids are digests, and only the beginning of them is shown.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import DELETION
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from ..conf import settings
from ..delivery import sessions
from ..models import Call, Event, Session, Stream
from .reading import ReadOnlyAdmin, shown


class LogAdmin(ReadOnlyAdmin):
    """Of the database ``DJANGO_MCP["DATABASE"]``."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(settings.DATABASE)


class SessionAdmin(LogAdmin):
    list_display = (
        "pk", "server", "user_key", "client", "revision", "transport", "created", "last_seen",
    )  # fmt: skip
    list_filter = ("server", "revision", "transport", "initialized")
    search_fields = ("=user",)
    search_help_text = _("The key of a user")
    fields = (
        "server", "user_key", "owner", "client", "revision", "transport", "host",
        "initialized", "log_level", "created", "last_seen", "id_digest", "streams_link",
        "calls_link", "subscriptions", "client_info_shown", "capabilities_shown", "news",
    )  # fmt: skip
    private = {"news": "dirty"}
    actions = ("end",)

    def has_end_permission(self, request: HttpRequest) -> bool:
        return self.allowed(request, "end_session")

    @admin.action(description=_("End selected sessions"), permissions=["end"])
    def end(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        ended = [session for session in queryset if sessions.end(session)]
        self.note(request, ended, DELETION)
        message = ngettext("%d session was ended.", "%d sessions were ended.", len(ended))
        self.message_user(request, message % len(ended), messages.SUCCESS)

    @admin.display(description=_("user"), ordering="user")
    def user_key(self, session: Session) -> str | None:
        return session.user

    @admin.display(description=_("client"))
    def client(self, session: Session) -> str:
        told = session.client_info if isinstance(session.client_info, dict) else {}
        return shown(f"{told.get('name', '')} {told.get('version', '')}".strip())[:100]

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
    def client_info_shown(self, session: Session) -> str:
        return shown(session.client_info)

    @admin.display(description=_("capabilities"))
    def capabilities_shown(self, session: Session) -> str:
        return shown(session.capabilities)

    @admin.display(description=_("news that no stream has taken"))
    def news(self, session: Session) -> str:
        return shown(session.dirty)


class StreamAdmin(LogAdmin):
    list_display = ("pk", "session", "standalone", "last", "size", "owed", "closed", "created")
    list_filter = ("standalone", "closed")
    linked = ("session",)
    list_select_related = ("session",)
    fields = (
        "session", "standalone", "events_link", "first", "last", "size", "owed", "closed", "ended",
        "reader", "released", "created",
    )  # fmt: skip

    @admin.display(description=_("events"))
    def events_link(self, stream: Stream) -> SafeString:
        return self.link(Event, _("events"), stream=stream.pk)


class EventAdmin(LogAdmin):
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
        return shown(event.data)


class CallAdmin(LogAdmin):
    list_display = ("pk", "method", "session", "user_key", "state", "cancelled", "created")
    list_filter = ("state", "cancelled", "method")
    linked = ("session",)
    list_select_related = ("session",)
    fields = (
        "session", "stream", "method", "user_key", "state", "cancelled", "rounds", "runs",
        "created", "process", "fence", "scopes_shown", "id_shown", "params_shown", "meta_shown",
        "known_shown",
    )  # fmt: skip
    private = {
        "id_shown": "request_id", "params_shown": "params", "meta_shown": "meta",
        "known_shown": "known",
    }  # fmt: skip

    @admin.display(description=_("user"), ordering="user")
    def user_key(self, call: Call) -> str | None:
        return call.user

    @admin.display(description=_("scopes"))
    def scopes_shown(self, call: Call) -> str:
        return " ".join(call.scopes or ())

    @admin.display(description=_("request id"))
    def id_shown(self, call: Call) -> str:
        return shown(call.request_id)

    @admin.display(description=_("params"))
    def params_shown(self, call: Call) -> str:
        return shown(call.params)

    @admin.display(description=_("meta"))
    def meta_shown(self, call: Call) -> str:
        return shown(call.meta)

    @admin.display(description=_("answers"))
    def known_shown(self, call: Call) -> str:
        return shown(call.known)
