import pytest

from django_mcp.protocol.envelope import (
    CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    VERSION,
    Envelope,
    expect,
    progress_token,
    read_capabilities,
    read_client_info,
    read_envelope,
    read_meta,
)
from django_mcp.protocol.jsonrpc import HeaderMismatch, InvalidParams, UnsupportedVersion
from django_mcp.protocol.revisions import LATEST, LATEST_HANDSHAKE

LEAST = {VERSION: LATEST.name, CAPABILITIES: {}}
INFO = {"name": "n", "version": "1", "title": "T"}


def test_read_meta():
    assert read_meta({}) == {}
    meta = read_meta({"_meta": {"progressToken": 0}})
    assert (meta, progress_token(meta), progress_token({})) == ({"progressToken": 0}, 0, None)
    assert read_meta({"_meta": {"progressToken": None}}) == {"progressToken": None}


@pytest.mark.parametrize("meta", [None, [], 1, {"progressToken": True}, {"progressToken": []}])
def test_read_meta_refuses(meta):
    with pytest.raises(InvalidParams):
        read_meta({"_meta": meta})


def test_read_envelope():
    assert read_envelope(LEAST, {}) == Envelope(LATEST)
    full = LEAST | {CLIENT_INFO: INFO, LOG_LEVEL: "debug", CAPABILITIES: {"roots": {}}}
    retry = {"inputResponses": {"a": {}}, "requestState": ""}
    assert read_envelope(full, retry, LATEST.name) == Envelope(
        LATEST, INFO, {"roots": {}}, "debug", {"a": {}}, ""
    )


@pytest.mark.parametrize(
    ("meta", "params", "header", "error"),
    [
        ({VERSION: LATEST.name}, {}, None, InvalidParams),
        ({CAPABILITIES: {}}, {}, None, InvalidParams),
        (LEAST | {VERSION: 1}, {}, None, InvalidParams),
        (LEAST | {LOG_LEVEL: "x"}, {}, None, InvalidParams),
        (LEAST | {CLIENT_INFO: {}}, {}, None, InvalidParams),
        (LEAST, {"requestState": 1}, None, InvalidParams),
        (LEAST, {"inputResponses": {"a": []}}, None, InvalidParams),
        (LEAST | {VERSION: "x", CLIENT_INFO: {}}, {}, "y", InvalidParams),
        (LEAST | {VERSION: "x"}, {}, "y", HeaderMismatch),
        (LEAST | {VERSION: "x"}, {}, "x", UnsupportedVersion),
        (LEAST | {VERSION: LATEST_HANDSHAKE.name}, {}, None, UnsupportedVersion),
    ],
)
def test_read_envelope_refuses_in_order(meta, params, header, error):
    with pytest.raises(error):
        read_envelope(meta, params, header)


def test_what_is_expected_is_named():
    with pytest.raises(InvalidParams, match=r"^name must be an object$"):
        expect(1, dict, "name")
    with pytest.raises(InvalidParams, match=r"^clientInfo.version must be a string$"):
        read_client_info({"name": "n"})
    with pytest.raises(InvalidParams, match=r"^capabilities.roots must be an object$"):
        read_capabilities({"roots": True})
