"""The examples of the pages about signals and logging work."""

from __future__ import annotations

import logging
import logging.config

import pytest

import django_mcp as mcp
from django_mcp import signals

from .pages import DOCS, blocks

SIGNALS = "docs/reference/signals.md"
LOGGING = "docs/how-to/logging.md"


@pytest.fixture
def client(connect, server, alice):
    @server.tool
    def refund(request: mcp.Request) -> str:
        return "refunded"

    return connect(alice, server=server)


def test_receiver_of_the_page_is_told_of_a_call(client, capsys):
    (code,) = blocks(DOCS.parent / SIGNALS, "python")
    namespace = {"__name__": "shop.receivers"}
    exec(code, namespace)
    try:
        client.request("tools/call", name="refund")
    finally:
        signals.call_finished.disconnect(namespace["count"])
    assert capsys.readouterr().out.startswith("refund ok 0.")


def test_logging_configuration_of_the_page_writes_one_line_for_a_call(client, capsys):
    (code,) = blocks(DOCS.parent / LOGGING, "python")
    namespace = {}
    exec(code, namespace)
    package = [logging.getLogger("django_mcp"), logging.getLogger("django_mcp.calls")]
    before = [(one, one.level, list(one.handlers)) for one in package]
    logging.config.dictConfig(namespace["LOGGING"])
    try:
        client.request("tools/call", name="refund")
    finally:
        for one, level, handlers in before:
            one.setLevel(level)
            one.handlers[:] = handlers
    (line,) = capsys.readouterr().err.splitlines()
    (shown,) = blocks(DOCS.parent / LOGGING, "text")
    keys = [word.partition("=")[0] for word in shown.split() if "=" in word]
    assert [word.partition("=")[0] for word in line.split() if "=" in word] == keys
    assert "INFO django_mcp.calls Call finished: server=" in line and "outcome=ok" in line
