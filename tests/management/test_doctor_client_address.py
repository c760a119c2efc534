"""``mcp_doctor`` reports which client address the server sees through the proxy."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_mcp.management.doctor.live import FORGED, address_finding
from django_mcp.runtime import address_probe
from django_mcp.runtime.address_probe import SeenAddress


@pytest.mark.parametrize(
    ("client", "forwarded", "own", "level", "told"),
    [
        # Without a proxy, and through one that forwards the client's address.
        ("10.0.0.3", FORGED, "10.0.0.3", "ok", "sees the client's address, 10.0.0.3"),
        ("10.0.0.3", "", "10.0.0.3", "ok", "sees the client's address"),
        ("8.8.8.8", "8.8.8.8", "192.168.1.2", "ok", "8.8.8.8"),
        ("8.8.8.8", f"{FORGED}, 8.8.8.8", "192.168.1.2", "ok", "8.8.8.8"),
        ("8.8.8.8", f"{FORGED}, 8.8.8.8, 10.0.0.1", "192.168.1.2", "ok", "8.8.8.8"),
        ("2001:db8::1", "2001:db8::1", "2001:db8::1", "ok", "2001:db8::1"),
        # Through one that does not forward it, or that the server does not trust.
        (FORGED, FORGED, "10.0.0.3", "problem", "believes any client"),
        (FORGED, f"{FORGED}, 8.8.8.8", "10.0.0.3", "problem", "believes any client"),
        ("10.0.0.2", "8.8.8.8", "192.168.1.2", "problem", "all of them share one rate limit"),
        ("10.0.0.2", f"{FORGED}, 8.8.8.8", "192.168.1.2", "problem", "share one rate limit"),
        ("10.0.0.2", FORGED, "10.0.0.3", "problem", "the proxy does not forward the"),
        ("127.0.0.1", "", "127.0.0.2", "problem", "the proxy does not forward the"),
        ("", "", "10.0.0.3", "problem", "the proxy does not forward"),
        ("8.8.8.8", FORGED, "192.168.1.2", "warning", "this machine's public address, or a proxy"),
    ],
)
def test_seen_address_is_compared_with_the_own_address(client, forwarded, own, level, told):
    found = address_finding("It", SeenAddress(client, forwarded), own)
    assert found.level == level and told in found.words
    if level != "ok":
        assert "X-Forwarded-For" in found.hint or "FORWARDED_ALLOW_IPS" in found.hint


def test_address_is_reported_only_for_a_signed_probe(monkeypatch):
    probe = address_probe.signed_probe()
    told = address_probe.response_value(probe, "10.0.0.3", "a\r\nb")
    assert told is not None and told.isprintable() and told.isascii()
    assert address_probe.read_response(told) == SeenAddress("10.0.0.3", "a\r\nb")
    for wrong in (None, "", "x", probe[:-1], probe + "x"):
        assert address_probe.response_value(wrong, "10.0.0.3", "") is None
    with override_settings(SECRET_KEY="another"):
        assert address_probe.response_value(probe, "10.0.0.3", "") is None
    monkeypatch.setattr(address_probe, "VALID_SECONDS", -1)
    assert address_probe.response_value(probe, "10.0.0.3", "") is None


@pytest.mark.parametrize("value", [None, "", "x", "[]", "1", "{}", '{"client": "x"}'])
def test_malformed_report_is_ignored(value):
    assert address_probe.read_response(value) is None
