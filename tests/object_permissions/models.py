"""Invoices with an owner, a history and revisions."""

import reversion
from django.conf import settings
from django.db import models
from simple_history.models import HistoricalRecords


@reversion.register()
class Invoice(models.Model):
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    number = models.CharField(max_length=20)
    total = models.DecimalField(max_digits=10, decimal_places=2, default=1)
    status = models.CharField(max_length=10, default="draft")
    history = HistoricalRecords()

    def __str__(self) -> str:
        return self.number
