"""Settings without our OAuth server, whose dependencies cannot be imported."""

import os
import sys
from pathlib import Path

from django_mcp.storage import sqlite

sys.modules.update(dict.fromkeys(("oauth2_provider", "oauthlib")))  # type: ignore[arg-type]

SECRET_KEY = "only for the tests"
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "tests.verifiers.project.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": sqlite(Path(os.environ["SERVED_FOLDER"]) / "db.sqlite3")}
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_mcp",
    "tests.verifiers.project",
]
MIDDLEWARE = [
    "django.middleware.common.CommonMiddleware",
]
DJANGO_MCP = {
    "URL": os.environ["SITE_URL"],
    "VERIFIERS": os.environ["VERIFIERS"].split(),
    "JSON_GRACE": 0.1,
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}
