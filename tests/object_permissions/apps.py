"""The app of these tests, which calls itself billing, as the recipes do."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "tests.object_permissions"
    label = "billing"
