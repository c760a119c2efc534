"""Settings of the noisy project, on a database of its own."""

import os

from tests.settings import *  # noqa: F403

if "PYTHONUNBUFFERED" not in os.environ:  # no redirection is possible yet
    print("NOISE of the settings")

DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["NOISY_DATABASE"]}
}
ROOT_URLCONF = __name__
urlpatterns: list[object] = []
DJANGO_MCP = {"URL": "https://shop.example"}
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_mcp",
    "tests.spec.noisy",
]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"noisy": {"handlers": ["stderr"], "level": "INFO"}},
}
