"""Tables with rows to fetch and to save."""

from django.db import models


class City(models.Model):
    name = models.CharField(max_length=100)
    population = models.PositiveIntegerField()

    def __str__(self) -> str:
        return self.name


class Town(models.Model):
    """A model that is not registered."""

    name = models.CharField(max_length=100)
    population = models.PositiveIntegerField()
    near = models.ManyToManyField("self", symmetrical=False)

    def __str__(self) -> str:
        return self.name
