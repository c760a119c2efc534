"""Settings of the example project: a demonstration on one machine, with SQLite.

Environment variables: `ATLAS_DATABASE` is the path of the database file, and other files of the
demonstration lie beside it. `ATLAS_URL` is the public origin of the site. Clients store their
tokens under it, because it identifies the authorization server. `ATLAS_DEBUG=0` turns `DEBUG` off.
"""

import os
from pathlib import Path

from django_mcp.oauth import dot_settings
from django_mcp.storage import sqlite
from example_project.secret import secret_key

BASE = Path(__file__).resolve().parent
DATABASE = Path(os.environ.get("ATLAS_DATABASE", BASE / "db.sqlite3"))
URL = os.environ.get("ATLAS_URL", "http://127.0.0.1:8000")

DEBUG = os.environ.get("ATLAS_DEBUG", "1") == "1"
SECRET_KEY = secret_key(BASE / "secret_key")
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

INSTALLED_APPS = [
    "daphne",  # first: its runserver serves ASGI
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "oauth2_provider",
    "rest_framework",
    "django_filters",
    "django_mcp",
    "django_mcp.oauth",
    "example_project.atlas",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "example_project.urls"
ASGI_APPLICATION = "example_project.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DATABASE,
        "OPTIONS": {
            # Readers never wait for the writer, and a writer takes its lock when it begins,
            # so that it waits for its turn instead of failing half-way.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
        "TEST": {"NAME": None},
    },
    # Sessions over HTTP have a file of their own, so that they never wait for a tool's transaction.
    "mcp": sqlite(DATABASE.with_name("mcp.sqlite3")),
}
DATABASE_ROUTERS = ["django_mcp.storage.router.StorageRouter"]
# All processes share this cache. The database makes `add` atomic, which one-time checks need.
# `createcachetable` creates its table.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "cache",
        "OPTIONS": {"MAX_ENTRIES": 10_000},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
}

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = LOGOUT_REDIRECT_URL = "/mcp"  # most users have no access to the admin

DJANGO_MCP = {
    "URL": URL,
    "DATABASE": "mcp",
    "VERIFIERS": [
        "django_mcp.verifiers.PersonalAccessTokens",
        "django_mcp.oauth.verifier.OAuthTokens",
    ],
}
OAUTH2_PROVIDER = dot_settings(URL)
