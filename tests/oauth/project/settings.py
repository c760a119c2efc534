"""A small project that is its own authorization server, at ``SITE_URL``."""

import os
from pathlib import Path

from django_mcp.conf import Scope
from django_mcp.oauth import dot_settings
from django_mcp.storage import sqlite

URL = os.environ["SITE_URL"]
SECONDS = int(os.environ.get("TOKEN_SECONDS", 3600))

SECRET_KEY = "only for the tests"
ALLOWED_HOSTS = ["127.0.0.1"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "tests.oauth.project.urls"
LOGIN_URL = "/login/"
USE_TZ = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES = {"default": sqlite(Path(os.environ["SERVED_FOLDER"]) / "db.sqlite3")}
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "oauth2_provider",
    "django_mcp",
    "django_mcp.oauth",
    "tests.oauth.project",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
            ]
        },
    }
]
OAUTH2_PROVIDER = dot_settings(URL, ACCESS_TOKEN_EXPIRE_SECONDS=SECONDS)
DJANGO_MCP = {"URL": URL, "VERIFIERS": ["django_mcp.oauth.verifier.OAuthTokens"]}
if "SITE_SCOPES" in os.environ:
    DJANGO_MCP["SCOPES"] = {
        "basic": Scope("Know who you are", covers=["tool:whoami"]),
        "write": Scope("Change users", covers=["auth.change_*"]),
    }
if "SITE_DOCUMENTS" in os.environ:
    OAUTH2_PROVIDER["CIMD_METADATA_FETCHER"] = "tests.oauth.project.documents.Fetcher"
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}
