"""A connection: handshake, phases, notifications, answers, stateless requests and batches."""

import pytest

from django_mcp.protocol.connection import (
    MAX_BATCH,
    TRANSITIONS,
    Answered,
    Cancelled,
    Connection,
    Notice,
    Phase,
    Received,
    State,
)
from django_mcp.protocol.jsonrpc import InternalError, InvalidParams, InvalidRequest, ParseError
from django_mcp.protocol.revisions import LATEST, LATEST_HANDSHAKE, REVISIONS

from ..oracle import message_conforms
from .pair import (
    CAPABILITIES,
    ENVELOPE,
    INFO,
    PREFIX,
    InMemoryConnection,
    StoredConnection,
    initialize,
    notification,
    request,
)

FIRST, SECOND, THIRD, FOURTH, _ = HANDSHAKES = [*REVISIONS.values()]
HANDSHAKES.pop()
PING, LIST = request(1, "ping"), request(1, "tools/list")
INITIALIZED = notification("notifications/initialized")

every_handshake = pytest.mark.parametrize("revision", HANDSHAKES, ids=str)
either_pair = pytest.mark.parametrize("pair", [InMemoryConnection, StoredConnection])


def modern(id, method, meta=(), **params):
    return request(id, method, _meta=ENVELOPE | dict(meta), **params)


# The handshake.


@either_pair
@every_handshake
def test_initialization_and_a_call(pair, revision):
    pair = pair()
    assert pair.code(LIST) == -32600
    call = pair.call(initialize(revision))
    assert (call.method, call.revision, call.id) == ("initialize", revision, "init")
    assert pair.connection.state.phase is Phase.OPENING
    assert pair.send(INITIALIZED).events == (Notice("notifications/initialized", {}),)
    assert pair.connection.state.phase is Phase.OPEN
    call = pair.call(request("a", "tools/call", name="t", _meta={"progressToken": 0, "k.x/y": 1}))
    assert (call.params, call.revision) == ({"name": "t"}, revision)
    assert (call.client_info, call.capabilities) == (INFO, CAPABILITIES)
    assert (call.progress_token, call.log_level) == (0, None)
    assert call.meta == {"progressToken": 0, "k.x/y": 1}
    reply = pair.connection.result(call, {"content": []})
    assert reply == {"jsonrpc": "2.0", "id": "a", "result": {"content": []}}
    assert message_conforms(revision, reply, "tools/call")


@every_handshake
def test_ping_is_allowed_before_and_after_initialize(revision):
    pair = InMemoryConnection()
    call = pair.call(PING)
    assert pair.connection.result(call, {}) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    pair.call(initialize(revision))
    assert pair.call(PING).revision is revision
    assert pair.connection.state.phase is Phase.OPENING


@every_handshake
def test_request_before_the_initialized_notification_is_accepted(revision):
    pair = InMemoryConnection()
    pair.call(initialize(revision))
    assert pair.call(LIST).method == "tools/list"


def test_unknown_revision_negotiates_the_latest_with_a_handshake():
    for asked in ("1999-01-01", LATEST):
        pair = InMemoryConnection()
        assert pair.call(initialize(asked)).revision is LATEST_HANDSHAKE


@every_handshake
def test_second_initialize_is_rejected(revision):
    pair = InMemoryConnection()
    pair.call(initialize(revision))
    assert pair.code(initialize(revision)) == -32600
    pair.send(INITIALIZED)
    before = pair.connection.state
    assert pair.code(initialize(FIRST)) == -32600
    assert pair.connection.state == before


def test_notifications_before_initialize_are_ignored():
    pair = InMemoryConnection()
    assert pair.send(INITIALIZED) == Received()
    assert pair.send(notification("notifications/roots/list_changed")) == Received()
    assert pair.send({"jsonrpc": "2.0", "id": 1, "result": {}}) == Received()
    pair.open(THIRD)
    assert pair.send(INITIALIZED) == Received()
    assert pair.connection.state.phase is Phase.OPEN


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocolVersion": None},
        {"protocolVersion": 1},
        {"capabilities": []},
        {"capabilities": None},
        {"capabilities": {"sampling": True}},
        {"clientInfo": None},
        {"clientInfo": {"name": "n"}},
        {"clientInfo": {"name": 1, "version": "1"}},
        {"_meta": []},
        {"_meta": {"progressToken": 1.5}},
    ],
    ids=repr,
)
def test_malformed_initialize_is_rejected_without_effect(wrong):
    pair = InMemoryConnection()
    good = initialize(THIRD)
    assert pair.code(good | {"params": good["params"] | wrong}) == -32602
    assert pair.connection.state == State()
    pair.call(good)


