"""As ``tests.oauth.project.settings``, with one more URL."""

from tests.oauth.project.settings import *  # noqa: F403

ROOT_URLCONF = "tests.verifiers.elsewhere.urls"
SILENCED_SYSTEM_CHECKS = ["django_mcp_oauth.W004", "django_mcp_oauth.W032"]
