"""Back-pressure under daphne: who writes waits for the connection that has enough."""

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
    """One of daphne's, on a channel of Twisted's."""
    channel = HTTPChannel()
    channel.transport = StringTransport()
    found = WebRequest.__new__(WebRequest)
    Request.__init__(found, channel, False)
    return found


async def test_who_writes_waits(request_):
    flow = flow_of(partial(send, request_))
    await asyncio.wait_for(flow.ready(), 1)
    request_.channel._requestProducer.pauseProducing()
    waiting = asyncio.ensure_future(flow.ready())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    request_.channel._requestProducer.resumeProducing()
    await asyncio.wait_for(waiting, 30)


async def test_a_connection_that_is_lost_holds_nobody(request_):
    flow = Backpressure(request_)
    flow.pauseProducing()
    request_.channel._requestProducer.stopProducing()
    await asyncio.wait_for(flow.ready(), 1)
    request_.channel = None
    flow.close()


async def test_an_answer_leaves_the_connection_to_the_next(request_):
    flow = flow_of(partial(send, request_))
    assert flow_of(partial(send, request_)) is None  # one is enough
    flow.close()
    assert request_.channel._requestProducer is None
    assert flow_of(partial(send, request_)) is not None


async def test_other_servers_let_us_wait_themselves():
    assert flow_of(send) is None and flow_of(partial(send)) is None
    assert flow_of(partial(send, object())) is None
