"""Settings of the conformance server, whose databases are in the folder `CONFORMANCE_FOLDER`."""

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


def sqlite(name: str) -> dict[str, object]:
    """A file of that name, where readers never wait and a writer takes its lock when it begins."""
    journal = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / f"{name}.sqlite3",
        "OPTIONS": {"init_command": journal, "transaction_mode": "IMMEDIATE", "timeout": 20},
        "TEST": {"NAME": None},
    }


# A tool's transaction must not keep what the tool says from being written.
DATABASES = {"default": sqlite("project"), "delivery": sqlite("delivery")}
DATABASE_ROUTERS = ["django_mcp.delivery.router.DeliveryRouter"]
DJANGO_MCP = {
    "URL": os.environ.get("CONFORMANCE_ORIGIN", "http://127.0.0.1:8000"),
    "DATABASE": "delivery",
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"django_mcp": {"handlers": ["stderr"], "level": "INFO"}},
}
