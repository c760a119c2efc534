"""Settings of the conformance server: SQLite in the folder that `CONFORMANCE_FOLDER` names."""

import os
import tempfile
from pathlib import Path

FOLDER = Path(os.environ.get("CONFORMANCE_FOLDER") or tempfile.gettempdir())

SECRET_KEY = "only for the tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]  # the suite comes by another name, to be refused
ROOT_URLCONF = "tests.conformance.urls"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_mcp",
    "tests.conformance",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / "conformance.sqlite3",
        "OPTIONS": {
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
        "TEST": {"NAME": None},
    }
}
DJANGO_MCP = {"URL": os.environ.get("CONFORMANCE_ORIGIN", "http://127.0.0.1:8000")}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"django_mcp": {"handlers": ["stderr"], "level": "INFO"}},
}
