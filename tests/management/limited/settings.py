"""Settings of the project with limits, with the database of the noisy one."""

from tests.spec.noisy.settings import *  # noqa: F403

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_mcp",
    "tests.management.limited",
]
