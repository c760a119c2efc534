"""Django forms of the atlas. Tools use them as questions to users and as input schemas."""

from datetime import timedelta

from django import forms

from example_project.atlas.models import Stop, Trip


class TripDates(forms.Form):
    """When a trip takes place."""

    starts = forms.DateField(label="First day")
    ends = forms.DateField(label="Last day")

    def clean(self) -> dict:
        cleaned = super().clean()
        starts, ends = cleaned.get("starts"), cleaned.get("ends")
        if starts and ends and ends < starts:
            self.add_error("ends", "A trip cannot end before it starts.")
        return cleaned


class FirstDay(forms.Form):
    """When a trip begins."""

    starts = forms.DateField(label="First day")


class TripMove(forms.ModelForm):
    """Another first day for a trip: it lasts as long, and its arrivals move along."""

    class Meta:
        model = Trip
        fields = ["starts"]
        labels = {"starts": "First day"}

    def clean(self) -> dict:
        cleaned = super().clean()
        if starts := cleaned.get("starts"):
            if self.instance.status == Trip.Status.DONE:
                raise forms.ValidationError("This trip is over.")
            self.moved: timedelta = starts - self.instance.starts
            self._move_end()
        return cleaned

    def _move_end(self) -> None:
        try:
            self.instance.ends += self.moved
        except OverflowError:
            raise forms.ValidationError("No calendar goes that far.") from None

    def save(self, commit: bool = True) -> Trip:
        trip = super().save(commit)
        stops = list(trip.stops.exclude(arrival=None))
        for stop in stops:
            stop.arrival += self.moved
        Stop.objects.bulk_update(stops, ["arrival"])
        return trip
