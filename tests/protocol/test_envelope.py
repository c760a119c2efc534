"""The metadata of a request: the envelope of stateless requests and its validation."""

import pytest

from django_mcp.protocol.connection import (
    CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    VERSION,
    Connection,
    named_revision,
    read_capabilities,
    read_client_info,
    read_meta,
)
from django_mcp.protocol.jsonrpc import HeaderMismatch, InvalidParams, UnsupportedVersion
from django_mcp.protocol.revisions import LATEST, LATEST_HANDSHAKE

LEAST = {VERSION: LATEST.name, CAPABILITIES: {}}
INFO = {"name": "n", "version": "1", "title": "T"}


def test_metadata_is_read():
    assert read_meta({}) == {}
    assert read_meta({"_meta": {"progressToken": 0}}) == {"progressToken": 0}
    assert read_meta({"_meta": {"progressToken": None}}) == {"progressToken": None}


@pytest.mark.parametrize("meta", [None, [], 1, {"progressToken": True}, {"progressToken": []}])
def test_malformed_metadata_is_rejected(meta):
    with pytest.raises(InvalidParams):
        read_meta({"_meta": meta})


def stateless(meta, params):
    """Return the call or the error reply of a request with these parameters and ``_meta``."""
    params = params | {"_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
    received = Connection(transport="http").receive(message, LATEST.name)
    return (*received.events, *received.replies)[0]


def test_fields_of_stateless_requests_are_read():
    call = stateless(LEAST, {})
    assert (call.client_info, call.capabilities, call.log_level) == ({}, {}, None)
    assert (call.input_responses, call.request_state) == (None, None)
    full = LEAST | {CLIENT_INFO: INFO, LOG_LEVEL: "debug", CAPABILITIES: {"roots": {}}}
    call = stateless(full, {"inputResponses": {"a": {}}, "requestState": "", "cursor": "c"})
    assert (call.client_info, call.capabilities) == (INFO, {"roots": {}})
    assert (call.log_level, call.params) == ("debug", {"cursor": "c"})
    assert (call.input_responses, call.request_state) == ({"a": {}}, "")


@pytest.mark.parametrize(
    ("meta", "params"),
    [
        ({VERSION: LATEST.name}, {}),
        ({CAPABILITIES: {}}, {}),
        (LEAST | {VERSION: 1}, {}),
        (LEAST | {LOG_LEVEL: "x"}, {}),
        (LEAST | {CLIENT_INFO: {}}, {}),
        (LEAST, {"requestState": 1}),
        (LEAST, {"inputResponses": {"a": []}}),
    ],
)
def test_malformed_envelope_is_rejected_before_headers(meta, params):
    params = params | {"_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
    for headers in (None, {}):
        (reply,) = Connection(transport="http").receive(message, LATEST.name, headers).replies
        assert reply["error"]["code"] == InvalidParams.code


@pytest.mark.parametrize(
    ("meta", "header"),
    [
        (None, None),
        ([], LATEST.name),
        ({VERSION: 1}, LATEST.name),
        ({VERSION: 1}, None),
        ({}, LATEST.name),
        (LEAST, None),
        (LEAST, LATEST.name),
    ],
)
def test_revision_is_determined_from_metadata_and_header(meta, header):
    assert named_revision({"_meta": meta}, header) is LATEST


@pytest.mark.parametrize(
    ("meta", "header", "error"),
    [
        ({}, "x", UnsupportedVersion),
        (LEAST | {VERSION: "x", CLIENT_INFO: {}}, "y", HeaderMismatch),
        (LEAST | {VERSION: "x"}, "x", UnsupportedVersion),
        (LEAST | {VERSION: ""}, None, UnsupportedVersion),
        (LEAST | {VERSION: LATEST_HANDSHAKE.name}, None, UnsupportedVersion),
    ],
)
def test_unsupported_or_mismatched_revision_is_rejected(meta, header, error):
    with pytest.raises(error):
        named_revision({"_meta": meta}, header)


def test_error_names_the_expected_type():
    with pytest.raises(InvalidParams, match=r"^_meta must be an object$"):
        read_meta({"_meta": 1})
    with pytest.raises(InvalidParams, match=r"^clientInfo must be an object$"):
        read_client_info("n")
    with pytest.raises(InvalidParams, match=r"^clientInfo.version must be a string$"):
        read_client_info({"name": "n"})
    with pytest.raises(InvalidParams, match=r"^capabilities must be an object$"):
        read_capabilities(None)
    with pytest.raises(InvalidParams, match=r"^capabilities.roots must be an object$"):
        read_capabilities({"roots": True})


@pytest.mark.parametrize(
    ("meta", "params", "message"),
    [
        ({VERSION: LATEST.name}, {}, f"_meta must have {CAPABILITIES}"),
        ({CAPABILITIES: {}}, {}, f"_meta must have {VERSION}"),
        (LEAST | {VERSION: 1}, {}, f"{VERSION} must be a string"),
        (LEAST | {CLIENT_INFO: 1}, {}, "clientInfo must be an object"),
        (LEAST, {"requestState": 1}, "requestState must be a string"),
        (LEAST, {"inputResponses": []}, "inputResponses must be an object"),
        (LEAST, {"inputResponses": {"a": []}}, "inputResponses['a'] must be an object"),
    ],
)
def test_error_reply_names_the_expected_type(meta, params, message):
    assert stateless(meta, params)["error"]["message"] == message
