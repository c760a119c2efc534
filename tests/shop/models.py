"""The shop that the tests sell from: one model for each shape of row the package must show.

`Customer.notes` is the shop's secret: no answer, order, filter or search may ever reveal it.
"""

import uuid
from decimal import Decimal

from django.conf import settings
from django.db import models


class Company(models.Model):
    name = models.CharField(max_length=100, unique=True)
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="companies")

    class Meta:
        verbose_name_plural = "companies"

    def __str__(self) -> str:
        return self.name


class Customer(models.Model):
    company = models.ForeignKey(Company, models.CASCADE, related_name="customers")
    name = models.CharField(max_length=100, db_index=True)
    email = models.EmailField(blank=True)
    notes = models.TextField(blank=True, help_text="What we really think of them.")
    referred_by = models.ForeignKey("self", models.SET_NULL, null=True, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Tag(models.Model):
    label = models.CharField(max_length=40, unique=True)

    def __str__(self) -> str:
        return self.label


class Invoice(models.Model):
    class Status(models.TextChoices):
        DRAFT = "draft", "Draft"
        OPEN = "open", "Awaiting payment"
        PAID = "paid", "Paid"

    company = models.ForeignKey(Company, models.CASCADE, related_name="invoices")
    customer = models.ForeignKey(Customer, models.PROTECT, related_name="invoices")
    number = models.CharField(max_length=20, unique=True, help_text="Printed on the paper.")
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.DRAFT)
    total = models.DecimalField("amount due", max_digits=10, decimal_places=2)
    issued = models.DateField()
    paid_at = models.DateTimeField(null=True, blank=True)
    tags = models.ManyToManyField(Tag, blank=True, related_name="invoices")
    attachment = models.FileField(upload_to="invoices/", blank=True)
    metadata = models.JSONField(default=dict, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["issued", "id"], name="shop_invoice_issued"),
            models.Index(fields=["paid_at", "id"], name="shop_invoice_paid_at"),
        ]

    def __str__(self) -> str:
        return self.number

    @property
    def overdue(self) -> bool:
        """Whether the customer should have paid by now."""
        return self.status == self.Status.OPEN and self.total > Decimal(0)


class Note(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    text = models.TextField()
    written = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.text


class Article(models.Model):
    """Texts to search by the words in them."""

    title = models.CharField(max_length=200)
    body = models.TextField(blank=True)
    draft = models.TextField(blank=True)
    team = models.ForeignKey(Company, models.CASCADE, null=True, related_name="articles")

    def __str__(self) -> str:
        return self.title


class Place(models.Model):
    name = models.CharField(max_length=60)
    city = models.CharField(max_length=60, blank=True)

    def __str__(self) -> str:
        return self.name


class Warehouse(Place):
    """A place (multi-table inheritance): its key is its place's."""

    capacity = models.PositiveIntegerField(null=True, blank=True)


class LocalPlace(Place):
    """A proxy of a place."""

    class Meta:
        proxy = True


class Sample(models.Model):
    """A column of nearly every type that can be put in order, nullable or full of ties."""

    name = models.CharField(max_length=30)
    nickname = models.CharField(max_length=30, null=True, blank=True)  # noqa: DJ001
    weight = models.FloatField(null=True, blank=True)
    rank = models.IntegerField(default=0)
    price = models.DecimalField(max_digits=9, decimal_places=3, null=True, blank=True)
    checked = models.BooleanField(default=False)
    day = models.DateField(null=True, blank=True)
    moment = models.DateTimeField(null=True, blank=True)
    clock = models.TimeField(null=True, blank=True)
    lasts = models.DurationField(null=True, blank=True)
    token = models.UUIDField(null=True, blank=True)
    address = models.GenericIPAddressField(null=True, blank=True)
    blob = models.BinaryField(null=True, blank=True)
    place = models.ForeignKey(Place, models.SET_NULL, null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["rank"], name="shop_sample_rank"),
            models.Index(fields=["weight"], name="shop_sample_weight"),
        ]

    def __str__(self) -> str:
        return self.name


class LedgerLine(models.Model):
    """A line of a company's ledger; a line's number is its own only within the company."""

    pk = models.CompositePrimaryKey("company_id", "line")
    company = models.ForeignKey(Company, models.CASCADE, related_name="ledger")
    line = models.IntegerField()
    text = models.CharField(max_length=60)
    amount = models.DecimalField(max_digits=10, decimal_places=2)

    def __str__(self) -> str:
        return self.text


class Badge(models.Model):
    """Keyed by a string; customers point to it by its colour."""

    code = models.CharField(max_length=20, primary_key=True)
    colour = models.CharField(max_length=20, unique=True)

    def __str__(self) -> str:
        return self.code


class Wearer(models.Model):
    """A foreign key that does not point to the key (`to_field`)."""

    badge = models.ForeignKey(Badge, models.CASCADE, to_field="colour", related_name="wearers")
    locker = models.OneToOneField(Place, models.SET_NULL, null=True, related_name="wearer")

    def __str__(self) -> str:
        return f"{self.badge_id}"
