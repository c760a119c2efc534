"""A table with rows to fetch one of."""

from django.db import models


class City(models.Model):
    name = models.CharField(max_length=100)
    population = models.PositiveIntegerField()

    def __str__(self) -> str:
        return self.name
