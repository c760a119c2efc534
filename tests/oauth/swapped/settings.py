"""The small project of ``tests.oauth.project``, with those models, in memory."""

import os

os.environ.setdefault("SERVED_FOLDER", os.curdir)
os.environ["SITE_URL"] = "https://shop.example"

from tests.oauth.project.settings import *  # noqa: E402, F403
from tests.oauth.project.settings import INSTALLED_APPS  # noqa: E402

INSTALLED_APPS = [*INSTALLED_APPS, "tests.oauth.swapped"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
ALLOWED_HOSTS = ["shop.example"]
OAUTH2_PROVIDER_APPLICATION_MODEL = "swapped.Client"
OAUTH2_PROVIDER_GRANT_MODEL = "swapped.Code"
OAUTH2_PROVIDER_ACCESS_TOKEN_MODEL = "swapped.Access"
OAUTH2_PROVIDER_REFRESH_TOKEN_MODEL = "swapped.Refresh"
OAUTH2_PROVIDER_ID_TOKEN_MODEL = "swapped.Identity"
