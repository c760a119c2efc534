"""Limits of comparing wrong secrets of confidential clients, which hash slowly."""

from __future__ import annotations

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.core.cache import cache
from django.test import override_settings

from django_mcp.oauth.client_authentication import MAX_PER_CLIENT, MAX_PER_NETWORK
from django_mcp.oauth.models import ClientProfile

from .clients import our_toolkit
from .flows import MCP, registered

__all__ = ["our_toolkit"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("our_toolkit")]
compared: list[str] = []


class CountingHasher(PBKDF2PasswordHasher):
    """A password hasher that counts the comparisons and is fast."""

    iterations = 1

    def verify(self, password, encoded):
        compared.append(password)
        return super().verify(password, encoded)


@pytest.fixture(autouse=True)
def _counting_hasher():
    cache.clear()
    compared.clear()
    with override_settings(PASSWORD_HASHERS=[f"{__name__}.CountingHasher"]):
        yield


@pytest.fixture
def machine(alice):
    return registered(
        "manual", client_type="confidential", authorization_grant_type="client-credentials",
        client_secret="right", hash_client_secret=True, user=alice, redirect_uris="",
    )  # fmt: skip


def token_request(web, client, secret, remote="192.0.2.1"):
    sent = {
        "grant_type": "client_credentials", "client_id": client.client_id,
        "client_secret": secret, "scope": "mcp", "resource": MCP,
    }  # fmt: skip
    return web.post("/oauth/token", sent, REMOTE_ADDR=remote)


def test_comparisons_of_wrong_secrets_are_limited_per_network(web, machine):
    """T10: anybody could make the token endpoint compute slow hashes."""
    told = [token_request(web, machine, f"wrong {number}").status_code for number in range(20)]
    assert told == [401] * MAX_PER_NETWORK + [503] * (20 - MAX_PER_NETWORK)
    assert len(compared) == MAX_PER_NETWORK
    refused = token_request(web, machine, "wrong")
    assert refused.json()["error"] == "temporarily_unavailable" and refused["Retry-After"]


def test_comparisons_of_wrong_secrets_are_limited_per_client(web, machine):
    for number in range(60):
        token_request(web, machine, "wrong", remote=f"198.51.100.{number % 30}")
    assert len(compared) == MAX_PER_CLIENT


def test_wrong_secrets_do_not_lock_out_a_client_that_is_in_use(web, machine):
    assert token_request(web, machine, "right").status_code == 200
    for number in range(50):
        token_request(web, machine, "wrong", remote=f"198.51.100.{number}")
    compared.clear()
    assert token_request(web, machine, "right").status_code == 200
    assert compared == []


def test_wrong_secrets_do_not_lock_out_a_client_of_another_network(web, machine):
    for number in range(50):
        token_request(web, machine, f"wrong {number}")
    assert token_request(web, machine, "right", remote="198.51.100.1").status_code == 200


def test_first_right_secret_is_compared_while_several_networks_send_wrong_ones(web, machine):
    """T10: attackers must not lock out a client that was not used since a restart."""
    for number in range(40):  # more comparisons than the client has in all
        token_request(web, machine, "wrong", remote=f"198.51.100.{number % 20}")
    assert len(compared) <= MAX_PER_CLIENT
    assert token_request(web, machine, "right", remote="192.0.2.9").status_code == 200


def test_remembered_secret_is_forgotten_when_it_changes(web, machine):
    assert token_request(web, machine, "right").status_code == 200
    machine.client_secret = "newer"
    machine.save()
    assert token_request(web, machine, "right").status_code == 401
    assert token_request(web, machine, "newer").status_code == 200


def test_blocked_client_is_rejected_though_its_secret_is_remembered(web, machine):
    assert token_request(web, machine, "right").status_code == 200
    ClientProfile.objects.update(blocked="2026-01-01T00:00Z")
    assert token_request(web, machine, "right").status_code == 401


def test_revocation_endpoint_has_the_same_limit(web, machine):
    sent = {"token": "x", "client_id": machine.client_id, "client_secret": "wrong"}
    for _ in range(20):
        assert web.post("/oauth/revoke", sent).status_code == 401
    assert len(compared) == MAX_PER_NETWORK


@pytest.fixture
def toolkit_views(our_toolkit, settings):
    """The endpoints of django-oauth-toolkit, next to ours."""
    settings.ROOT_URLCONF = "tests.oauth.urls_with_toolkit"


@pytest.mark.parametrize("extra", [{}, {"grant_type": "client_credentials"}], ids=str)
@pytest.mark.parametrize(
    ("path", "status"), [("/o/introspect/", 403), ("/o/token/", 401), ("/o/revoke_token/", 401)]
)
def test_limit_rejects_the_client_at_views_of_the_toolkit(
    web, machine, toolkit_views, path, status, extra
):
    """The exception for our token view was a 500 at the view for introspection."""
    sent = {"token": "x", "client_id": machine.client_id, "client_secret": "wrong"} | extra
    if path == "/o/token/":
        sent |= {"grant_type": "client_credentials", "scope": "mcp"}
    told = [web.post(path, sent).status_code for _ in range(MAX_PER_NETWORK + 3)]
    assert told == [status] * (MAX_PER_NETWORK + 3)
    assert len(compared) == MAX_PER_NETWORK
