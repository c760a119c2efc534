from django.contrib.auth.models import User
from django.db import models


class Company(models.Model):
    name = models.CharField(max_length=100)
    members = models.ManyToManyField(User)

    def __str__(self) -> str:
        return self.name


class Invoice(models.Model):
    number = models.CharField(max_length=20, unique=True)
    total = models.DecimalField(max_digits=10, decimal_places=2)
    company = models.ForeignKey(Company, models.CASCADE)

    def __str__(self) -> str:
        return self.number

    def refund(self, reason: str) -> None: ...
