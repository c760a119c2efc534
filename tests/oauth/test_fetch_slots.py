"""Limits of concurrent fetches of client metadata documents, by host, network and in total."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.utils import timezone
from jwcrypto import jwk
from oauth2_provider.models import get_application_model

from django_mcp.auth.principal import HALF_DIGEST_LENGTH
from django_mcp.oauth import client_authentication
from django_mcp.oauth import client_metadata_documents as fetching
from django_mcp.oauth.client_metadata_documents import MAX_PER_HOST, MAX_PER_NETWORK, fetch_slot
from django_mcp.oauth.models import ClientProfile
from django_mcp.oauth.registration_limits import address_digest

from .clients import (
    CLAUDE_AI,
    DOCUMENTS,
    JWKS,
    certificate,
    internet,
    our_toolkit,
    toolkit,
)
from .clients import keys as document_of
from .test_register import given

__all__ = ["certificate", "internet", "our_toolkit"]
EVIL = "https://app.example/evil.json"
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("our_toolkit")]


@pytest.fixture(autouse=True)
def _empty():
    cache.clear()
    yield
    assert not fetching._slots_in_use


@pytest.fixture
def take_slots():
    """Return a function that takes slots for the rest of the test."""
    with ExitStack() as stack:

        def take(number, host="", network=""):
            for index in range(number):
                slot = fetch_slot(host or f"{index}.example", network or str(index))
                assert stack.enter_context(slot)

        yield take


def site_of(remote: str) -> str:
    return address_digest(remote)[:HALF_DIGEST_LENGTH]


def token_status(web, client_id: str, **headers: str) -> int:
    """Return the status of a token request: 400 (invalid code) for a client that is known."""
    sent = {"grant_type": "authorization_code", "code": "x", "client_id": client_id}
    return web.post("/oauth/token", sent, **headers).status_code


def test_number_of_slots_per_host_is_limited(internet, web, take_slots):
    """T14: slow documents of one host leave slots for those of others."""
    internet.documents[EVIL] = DOCUMENTS[CLAUDE_AI] | {"client_id": EVIL}
    take_slots(MAX_PER_HOST, host="app.example")
    assert token_status(web, EVIL) == 401 and internet.asked == []
    assert token_status(web, CLAUDE_AI) == 400


def test_document_is_fetched_once_a_slot_is_free(internet, web):
    with ExitStack() as stack:
        for _ in range(MAX_PER_HOST):
            assert stack.enter_context(fetch_slot("claude.ai"))
        assert token_status(web, CLAUDE_AI) == 401
    assert token_status(web, CLAUDE_AI) == 400


def test_number_of_slots_per_network_is_limited(internet, web, take_slots):
    take_slots(MAX_PER_NETWORK, network=site_of("192.0.2.1"))
    assert token_status(web, CLAUDE_AI, REMOTE_ADDR="192.0.2.1") == 401
    assert token_status(web, CLAUDE_AI, REMOTE_ADDR="198.51.100.1") == 400


def test_subnets_of_one_ipv6_site_share_their_slots(internet, web, take_slots):
    """T14: whoever has a /48 has 65,536 subnets."""
    take_slots(MAX_PER_NETWORK, network=site_of("2001:db8:1:1::1"))
    assert token_status(web, CLAUDE_AI, REMOTE_ADDR="2001:db8:1:2::1") == 401
    assert token_status(web, CLAUDE_AI, REMOTE_ADDR="2001:db8:2:1::1") == 400


@pytest.fixture
def stale(internet, web):
    """A client whose document is due for a new fetch."""
    assert token_status(web, CLAUDE_AI) == 400
    past = timezone.now() - timedelta(seconds=1)
    get_application_model().objects.update(cimd_expires_at=past)
    internet.asked.clear()
    return ClientProfile.objects.all()


@pytest.mark.parametrize("was_authorized", [True, False])
def test_authorized_clients_have_slots_of_their_own(
    internet, web, stale, take_slots, was_authorized
):
    stale.update(last_authorized=timezone.now() if was_authorized else None)
    take_slots(7)  # of 10: all that strangers may have
    assert token_status(web, CLAUDE_AI) == 400
    assert internet.asked == ([CLAUDE_AI] if was_authorized else [])


@pytest.mark.parametrize("was_authorized", [True, False])
@pytest.mark.parametrize("taken", [{"host": "claude.ai"}, {"network": site_of("192.0.2.1")}])
def test_unknown_clients_take_no_slots_of_authorized_clients(
    internet, web, stale, take_slots, taken, was_authorized
):
    """T14: slow documents at a host that many clients share, or from one office."""
    stale.update(last_authorized=timezone.now() if was_authorized else None)
    take_slots(MAX_PER_HOST, **taken)
    assert token_status(web, CLAUDE_AI, REMOTE_ADDR="192.0.2.1") == 400
    assert internet.asked == ([CLAUDE_AI] if was_authorized else [])


def test_slow_authorized_clients_of_one_host_leave_slots_for_others(internet, web, stale):
    stale.update(last_authorized=timezone.now())
    with ExitStack() as stack:
        for _ in range(MAX_PER_HOST):
            assert stack.enter_context(fetch_slot("evil.example", was_authorized=True))
        with fetch_slot("evil.example", was_authorized=True) as is_free:
            assert not is_free
        assert token_status(web, CLAUDE_AI) == 400 and internet.asked == [CLAUDE_AI]


@pytest.mark.parametrize("was_authorized", [True, False])
def test_known_client_is_fetched_within_the_rate_limit(internet, web, stale, was_authorized):
    """T14: whoever names a known client again and again has us send requests without end."""
    stale.update(last_authorized=timezone.now() if was_authorized else None)
    with given(REGISTRATION_RATE="3/3600"):
        cache.clear()
        for _ in range(6):
            get_application_model().objects.update(cimd_expires_at=timezone.now())
            assert token_status(web, CLAUDE_AI) == 400  # by the document that was fetched before
    assert internet.asked == [CLAUDE_AI] * 3


def test_unknown_clients_do_not_use_up_the_rate_of_authorized_clients(internet, web, stale):
    stale.update(last_authorized=timezone.now())
    with given(REGISTRATION_RATE="2/3600"):
        cache.clear()
        for number in range(3):
            assert token_status(web, f"https://app.example/{number}.json") == 401
        assert token_status(web, CLAUDE_AI) == 400
    assert internet.asked.count(CLAUDE_AI) == 1


@pytest.mark.parametrize("was_authorized", [True, False])
def test_keys_of_authorized_clients_have_slots_of_their_own(internet, take_slots, was_authorized):
    key = jwk.JWK.generate(kty="EC", crv="P-256", kid="one")
    internet.documents[JWKS] = document_of(key)
    take_slots(7)
    found = client_authentication.find_keys(JWKS, "ES256", "one", was_authorized=was_authorized)
    assert len(found) == was_authorized


def test_limit_per_host_applies_without_a_total_limit(take_slots):
    with toolkit(CIMD_MAX_CONCURRENT_FETCHES=0):
        take_slots(20)
        take_slots(MAX_PER_HOST, host="a.example", network="a")
        with fetch_slot("a.example") as is_free:
            assert not is_free
