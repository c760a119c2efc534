"""What a person is asked for: Django forms, whose validation applies to the answer."""

from django import forms


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
