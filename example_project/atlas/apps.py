"""The atlas as a Django app."""

from django.apps import AppConfig


class AtlasConfig(AppConfig):
    name = "example_project.atlas"
    verbose_name = "Atlas"
