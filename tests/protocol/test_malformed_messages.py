"""Thousands of malformed messages get the specified error; the next valid message is answered."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_mcp.protocol.connection import MAX_BATCH, ClientCall
from django_mcp.protocol.jsonrpc import MAX_DEPTH, encode
from django_mcp.protocol.revisions import REVISIONS

from ..oracle import STANDARD_CODES, message_violations
from .pair import ENVELOPE, InMemoryConnection, StoredConnection, request

ALL = list(REVISIONS.values())
LATEST = ALL[-1]
NULL_IDS = ALL[:3]

every_revision = pytest.mark.parametrize("revision", ALL, ids=str)
many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
ids = st.text(max_size=5) | st.integers(-(2**70), 2**70)
no_ids = st.one_of(
    st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False),
    st.lists(scalars, max_size=2), st.dictionaries(st.text(max_size=3), scalars, max_size=2),
)  # fmt: skip
no_objects = anything.filter(lambda value: not isinstance(value, dict))
no_texts = anything.filter(lambda value: not isinstance(value, str))
# Keys and values of the protocol, in wrong positions.
words = st.sampled_from(
    [
        "2.0", "id", "initialize", "jsonrpc", "method", "notifications/cancelled", "params", "ping",
        "progressToken", "requestId", "result", "server/discover", "tools/call", "tools/list",
        "_meta", "error", *ENVELOPE, *REVISIONS,
    ]
)  # fmt: skip
nearly = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
    max_leaves=12,
)


def valid_message(revision, id="good"):
    meta = {} if revision.handshake else ENVELOPE
    return request(id, "tools/list", _meta=meta)


def answered(pair, revision):
    """Return whether the next valid message is a call of that revision."""
    call = pair.call(valid_message(revision))
    return (call.method, call.revision) == ("tools/list", revision)


def refused(pair, revision, raw, id=None):
    """Return the error code of a rejected message; the reply must be well-formed."""
    received = pair.send(raw)
    assert received.events == () and not received.batch
    (reply,) = received.replies
    unreadable = {"id": None} if revision in NULL_IDS else {}
    assert {key: reply[key] for key in reply if key == "id"} == (
        unreadable if id is None else {"id": id}
    )
    if id is not None or not unreadable:
        assert message_violations(revision, reply) == []
    return reply["error"]["code"]


@every_revision
@many
@given(data=st.data())
def test_invalid_json_is_a_parse_error(revision, data):
    pair = InMemoryConnection().open(revision)
    line = encode(valid_message(revision)).encode()
    cut = data.draw(st.integers(0, len(line) - 1))
    junk = data.draw(st.binary(min_size=1, max_size=8))
    raw = data.draw(
        st.sampled_from(
            [
                line[:cut],
                line[cut:] if cut else line + b"}",
                line + b"\xff",
                line[:-1] + b',"x":NaN}',
                line[:-1] + b',"x":' + b"9" * 100 + b"}",
                line[:-1] + b',"x":1e400}',
                line[:-1] + b',"x":"\\udc00"}',
                line[:-1] + b',"x":"\xed\xb0\x80"}',
                line[:-1] + b',"x":"\x00"}',
                line[:-1] + b',"x":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
                b"[" * 100_000,
                b'{"a":' * 50_000,
                line.decode().encode("utf-16"),
                line.decode().encode("utf-32-le"),
                b"\xef\xbb\xbf\xef\xbb\xbf" + line,
                b"\x00" + line,
                b"'" + line + b"'",
                b"\x80" + junk,
            ]
        )
    )
    assert refused(pair, revision, raw) == -32700
    assert answered(pair, revision)


@every_revision
@many
@given(data=st.data())
def test_malformed_request_is_an_invalid_request(revision, data):
    pair = InMemoryConnection().open(revision)
    message, id = valid_message(revision), data.draw(ids)
    message["id"] = id
    change, value, id = data.draw(
        st.one_of(
            st.tuples(st.just("id"), no_ids, st.none()),
            st.tuples(st.just("method"), no_texts, st.just(id)),
            st.tuples(st.just("params"), no_objects, st.just(id)),
            st.tuples(st.just("jsonrpc"), anything.filter(lambda v: v != "2.0"), st.just(id)),
            st.tuples(st.sampled_from(["result", "error"]), anything, st.just(id)),
        )
    )
    assert refused(pair, revision, message | {change: value}, id) == -32600
    assert answered(pair, revision)


@every_revision
@many
@given(value=anything.filter(lambda value: not isinstance(value, (dict, list))))
def test_non_object_is_an_invalid_request(revision, value):
    pair = InMemoryConnection().open(revision)
    assert refused(pair, revision, encode(value).encode()) == -32600
    assert answered(pair, revision)


@every_revision
@many
@given(id=ids, method=st.text(max_size=20))
def test_unknown_method_is_not_found(revision, id, method):
    pair = InMemoryConnection().open(revision)
    message = valid_message(revision, id) | {"method": f"no/{method}"}
    assert refused(pair, revision, message, id) == -32601
    assert answered(pair, revision)


@every_revision
@many
@given(id=ids, meta=no_objects, token=no_ids.filter(lambda value: value is not None))
def test_malformed_metadata_is_invalid_params(revision, id, meta, token):
    pair = InMemoryConnection().open(revision)
    message = valid_message(revision, id)
    message["params"]["_meta"] = message["params"]["_meta"] | {"progressToken": token}
    assert refused(pair, revision, message, id) == -32602
    if revision.handshake:
        message["params"]["_meta"] = meta
        assert refused(pair, revision, message, id) == -32602
    assert answered(pair, revision)


@many
@given(key=st.sampled_from(list(ENVELOPE)), value=st.lists(anything) | st.none(), id=ids)
def test_malformed_envelope_is_invalid_params(key, value, id):
    pair = InMemoryConnection()
    message = request(id, "tools/list", _meta=ENVELOPE | {key: value})
    assert refused(pair, LATEST, message, id) == -32602
    assert answered(pair, LATEST)


@many
@given(version=st.text(max_size=12).filter(lambda name: name != LATEST.name), id=ids)
def test_unknown_revision_is_unsupported(version, id):
    meta = ENVELOPE | {"io.modelcontextprotocol/protocolVersion": version}
    pair = InMemoryConnection()
    assert refused(pair, LATEST, request(id, "tools/list", _meta=meta), id) == -32022
    assert answered(pair, LATEST)


@every_revision
@many
@given(data=st.data())
def test_batch_is_accepted_only_where_allowed(revision, data):
    pair = InMemoryConnection().open(revision)
    size = data.draw(st.sampled_from([0, 1, 2, MAX_BATCH, MAX_BATCH + 1, 1000]))
    batch = [request(number, "ping") for number in range(size)]
    opening = data.draw(st.booleans())
    if opening:
        batch.insert(data.draw(st.integers(0, size)), request("i", "initialize"))
    if revision.batching and 0 < size <= MAX_BATCH and not opening:
        received = pair.send(batch)
        assert received.batch and len(received.events) == size
    else:
        assert refused(pair, revision, batch) == -32600
    assert answered(pair, revision)


@pytest.mark.slow
@many
@given(entries=st.lists(anything.filter(lambda value: value != []), min_size=1, max_size=MAX_BATCH))
def test_batch_entries_are_rejected_separately(entries):
    pair = InMemoryConnection().open(ALL[1])
    received = pair.send([*entries, valid_message(ALL[1])])
    assert received.batch and len(received.events) == 1
    assert [reply["error"]["code"] for reply in received.replies] == [-32600] * len(entries)
    assert answered(pair, ALL[1])


@every_revision
@many
@given(params=st.dictionaries(words, nearly), method=words)
def test_notification_is_never_answered(revision, params, method):
    pair = InMemoryConnection().open(revision)
    told = {"jsonrpc": "2.0", "method": method}
    assert pair.send(told | {"params": params}).replies == ()
    assert pair.send(told | {"params": [params]}).replies == ()
    assert answered(pair, revision)


@pytest.mark.parametrize("pair", [InMemoryConnection, StoredConnection])
@pytest.mark.parametrize("revision", [None, *ALL], ids=str)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(raw=nearly.map(json.dumps).map(str.encode) | st.binary(max_size=40))
def test_arbitrary_input_gets_a_standard_error_and_the_next_message_works(pair, revision, raw):
    pair = pair() if revision is None else pair().open(revision)
    received = pair.send(raw)
    for reply in received.replies:
        assert reply["error"]["code"] in STANDARD_CODES | {-32022}
    assert all(
        isinstance(event, ClientCall) is False or event.id is not None for event in received.events
    )
    assert answered(pair, LATEST)
    if revision is not None:
        assert answered(pair, revision)
