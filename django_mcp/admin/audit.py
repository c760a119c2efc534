"""
Read-only admin of the audit log, its chart of calls by day, and its export.

The pages must be fast with a million entries. They count at most as many entries as a list shows,
search only for exact values of indexed columns, and offer all years, months and days between the
first and the last entry, instead of searching for those that have entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import MAXYEAR, MINYEAR, date, datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG, PAGE_VAR, SEARCH_VAR, ChangeList
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.db.models import Count, Max, Min, Q, QuerySet
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBadRequest,
    StreamingHttpResponse,
)
from django.shortcuts import render
from django.urls import URLPattern, path
from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import override

from ..calls.callers import caller_text, usernames
from ..calls.records import CallOutcome
from ..management.audit_export import FORMATS, pages
from ..models import Approval, AuditEntry, Session
from ..storage.databases import rows
from .log import ReadOnlyAdmin, as_text, known_values_filter, method_names, server_names

CHART_DAYS = 30
BAR_WIDTH = 400  # pixels
CONTENT_TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}
OUTCOMES: dict[str, Any] = {
    CallOutcome.OK: _("OK"),
    CallOutcome.ERROR: _("error of the tool or its arguments"),
    CallOutcome.FAILED: _("failed"),
    CallOutcome.DENIED: _("denied"),
    CallOutcome.THROTTLED: _("throttled"),
    CallOutcome.INPUT_REQUIRED: _("asked the client"),
    CallOutcome.APPROVAL_PENDING: _("waiting for approval"),
    CallOutcome.CANCELLED: _("cancelled"),
}
# The outcomes that the chart counts as errors.
ERRORS = (CallOutcome.ERROR, CallOutcome.FAILED)
PERIODS = ("at__year", "at__month", "at__day")  # parameters of Django's date hierarchy
SEARCHED = ("username", "user", "client", "name", "trace_id")


def outcome_label(entry: AuditEntry) -> str:
    """Return the outcome of an entry for people, in their language."""
    return str(OUTCOMES.get(entry.outcome, entry.outcome))


def _has_own_index(request: HttpRequest) -> bool:
    """Whether the query selects entries by a column that has an index of its own.

    The index of times has all other columns of filters.
    """
    return any(request.GET.get(name) for name in (*SEARCHED, SEARCH_VAR))


class AuditChangeList(ChangeList):
    """The list of entries. For entries of one user in a period, it also filters by key."""

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        period = DateNavigation(request).period
        if period is None and PERIODS[0] in request.GET:
            # Django itself fails for dates next to its first and its last year.
            raise IncorrectLookupParameters
        found: QuerySet[Any] = super().get_queryset(request, *args, **kwargs)
        if period is None or not _has_own_index(request):
            return found
        # The index of a user has keys and no times. Without the keys of the period, the database
        # would read all entries of the user.
        span = self.root_queryset.order_by().filter(at__gte=period[0], at__lt=period[1])
        keys = span.aggregate(first=Min("pk"), last=Max("pk"))
        if keys["first"] is None:
            return found.none()
        return found.filter(pk__gte=keys["first"], pk__lte=keys["last"])

    def get_results(self, request: HttpRequest) -> None:
        """Set ``caller_text`` of the shown entries, with one query for all impersonators."""
        super().get_results(request)
        shown: Any = [*self.result_list]
        names = usernames([entry.impersonator for entry in shown])
        for entry in shown:
            entry.caller_text = caller_text(_user_of(entry), entry.impersonator, names)
        self.result_list = shown


def _user_of(entry: AuditEntry) -> str:
    return entry.username or entry.user or "-"


class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = (
        "at", "who", "client_text", "what", "outcome_text", "duration_text", "rows_text",
    )  # fmt: skip
    list_filter = (
        known_values_filter("outcome", _("outcome"), lambda: OUTCOMES.items()),
        known_values_filter("method", _("method"), method_names),
        known_values_filter("server", _("server"), server_names),
    )
    linked = ("user", "username", "client", "name", "session", "trace_id")
    date_hierarchy = "at"
    show_facets = admin.ShowFacets.NEVER  # they count all entries of each filter
    search_fields = SEARCHED
    search_help_text = _(
        "A whole user name, user id, client id, tool, prompt, URI template or trace id"
    )
    fields = (
        "at", "outcome_text", "error", "server", "method", "name", "arguments_text", "user_link",
        "approval_link", "client", "client_name", "session_link", "transport", "revision",
        "duration_text", "queries", "rows_written", "trace_link",
    )  # fmt: skip
    change_list_template = "django_mcp/admin/audit_list.html"

    def has_export_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and self.has_perm(request, "export_auditentry")

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        # Only exact values: every other lookup may read all entries.
        filters: Any = self.list_filter
        if lookup in PERIODS:  # Django makes a range of them, but not of a month or day alone
            return all(one in request.GET for one in PERIODS[: PERIODS.index(lookup)])
        return lookup in {*self.linked, *(one.parameter_name for one in filters)}

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Return the order of the index that the database reads, so that it sorts nothing."""
        return ("-pk",) if _has_own_index(request) else ("-at", "-pk")

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditEntry]:
        # Only the page of an entry shows the arguments. It loads them then.
        return super().get_queryset(request).defer("arguments")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AuditEntry], search_term: str
    ) -> tuple[QuerySet[AuditEntry], bool]:
        """Find entries with the text as the whole value of a column."""
        if not search_term:
            return queryset, False
        known = AuditEntry._default_manager.using(queryset.db)
        # Usually it is in one column, whose index has the entries in the order of the list.
        matching = [{name: search_term} for name in SEARCHED]
        found = [one for one in matching if known.filter(**one).exists()]
        condition = Q()
        for one in found:
            condition |= Q(**one)
        return (queryset.filter(condition) if found else queryset.none()), False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return AuditChangeList

    # Pages.

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path("by-day/", view(self.by_day), name="django_mcp_auditentry_by_day"),
            path("export/", view(self.export), name="django_mcp_auditentry_export"),
        ]
        return [*own, *super().get_urls()]  # first: Django's pattern matches every path

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        dates = DateNavigation(request)
        context = {
            "back": dates.back(),
            "dates": dates.links(self.get_queryset(request)),
            "may_export": self.has_export_permission(request),
            "query": request.GET.urlencode(),
            "kill_switch_url": self.kill_switch_url(request, request.GET.get("client", "")),
        }
        return super().changelist_view(request, context | (extra_context or {}))

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        entry = context["original"]
        tool = f"tool:{entry.name}" if entry.method == "tools/call" else ""
        url = self.kill_switch_url(request, entry.client, f"{entry.server}|{tool}")
        context = {"kill_switch_url": url, **context}
        return super().render_change_form(request, context, *args, **kwargs)

    def by_day(self, request: HttpRequest) -> HttpResponse:
        """Show how many calls and errors there were on each of the last days."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        days = list(self._days(self.get_queryset(request)))
        context = self.admin_site.each_context(request)
        context |= {
            "title": _("Calls by day"), "opts": self.opts, "days": days, "bar_width": BAR_WIDTH,
        }  # fmt: skip
        return render(request, "django_mcp/admin/audit_by_day.html", context)

    def _days(self, entries: QuerySet[AuditEntry]) -> Iterator[dict[str, Any]]:
        today = timezone.localdate() if settings.USE_TZ else date.today()
        found = []
        for past in range(CHART_DAYS):
            day = today - timedelta(days=past)
            # One short range of an index for each day. The database's functions for dates would
            # read all entries.
            span = entries.filter(at__gte=midnight(day), at__lt=midnight(day + timedelta(days=1)))
            counts = dict(
                span.order_by()
                .values("outcome")
                .annotate(n=Count("pk"))
                .values_list("outcome", "n")
            )
            errors = sum(counts.get(one, 0) for one in ERRORS)
            denied = counts.get(CallOutcome.DENIED, 0) + counts.get(CallOutcome.THROTTLED, 0)
            found.append((day, sum(counts.values()), errors, denied))
        most = max([calls for _, calls, _, _ in found]) or 1
        for day, calls, errors, denied in found:
            query = {"at__year": day.year, "at__month": day.month, "at__day": day.day}
            yield {
                "day": day, "calls": calls, "errors": errors, "denied": denied,
                "query": urlencode(query),
                "calls_width": round(BAR_WIDTH * calls / most),
                "errors_width": round(BAR_WIDTH * errors / most),
            }  # fmt: skip

    def export(self, request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        """Send the entries that the filters in the query select, as a file."""
        if not self.has_export_permission(request):
            raise PermissionDenied
        format = request.POST.get("format", "")
        if request.method != "POST" or format not in FORMATS:
            return HttpResponseBadRequest()
        try:
            selected = self.get_changelist_instance(request).queryset
        except IncorrectLookupParameters:
            return HttpResponseBadRequest()
        filters = request.GET.urlencode()[:1_000]
        with override(settings.LANGUAGE_CODE):  # as all entries of the admin's history
            text = _("Exported as %(format)s: %(filters)s") % {
                "format": format, "filters": filters or _("all entries"),
            }  # fmt: skip
            self.log_page_action(request.user, str(self.opts.verbose_name_plural), text)
        texts = FORMATS[format](pages(selected))
        response = StreamingHttpResponse(
            _aiter(texts) if isinstance(request, ASGIRequest) else texts,
            content_type=CONTENT_TYPES[format],
        )
        response["Content-Disposition"] = f'attachment; filename="audit.{format}"'
        response["X-Content-Type-Options"] = "nosniff"
        return response

    # Columns. Only the time can be sorted by: the others have no ``ordering``.

    @admin.display(description=_("user"))
    def who(self, entry: AuditEntry) -> str | SafeString:
        text = getattr(entry, "caller_text", None) or _user_of(entry)
        return text if entry.user is None else self.link(AuditEntry, text, user=entry.user)

    @admin.display(description=_("client"))
    def client_text(self, entry: AuditEntry) -> str | SafeString:
        if not entry.client:
            return entry.client_name or "-"
        return self.link(AuditEntry, entry.client_name or entry.client, client=entry.client)

    @admin.display(description=_("tool, prompt or resource"))
    def what(self, entry: AuditEntry) -> SafeString:
        return self.link(AuditEntry, entry.name or "-", name=entry.name)

    @admin.display(description=_("outcome"))
    def outcome_text(self, entry: AuditEntry) -> str:
        return outcome_label(entry)

    @admin.display(description=_("duration"))
    def duration_text(self, entry: AuditEntry) -> str:
        return f"{formats.number_format(entry.duration * 1000, decimal_pos=1)} ms"

    @admin.display(description=_("rows written"))
    def rows_text(self, entry: AuditEntry) -> int:
        return entry.rows_written

    @admin.display(description=_("arguments"))
    def arguments_text(self, entry: AuditEntry) -> str | SafeString:
        if entry.arguments is None:
            return "-"
        return format_html("<pre>{}</pre>", as_text(entry.arguments))

    @admin.display(description=_("user"))
    def user_link(self, entry: AuditEntry) -> str | SafeString:
        """The user, with a link to their page if the viewer may see it."""
        if entry.user is None:
            return "-"
        name = caller_text(
            f"{entry.username} ({entry.user})", entry.impersonator, usernames([entry.impersonator])
        )
        page = getattr(entry, "user_page", None)
        shown = _linked(name, page)
        entries = self.link(AuditEntry, _("all entries of this user"), user=entry.user)
        return format_html("{} · {}", shown, entries)

    @admin.display(description=_("approval"))
    def approval_link(self, entry: AuditEntry) -> str | SafeString:
        """The approval, with a link to its page if it exists and the viewer may see it."""
        if entry.approval is None:
            return "-"
        page = getattr(entry, "approval_page", None)
        return _linked(str(entry.approval), page)

    @admin.display(description=_("session"))
    def session_link(self, entry: AuditEntry) -> str | SafeString:
        """The session, with a link to its page if it exists and the viewer may see it."""
        if entry.session is None:
            return "-"
        page = getattr(entry, "session_page", None)
        number = str(entry.session)
        shown = _linked(number, page)
        entries = self.link(AuditEntry, _("all entries of this session"), session=number)
        return format_html("{} · {}", shown, entries)

    @admin.display(description=_("trace id"))
    def trace_link(self, entry: AuditEntry) -> str | SafeString:
        if not entry.trace_id:
            return "-"
        return self.link(AuditEntry, entry.trace_id, trace_id=entry.trace_id)

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Return an entry, with links to the pages that the viewer may see."""
        entry: Any = super().get_object(request, *args, **kwargs)
        if entry is not None:
            entry.user_page = self._page_of(request, get_user_model(), entry.user)
            if Approval._default_manager.filter(pk=entry.approval).exists():
                entry.approval_page = self._page_of(request, Approval, entry.approval)
            if rows(Session).filter(pk=entry.session).exists():
                entry.session_page = self._page_of(request, Session, entry.session)
        return entry

    def _page_of(self, request: HttpRequest, model: Any, key: Any) -> str | None:
        found = self.admin_site._registry.get(model)
        if key is None or found is None or not found.has_view_permission(request):
            return None
        return self.url(model, "change", key)


