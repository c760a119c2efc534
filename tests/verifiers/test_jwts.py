"""Verifying JWT access tokens of an issuer: claims, keys, forgeries and outages."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import time
from datetime import UTC, datetime
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from django.core.exceptions import ImproperlyConfigured

import django_mcp as mcp
from django_mcp.auth.principal import ChallengingVerifier, IssuingVerifier
from django_mcp.exceptions import Busy, InsufficientScope
from django_mcp.verifiers import JWTTokens
from django_mcp.verifiers import jwt_tokens as keys
from django_mcp.verifiers.jose import ALGORITHMS, read_key
from django_mcp.verifiers.protected_resource import resource
from tests.storage.rows import given

from .issuer import HOUR, MAKE, Issuer, public, rsa_key, unsigned

pytestmark = pytest.mark.django_db
KEYS, METADATA = "/keys", "/.well-known/openid-configuration"


@pytest.fixture
def aud(server):
    return resource(server)


async def is_accepted(verifier: Any, token: str, server: Any) -> bool:
    return await verifier.verify(token, server) is not None


# Accepted tokens.


async def test_token_gives_the_principal_of_the_found_user(issuer, tokens, server, alice, aud):
    verifier = tokens()
    principal = await verifier.verify(issuer.token(aud, exp=(end := int(time.time()) + 60)), server)
    assert principal.user == alice and principal.is_authenticated
    assert principal.auth.scopes == {"mcp"}
    assert principal.auth.expires == datetime.fromtimestamp(end, UTC)
    assert principal.auth.key.startswith("issuer-") and issuer.name not in principal.key


async def test_verifier_implements_the_issuing_protocol(issuer, tokens, server):
    verifier = tokens(scopes=["mcp"])
    assert isinstance(verifier, mcp.TokenVerifier)
    assert isinstance(verifier, ChallengingVerifier) and isinstance(verifier, IssuingVerifier)
    assert (verifier.issuer, verifier.advertised_scopes) == (issuer.name, ["mcp"])
    assert verifier.challenge(server)["scope"] == "mcp"
    assert tokens(scopes=["mcp"], advertised_scopes=["api://shop/mcp"]).advertised_scopes == [
        "api://shop/mcp"
    ]


async def test_tokens_of_one_user_and_client_have_the_same_principal_key(
    issuer, tokens, server, alice, aud
):
    verifier, other = tokens(), tokens(user=lambda claims: alice)
    made = [
        issuer.token(aud), issuer.token(aud, jti="2", iat=int(time.time()) - 5),
        issuer.token(aud, client_id="other"), issuer.token(aud, client_id=None, azp="other"),
    ]  # fmt: skip
    first, second, client, azp = [(await verifier.verify(one, server)).key for one in made]
    assert first == second != client == azp
    subject = (await other.verify(issuer.token(aud, sub="al"), server)).key
    with Issuer() as elsewhere:
        its = JWTTokens(elsewhere.name, user=lambda claims: alice)
        assert len({first, subject, (await its.verify(elsewhere.token(aud), server)).key}) == 3


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_every_asymmetric_algorithm_is_supported(
    issuer, tokens, server, alice, aud, algorithm
):
    key = MAKE[algorithm]()
    issuer.publish(public(key, algorithm, kid="one"))
    verifier = tokens()
    assert await is_accepted(verifier, issuer.token(aud, key=key, algorithm=algorithm), server)
    other = tokens(algorithms=[one for one in ALGORITHMS if one != algorithm])
    assert not await is_accepted(other, issuer.token(aud, key=key, algorithm=algorithm), server)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"scope": "a b"}, {"a", "b"}), ({"scope": ["a", "b"]}, {"a", "b"}),
        ({"scope": None, "scp": "a"}, {"a"}), ({"scope": None, "scp": ["a"]}, {"a"}),
        ({"scope": None}, set()),
    ],
)  # fmt: skip
async def test_scopes_are_read_from_scope_or_scp(issuer, tokens, server, alice, aud, said, found):
    principal = await tokens().verify(issuer.token(aud, **said), server)
    assert principal.auth.scopes == found


@pytest.mark.parametrize(
    "over",
    [{"scope": ""}, {"scope": " "}, {"scope": []}, {"scope": 7}, {"scope": {"a": 1}},
     {"scope": None, "scp": ""}, {"scope": "", "scp": ["a"]}],
)  # fmt: skip
async def test_token_with_an_empty_scope_is_rejected(issuer, tokens, server, alice, aud, over):
    """Attack: a token without a scope claim may do all that its user may do."""
    assert not await is_accepted(tokens(), issuer.token(aud, **over), server)


async def test_missing_scope_raises_insufficient_scope(issuer, tokens, server, alice, aud):
    verifier = tokens(scopes=["mcp", "read"])
    with pytest.raises(InsufficientScope) as refused:
        await is_accepted(verifier, issuer.token(aud), server)
    assert refused.value.scopes == ("mcp", "read")
    made: list[Any] = []
    with pytest.raises(InsufficientScope):
        await is_accepted(tokens(scopes=["read"], user=made.append), issuer.token(aud), server)
    assert made == []
    assert await is_accepted(verifier, issuer.token(aud, scope="read more mcp"), server)


async def test_configured_audience_is_compared_exactly(issuer, tokens, server, alice):
    verifier = tokens(audience="api://shop")
    assert await is_accepted(verifier, issuer.token(["other", "api://shop"]), server)
    for aud in ("api://shop/", "API://shop", resource(server), "api://sho", ["api", "shop"]):
        assert not await is_accepted(verifier, issuer.token(aud), server)


async def test_audience_is_normalized(issuer, tokens, server, alice, aud):
    for named in (aud, f"{aud}/", [aud], ["x", aud.replace("https://shop", "HTTPS://SHOP")]):
        assert await is_accepted(tokens(), issuer.token(named), server)


async def test_typ_header_at_jwt_can_be_required(issuer, tokens, server, alice, aud):
    for kind in ("at+jwt", "AT+JWT", "application/at+jwt", "JWT", None):
        token = issuer.token(aud, header={"kid": "one", "typ": kind} if kind else {"kid": "one"})
        assert await is_accepted(tokens(), token, server)
        strict = tokens(at_jwt=True)
        assert await is_accepted(strict, token, server) == ("at" in str(kind).lower())
    assert not await is_accepted(tokens(at_jwt=True), issuer.token(aud, jti=None), server)


# Rejected tokens.


WRONG: dict[str, dict[str, Any]] = {
    "for another": {"aud": "https://shop.example/mcp/other"},
    "for the origin": {"aud": "https://shop.example"},
    "for none": {"aud": None},
    "for a number": {"aud": 7},
    "expired": {"exp": int(time.time()) - HOUR},
    "without an end": {"exp": None},
    "an end that is none": {"exp": "soon"},
    "an end beyond time": {"exp": 10**30},
    "not yet": {"nbf": int(time.time()) + HOUR},
    "made in the future": {"iat": int(time.time()) + HOUR},
    "nobody's": {"sub": None},
    "of no text": {"sub": 7},
    "empty": {"sub": ""},
    "of somebody unknown": {"sub": "mallory"},
    "an ID token by its hash": {"at_hash": "x"},
    "an ID token by its nonce": {"nonce": "x", "scope": None},
    "an ID token of Keycloak": {"typ": "ID"},
    "a refresh token of Keycloak": {"typ": "Refresh"},
    "an ID token of Cognito": {"token_use": "id"},
    "a logout token": {"events": {}},
    "bound to a key": {"cnf": {"jkt": "x"}},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_signed_token_with_wrong_claims_is_rejected(
    issuer, tokens, server, alice, aud, wrong, caplog
):
    caplog.set_level(logging.DEBUG, "django_mcp")
    verifier, token = tokens(), issuer.token(**{"aud": aud} | wrong)
    assert await is_accepted(verifier, issuer.token(aud), server)
    assert not await is_accepted(verifier, token, server)
    assert f"Token rejected: issuer={issuer.name} reason=" in caplog.text
    assert token not in caplog.text and token.split(".")[2] not in caplog.text


async def test_small_clock_skew_is_tolerated(issuer, tokens, server, alice, aud):
    now = int(time.time())
    for said in ({"exp": now - 10}, {"nbf": now + 10}, {"iat": now + 10}):
        assert await is_accepted(tokens(), issuer.token(aud, **said), server)


def pem(key: Any) -> bytes:
    return bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def forged(issuer: Any, aud: Any) -> dict[str, str]:
    claims, mine = issuer.claims(aud), rsa_key(number=1)
    header = {"kid": "one", "typ": "at+jwt"}
    honest = issuer.token(aud)
    head, body, signature = honest.split(".")
    bobs = unsigned({}, claims | {"sub": "bob"}).split(".")[1]
    return {
        "alg none": unsigned(header | {"alg": "none"}, claims),
        "alg None": unsigned(header | {"alg": None}, claims),
        "no alg": unsigned(header, claims),
        "a list of algs": unsigned(header | {"alg": ["RS256"]}, claims, b"x"),
        "the public key as a secret": hmac_signed(header, claims, pem(issuer.private)),
        "another's key": issuer.token(aud, key=mine),
        "another's key, embedded": issuer.token(
            aud, key=mine, header=header | {"jwk": public(mine, kid="one")}
        ),
        "another's key, by its address": issuer.token(
            aud, key=mine, header=header | {"jku": f"{issuer.name}/mine"}
        ),
        "another's key, by a certificate's": issuer.token(
            aud, key=mine, header=header | {"x5u": f"{issuer.name}/mine"}
        ),
        "another's key, without a name": issuer.token(aud, key=mine, header={"typ": "JWT"}),
        "crit": issuer.token(aud, header=header | {"crit": ["exp"], "exp": 1}),
        "a crit that libraries know": issuer.token(
            aud, header=header | {"crit": ["b64"], "b64": True}
        ),
        "a name that is none": unsigned(header | {"alg": "RS256", "kid": 7}, claims, b"x"),
        "a name that is long": issuer.token(aud, header={"kid": "x" * 300}),
        "another type": issuer.token(aud, header=header | {"typ": "id+jwt"}),
        "a logout token's type": issuer.token(aud, header=header | {"typ": "logout+jwt"}),
        "without a signature": f"{head}.{body}.",
        "with another body": f"{head}.{bobs}.{signature}",
        "another algorithm": unsigned(header | {"alg": "PS256"}, claims, b"x" * 256),
        "of another family": unsigned(header | {"alg": "ES256"}, claims, b"x" * 64),
        "four parts": f"{honest}.x",
        "deep": f"{head}.{deeply_nested_part()}.{signature}",
    }


def deeply_nested_part() -> str:
    """Return JSON that no parser accepts."""
    return base64.urlsafe_b64encode(b"[" * 4000).decode().rstrip("=")


def hmac_signed(header: dict[str, Any], claims: dict[str, Any], secret: bytes) -> str:
    signed = unsigned(header | {"alg": "HS256"}, claims).rstrip(".")
    digest = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


async def test_forged_tokens_are_rejected(issuer, tokens, server, alice, bob, aud):
    verifier = tokens()
    assert await is_accepted(verifier, issuer.token(aud), server)
    for name, token in forged(issuer, aud).items():
        assert not await is_accepted(verifier, token, server), name
    assert issuer.asked["/mine"] == 0


@pytest.mark.parametrize(
    "said",
    [{"use": "enc"}, {"alg": "RS512"}, {"key_ops": ["sign"]}, {"key_ops": 7}, {"kid": "two"}],
    ids=str,
)
async def test_key_for_another_use_is_ignored(issuer, tokens, server, alice, aud, said):
    issuer.publish(public(issuer.private, **{"kid": "one"} | said))
    assert not await is_accepted(tokens(), issuer.token(aud), server)


async def test_weak_key_is_ignored(issuer, tokens, server, alice, aud):
    weak = rsa_key(1024)
    issuer.publish(public(weak, kid="one"))
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = issuer.token(aud, key=weak)
    assert not await is_accepted(tokens(), token, server)


def rsa_key_of_size(bits: int) -> dict[str, Any]:
    """Return an object that looks like an RSA key of so many bits."""
    modulus = (1 << (bits - 1)) + 1
    whole = base64.urlsafe_b64encode(modulus.to_bytes((bits + 7) // 8, "big")).decode()
    return {"kty": "RSA", "n": whole.rstrip("="), "e": "AQAB"}


@pytest.mark.parametrize("bits", [1024, 2040, 2047, 8193, 16384])
def test_rsa_key_size_must_be_2048_to_8192_bits(bits):
    assert read_key(rsa_key_of_size(bits)) is None
    assert read_key(rsa_key_of_size(2048)) and read_key(rsa_key_of_size(8192))
    assert read_key(rsa_key_of_size(2048) | {"e": "A" * 7}) is None


@pytest.mark.parametrize(
    "said",
    [
        {"kty": ["RSA"]}, {"kty": "RSA", "n": 7, "e": "AQAB"}, {"kty": "RSA", "n": "AQAB"},
        {"kty": "EC", "crv": 7, "x": "AQ", "y": "AQ"}, {"kty": "EC", "crv": "P-256", "x": None},
        {"kty": "OKP", "crv": "Ed25519", "x": "AQ"}, {"kty": "OKP", "crv": ["Ed25519"], "x": "AQ"},
        {"kty": "RSA", "n": "A" * 100_000, "e": "AQAB"}, {"kty": "RSA", "use": ["sig"]}, [], None,
    ],
    ids=lambda said: str(said)[:40],
)  # fmt: skip
def test_malformed_key_is_ignored(said):
    assert read_key(said) is None


async def test_malformed_keys_do_not_hide_valid_ones(issuer, tokens, server, alice, aud):
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "one"}
    good = public(issuer.private, kid="one")
    issuer.publish(7, {}, secret, {"kty": "RSA", "kid": "one"}, {**good, "n": "!"}, good)
    assert await is_accepted(tokens(), issuer.token(aud), server)
    assert not await is_accepted(
        tokens(), hmac_signed({"kid": "one"}, issuer.claims(aud), b"secret"), server
    )


async def test_tokens_of_other_issuers_make_no_request(issuer, tokens, server, aud):
    verifier = tokens()
    for token in ("", "mcp_" + "a" * 43, "a.b", "a.b.c", "é.é.é", issuer.token(aud, iss="https://x"),
                  unsigned({}, {}), issuer.token(aud, iss=f"{issuer.name}/")):  # fmt: skip
        assert not await is_accepted(verifier, token, server)
    assert not issuer.asked


async def test_token_of_an_inactive_or_unknown_user_is_rejected(issuer, tokens, server, alice, aud):
    verifier = tokens()
    alice.is_active = False
    await alice.asave()
    assert not await is_accepted(verifier, issuer.token(aud), server)
    assert not await is_accepted(tokens(user=lambda claims: None), issuer.token(aud), server)


# Requests to the issuer.


async def test_concurrent_requests_fetch_the_keys_once(issuer, tokens, server, alice, aud):
    verifier = tokens()
    issuer.gate.clear()
    token = issuer.token(aud)
    many = [asyncio.ensure_future(verifier.verify(token, server)) for _ in range(30)]
    while not issuer.asked:  # noqa: ASYNC110 - another thread counts
        await asyncio.sleep(0.01)
    issuer.gate.set()
    assert all(found is not None for found in await asyncio.gather(*many))
    assert issuer.asked == {METADATA: 1, KEYS: 1}


async def test_keys_are_cached(issuer, tokens, server, alice, aud, clock):
    verifier = tokens()
    for _ in range(5):
        assert await is_accepted(verifier, issuer.token(aud), server)
    assert issuer.asked == {METADATA: 1, KEYS: 1}
    clock.ahead += keys.REFRESH_AFTER_SECONDS + 1
    for _ in range(5):
        assert await is_accepted(verifier, issuer.token(aud), server)
    assert issuer.asked[KEYS] == 2


async def test_new_key_is_fetched_and_removed_key_is_rejected(
    issuer, tokens, server, alice, aud, clock
):
    verifier = tokens()
    old, key = issuer.token(aud), rsa_key(number=1)
    new = issuer.token(aud, key=key, header={"kid": "two"})
    assert await is_accepted(verifier, old, server)
    issuer.publish(public(key, kid="two"))
    clock.ahead += keys.FETCH_INTERVAL_SECONDS
    assert await is_accepted(verifier, new, server) and not await is_accepted(verifier, old, server)


async def test_unknown_key_ids_fetch_at_most_once_per_interval(
    issuer, tokens, server, alice, aud, clock
):
    verifier = tokens()
    for number in range(200):
        token = issuer.token(aud, key=rsa_key(number=1), header={"kid": f"{number}"})
        assert not await is_accepted(verifier, token, server)
    assert issuer.asked[KEYS] == 1
    clock.ahead += keys.FETCH_INTERVAL_SECONDS
    assert not await is_accepted(verifier, issuer.token(aud, header={"kid": "x"}), server)
    assert issuer.asked[KEYS] == 2 and await is_accepted(verifier, issuer.token(aud), server)


async def test_cached_keys_stay_valid_for_a_while_during_an_outage(
    issuer, tokens, server, alice, aud, clock, caplog
):
    verifier, token = tokens(), issuer.token(aud)
    unknown = issuer.token(aud, header={"kid": "x"})
    assert await is_accepted(verifier, token, server)
    issuer.behave = lambda handler, path: bool(handler.send_error(500)) or True
    clock.ahead += keys.REFRESH_AFTER_SECONDS + 1
    for _ in range(3):
        assert await is_accepted(verifier, token, server)
    assert issuer.asked[KEYS] == 2
    with pytest.raises(Busy):
        await verifier.verify(unknown, server)
    clock.ahead += keys.MAX_KEY_AGE_SECONDS
    with pytest.raises(Busy):
        await verifier.verify(token, server)
    assert f"Keys of an issuer unavailable: issuer={issuer.name} error=" in caplog.text


async def test_outage_does_not_delay_tokens_with_a_known_key(
    issuer, tokens, server, alice, aud, clock
):
    verifier, token = tokens(), issuer.token(aud)
    assert await is_accepted(verifier, token, server)
    issuer.behave = lambda handler, path: bool(handler.send_error(500)) or True
    clock.ahead += keys.REFRESH_AFTER_SECONDS + 1
    assert await is_accepted(verifier, token, server)
    issuer.gate.clear()
    clock.ahead += keys.FETCH_INTERVAL_SECONDS
    assert await asyncio.wait_for(is_accepted(verifier, token, server), 2)
    issuer.gate.set()
    while verifier._keys._requests._tasks():  # noqa: ASYNC110 - no bell rings
        await asyncio.sleep(0.01)


async def test_keys_are_fetched_again_after_an_outage(issuer, tokens, server, alice, aud, clock):
    verifier, token = tokens(), issuer.token(aud)
    issuer.behave = lambda handler, path: bool(handler.send_error(503)) or True
    with pytest.raises(Busy):
        await verifier.verify(token, server)
    del issuer.behave
    issuer.behave = lambda handler, path: False
    with pytest.raises(Busy):  # it was asked just now
        await verifier.verify(token, server)
    clock.ahead += keys.FETCH_INTERVAL_SECONDS
    assert await is_accepted(verifier, token, server)


async def test_metadata_with_another_issuer_is_rejected(issuer, tokens, server, alice, aud, caplog):
    issuer.metadata["issuer"] = "https://other.example"
    with pytest.raises(Busy):
        await tokens().verify(issuer.token(aud), server)
    assert issuer.asked[KEYS] == 0 and "the response has status 404" in caplog.text


async def test_metadata_with_an_unsafe_jwks_uri_is_rejected(
    issuer, tokens, server, alice, aud, caplog
):
    issuer.metadata["jwks_uri"] = "http://keys.example/keys"
    with pytest.raises(Busy):
        await tokens().verify(issuer.token(aud), server)
    assert "its metadata has no jwks_uri that is safe" in caplog.text


async def test_jwks_uri_can_be_configured(issuer, tokens, server, alice, aud):
    assert await is_accepted(tokens(jwks_uri=f"{issuer.name}/keys"), issuer.token(aud), server)
    assert issuer.asked == {KEYS: 1}


async def test_oauth_metadata_is_used_if_openid_metadata_is_missing(server, alice, aud):
    from .issuer import say

    with Issuer() as issuer:
        issuer.name += "/realms/shop"
        issuer.metadata["issuer"] = issuer.name
        place = "/.well-known/oauth-authorization-server/realms/shop"
        issuer.behave = lambda handler, path: path == place and say(handler, 200, issuer.metadata)
        verifier = JWTTokens(issuer.name, user=lambda claims: alice)
        assert await is_accepted(verifier, issuer.token(aud), server)
        assert issuer.paths == [f"/realms/shop{METADATA}", place, KEYS]


# Configuration.


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "http://issuer.example"}, {"issuer": "ftp://issuer.example"}, {"issuer": None},
        {"issuer": "https://me@issuer.example"}, {"issuer": "https://issuer.example#x"},
        {"user": None}, {"user": "username"}, {"algorithms": ["HS256"]}, {"algorithms": ["none"]},
        {"algorithms": []}, {"algorithms": "RS256"}, {"jwks_uri": "http://issuer.example/keys"},
        {"scopes": "mcp"}, {"advertised_scopes": [7]}, {"audience": ""}, {"audience": ["a"]},
    ],
    ids=str,
)  # fmt: skip
def test_unsafe_configuration_raises(wrong):
    options = {"issuer": "https://issuer.example", "user": lambda claims: None} | wrong
    with pytest.raises(ImproperlyConfigured):
        JWTTokens(**options)


def test_asynchronous_user_function_raises():
    async def find(claims):
        return None

    with pytest.raises(ImproperlyConfigured):
        JWTTokens("https://issuer.example", user=find)


@pytest.fixture(autouse=True)
def in_public():
    with given(URL="https://shop.example"):
        yield
