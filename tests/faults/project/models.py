"""Rows that the tools of the campaign write: effects, and notes to which clients subscribe."""

from django.db import models


class Effect(models.Model):
    """An effect of a tool; no constraint prevents duplicates."""

    key = models.CharField(max_length=100, db_index=True)
    made = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.key


class Note(models.Model):
    """A note of one client, which is notified when it is saved."""

    who = models.CharField(max_length=100, primary_key=True)
    owner = models.CharField(max_length=150)
    text = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.who
