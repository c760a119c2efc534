"""Invoices of tenants, which are groups. `margin` is the field that no client may see."""

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group
from django.core.validators import MinValueValidator
from django.db import models


class InvoiceQuerySet(models.QuerySet["Invoice"]):
    def of(self, user: AbstractBaseUser | AnonymousUser) -> "InvoiceQuerySet":
        """Return the invoices of the user's tenants."""
        return self.filter(tenant__user=user.pk)


class Invoice(models.Model):
    """An invoice."""

    tenant = models.ForeignKey(Group, models.CASCADE)
    number = models.CharField(max_length=20, unique=True)
    status = models.CharField(max_length=10, choices=[("open", "open"), ("paid", "paid")])
    amount = models.DecimalField(max_digits=9, decimal_places=2, validators=[MinValueValidator(0)])
    margin = models.IntegerField(default=0)

    objects = InvoiceQuerySet.as_manager()

    def __str__(self) -> str:
        return self.number
