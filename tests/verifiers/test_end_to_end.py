"""The official MCP client uses tokens of another issuer at a server in another process.

That process has neither the embedded authorization server nor its dependencies installed.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.http import BOTH
from tests.oauth.agent import text
from tests.oauth.site import Site, manage
from tests.servers import Served
from tools.ports import free_port

from .issuer import CLIENT, SECRET, Issuer

pytestmark = pytest.mark.slow

SETTINGS = "tests.verifiers.project.settings"
APPLICATION = "tests.verifiers.project.asgi:application"
ALICE = "from django.contrib.auth.models import User; User.objects.create_user('alice')"
SECOND = f"""
from django.contrib.auth.models import User
from oauth2_provider.models import get_access_token_model, get_application_model, set_token_value
from django.utils import timezone
from datetime import timedelta
user = User.objects.get(username="alice")
get_application_model().objects.create(
    name="shop", client_id={CLIENT!r}, client_secret={SECRET!r}, client_type="confidential",
    authorization_grant_type="client-credentials",
)
agent = get_application_model().objects.create(
    name="agent", client_type="public", authorization_grant_type="authorization-code",
    redirect_uris="http://127.0.0.1:7777/",
)
for name, resource in (("good", "RESOURCE"), ("other", "https://other.example/mcp")):
    token = get_access_token_model()(
        user=user, application=agent, scope="mcp", expires=timezone.now() + timedelta(hours=1),
        resource=[resource],
    )
    set_token_value(token, name)
    token.save()
"""
REVOKE = """
from oauth2_provider.models import get_access_token_model
get_access_token_model().objects.all().delete()
"""


class Shop:
    """A running project that trusts other issuers."""

    def __init__(self, folder: Path, *verifiers: str, **environ: str) -> None:
        self.folder, self.port = folder, free_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        self.endpoint = f"{self.origin}/mcp"
        self.environ = {
            "DJANGO_SETTINGS_MODULE": SETTINGS, "SITE_URL": self.origin,
            "VERIFIERS": " ".join(verifiers), **environ,
        }  # fmt: skip
        self.manage("migrate", "-v0")
        self.manage("shell", "-v0", "-c", ALICE)

    def manage(self, *arguments: str) -> str:
        return manage(self.folder, self.environ, *arguments)

    def serve(self) -> Served:
        given: dict[str, Any] = {"application": APPLICATION, "port": self.port}
        return Served("uvicorn", self.folder, **given, **self.environ)


async def whoami(endpoint: str, token: str, mode: str = "auto") -> str:
    headers = {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(endpoint, http_client=http), mode=mode) as client,
    ):
        return text(await client.call_tool("whoami", {}))


async def post_with_token(shop: Shop, token: str | None) -> httpx2.Response:
    """Send a request with a token, without a client."""
    async with httpx2.AsyncClient(timeout=60) as web:
        headers = {"accept": BOTH} | ({"authorization": f"Bearer {token}"} if token else {})
        return await web.post(shop.endpoint, headers=headers, json={})


async def status(shop: Shop, token: str) -> int:
    return (await post_with_token(shop, token)).status_code


async def rejection(shop: Shop, token: str | None) -> httpx2.Response:
    response = await post_with_token(shop, token)
    assert response.status_code == 401, response
    return response


async def test_client_with_a_token_of_another_issuer_is_accepted(tmp_path):
    with Issuer() as issuer:
        shop = Shop(tmp_path, "tests.verifiers.project.tokens.signed", ISSUER=issuer.name)
        assert "no issues" in shop.manage("check", "--fail-level", "WARNING")
        with shop.serve() as served:
            token = issuer.token(shop.endpoint)
            for mode in ("auto", "legacy"):
                assert await whoami(shop.endpoint, token, mode) == "alice"
            told = (await rejection(shop, issuer.token(shop.origin))).headers["www-authenticate"]
            where = told.partition('resource_metadata="')[2].partition('"')[0]
            async with httpx2.AsyncClient() as web:
                document = json.loads((await web.get(where)).text)
            assert document["authorization_servers"] == [issuer.name]
            assert document["resource"] == shop.endpoint
            await rejection(shop, None)
            assert issuer.asked["/keys"] == 1 and served.told() == ""


@pytest.mark.slow
async def test_tokens_are_introspected_at_another_django_project(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    site = Site(there)
    site.environ["DJANGO_SETTINGS_MODULE"] = "tests.verifiers.elsewhere.settings"
    shop = Shop(here, "tests.verifiers.project.tokens.asked", INTROSPECTS=site.origin)
    site.run(SECOND.replace("RESOURCE", shop.endpoint))
    with site.serve(), shop.serve() as served:
        assert await whoami(shop.endpoint, "good") == "alice"
        await rejection(shop, "other")
        await rejection(shop, "unknown")
        site.run(REVOKE)
        until = time.monotonic() + 20
        while await status(shop, "good") != 401:
            assert time.monotonic() < until, "it is good for more than the seconds of an answer"
            await asyncio.sleep(0.2)
        assert served.told() == ""
