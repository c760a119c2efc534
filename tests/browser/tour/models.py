"""Orders, which can be refunded."""

from django.db import models


class Order(models.Model):
    number = models.CharField(max_length=20)
    total = models.DecimalField(max_digits=8, decimal_places=2)
    refunded = models.BooleanField(default=False)

    class Meta:
        permissions = [
            ("refund_order", "Can refund order"),
            ("approve_refund", "Can approve refund"),
        ]

    def __str__(self) -> str:
        return self.number
