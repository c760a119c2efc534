"""Documents of an issuer: how they are asked for, and what is not waited for."""

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
def test_what_is_safe(url):
    assert is_safe(url)


@pytest.mark.parametrize(
    "url",
    [None, 7, "", "https://", "http://a.example", "http://127.0.0.1.a.example", "file:///etc/passwd",
     "https://me:secret@a.example", "https://a.example/#x", "https://a.example:x/",
     "https://a.example/\r\nX: y", "https://a.example/ x", "https://[a", "HTTPS://" + "a" * 1000,
     "ftp://a.example", "http://127.0.0.1@a.example/"],
)  # fmt: skip
def test_what_is_not(url):
    assert not is_safe(url)
    if isinstance(url, str):
        with pytest.raises(FetchError):
            fetch(url)


def refused(url: str, **options: Any) -> str:
    with pytest.raises(FetchError) as raised:
        fetch(url, **options)
    assert raised.value.__cause__ is None and SECRET not in str(raised.value)
    return str(raised.value)


def test_an_object(issuer):
    assert fetch(f"{issuer.name}/keys") == {"keys": issuer.keys}


def test_what_is_redirected_is_not_followed(issuer):
    issuer.behave = lambda handler, path: say(handler, 302, {}, Location=f"{issuer.name}/keys")
    url = f"{issuer.name}/x"
    options = {"form": {"token": SECRET}, "authorization": f"Basic {SECRET}"}
    assert refused(url, **options) == refused(url) == "the response has status 302"
    assert set(issuer.asked) == {"/x"}


def test_what_is_long(issuer, monkeypatch):
    monkeypatch.setattr(fetching, "MAX_DOCUMENT_BYTES", 1000)
    issuer.behave = lambda handler, path: say(handler, 200, {"a": "b" * 2000})
    assert refused(issuer.name) == "the response has more than 1000 bytes"


@pytest.mark.parametrize("body", [b"", b"[", b"[]", b"7", b"\xff", b"[" * 100_000], ids=repr)
def test_what_is_no_object(issuer, body):
    issuer.behave = lambda handler, path: say(handler, 200, body)
    assert refused(issuer.name) == "the response is not a JSON object"


def test_who_is_not_there(issuer):
    issuer.down()
    assert "refused" in refused(f"{issuer.name}/introspect", form={"token": SECRET})
    issuer.down = lambda: None


def dripping(begins: bytes) -> Any:
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
def test_what_comes_bit_by_bit_is_not_waited_for(issuer, monkeypatch, begins):
    monkeypatch.setattr(fetching, "TIMEOUT_SECONDS", 0.5)
    issuer.behave = dripping(begins)
    began = time.monotonic()
    refused(f"{issuer.name}/x", form={"token": SECRET})
    assert time.monotonic() - began < 4


def test_what_does_not_come_is_not_waited_for(issuer, monkeypatch):
    monkeypatch.setattr(fetching, "TIMEOUT_SECONDS", 0.3)
    issuer.gate.clear()
    began = time.monotonic()
    refused(issuer.name)
    assert time.monotonic() - began < 4


def test_who_cannot_show_a_certificate_is_not_asked(issuer):
    """The issuer of the tests speaks no TLS."""
    url = issuer.name.replace("http:", "https:")
    assert "SSL" in refused(f"{url}/x", form={"token": SECRET})
    assert not issuer.asked


def test_a_proxy_is_asked_for_what_is_elsewhere_and_for_nothing_on_this_machine(
    issuer, monkeypatch
):
    heard = []
    with Issuer() as proxy:
        proxy.behave = lambda handler, path: heard.append(path) or say(handler, 403, {})
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy.name)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert fetch(f"{issuer.name}/keys") and not proxy.asked
        refused("https://id.example/x", form={"token": SECRET})
    assert heard == ["id.example:443"]
