"""The authorization code flow of a client and a browser, at the endpoints of ``tokens_urls``."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from django.db import connections
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import get_application_model

from django_mcp.oauth.models import ClientProfile

from .conftest import CHALLENGE, REDIRECT, VERIFIER

MCP = "https://shop.example/mcp"


def registered(source: str = "dcr", **fields: Any) -> Any:
    """Return a client, as it is stored after it registered itself."""
    given = {
        "name": "Agent", "client_type": "public", "authorization_grant_type": "authorization-code",
        "redirect_uris": REDIRECT, "client_secret": "never told", "hash_client_secret": False,
        "registration_source": source,
    }  # fmt: skip
    if source == "cimd":
        given["cimd_expires_at"] = timezone.now() + timedelta(days=1)
    made = get_application_model().objects.create(**(given | fields))
    if source == "cimd":  # the profile stores what its document contained
        known = {"client_id": made.client_id, "source": source, "fetched": timezone.now()}
        ClientProfile.objects.create(**known)
    return made


def browser(user: Any = None) -> Client:
    """Return a browser that uses the host of the shop and HTTPS, signed in as the user."""
    found = Client(SERVER_NAME="shop.example", **{"wsgi.url_scheme": "https"})
    if user is not None:
        found.force_login(user)
    return found


def query(client: Any, **params: Any) -> str:
    given = {
        "response_type": "code", "client_id": client.client_id, "redirect_uri": REDIRECT,
        "code_challenge": CHALLENGE, "code_challenge_method": "S256", "resource": MCP,
        "state": "s", **params,
    }  # fmt: skip
    return urlencode({key: value for key, value in given.items() if value is not None}, doseq=True)


def asked(user: Any, client: Any, path: str = "/oauth/authorize", **params: Any) -> Any:
    """Return the consent page, or the response instead of it."""
    return browser(user).get(f"{path}?{query(client, **params)}")


def answer(response: Any) -> dict[str, str]:
    """Return the query of a redirect to the client."""
    assert response.status_code == 302, response.content
    return dict(parse_qsl(urlsplit(response["Location"]).query))


def code_for(user: Any, client: Any, **params: Any) -> str:
    page = asked(user, client, **params)
    assert page.status_code == 200, page.headers
    form = {k: v for k, v in page.context_data["form"].initial.items() if v is not None}
    return answer(
        browser(user).post(f"/oauth/authorize?{query(client, **params)}", form | {"allow": "on"})
    )["code"]


def token(**params: Any) -> Any:
    """Return the response of the token endpoint."""
    path = params.pop("path", "/oauth/token")
    return browser().post(path, {k: v for k, v in params.items() if v is not None})


def redeem(code: str, client: Any, **params: Any) -> Any:
    return token(
        grant_type="authorization_code", code=code, client_id=client.client_id,
        **{"redirect_uri": REDIRECT, "code_verifier": VERIFIER} | params,
    )  # fmt: skip


def refresh(secret: str, client: Any, **params: Any) -> Any:
    return token(
        grant_type="refresh_token", refresh_token=secret, client_id=client.client_id, **params
    )


def issued(user: Any, client: Any, **params: Any) -> dict[str, Any]:
    """Return tokens, by the whole flow."""
    found = redeem(code_for(user, client, **params), client)
    assert found.status_code == 200, found.content
    body: dict[str, Any] = found.json()
    return body


def error(response: Any) -> tuple[int, str]:
    assert (
        response["Content-Type"] == "application/json" and "no-store" in response["Cache-Control"]
    )
    return response.status_code, response.json().get("error", "")


def at_once(number: int, work: Any) -> list[Any]:
    """Return the results of so many threads that start at the same moment."""
    start, found = threading.Barrier(number), []

    def one(index: int) -> None:
        try:
            start.wait()
            found.append(work(index))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=one, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == number
    return found
