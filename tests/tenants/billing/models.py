"""Invoices, in the schema of each tenant."""

from django.db import models


class Invoice(models.Model):
    number = models.CharField(max_length=20)
    total = models.DecimalField(max_digits=10, decimal_places=2, default=1)

    def __str__(self) -> str:
        return self.number
