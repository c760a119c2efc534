"""Pages about trips. `mcp.py` names those that MCP clients may use too.

A page shows and changes only the trips of the signed-in user.
"""

from datetime import timedelta

from django.contrib import messages
from django.contrib.auth.mixins import LoginRequiredMixin, PermissionRequiredMixin
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.functional import cached_property
from django.views.generic import DetailView, FormView

from example_project.atlas.forms import FirstDay
from example_project.atlas.models import Trip
from example_project.atlas.trips import itinerary, repeat


class OwnTrips(LoginRequiredMixin):
    """A view of the trips of the signed-in user."""

    model = Trip

    def get_queryset(self):
        return Trip.objects.of(self.request.user)


class TripPage(OwnTrips, DetailView):
    """A trip on one page: its cities, the ways between them and the nights."""

    template_name = "atlas/trip.html"

    def get_context_data(self, **context):
        return super().get_context_data(itinerary=itinerary(self.object), **context)


class TripCalendar(OwnTrips, DetailView):
    """The stops of a trip as a calendar file (iCalendar), to put into a calendar."""

    def render_to_response(self, context, **options) -> HttpResponse:
        events = [event(stop) for stop in self.object.stops.select_related("city") if stop.arrival]
        lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//atlas//EN", *events, "END:VCALENDAR"]
        headers = {"Content-Disposition": f'attachment; filename="trip-{self.object.pk}.ics"'}
        return HttpResponse("\r\n".join([*lines, ""]), "text/calendar", headers=headers)


def event(stop) -> str:
    """Return a stop as an all-day event (RFC 5545)."""
    place = stop.city.name.replace("\\", "\\\\").replace(",", "\\,").replace(";", "\\;")
    lines = [
        "BEGIN:VEVENT", f"UID:stop-{stop.pk}@atlas", f"DTSTAMP:{stop.arrival:%Y%m%d}T000000Z",
        f"DTSTART;VALUE=DATE:{stop.arrival:%Y%m%d}", f"SUMMARY:{place}", "END:VEVENT",
    ]  # fmt: skip
    return "\r\n".join(lines)


class TripAgain(PermissionRequiredMixin, FormView):
    """Take a trip once more: the same cities in the same order, from another first day."""

    permission_required = "atlas.add_trip"
    form_class = FirstDay
    template_name = "atlas/again.html"

    @cached_property
    def trip(self) -> Trip:
        return get_object_or_404(Trip.objects.of(self.request.user), pk=self.kwargs["pk"])

    def get_initial(self):
        return {"starts": self.trip.starts + timedelta(days=364)}  # the same day of the week

    def form_valid(self, form) -> HttpResponse:
        try:
            with transaction.atomic():
                again = repeat(self.trip, form.cleaned_data["starts"])
        except OverflowError:
            form.add_error("starts", "No calendar goes that far.")
            return self.form_invalid(form)
        messages.success(self.request, f"“{again}” is planned from {again.starts}.")
        return redirect("trips:page", again.pk)
