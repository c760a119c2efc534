"""The project of the authorization server's tests, whose people sign in as the page has it."""

import copy
import json
import os
from pathlib import Path

from tests.docs.pages import blocks
from tests.oauth.project.settings import *  # noqa: F403

from ..provider import CLIENT, SECRET

PAGE = Path(__file__).parents[4] / "docs/how-to/third-party-sign-in.md"
SHOWN, URLS, UPSTREAM, APP = blocks(PAGE, "python")
os.environ["COMPANY_SECRET"] = SECRET
NAMED = "https://id.example/realms/shop"

exec(compile(SHOWN.replace(NAMED, os.environ["COMPANY"]), str(PAGE), "exec", dont_inherit=True))
# There is no such app but the page's own module.
INSTALLED_APPS[INSTALLED_APPS.index("accounts")] = "tests.oauth.third.project"  # noqa: F405
DJANGO_MCP["OAUTH"]["UPSTREAM"] = "tests.oauth.third.project.upstream.Accounts"  # noqa: F405
ROOT_URLCONF = "tests.oauth.third.project.urls"
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
ACCOUNT_RATE_LIMITS = False
DJANGO_MCP["OAUTH"]["REGISTRATION_RATE"] = "1000/3600"  # noqa: F405
(COMPANY,) = SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"]  # noqa: F405
assert COMPANY["client_id"] == CLIENT
# A second one, at which the same names are other people's.
OTHER = copy.deepcopy(COMPANY) | {"provider_id": "other", "name": "Other"}
OTHER["settings"]["server_url"] = os.environ["OTHER"]
SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"].append(OTHER)  # noqa: F405
# What else a test wants.
globals().update(json.loads(os.environ.get("MORE", "{}")))
