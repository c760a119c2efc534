"""The model of Django REST framework's tutorial."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Snippet(models.Model):
    created = models.DateTimeField(auto_now_add=True)
    title = models.CharField(max_length=100, blank=True, default="")
    code = models.TextField()
    linenos = models.BooleanField(default=False)
    language = models.CharField(
        choices=[("python", "Python"), ("ruby", "Ruby")], default="python", max_length=100
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, related_name="snippets", on_delete=models.CASCADE
    )

    class Meta:
        ordering = ["created", "pk"]

    def __str__(self) -> str:
        return self.title
