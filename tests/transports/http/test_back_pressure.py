"""Back-pressure under Daphne: writing waits while the connection's buffer is full."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from daphne.http_protocol import WebRequest
from twisted.internet.testing import StringTransport
from twisted.web.http import HTTPChannel, Request

from django_mcp.transports.http.request import Backpressure, flow_of


async def send(request, message): ...


@pytest.fixture
def request_():
    """A request of Daphne on a channel of Twisted."""
    channel = HTTPChannel()
    channel.transport = StringTransport()
    found = WebRequest.__new__(WebRequest)
    Request.__init__(found, channel, False)
    return found


async def test_writing_waits_while_the_producer_is_paused(request_):
    flow = flow_of(partial(send, request_))
    await asyncio.wait_for(flow.ready(), 1)
    request_.channel._requestProducer.pauseProducing()
    waiting = asyncio.ensure_future(flow.ready())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    request_.channel._requestProducer.resumeProducing()
    await asyncio.wait_for(waiting, 30)


async def test_lost_connection_ends_the_wait(request_):
    flow = Backpressure(request_)
    flow.pauseProducing()
    request_.channel._requestProducer.stopProducing()
    await asyncio.wait_for(flow.ready(), 1)
    request_.channel = None
    flow.close()


async def test_close_frees_the_connection_for_the_next_response(request_):
    flow = flow_of(partial(send, request_))
    assert flow_of(partial(send, request_)) is None  # one per connection
    flow.close()
    assert request_.channel._requestProducer is None
    assert flow_of(partial(send, request_)) is not None


async def test_back_pressure_is_not_used_with_other_servers():
    assert flow_of(send) is None and flow_of(partial(send)) is None
    assert flow_of(partial(send, object())) is None
