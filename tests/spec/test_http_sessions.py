"""Sessions over HTTP, and the header that names a revision: transports pages up to 2025-11-25."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.django_db
UNKNOWN = ("1999-01-01", "banana", "2025-11-25, 2025-06-18", "2025_11_25", "")


def said(*messages: Any) -> list[Any]:
    return [{"jsonrpc": "2.0"} | message for message in messages]


PING, NOTE, REPLY = said(
    {"id": "p", "method": "ping"},
    {"method": "notifications/roots/list_changed"},
    {"id": "nothing asked", "result": {}},
)


@pytest.mark.parametrize("version", UNKNOWN)
@pytest.mark.parametrize("message", [PING, NOTE, REPLY])
def test_an_invalid_version_is_400_whatever_is_sent(http, handshake, version, message):
    client = http(revision=handshake)
    talk = client.post(message, mcp_protocol_version=version).wait()
    assert talk.status == 400
    assert talk.messages[0].get("id") == message.get("id") if message is PING else True
    assert handshake in talk.error["data"]["supported"]


@pytest.mark.parametrize("version", UNKNOWN)
def test_an_invalid_version_opens_no_stream_and_ends_no_session(http, handshake, version):
    client = http(revision=handshake)
    assert client.listen(mcp_protocol_version=version).wait().status == 400
    headers = client.headers(mcp_protocol_version=version)
    assert client.send("DELETE", client.path, headers=headers).status == 400
    assert client.request("ping") == {}
