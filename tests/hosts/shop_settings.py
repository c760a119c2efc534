"""The shipped settings, for a site with sign-in and an authorization server."""

from django_mcp.oauth import dot_settings
from tests.hosts.settings import *  # noqa: F403

INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
    "django.contrib.messages", "django.contrib.sessions", "oauth2_provider", "django_mcp",
    "django_mcp.oauth", "tests.restarts",
]  # fmt: skip
del DATABASES["mcp"]  # noqa: F405 - one database, as shipped
DATABASE_ROUTERS: list[str] = []
DJANGO_MCP["VERIFIERS"] = ["django_mcp.oauth.verifier.OAuthTokens"]  # noqa: F405
if rate := os.environ.get("REGISTRATION_RATE"):  # noqa: F405
    DJANGO_MCP["OAUTH"] = {"REGISTRATION_RATE": rate}  # noqa: F405
ALLOWED_HOSTS.append("10.0.0.2")  # noqa: F405 - where the doctor visits: there is no DNS
OAUTH2_PROVIDER = dot_settings(DJANGO_MCP["URL"])  # noqa: F405
ROOT_URLCONF, LOGIN_URL = "tests.oauth.admin_urls", "/admin/login/"
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
PROCESSORS = [
    "django.template.context_processors.request",
    "django.contrib.auth.context_processors.auth",
    "django.contrib.messages.context_processors.messages",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
        "OPTIONS": {"context_processors": PROCESSORS},
    }
]  # fmt: skip
