"""The app that is served while faults strike."""

from django.apps import AppConfig
from django.db.backends.signals import connection_created


class Faults(AppConfig):
    name, label = "tests.faults.project", "faults"

    def ready(self) -> None:
        from . import sabotage

        connection_created.connect(sabotage.watch, dispatch_uid="faults")
