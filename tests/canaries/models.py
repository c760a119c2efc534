"""Models with a column, a row and an object of each kind that nobody may see."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Tenant(models.Model):
    name = models.CharField(max_length=60)
    members = models.ManyToManyField(settings.AUTH_USER_MODEL)

    def __str__(self) -> str:
        return self.name


class Author(models.Model):
    """``secret`` is not whitelisted; object permission hides ``sealed`` rows."""

    tenant = models.ForeignKey(Tenant, models.CASCADE)
    name = models.CharField(max_length=60)
    secret = models.CharField(max_length=60)
    sealed = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.name} {self.secret}"


class Label(models.Model):
    tenant = models.ForeignKey(Tenant, models.CASCADE)
    word = models.CharField(max_length=60)

    def __str__(self) -> str:
        return self.word


class Paper(models.Model):
    class State(models.TextChoices):
        DRAFT = "draft", "Draft"
        FINAL = "final", "Final"

    tenant = models.ForeignKey(Tenant, models.CASCADE)
    author = models.ForeignKey(Author, models.CASCADE, related_name="papers")
    number = models.CharField(max_length=60, unique=True)
    title = models.CharField(max_length=60)
    state = models.CharField(max_length=10, choices=State.choices, default=State.DRAFT)
    amount = models.DecimalField(max_digits=12, decimal_places=2)
    day = models.DateField()
    read_at = models.DateTimeField(null=True)
    labels = models.ManyToManyField(Label)
    scan = models.FileField(upload_to="scans/", blank=True)
    secret = models.CharField(max_length=60)
    secret_rank = models.IntegerField(default=0)
    sealed = models.BooleanField(default=False)

    def __str__(self) -> str:
        return self.number  # what the admin's log says of it


class Remark(models.Model):
    """Not registered anywhere."""

    paper = models.ForeignKey(Paper, models.CASCADE, related_name="remarks")
    text = models.CharField(max_length=60)

    def __str__(self) -> str:
        return self.text
