"""Settings of the stuck project, on the noisy one's database."""

from tests.spec.noisy.settings import *  # noqa: F403

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_mcp",
    "tests.management.stuck",
]
