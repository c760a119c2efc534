"""Fixtures: another issuer, and verifiers of its tokens."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from django_mcp.auth import principal
from django_mcp.verifiers import IntrospectedTokens, JWTTokens
from django_mcp.verifiers import jwt_tokens as the_keys
from tests.storage.rows import given

from .issuer import CLIENT, SECRET, Issuer


@pytest.fixture
def issuer():
    with Issuer() as made:
        yield made


@pytest.fixture
def clock(monkeypatch):
    """A clock of the cached keys that a test can move forward."""

    class Clock:
        ahead = 0.0

        def monotonic(self) -> float:
            return time.monotonic() + self.ahead

    made = Clock()
    monkeypatch.setattr(the_keys, "time", made)
    return made


def by_name(claims: dict[str, Any]) -> Any:
    return get_user_model().objects.get(username=claims.get("sub") or claims["username"])


@pytest.fixture
def tokens(issuer):
    """Return a function that makes verifiers of the issuer's JWTs."""

    def made(**options: Any) -> JWTTokens:
        return JWTTokens(issuer.name, **{"user": by_name} | options)

    return made


@pytest.fixture
def introspected(issuer):
    """Return a function that makes verifiers that introspect at the issuer."""

    def made(**options: Any) -> IntrospectedTokens:
        whole = {"user": by_name, "client_id": CLIENT, "client_secret": SECRET} | options
        return IntrospectedTokens(issuer.name, **whole)

    return made


@pytest.fixture
def asked(monkeypatch):
    """Return a function that sets the verifiers of the endpoint, in this order."""

    def put(*made: Any) -> None:
        monkeypatch.setattr(principal, "_instances", lambda paths: made)
        monkeypatch.setattr(principal, "_groups", lambda paths: principal._grouped(made))

    with given(URL="https://shop.example"):
        yield put
