"""Authorize, list and disconnect a client. Print the models that were used."""

from __future__ import annotations

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.oauth.swapped.settings"

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402
from oauth2_provider.models import (  # noqa: E402
    get_access_token_model,
    get_application_model,
    get_refresh_token_model,
)

from django_mcp.oauth.connected_apps import connections  # noqa: E402
from django_mcp.oauth.revocation import lock_family  # noqa: E402
from tests.oauth.flows import browser, issued, registered  # noqa: E402


def main() -> None:
    call_command("migrate", "--run-syncdb", "-v0")
    alice, agent = User.objects.create_user("alice"), registered("dcr", name="Agent Smith")
    issued(alice, agent)
    (one,) = connections(alice)
    refresh_tokens = get_refresh_token_model().objects
    first = refresh_tokens.get()
    refresh_tokens.create(
        user=alice, application=agent, token="later", token_family=first.token_family
    )
    with CaptureQueriesContext(connection) as queries, lock_family(first.token_family):
        pass
    (lock,) = (query["sql"] for query in queries if query["sql"].startswith("UPDATE"))
    assert first.pk.hex in lock, "A later token was locked"
    assert one.scopes and "Agent Smith" in browser(alice).get("/oauth/connections").text
    browser(alice).post("/oauth/connections", {"client": agent.client_id})
    assert connections(alice) == [] and not get_access_token_model().objects.exists()
    print(type(agent).__name__, get_application_model().__name__, get_access_token_model().__name__)


main()