class DateNavigation:
    """Links to the years, months or days in the period that the query chooses.

    ``period`` is the beginning and the end of that year, month or day. It is None if none is
    chosen, or if there is no such date.

    Django's own navigation searches all entries for years, months and days that have entries. This
    one offers all between the first and the last entry.
    """

    def __init__(self, request: HttpRequest) -> None:
        self._query = request.GET
        self._chosen = tuple(map(self._number, PERIODS))
        self.period = self._period()
        if self.period is None:
            self._chosen = (None, None, None)

    def _number(self, parameter: str) -> int | None:
        text = self._query.get(parameter, "")
        return int(text) if text.isdecimal() and len(text) <= 4 else None

    def _period(self) -> tuple[datetime, datetime] | None:
        year, month, day = self._chosen
        # In the first and the last year, an end or a time in UTC may be out of range.
        if year is None or not MINYEAR < year < MAXYEAR:
            return None
        try:
            if day and month:
                start = date(year, month, day)
                return midnight(start), midnight(start + timedelta(days=1))
            start = date(year, month or 1, 1)
            return midnight(start), midnight(next_month(start) if month else date(year + 1, 1, 1))
        except ValueError:  # the address was written by hand
            return None

    def back(self) -> tuple[str, str] | None:
        """Return the link to the next longer period, or None if none is chosen."""
        year, month, day = self._chosen
        if year and month and day:
            return self._link(month_name(date(year, month, 1)), year, month)
        if year and month:
            return self._link(str(year), year)
        return self._link(str(_("All dates"))) if year else None

    def links(self, entries: QuerySet[AuditEntry]) -> list[tuple[str, str]]:
        """Return links to the parts of the period from the first to the last of the entries."""
        times = entries.order_by("at").values_list("at", flat=True)
        first_time, last_time = times.first(), times.last()
        year, month, day = self._chosen
        if first_time is None or last_time is None or day:
            return []
        first, last = local_date(first_time), local_date(last_time)
        if year is None and first.year < last.year:
            return [self._link(str(one), one) for one in range(first.year, last.year + 1)]
        if month is None:
            year = year or first.year
            months = [date(year, number, 1) for number in range(1, 13)]
            months = [one for one in months if first.replace(day=1) <= one <= last]
            return [self._link(month_name(one), year, one.month) for one in months]
        assert year is not None
        day_of_month, end = date(year, month, 1), next_month(date(year, month, 1))
        found = []
        while day_of_month < end:
            if first <= day_of_month <= last:
                text = formats.date_format(day_of_month, "MONTH_DAY_FORMAT")
                found.append(self._link(text, year, month, day_of_month.day))
            day_of_month += timedelta(days=1)
        return found

    def _link(self, text: str, *chosen: int) -> tuple[str, str]:
        """Return the address of the list of a period, with the other filters, and its text."""
        query = self._query.copy()
        for parameter in (*PERIODS, PAGE_VAR, ERROR_FLAG):
            query.pop(parameter, None)
        for parameter, number in zip(PERIODS, chosen, strict=False):
            query[parameter] = str(number)
        return f"?{query.urlencode()}", text


def _linked(text: str, page: str | None) -> str | SafeString:
    """Return the text, with a link to ``page`` if the viewer may see that page."""
    return format_html('<a href="{}">{}</a>', page, text) if page else text


def month_name(day: date) -> str:
    return formats.date_format(day, "YEAR_MONTH_FORMAT")


def next_month(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=31)).replace(day=1)


def local_date(moment: datetime) -> date:
    return timezone.localtime(moment).date() if settings.USE_TZ else moment.date()


def midnight(day: date) -> datetime:
    start = datetime(day.year, day.month, day.day)
    return timezone.make_aware(start) if settings.USE_TZ else start


async def _aiter(texts: Iterator[str]) -> Any:
    """Yield ``texts`` asynchronously: under ASGI, Django reads a whole iterator before it sends."""
    take = sync_to_async(lambda: next(texts, None))
    while (text := await take()) is not None:
        yield text