@pytest.mark.parametrize("missing", ["protocolVersion", "capabilities", "clientInfo"])
def test_initialize_requires_all_parameters(missing):
    good = initialize(THIRD)
    params = {key: value for key, value in good["params"].items() if key != missing}
    assert InMemoryConnection().code(good | {"params": params}) == -32602


def test_null_capability_is_absent():
    good = initialize(THIRD)
    params = good["params"] | {"capabilities": {"roots": {}, "sampling": None}}
    assert InMemoryConnection().call(good | {"params": params}).capabilities == {"roots": {}}


@every_handshake
def test_method_unknown_to_the_revision_is_rejected(revision):
    pair = InMemoryConnection().open(revision)
    for method in ("server/discover", "subscriptions/listen", "tools/other", "", "rpc.x"):
        assert pair.code(request(1, method)) == -32601


@every_handshake
def test_malformed_metadata_in_a_session_is_rejected(revision):
    pair = InMemoryConnection().open(revision)
    for meta in ([], None, "", {"progressToken": True}, {"progressToken": 1.0}):
        assert pair.code(request(1, "tools/list", _meta=meta)) == -32602


def test_closed_connection_rejects_requests():
    pair = InMemoryConnection().open(THIRD)
    pair.connection.close()
    for message in (PING, LIST, initialize(THIRD), modern(1, "tools/list")):
        assert pair.code(message) == -32600
    for told in (
        notification("notifications/cancelled", requestId=1),
        notification("notifications/roots/list_changed"),
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ):
        assert pair.send(told) == Received()


def test_transition_table_covers_all_phases():
    assert set(TRANSITIONS) == set(Phase)
    assert {to for legal in TRANSITIONS.values() for to in legal.values()} <= set(Phase)


def test_state_can_be_stored_and_restored():
    state = State("2025-06-18", Phase.OPEN, INFO, CAPABILITIES)
    assert State.from_dict(state.to_dict()) == state
    assert type(state.to_dict()["phase"]) is str
    connection = Connection(state)
    connection.close()
    assert (state.phase, connection.state.phase) == (Phase.OPEN, Phase.CLOSED)


def test_connection_starts_with_the_latest_handshake_revision():
    assert Connection().revision is LATEST_HANDSHAKE


# Notifications and answers.


@either_pair
@every_handshake
def test_known_client_notifications_become_events(pair, revision):
    pair = pair().open(revision)
    told = notification("notifications/progress", progressToken=1, progress=2)
    assert pair.send(told).events == (Notice("notifications/progress", told["params"]),)
    (notice,) = pair.send(notification("notifications/roots/list_changed")).events
    assert notice.method == "notifications/roots/list_changed"
    assert pair.send(notification("notifications/tools/list_changed")) == Received()
    assert pair.send(notification("anything")) == Received()


@pytest.mark.parametrize("opened", [None, *HANDSHAKES], ids=str)
@pytest.mark.parametrize(
    ("params", "events"),
    [
        ({"requestId": 1, "reason": "r"}, (Cancelled(1, "r"),)),
        ({"requestId": "a"}, (Cancelled("a"),)),
        ({"requestId": "a", "reason": 1}, (Cancelled("a"),)),
        ({}, ()),
        ({"requestId": None}, ()),
        ({"requestId": True}, ()),
        ({"requestId": 1.5}, ()),
        ({"requestId": {}}, ()),
    ],
)
def test_cancelled_notification_becomes_an_event(opened, params, events):
    pair = InMemoryConnection().open(opened) if opened else InMemoryConnection()
    assert pair.send(notification("notifications/cancelled", **params)) == Received(events)


@either_pair
@every_handshake
def test_responses_become_answered_events(pair, revision):
    pair = pair().open(revision)
    result = {"jsonrpc": "2.0", "id": "ask-1", "result": {"action": "accept"}}
    assert pair.send(result).events == (Answered("ask-1", {"action": "accept"}),)
    error = {"code": -1, "message": "m", "data": [1]}
    refusal = {"jsonrpc": "2.0", "id": "ask-1", "error": error}
    assert pair.send(refusal).events == (Answered("ask-1", None, error),)
    assert pair.send(refusal | {"id": None}) == Received()


# Stateless requests.


@either_pair
def test_stateless_request_is_read_with_its_envelope(pair):
    pair = pair()
    meta = ENVELOPE | {PREFIX + "logLevel": "warning", "progressToken": "t", "k.x/y": 1}
    call = pair.call(
        request(
            1, "tools/call", name="t", _meta=meta,
            requestState="s", inputResponses={"a": {"action": "cancel"}},
        )
    )  # fmt: skip
    assert (call.id, call.method, call.params) == (1, "tools/call", {"name": "t"})
    assert (call.revision, call.client_info, call.capabilities) == (LATEST, INFO, CAPABILITIES)
    assert (call.log_level, call.progress_token) == ("warning", "t")
    assert (call.request_state, call.input_responses) == ("s", {"a": {"action": "cancel"}})
    assert call.meta == meta
    assert pair.connection.state == State()
    reply = pair.connection.result(call, {"content": []})
    assert reply["result"] == {"resultType": "complete", "content": []}


