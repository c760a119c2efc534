"""An app without models in its code: ``schema`` makes them from a seed."""

from django.apps import AppConfig


class LeaksConfig(AppConfig):
    name = "tests.leaks"
