"""The models of the atlas: places, which every user may see, and trips, which have an owner.

Places come from `load_atlas` and keep the keys of their source: ISO codes and GeoNames ids.
"""

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Q

from example_project.atlas.names import LAST, plain


class Continent(models.Model):
    """One of the seven continents."""

    code = models.CharField(max_length=2, primary_key=True, help_text="Two letters, such as EU.")
    name = models.CharField(max_length=40, unique=True)
    population = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Country(models.Model):
    """A country or dependent territory with an ISO 3166 code."""

    code = models.CharField(max_length=2, primary_key=True, help_text="ISO 3166-1 alpha-2 code.")
    iso3 = models.CharField("ISO 3166-1 alpha-3 code", max_length=3, unique=True)
    name = models.CharField(max_length=80, unique=True)
    capital = models.CharField(max_length=80, blank=True)
    continent = models.ForeignKey(Continent, models.PROTECT, related_name="countries")
    population = models.PositiveBigIntegerField(default=0, db_index=True)
    area = models.FloatField("area in km²")
    currency = models.CharField(max_length=3, blank=True, help_text="ISO 4217 code.")
    currency_name = models.CharField(max_length=40, blank=True)
    languages = models.CharField(
        max_length=120, blank=True, help_text="Language codes, the most spoken first."
    )
    calling_code = models.CharField(max_length=20, blank=True)
    domain = models.CharField("top-level domain", max_length=3, blank=True)
    neighbours = models.ManyToManyField("self", blank=True, help_text="Countries it borders on.")

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "countries"

    def __str__(self) -> str:
        return self.name

    @property
    def flag(self) -> str:
        """The flag in Unicode, which is a pair of regional indicator symbols."""
        return "".join(chr(ord("🇦") + ord(letter) - ord("A")) for letter in self.code)

    @property
    def density(self) -> float | None:
        """People per square kilometre."""
        return round(self.population / self.area, 1) if self.area else None


class CityQuerySet(models.QuerySet["City"]):
    """A queryset of cities that finds them by name."""

    def named(self, prefix: str) -> "CityQuerySet":
        """Return the cities whose names begin with `prefix`, without regard to accents and case.

        It is a range and not LIKE, because SQLite then uses the index.
        """
        start = plain(prefix)
        return self.filter(plain_name__gte=start, plain_name__lt=start + LAST)


class City(models.Model):
    """A populated place of at least 500 people, or the seat of an administration."""

    geonameid = models.IntegerField("GeoNames id", primary_key=True)
    name = models.CharField(max_length=100)
    plain_name = models.CharField(
        max_length=120, editable=False, help_text="The name in lower case without accents."
    )
    other_names = models.TextField(
        blank=True, help_text="What it is called elsewhere, separated by vertical bars."
    )
    country = models.ForeignKey(Country, models.PROTECT, related_name="cities", db_index=False)
    admin_code = models.CharField(
        max_length=8, blank=True, help_text="First-level division: a state, province, canton..."
    )
    population = models.PositiveIntegerField(default=0)
    latitude = models.FloatField()
    longitude = models.FloatField()
    timezone = models.CharField("time zone", max_length=40)

    objects = CityQuerySet.as_manager()

    class Meta:
        ordering = ["-population", "-geonameid"]
        verbose_name_plural = "cities"
        indexes = [
            models.Index(fields=["plain_name"], name="city_by_name"),
            models.Index(fields=["population", "geonameid"], name="city_by_population"),
            models.Index(fields=["country", "population"], name="city_by_country"),
            models.Index(fields=["latitude", "longitude"], name="city_by_place"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.country_id})"

    def save(self, *args, **options) -> None:
        self.plain_name = plain(self.name)
        super().save(*args, **options)


class TripQuerySet(models.QuerySet["Trip"]):
    """A queryset of trips that finds those of a user."""

    def of(self, user) -> "TripQuerySet":
        """Return the trips of `user`, and none for an anonymous one."""
        return self.filter(owner_id=user.pk) if user.is_authenticated else self.none()


class Trip(models.Model):
    """A journey through cities, planned or made by its owner."""

    class Status(models.TextChoices):
        PLANNED = "planned", "Planned"
        BOOKED = "booked", "Booked"
        DONE = "done", "Done"
        CANCELLED = "cancelled", "Cancelled"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="trips")
    title = models.CharField(max_length=120)
    starts = models.DateField()
    ends = models.DateField()
    status = models.CharField(max_length=10, choices=Status, default=Status.PLANNED)
    notes = models.TextField(blank=True)
    cities = models.ManyToManyField(City, through="Stop", related_name="trips")

    objects = TripQuerySet.as_manager()

    class Meta:
        ordering = ["starts", "pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(ends__gte=F("starts")),
                name="trip_ends_after_it_starts",
                violation_error_message="A trip cannot end before it starts.",
            )
        ]
        indexes = [models.Index(fields=["owner", "starts"], name="trip_by_owner")]

    def __str__(self) -> str:
        return self.title

    @property
    def days(self) -> int:
        """How many days the trip takes, its first and last included."""
        return (self.ends - self.starts).days + 1


class Stop(models.Model):
    """A city on a trip: the first has position 1."""

    trip = models.ForeignKey(Trip, models.CASCADE, related_name="stops", db_index=False)
    city = models.ForeignKey(City, models.PROTECT, related_name="stops")
    position = models.PositiveSmallIntegerField()
    arrival = models.DateField(null=True, blank=True)

    class Meta:
        ordering = ["trip", "position"]
        constraints = [
            models.UniqueConstraint(fields=["trip", "position"], name="one_stop_per_position")
        ]

    def __str__(self) -> str:
        return f"{self.position}. {self.city}"

    def clean(self) -> None:
        trip = getattr(self, "trip", None)  # an incomplete form has no trip, or no dates
        if not (self.arrival and trip and trip.starts and trip.ends):
            return
        if not trip.starts <= self.arrival <= trip.ends:
            raise ValidationError(
                {"arrival": f"Between {trip.starts} and {trip.ends}, as the trip is."}
            )