@either_pair
@every_handshake
def test_session_and_stateless_requests_share_a_connection(pair, revision):
    pair = pair().open(revision)
    state = pair.connection.state
    call = pair.call(modern(1, "tools/list", {PREFIX + "clientCapabilities": {}}))
    assert (call.revision, call.capabilities) == (LATEST, {})
    assert pair.code(modern(1, "ping")) == -32601
    assert pair.call(LIST).revision is revision
    assert pair.connection.state == state


@pytest.mark.parametrize(
    "method",
    [
        "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
        "unknown/method", "",
    ],
)  # fmt: skip
def test_session_methods_are_unknown_to_stateless_requests(method):
    (reply,) = InMemoryConnection().send(modern(1, method)).replies
    assert reply["error"]["code"] == -32601
    assert message_conforms(LATEST, reply)


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen", "tools/list"])
@pytest.mark.parametrize("missing", [PREFIX + "protocolVersion", PREFIX + "clientCapabilities"])
def test_stateless_request_requires_version_and_capabilities(method, missing):
    meta = {key: value for key, value in ENVELOPE.items() if key != missing}
    assert InMemoryConnection().code(request(1, method, _meta=meta)) == -32602


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen"])
def test_stateless_methods_require_the_envelope(method):
    for params in ({}, {"_meta": {}}, {"_meta": {"progressToken": 1}}, {"_meta": []}):
        assert InMemoryConnection().code(request(1, method, **params)) == -32602


def test_reserved_metadata_key_marks_a_stateless_request():
    hinted = request(1, "tools/list", _meta={PREFIX + "other": 1})
    assert InMemoryConnection().code(hinted) == -32602
    # In a session, extensions use such keys.
    assert InMemoryConnection().open(FOURTH).call(hinted).revision is FOURTH
    for key in ENVELOPE:
        assert (
            InMemoryConnection().open(FOURTH).code(request(1, "tools/list", _meta={key: 1}))
            == -32602
        )
    assert (
        InMemoryConnection()
        .call(
            initialize(FOURTH)
            | {"params": initialize(FOURTH)["params"] | {"_meta": hinted["params"]["_meta"]}}
        )
        .revision
        is FOURTH
    )


@pytest.mark.parametrize(
    "meta",
    [
        {"protocolVersion": 1},
        {"protocolVersion": None},
        {"clientCapabilities": None},
        {"clientCapabilities": []},
        {"clientCapabilities": {"roots": 1}},
        {"clientInfo": None},
        {"clientInfo": "me"},
        {"clientInfo": {"name": "me"}},
        {"logLevel": "loud"},
        {"logLevel": 1},
        {"logLevel": []},
    ],
    ids=repr,
)
def test_malformed_envelope_is_rejected(meta):
    wrong = {PREFIX + key: value for key, value in meta.items()}
    assert InMemoryConnection().code(modern(1, "tools/list", wrong)) == -32602


@pytest.mark.parametrize(
    "params",
    [
        {"inputResponses": []},
        {"inputResponses": "a"},
        {"inputResponses": {"a": 1}},
        {"requestState": 1},
        {"requestState": {}},
    ],
    ids=repr,
)
def test_malformed_input_responses_or_state_are_rejected(params):
    assert InMemoryConnection().code(modern(1, "tools/call", name="t", **params)) == -32602


def test_null_input_responses_and_state_are_absent():
    call = InMemoryConnection().call(
        modern(1, "tools/call", inputResponses=None, requestState=None)
    )
    assert (call.input_responses, call.request_state, call.params) == (None, None, {})


@pytest.mark.parametrize("version", ["1900-01-01", "", *(r.name for r in HANDSHAKES)])
def test_stateless_request_of_an_unsupported_revision_is_rejected(version):
    (reply,) = (
        InMemoryConnection()
        .send(modern(1, "tools/list", {PREFIX + "protocolVersion": version}))
        .replies
    )
    assert reply["error"]["code"] == -32022
    supported = [r.name for r in reversed(REVISIONS.values())]
    assert reply["error"]["data"] == {"supported": supported, "requested": version}
    assert message_conforms(LATEST, reply)


def test_errors_are_checked_in_order():
    old = {PREFIX + "protocolVersion": "1900-01-01"}
    pair = InMemoryConnection(transport="http")
    assert pair.code(modern(1, "no/method", old), LATEST.name) == -32020
    assert pair.code(modern(1, "no/method", old), "1900-01-01") == -32022
    assert pair.code(request(1, "no/method", _meta=[]), LATEST.name) == -32601
    assert pair.code(request(1, "tools/list", _meta=[]), LATEST.name) == -32602
    assert pair.send(modern(1, "tools/list"), LATEST.name).events


