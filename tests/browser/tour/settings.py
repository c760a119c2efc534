"""Settings of the tour: two database files in the folder of the test."""

import os
from pathlib import Path

from django_mcp.oauth import dot_settings
from django_mcp.storage import sqlite

FOLDER = Path(os.environ["SERVED_FOLDER"])
SECRET_KEY = "tour"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "tests.browser.tour.urls"
ASGI_APPLICATION = "tests.browser.tour.asgi.application"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "oauth2_provider",
    "django_mcp",
    "django_mcp.oauth",
    "tests.browser.tour",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
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
        "NAME": FOLDER / "shop.sqlite3",
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 30},
    },
    "mcp": sqlite(FOLDER / "mcp.sqlite3"),
}
DATABASE_ROUTERS = ["django_mcp.storage.router.StorageRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
LOGIN_URL = "/admin/login/"
USE_TZ = True
TIME_ZONE = "UTC"
URL = os.environ.get("TOUR_URL", "http://127.0.0.1")
OAUTH2_PROVIDER = dot_settings(URL)
DJANGO_MCP = {
    "URL": URL,
    "DATABASE": "mcp",
    "VERIFIERS": [
        "django_mcp.oauth.verifier.OAuthTokens",
        "django_mcp.verifiers.PersonalAccessTokens",
    ],
}
