"""The checker's parser: what bytes mean does not depend on where they were cut."""

from __future__ import annotations

import random

import pytest

from .checker.sse import Event, Parser

STREAM = (
    b'\xef\xbb\xbfid: 1-0\nretry: 500\ndata: \n\nid: 1-1\ndata: {"a":\ndata: 1}\n\n'
    b":\n: still here\n\r\ndata:x\r\rdata\n\nevent: other\ndata:  y\n\nid: 1-2\nnothing: z\n\n"
    b"id: \xc3\xa4\ndata: \xe2\x82\xac\n\n"
)
EVENTS = [
    Event("", "1-0", retry=500), Event('{"a":\n1}', "1-1"), Event("x"), Event(""),
    Event(" y", name="other"), Event("€", "ä"),
]  # fmt: skip


def parsed(*pieces: bytes) -> list[Event]:
    parser = Parser()
    return [event for piece in pieces for event in parser.feed(piece)]


def test_a_stream_in_one_piece():
    assert parsed(STREAM) == EVENTS


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_a_stream_in_small_pieces(size):
    assert parsed(*(STREAM[at : at + size] for at in range(0, len(STREAM), size))) == EVENTS


def test_a_stream_cut_anywhere():
    chance = random.Random(7)
    for _ in range(300):
        cuts = sorted(chance.sample(range(1, len(STREAM)), 4))
        ends = [0, *cuts, len(STREAM)]
        pieces = [STREAM[a:b] for a, b in zip(ends, ends[1:], strict=False)]
        assert parsed(*pieces) == EVENTS, cuts


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_each_way_to_end_a_line(end):
    whole = f"id: 1{end}data: a{end}data: b{end}{end}data: c{end}{end}".encode()
    for cut in range(len(whole)):
        found = parsed(whole[:cut], whole[cut:])
        # A block that ends by CR alone is over at once; an LF that follows belongs to it.
        assert found == [Event("a\nb", "1"), Event("c")], cut


def test_an_event_that_has_no_end_is_none():
    parser = Parser()
    assert parser.feed(b"id: 4-4\ndata: half\n") == [] and parser.is_amid
    assert parser.feed(b"\n") == [Event("half", "4-4")] and not parser.is_amid


def test_a_block_without_data_only_moves_the_cursor():
    parser = Parser()
    assert parser.feed(b"id: 9-9\n\n") == [] and parser.last_id == "9-9"
    assert parser.feed(b"id: 1\x002\ndata: x\n\n") == [Event("x")] and parser.last_id == "9-9"
    assert parser.feed(b": one\n:two\n\n") == [] and parser.comments == 2


def test_a_retry_is_a_number():
    assert parsed(b"retry: 1s\ndata: x\n\n") == [Event("x")]
