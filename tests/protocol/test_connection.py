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
    Pipe,
    Rows,
    initialize,
    notification,
    request,
)

FIRST, SECOND, THIRD, FOURTH, _ = HANDSHAKES = [*REVISIONS.values()]
HANDSHAKES.pop()
PING, LIST = request(1, "ping"), request(1, "tools/list")
INITIALIZED = notification("notifications/initialized")

every_handshake = pytest.mark.parametrize("revision", HANDSHAKES, ids=str)
either_pair = pytest.mark.parametrize("pair", [Pipe, Rows])


def modern(id, method, meta=(), **params):
    return request(id, method, _meta=ENVELOPE | dict(meta), **params)


# The handshake.


@either_pair
@every_handshake
def test_a_conversation(pair, revision):
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
def test_ping_is_legal_before_and_after(revision):
    pair = Pipe()
    call = pair.call(PING)
    assert pair.connection.result(call, {}) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    pair.call(initialize(revision))
    assert pair.call(PING).revision is revision
    assert pair.connection.state.phase is Phase.OPENING


@every_handshake
def test_many_clients_do_not_wait_for_the_end_of_the_handshake(revision):
    pair = Pipe()
    pair.call(initialize(revision))
    assert pair.call(LIST).method == "tools/list"


def test_an_unknown_revision_is_answered_by_the_newest_with_a_handshake():
    for asked in ("1999-01-01", LATEST):
        pair = Pipe()
        assert pair.call(initialize(asked)).revision is LATEST_HANDSHAKE


@every_handshake
def test_initialize_is_legal_once(revision):
    pair = Pipe()
    pair.call(initialize(revision))
    assert pair.code(initialize(revision)) == -32600
    pair.send(INITIALIZED)
    before = pair.connection.state
    assert pair.code(initialize(FIRST)) == -32600
    assert pair.connection.state == before


def test_what_is_told_before_its_time_means_nothing():
    pair = Pipe()
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
def test_a_malformed_initialize_changes_nothing(wrong):
    pair = Pipe()
    good = initialize(THIRD)
    assert pair.code(good | {"params": good["params"] | wrong}) == -32602
    assert pair.connection.state == State()
    pair.call(good)


@pytest.mark.parametrize("missing", ["protocolVersion", "capabilities", "clientInfo"])
def test_initialize_needs_all_its_parameters(missing):
    good = initialize(THIRD)
    params = {key: value for key, value in good["params"].items() if key != missing}
    assert Pipe().code(good | {"params": params}) == -32602


def test_capabilities_that_are_null_are_absent():
    good = initialize(THIRD)
    params = good["params"] | {"capabilities": {"roots": {}, "sampling": None}}
    assert Pipe().call(good | {"params": params}).capabilities == {"roots": {}}


@every_handshake
def test_methods_that_the_revision_lacks(revision):
    pair = Pipe().open(revision)
    for method in ("server/discover", "subscriptions/listen", "tools/other", "", "rpc.x"):
        assert pair.code(request(1, method)) == -32601


@every_handshake
def test_a_malformed_request_in_a_session(revision):
    pair = Pipe().open(revision)
    for meta in ([], None, "", {"progressToken": True}, {"progressToken": 1.0}):
        assert pair.code(request(1, "tools/list", _meta=meta)) == -32602


def test_a_closed_connection_takes_nothing():
    pair = Pipe().open(THIRD)
    pair.connection.close()
    for message in (PING, LIST, initialize(THIRD), modern(1, "tools/list")):
        assert pair.code(message) == -32600
    for told in (
        notification("notifications/cancelled", requestId=1),
        notification("notifications/roots/list_changed"),
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ):
        assert pair.send(told) == Received()


def test_the_table_of_transitions_is_whole():
    assert set(TRANSITIONS) == set(Phase)
    assert {to for legal in TRANSITIONS.values() for to in legal.values()} <= set(Phase)


def test_a_state_is_a_plain_value():
    state = State("2025-06-18", Phase.OPEN, INFO, CAPABILITIES)
    assert State.from_dict(state.to_dict()) == state
    assert type(state.to_dict()["phase"]) is str
    connection = Connection(state)
    connection.close()
    assert (state.phase, connection.state.phase) == (Phase.OPEN, Phase.CLOSED)


def test_before_the_handshake_the_newest_that_has_one_is_spoken():
    assert Connection().revision is LATEST_HANDSHAKE


# What needs no answer.


@either_pair
@every_handshake
def test_notices(pair, revision):
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
def test_cancelling(opened, params, events):
    pair = Pipe().open(opened) if opened else Pipe()
    assert pair.send(notification("notifications/cancelled", **params)) == Received(events)


@either_pair
@every_handshake
def test_answers(pair, revision):
    pair = pair().open(revision)
    result = {"jsonrpc": "2.0", "id": "ask-1", "result": {"action": "accept"}}
    assert pair.send(result).events == (Answered("ask-1", {"action": "accept"}),)
    error = {"code": -1, "message": "m", "data": [1]}
    refusal = {"jsonrpc": "2.0", "id": "ask-1", "error": error}
    assert pair.send(refusal).events == (Answered("ask-1", None, error),)
    assert pair.send(refusal | {"id": None}) == Received()


# Without a handshake.


