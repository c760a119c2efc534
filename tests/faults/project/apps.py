"""The Django app of the fault campaign's project."""

from django.apps import AppConfig
from django.db.backends.signals import connection_created


class Faults(AppConfig):
    name, label = "tests.faults.project", "faults"

    def ready(self) -> None:
        from . import injection

        connection_created.connect(injection.watch, dispatch_uid="faults")
