"""
The control room: one page of what happens now, and links to the pages on which staff can act.

Each section needs the permission to view its rows. The page counts and shows only a few rows of
each kind, so that it stays fast. Calls without a session are not stored while they run, so it
cannot show them. It changes nothing and needs no JavaScript.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.formats import localize, number_format
from django.utils.html import format_html
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from ..calls.callers import caller_text, usernames
from ..calls.records import CallOutcome
from ..declarations.server import servers
from ..models import DONE, Approval, ApprovalStatus, Ask, AuditEntry, Call, Session, Switch
from ..storage.databases import rows
from .audit import outcome_label
from .log import STATES, SessionAdmin, active_since, client_name
from .switches import effect_of

if TYPE_CHECKING:
    from datetime import datetime

MAX_SHOWN_ROWS = 10  # of each section
MAX_COUNTED_ROWS = 1_000  # of each section: more are shown as "1,000+"
# The outcomes of audited calls that the page shows.
OUTCOMES_TO_SHOW = (CallOutcome.DENIED, CallOutcome.FAILED, CallOutcome.THROTTLED)
APPS = ("django_mcp", "django_mcp_oauth")


@dataclass
class ControlRoomSection:
    """A section of the page: a heading, a table, and a link to the list with all rows."""

    title: str
    columns: Sequence[str]
    cells: list[Sequence[Any]] = field(default_factory=list)
    count: str = ""
    note: str = ""
    url: str | None = None


def may_view(request: HttpRequest) -> bool:
    """Whether the user may view at least one section."""
    return any(_may(request, name) for name in ("view_session", "view_call", "view_switch"))


def _may(request: HttpRequest, codename: str) -> bool:
    user: Any = request.user
    return bool(user.has_perm(f"django_mcp.{codename}"))


class ControlRoomAdmin(SessionAdmin):
    """The admin of sessions, with the URL of the control room."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.control_room)
        own = path("control-room/", view, name="django_mcp_control_room")
        return [own, *super().get_urls()]  # first: Django's pattern matches every path

    def control_room(self, request: HttpRequest) -> HttpResponse:
        """Show the page. Raise ``PermissionDenied``."""
        if not may_view(request):
            raise PermissionDenied
        site = self.admin_site
        context = site.each_context(request) | {"title": _("MCP control room"), "opts": self.opts}
        context["sections"] = list(ControlRoom(request, self).sections())
        apps = [app for app in site.get_app_list(request) if app["app_label"] in APPS]
        context |= {"apps": apps, "now": localtime()}
        return render(request, "django_mcp/admin/control_room.html", context)