@either_pair
def test_a_request_that_says_it_all(pair):
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
def test_requests_with_and_without_a_session_share_a_connection(pair, revision):
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
def test_methods_that_need_a_session(method):
    (reply,) = Pipe().send(modern(1, method)).replies
    assert reply["error"]["code"] == -32601
    assert message_conforms(LATEST, reply)


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen", "tools/list"])
@pytest.mark.parametrize("missing", [PREFIX + "protocolVersion", PREFIX + "clientCapabilities"])
def test_what_every_request_must_say(method, missing):
    meta = {key: value for key, value in ENVELOPE.items() if key != missing}
    assert Pipe().code(request(1, method, _meta=meta)) == -32602


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen"])
def test_methods_that_speak_without_a_handshake(method):
    for params in ({}, {"_meta": {}}, {"_meta": {"progressToken": 1}}, {"_meta": []}):
        assert Pipe().code(request(1, method, **params)) == -32602


def test_any_key_of_the_specification_speaks_without_a_handshake():
    hinted = request(1, "tools/list", _meta={PREFIX + "other": 1})
    assert Pipe().code(hinted) == -32602
    # In a session, extensions use such keys.
    assert Pipe().open(FOURTH).call(hinted).revision is FOURTH
    for key in ENVELOPE:
        assert Pipe().open(FOURTH).code(request(1, "tools/list", _meta={key: 1})) == -32602
    assert (
        Pipe()
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
def test_a_malformed_envelope(meta):
    wrong = {PREFIX + key: value for key, value in meta.items()}
    assert Pipe().code(modern(1, "tools/list", wrong)) == -32602


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
def test_a_malformed_retry(params):
    assert Pipe().code(modern(1, "tools/call", name="t", **params)) == -32602


def test_a_retry_may_say_that_it_brings_nothing():
    call = Pipe().call(modern(1, "tools/call", inputResponses=None, requestState=None))
    assert (call.input_responses, call.request_state, call.params) == (None, None, {})


@pytest.mark.parametrize("version", ["1900-01-01", "", *(r.name for r in HANDSHAKES)])
def test_a_revision_that_is_not_served_without_a_handshake(version):
    (reply,) = Pipe().send(modern(1, "tools/list", {PREFIX + "protocolVersion": version})).replies
    assert reply["error"]["code"] == -32022
    supported = [r.name for r in reversed(REVISIONS.values())]
    assert reply["error"]["data"] == {"supported": supported, "requested": version}
    assert message_conforms(LATEST, reply)


def test_the_order_of_refusals():
    old = {PREFIX + "protocolVersion": "1900-01-01"}
    pair = Pipe(transport="http")
    assert pair.code(modern(1, "no/method", old), LATEST.name) == -32020
    assert pair.code(modern(1, "no/method", old), "1900-01-01") == -32022
    assert pair.code(request(1, "no/method", _meta=[]), LATEST.name) == -32601
    assert pair.code(request(1, "tools/list", _meta=[]), LATEST.name) == -32602
    assert pair.send(modern(1, "tools/list"), LATEST.name).events


@pytest.mark.parametrize(("header", "code"), [(LATEST.name, -32602), ("1900-01-01", -32022)])
def test_a_header_may_say_how_the_request_speaks(header, code):
    assert Pipe(transport="http").code(LIST, header) == code
    pair = Pipe(transport="http")
    assert pair.send(initialize(THIRD), header).events
    assert pair.send(LIST, THIRD.name).events


# Batches.


@either_pair
def test_a_batch(pair):
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


def test_a_batch_of_what_needs_no_answer_gets_none():
    received = Pipe().open(SECOND).send([notification("notifications/roots/list_changed")])
    assert (len(received.events), received.replies, received.batch) == (1, (), True)


@pytest.mark.parametrize("opened", [None, FIRST, THIRD, FOURTH], ids=str)
@pytest.mark.parametrize("batch", [[], [PING], [modern(1, "tools/list")], [[]]])
def test_other_revisions_have_no_batches(opened, batch):
    pair = Pipe().open(opened) if opened else Pipe()
    assert pair.code(batch) == -32600


@pytest.mark.parametrize("opened", [True, False])
def test_a_batch_has_its_bounds(opened):
    pair = Pipe().open(SECOND) if opened else Pipe()
    if not opened:
        pair.call(initialize(SECOND))
    assert pair.code([]) == -32600
    assert pair.code([PING] * (MAX_BATCH + 1)) == -32600
    assert pair.code([PING, initialize(SECOND)]) == -32600
    assert len(pair.send([PING] * MAX_BATCH).events) == MAX_BATCH


# Refusals.


def test_over_sse_every_request_is_of_the_session():
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    alone = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    pair = Pipe(transport="sse")
    assert pair.code(alone) == -32600  # before initialize
    assert pair.open(FIRST).call(alone | {"id": 2}).revision.name == FIRST.name


@pytest.mark.parametrize("opened", [None, *HANDSHAKES], ids=str)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_whom_a_refusal_is_for(opened, transport):
    pair = Pipe(transport=transport)
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


def test_a_malformed_notification_is_answered_only_where_the_answer_is_a_status():
    wrong = {"jsonrpc": "2.0", "method": "notifications/initialized", "params": []}
    assert Pipe().send(wrong) == Received()
    assert Pipe(transport="http").code(wrong) == -32600


def test_errors_are_written_as_the_call_speaks():
    pair = Pipe().open(THIRD)
    call = pair.call(modern(1, "tools/list"))
    error = InvalidParams("m", data=[1])
    written = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "m", "data": [1]}}
    assert pair.connection.error(call, error) == written
    assert pair.connection.error(1, error) == written
    assert pair.connection.error("x", InternalError(), LATEST)["id"] == "x"


def test_a_refusal_is_for_whom_the_error_is_about():
    assert Connection().refuse(InvalidRequest("m", about=0))["id"] == 0
    assert "id" not in Connection().refuse(ParseError())
