"""Settings of a project without declarations, with its own database."""

import os

DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["NOISY_DATABASE"]}
}
SECRET_KEY = "only for the tests"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django_mcp"]
