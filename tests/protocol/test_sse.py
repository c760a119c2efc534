"""Server-sent events: the encoding of events, ids and comments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mcp.protocol.jsonrpc import encode
from django_mcp.protocol.sse import comment, event, priming

NUMBERS = st.integers(0)


def test_events_are_encoded():
    assert event("{}") == b"data: {}\n\n"
    whole = event("{}", "4-2", 1000, "endpoint")
    assert whole == b"event: endpoint\nid: 4-2\nretry: 1000\ndata: {}\n\n"
    assert event("é") == b"data: \xc3\xa9\n\n"
    assert event("", retry=0) == b"retry: 0\ndata: \n\n"
    assert priming("4-0") == b"id: 4-0\ndata: \n\n"
    assert priming("4-0", 500) == b"id: 4-0\nretry: 500\ndata: \n\n"
    assert comment() == b":\n\n"
    assert comment(" here") == b": here\n\n"


def read(stream: bytes):
    """Iterate over the events of a stream, parsed as in the HTML standard (9.2.6)."""
    for block in stream.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n\n")[:-1]:
        fields = [line.partition(":") for line in block.split("\n") if not line.startswith(":")]
        if fields:
            yield {name: value.removeprefix(" ") for name, _, value in fields}


@given(st.lists(st.tuples(st.text(), NUMBERS, NUMBERS)))
def test_encoded_events_are_parsed_to_the_same_data(said):
    texts = [(encode({"a": text}), f"{stream}-{seq}") for text, stream, seq in said]
    stream = b"".join(event(data, id) + comment() for data, id in texts)
    assert list(read(stream)) == [{"id": id, "data": data} for data, id in texts]


@pytest.mark.parametrize("broken", ["a\nb", "a\rb", "\r\n", "data\n\ndata: forged"])
def test_line_breaks_in_fields_are_rejected(broken):
    for write in (event, comment, priming):
        with pytest.raises(ValueError, match="one line"):
            write(broken)
    for field in ("id", "event"):
        with pytest.raises(ValueError, match="one line"):
            event("", **{field: broken})


def test_invalid_ids_and_delays_are_rejected():
    for id in ("", "a\0b"):
        with pytest.raises(ValueError, match="neither empty nor with NUL"):
            event("", id)
    with pytest.raises(ValueError, match="past"):
        event("", retry=-1)
