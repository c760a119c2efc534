"""Fetching documents of an issuer: safe URLs, redirects, size limits and timeouts."""

from __future__ import annotations

import time
from typing import Any

import pytest

from django_mcp.verifiers import fetching
from django_mcp.verifiers.fetching import FetchError, fetch, is_safe

from .issuer import Issuer, say

SECRET = "s3cret"


@pytest.mark.parametrize(
    "url",
    ["https://a.example", "https://a.example:8443/x?y=z", "http://127.0.0.1:1/", "http://[::1]/x",
     "http://localhost:8080/realms/shop"],
)  # fmt: skip
def test_https_and_loopback_urls_are_safe(url):
    assert is_safe(url)


@pytest.mark.parametrize(
    "url",
    [None, 7, "", "https://", "http://a.example", "http://127.0.0.1.a.example", "file:///etc/passwd",
     "https://me:secret@a.example", "https://a.example/#x", "https://a.example:x/",
     "https://a.example/\r\nX: y", "https://a.example/ x", "https://[a", "HTTPS://" + "a" * 1000,
     "ftp://a.example", "http://127.0.0.1@a.example/"],
)  # fmt: skip
def test_other_urls_are_not_safe(url):
    assert not is_safe(url)
    if isinstance(url, str):
        with pytest.raises(FetchError):
            fetch(url)


def fetch_error(url: str, **options: Any) -> str:
    with pytest.raises(FetchError) as raised:
        fetch(url, **options)
    assert raised.value.__cause__ is None and SECRET not in str(raised.value)
    return str(raised.value)


def test_json_object_is_returned(issuer):
    assert fetch(f"{issuer.name}/keys") == {"keys": issuer.keys}


def test_redirect_is_not_followed(issuer):
    issuer.behave = lambda handler, path: say(handler, 302, {}, Location=f"{issuer.name}/keys")
    url = f"{issuer.name}/x"
    options = {"form": {"token": SECRET}, "authorization": f"Basic {SECRET}"}
    assert fetch_error(url, **options) == fetch_error(url) == "the response has status 302"
    assert set(issuer.asked) == {"/x"}


def test_long_response_is_rejected(issuer, monkeypatch):
    monkeypatch.setattr(fetching, "MAX_DOCUMENT_BYTES", 1000)
    issuer.behave = lambda handler, path: say(handler, 200, {"a": "b" * 2000})
    assert fetch_error(issuer.name) == "the response has more than 1000 bytes"


@pytest.mark.parametrize("body", [b"", b"[", b"[]", b"7", b"\xff", b"[" * 100_000], ids=repr)
def test_response_other_than_a_json_object_is_rejected(issuer, body):
    issuer.behave = lambda handler, path: say(handler, 200, body)
    assert fetch_error(issuer.name) == "the response is not a JSON object"


def test_unreachable_issuer_is_an_error(issuer):
    issuer.down()
    assert "refused" in fetch_error(f"{issuer.name}/introspect", form={"token": SECRET})
    issuer.down = lambda: None


def slow_response(begins: bytes) -> Any:
    def drip(handler: Any, path: str) -> bool:
        try:
            handler.wfile.write(begins)
            for _ in range(400):
                handler.wfile.write(b" ")
                time.sleep(0.02)
        except OSError:
            return True
        return True

    return drip


@pytest.mark.parametrize(
    "begins",
    [b"", b"HTTP/1.0 200 OK\r\nX: ", b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"],
    ids=["before the head", "in the head", "in the body"],
)
def test_slow_response_times_out(issuer, monkeypatch, begins):
    monkeypatch.setattr(fetching, "TIMEOUT_SECONDS", 0.5)
    issuer.behave = slow_response(begins)
    began = time.monotonic()
    fetch_error(f"{issuer.name}/x", form={"token": SECRET})
    assert time.monotonic() - began < 4


def test_missing_response_times_out(issuer, monkeypatch):
    monkeypatch.setattr(fetching, "TIMEOUT_SECONDS", 0.3)
    issuer.gate.clear()
    began = time.monotonic()
    fetch_error(issuer.name)
    assert time.monotonic() - began < 4


def test_server_without_tls_is_rejected(issuer):
    """The issuer of the tests speaks no TLS."""
    url = issuer.name.replace("http:", "https:")
    assert "SSL" in fetch_error(f"{url}/x", form={"token": SECRET})
    assert not issuer.asked


def test_proxy_is_used_for_other_hosts_but_not_for_loopback(issuer, monkeypatch):
    paths_at_proxy = []
    with Issuer() as proxy:
        proxy.behave = lambda handler, path: paths_at_proxy.append(path) or say(handler, 403, {})
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy.name)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert fetch(f"{issuer.name}/keys") and not proxy.asked
        fetch_error("https://id.example/x", form={"token": SECRET})
    assert paths_at_proxy == ["id.example:443"]
