"""Requests that stand alone: their answers, their ends, and what is said on the way."""

from __future__ import annotations

import threading
import time

import pytest

import django_mcp as mcp
from tests.shop.models import Company

pytestmark = pytest.mark.django_db


# Cancelling.


@pytest.mark.parametrize("tool", ["plod", "ponder"])
def test_whoever_leaves_cancels(http, server, work, tool):
    client = http(server=server)
    talk = client.start("tools/call", name=tool)
    client.until(work.begun.is_set)
    begun = time.monotonic()
    client.sleep(0.06)  # by now somebody watches
    talk.leave()
    client.until(work.ended.is_set)
    assert time.monotonic() - begun < 5
    talk.wait()
    assert (talk.status, talk.body) == (None, b"")
    assert not Company.objects.filter(name="Half done").exists()
