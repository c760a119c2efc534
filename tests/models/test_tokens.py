"""Personal tokens: only a digest of the secret is stored."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import IntegrityError
from django.utils import timezone

from django_mcp.models import Token

pytestmark = pytest.mark.django_db


def test_make_returns_a_token_and_its_secret(alice):
    token, secret = Token.make(alice, "laptop", scopes=["write", "read", "read"], server="shop")
    assert re.fullmatch(r"mcp_[A-Za-z0-9_-]{43}", secret)
    token.refresh_from_db()
    assert (token.user, token.name, token.server) == (alice, "laptop", "shop")
    assert token.scopes == ["read", "write"] and token.is_valid()
    assert (token.expires, token.last_used, token.revoked) == (None, None, None)


def test_secret_is_not_stored(alice):
    token, secret = Token.make(alice, "laptop")
    stored = str(Token.objects.filter(pk=token.pk).values().get())
    assert secret not in stored and secret[8:] not in stored
    assert secret not in f"{token!r} {token} {vars(token)}" and token.prefix == secret[:8]
    assert token.digest not in f"{token!r} {token}"


def test_token_is_found_by_the_digest_of_its_secret(alice):
    token, secret = Token.make(alice, "laptop")
    assert Token.objects.get(digest=Token.digest_of(secret)) == token
    assert not Token.objects.filter(digest=Token.digest_of(secret.swapcase())).exists()


def test_secrets_and_digests_are_unique(alice):
    made = [Token.make(alice, "same") for _ in range(20)]
    assert len({secret for _, secret in made}) == len({token.digest for token, _ in made}) == 20
    with pytest.raises(IntegrityError):
        Token.objects.create(user=alice, name="copy", digest=made[0][0].digest, prefix="mcp_")


def test_token_is_invalid_from_its_expiry(alice):
    now = timezone.now()
    token, _ = Token.make(alice, "laptop", expires=now)
    assert token.is_valid(now - timedelta(seconds=1)) and not token.is_valid(now)
    assert not token.is_valid()


def test_revoked_token_is_invalid(alice):
    token, _ = Token.make(alice, "laptop", expires=timezone.now() + timedelta(days=1))
    token.revoked = timezone.now()
    assert not token.is_valid()


def test_deleting_a_user_deletes_their_tokens(alice):
    Token.make(alice, "laptop")
    assert alice.mcp_tokens.count() == 1
    alice.delete()
    assert not Token.objects.exists()
