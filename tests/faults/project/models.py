"""What the tools of the campaign write: that they did it, and what others subscribe to."""

from django.db import models


class Effect(models.Model):
    """That something was done; nothing keeps it from being there twice."""

    key = models.CharField(max_length=100, db_index=True)
    made = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.key


class Note(models.Model):
    """Of one person, who is told when it is saved."""

    who = models.CharField(max_length=100, primary_key=True)
    owner = models.CharField(max_length=150)
    text = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.who