class ControlRoom:
    """The sections of the page for one request."""

    def __init__(self, request: HttpRequest, model_admin: ControlRoomAdmin) -> None:
        self._request, self._admin = request, model_admin

    def sections(self) -> Iterator[ControlRoomSection]:
        """Yield the sections that the user may view."""
        viewable = {name: _may(self._request, f"view_{name}") for name in ("session", "call")}
        sessions = self._sessions() if viewable["session"] else []
        calls = self._calls() if viewable["call"] else []
        # One query for the names of all users of the page.
        users = [*(row.user for row in sessions), *(row.user for row in calls)]
        self._names = usernames(users)
        if viewable["session"]:
            yield self._session_section(sessions)
        if viewable["call"]:
            yield self._call_section(calls)
            yield self._question_section()
        approvals: Any = self._admin.admin_site._registry.get(Approval)
        if approvals is not None and approvals.has_view_permission(self._request):
            yield self._approval_section(approvals.get_queryset(self._request))
        if _may(self._request, "view_switch"):
            yield self._switch_section()
        if _may(self._request, "view_auditentry"):
            yield self._audit_section()
        if viewable["call"]:
            yield self._throttle_section()

    # Sessions and calls.

    def _sessions(self) -> list[Session]:
        columns = ("user", "server", "revision", "transport", "client_info", "last_seen")
        return list(_active_sessions().order_by("-last_seen").only(*columns)[:MAX_SHOWN_ROWS])

    def _session_section(self, shown: list[Session]) -> ControlRoomSection:
        section = ControlRoomSection(
            _("Active sessions"),
            (_("session"), _("user"), _("client"), _("server"), _("revision"), _("transport"),
             _("last seen")),
            count=_count(_active_sessions()),
            url=self._list_url(Session, "active=yes"),
            note=_(
                "Their clients sent a request or read a stream in the last two and a half minutes."
            ),
        )  # fmt: skip
        for row in shown:
            section.cells.append((
                self._link(row), self._user(row), client_name(row), row.server, row.revision,
                row.transport, _time(row.last_seen),
            ))  # fmt: skip
        return section

    def _calls(self) -> list[Call]:
        found = _open_calls().order_by("pk").select_related("session")
        return list(found.only(
            "method", "name", "user", "state", "created", "session__server"
        )[:MAX_SHOWN_ROWS])  # fmt: skip

    def _call_section(self, shown: list[Call]) -> ControlRoomSection:
        section = ControlRoomSection(
            _("Calls in progress"),
            (_("call"), _("name"), _("user"), _("session"), _("state"), _("since")),
            count=_count(_open_calls()), url=self._list_url(Call, "state=running"),
            note=_(
                "The oldest come first. Calls without a session, and calls of the last moment, "
                "are not stored while they run, so they are not listed."
            ),
        )  # fmt: skip
        for row in shown:
            section.cells.append((
                self._link(row), row.name or row.method, self._user(row), self._link(row.session),
                STATES.get(row.state, row.state), _time(row.created),
            ))  # fmt: skip
        return section

    def _question_section(self) -> ControlRoomSection:
        found = rows(Ask).filter(open=True)
        shown = found.order_by("deadline").select_related("call").only(
            "deadline", "call__method", "call__name", "call__user"
        )[:MAX_SHOWN_ROWS]  # fmt: skip
        section = ControlRoomSection(
            _("Questions without an answer"),
            (_("call"), _("name"), _("answer until")),
            count=_count(found), url=self._list_url(Call, "state=parked"),
        )  # fmt: skip
        for row in shown:
            call = row.call
            section.cells.append((self._link(call), call.name or call.method, _time(row.deadline)))
        return section

    def _approval_section(self, visible: QuerySet[Approval]) -> ControlRoomSection:
        """Return the section with those approvals that the user sees in their list."""
        found = visible.filter(status=ApprovalStatus.PENDING, expires__gt=timezone.now())
        section = ControlRoomSection(
            _("Calls waiting for approval"),
            (_("approval"), _("name"), _("user"), _("expires")),
            count=_count(found), url=self._list_url(Approval),
        )  # fmt: skip
        waiting = [*found.order_by("expires", "pk").select_related("user")[:MAX_SHOWN_ROWS]]
        names = usernames([row.impersonator for row in waiting])
        for row in waiting:
            link = format_html(
                '<a href="{}">#{}</a>', self._admin.url(Approval, "change", row.pk), row.pk
            )
            user = row.user.get_username() if row.user else ""
            user = caller_text(user, row.impersonator, names)
            section.cells.append((link, row.tool, user, _time(row.expires)))
        return section

    # Kill switches and the audit log.

    def _switch_section(self) -> ControlRoomSection:
        found = Switch.objects.order_by("-since")
        section = ControlRoomSection(
            _("Kill switches"),
            (_("kill switch"), _("effect"), _("reason"), _("since"), _("added by")),
            count=_count(found), url=self._list_url(Switch),
        )  # fmt: skip
        for row in found.select_related("by")[:MAX_SHOWN_ROWS]:
            by = row.by.get_username() if row.by else ""
            section.cells.append(
                (self._link(row), effect_of(row), row.reason, _time(row.since), by)
            )
        return section

    def _audit_section(self) -> ControlRoomSection:
        columns = ("at", "username", "client_name", "method", "name", "outcome", "error")
        # In this order, the database reads outcomes in the index of times instead of the rows.
        found = AuditEntry.objects.filter(outcome__in=OUTCOMES_TO_SHOW).order_by("-at", "-pk")
        section = ControlRoomSection(
            _("Latest denied, failed and throttled calls"),
            (_("entry"), _("time"), _("user"), _("client"), _("name"), _("outcome"), _("error")),
            url=self._list_url(AuditEntry),
            note=_("Only servers and tools with an audit log have entries."),
        )  # fmt: skip
        for row in found.only(*columns)[:MAX_SHOWN_ROWS]:
            section.cells.append((
                self._link(row), _time(row.at), row.username, row.client_name, row.name,
                outcome_label(row), row.error,
            ))  # fmt: skip
        return section

    # Throttles.

    def _throttle_section(self) -> ControlRoomSection:
        section = ControlRoomSection(
            _("Throttles"),
            (_("throttle"), _("server"), _("calls of")),
            note=_(
                "Throttles are declared in the project's code. Deploy it to change them. To limit "
                "calls without a deployment, add a limit under kill switches."
            ),
        )
        for server in servers():
            if server._is_empty:
                continue
            declared = [(_("all declarations"), server._throttles)]
            declared += [
                (one._qualified_name, one._throttles)
                for one in server._catalog._declarations()
                if one.throttle is not None
            ]
            section.cells += [
                (repr(throttle), server.public_name, counted)
                for counted, throttles in declared
                for throttle in throttles
            ]
        return section

    # Cells.

    def _user(self, row: Any) -> str:
        return self._names.get(row.user) or row.user or _("anonymous")

    def _list_url(self, model: Any, query: str = "") -> str | None:
        """Return the URL of a list, or None if the project has not registered the model."""
        url = self._admin.url(model, "changelist")
        return f"{url}?{query}" if url and query else url

    def _link(self, row: Any) -> Any:
        url = self._admin.url(type(row), "change", row.pk)
        may = _may(self._request, f"view_{row._meta.model_name}")
        text = str(row) if isinstance(row, Switch) else f"#{row.pk}"
        return format_html('<a href="{}">{}</a>', url, text) if url and may else text


def _active_sessions() -> QuerySet[Session]:
    return rows(Session).filter(last_seen__gte=active_since())


def _open_calls() -> QuerySet[Call]:
    return rows(Call).exclude(state=DONE)


def _count(found: QuerySet[Any]) -> str:
    count = found.order_by()[:MAX_COUNTED_ROWS].count()
    text = str(number_format(count, force_grouping=True))
    return f"{text}+" if count >= MAX_COUNTED_ROWS else text


def _time(value: datetime) -> str:
    return str(localize(localtime(value)))
