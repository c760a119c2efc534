"""Sealed values: a client can neither read nor change them, nor use them for another purpose."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from django.core import signing
from hypothesis import given, settings
from hypothesis import strategies as st

from django_mcp.declarations.cursors import MAX_SEALED_LENGTH, _signer, digest, seal, unseal

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(json_values, st.text())
@settings(max_examples=50, deadline=None)
def test_sealed_value_is_unsealed(value, purpose):
    assert unseal(seal(value, purpose), purpose, limit=10**6) == value


def test_sealed_value_is_refused_for_another_purpose():
    sealed = seal(["invoice", 5], "list:a")
    for purpose in ("list:b", "list:a ", "", "list"):
        with pytest.raises(ValueError, match="was not issued by this server"):
            unseal(sealed, purpose)


@given(st.text() | st.none() | st.integers() | st.lists(st.text()))
@settings(max_examples=100, deadline=None)
def test_arbitrary_text_is_refused(forged):
    with pytest.raises(ValueError, match="was not issued by this server"):
        unseal(forged, "list:a")


def test_changed_character_is_refused():
    sealed = seal({"position": 10}, "a")
    for index, character in enumerate(sealed):
        other = "A" if character != "A" else "B"
        with pytest.raises(ValueError, match="was not issued by this server"):
            unseal(sealed[:index] + other + sealed[index + 1 :], "a")
    with pytest.raises(ValueError, match="was not issued by this server"):
        unseal(sealed[:-1], "a")


def test_value_signed_with_another_salt_is_refused():
    with pytest.raises(ValueError, match="was not issued by this server"):
        unseal(signing.dumps([1], salt="another"), "a")


def test_signed_value_that_is_not_encrypted_is_refused():
    for text in (b"", b"x" * 16, b"x" * 64):
        forged = _signer("a").sign(urlsafe_b64encode(text).decode())
        with pytest.raises(ValueError, match="was not issued by this server"):
            unseal(forged, "a")


def test_client_cannot_read_a_sealed_value():
    sealed = seal({"secret": "never pays" * 10}, "a")
    for part in sealed.split(":"):
        padded = urlsafe_b64decode(part + "=" * (-len(part) % 4))
        assert b"secret" not in padded and b"never" not in padded


def test_sealed_value_expires(monkeypatch):
    sealed = seal([1], "a")
    now = signing.time.time()
    monkeypatch.setattr(signing.time, "time", lambda: now + 61)
    assert unseal(sealed, "a") == unseal(sealed, "a", seconds=100) == [1]
    with pytest.raises(ValueError, match="has expired"):
        unseal(sealed, "a", seconds=60)


def test_secret_key_fallbacks_unseal_values(settings):
    sealed = seal([1], "a")
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new", [settings.SECRET_KEY]
    assert unseal(sealed, "a") == [1]
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(ValueError, match="was not issued by this server"):
        unseal(sealed, "a")


def test_sealed_value_that_is_too_long_is_refused():
    import secrets

    sealed = seal(secrets.token_hex(MAX_SEALED_LENGTH), "a")
    with pytest.raises(ValueError, match="was not issued by this server"):
        unseal(sealed, "a")
    assert unseal(sealed, "a", limit=len(sealed))


def test_digest_depends_on_the_values_and_not_on_key_order():
    assert digest("a", {"x": 1, "y": 2}) == digest("a", {"y": 2, "x": 1})
    others = [digest("a", "b"), digest("ab"), digest("a", ["b"]), digest(), digest("a", None)]
    assert len(set(others)) == 5
    assert digest("\ud800") != digest("\ud801") and len(digest(object)) == 32
