"""Settings of the conformance server, whose databases are in the folder `CONFORMANCE_FOLDER`."""

import os
import tempfile
from pathlib import Path

from django_mcp.oauth import dot_settings

FOLDER = Path(os.environ.get("CONFORMANCE_FOLDER") or tempfile.gettempdir())

SECRET_KEY = "only for the tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]  # the suite comes by another name, to be refused
ROOT_URLCONF = "tests.conformance.urls"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "oauth2_provider",
    "django_mcp",
    "django_mcp.oauth",
    "tests.conformance",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": ["django.template.context_processors.request"]},
    }
]


def sqlite(name: str) -> dict[str, object]:
    """A SQLite file in WAL mode, whose transactions lock immediately."""
    journal = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / f"{name}.sqlite3",
        "OPTIONS": {"init_command": journal, "transaction_mode": "IMMEDIATE", "timeout": 20},
        "TEST": {"NAME": None},
    }


# A tool's transaction must not keep what the tool says from being written.
DATABASES = {"default": sqlite("project"), "storage": sqlite("storage")}
DATABASE_ROUTERS = ["django_mcp.storage.router.StorageRouter"]
URL = os.environ.get("CONFORMANCE_ORIGIN", "http://127.0.0.1:8000")
DJANGO_MCP = {
    "URL": URL,
    "DATABASE": "storage",
    "VERIFIERS": ["django_mcp.oauth.verifier.OAuthTokens"],
}
OAUTH2_PROVIDER = dot_settings(URL)
LOGIN_URL = "/login/"
SILENCED_SYSTEM_CHECKS = ["django_mcp_oauth.W004"]  # nothing leaves this machine
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"django_mcp": {"handlers": ["stderr"], "level": "INFO"}},
}