@pytest.mark.parametrize(("header", "code"), [(LATEST.name, -32602), ("1900-01-01", -32022)])
def test_version_header_determines_the_revision(header, code):
    assert InMemoryConnection(transport="http").code(LIST, header) == code
    pair = InMemoryConnection(transport="http")
    assert pair.send(initialize(THIRD), header).events
    assert pair.send(LIST, THIRD.name).events


# Batches.


@either_pair
def test_batch_is_split_into_events_and_errors(pair):
    pair = pair().open(SECOND)
    received = pair.send(
        [
            request(1, "tools/list"),
            notification("notifications/cancelled", requestId=1),
            request(2, "no/method"),
            {"jsonrpc": "2.0", "id": "ask-1", "result": {}},
            "nonsense",
            [request(3, "ping")],
            modern(4, "tools/list"),
            request(5, "ping"),
        ]
    )
    assert received.batch
    assert [type(event).__name__ for event in received.events] == [
        "ClientCall", "Cancelled", "Answered", "ClientCall",
    ]  # fmt: skip
    said = [(reply.get("id"), reply["error"]["code"]) for reply in received.replies]
    assert said == [(2, -32601), (None, -32600), (None, -32600), (4, -32600)]


def test_batch_of_notifications_gets_no_reply():
    received = (
        InMemoryConnection().open(SECOND).send([notification("notifications/roots/list_changed")])
    )
    assert (len(received.events), received.replies, received.batch) == (1, (), True)


@pytest.mark.parametrize("opened", [None, FIRST, THIRD, FOURTH], ids=str)
@pytest.mark.parametrize("batch", [[], [PING], [modern(1, "tools/list")], [[]]])
def test_batch_is_rejected_in_other_revisions(opened, batch):
    pair = InMemoryConnection().open(opened) if opened else InMemoryConnection()
    assert pair.code(batch) == -32600


@pytest.mark.parametrize("opened", [True, False])
def test_size_of_a_batch_is_limited(opened):
    pair = InMemoryConnection().open(SECOND) if opened else InMemoryConnection()
    if not opened:
        pair.call(initialize(SECOND))
    assert pair.code([]) == -32600
    assert pair.code([PING] * (MAX_BATCH + 1)) == -32600
    assert pair.code([PING, initialize(SECOND)]) == -32600
    assert len(pair.send([PING] * MAX_BATCH).events) == MAX_BATCH


# Error replies.


def test_legacy_sse_requests_belong_to_the_session():
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    alone = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    pair = InMemoryConnection(transport="sse")
    assert pair.code(alone) == -32600  # before initialize
    assert pair.open(FIRST).call(alone | {"id": 2}).revision.name == FIRST.name


@pytest.mark.parametrize("opened", [None, *HANDSHAKES], ids=str)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_error_reply_has_the_id_of_the_request_if_known(opened, transport):
    pair = InMemoryConnection(transport=transport)
    if opened:
        pair.open(opened)
    null = {"id": None} if opened in (FIRST, SECOND, THIRD) and transport == "stdio" else {}
    for raw, code in ((b"{", -32700), (b"1", -32600), (b'{"id": null, "method": "m"}', -32600)):
        (reply,) = pair.send(raw).replies
        assert {key: reply[key] for key in reply if key == "id"} == null
        assert reply["error"]["code"] == code
        if not null:
            assert opened in (FIRST, SECOND, THIRD) or message_conforms(FOURTH, reply)
    (reply,) = pair.send(b'{"id": 7, "method": "m"}').replies
    assert (reply["id"], reply["error"]["code"]) == (7, -32600)


def test_malformed_notification_is_rejected_over_http_only():
    wrong = {"jsonrpc": "2.0", "method": "notifications/initialized", "params": []}
    assert InMemoryConnection().send(wrong) == Received()
    assert InMemoryConnection(transport="http").code(wrong) == -32600


def test_errors_are_encoded_for_the_revision_of_the_call():
    pair = InMemoryConnection().open(THIRD)
    call = pair.call(modern(1, "tools/list"))
    error = InvalidParams("m", data=[1])
    written = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "m", "data": [1]}}
    assert pair.connection.error(call, error) == written
    assert pair.connection.error(1, error) == written
    assert pair.connection.error("x", InternalError(), LATEST)["id"] == "x"


def test_error_reply_has_the_id_that_the_error_names():
    assert Connection().refuse(InvalidRequest("m", about=0))["id"] == 0
    assert "id" not in Connection().refuse(ParseError())
