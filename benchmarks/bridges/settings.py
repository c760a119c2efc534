"""Settings of the compared project. `COMPARED` names a module of `packages`."""

import os
from pathlib import Path

COMPARED = f"benchmarks.bridges.packages.{os.environ['COMPARED']}"
FOLDER = Path(os.environ["BENCHMARK_FOLDER"])
APP = {
    "django_mcp_rest": "django_mcp",
    "django_mcp_ninja": "django_mcp",
    "django_mcp_admin": "django_mcp",
    "django_mcp_server": "mcp_server",
    "django_rest_framework_mcp": "djangorestframework_mcp",
    "django_admin_mcp": "django_admin_mcp",
}.get(os.environ["COMPARED"])
SECRET_KEY = "compared, not served"
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django_filters",
    "rest_framework",
    "rest_framework.authtoken",
    *([APP] if APP else []),
    "benchmarks.bridges",
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
        "NAME": FOLDER / "db.sqlite3",
        "OPTIONS": {"timeout": 20},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = COMPARED
USE_TZ = True
REST_FRAMEWORK = {
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
}
DJANGO_MCP = {"URL": "http://localhost"}
DJANGO_MCP_AUTHENTICATION_CLASSES = ["rest_framework.authentication.TokenAuthentication"]
