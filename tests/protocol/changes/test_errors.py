"""Errors as each revision encodes them."""

import pytest

from django_mcp.protocol.jsonrpc import (
    INVALID_REQUEST,
    CustomError,
    HeaderMismatch,
    MissingCapability,
    ResourceNotFound,
    UnsupportedVersion,
    UrlElicitationRequired,
)
from django_mcp.protocol.revisions import REVISIONS, SUPPORTED, encode_error

FIRST, SECOND, THIRD, FOURTH, LATEST = REVISIONS.values()


def test_custom_error_is_the_same_in_all_revisions():
    error = CustomError(5, "m", ["d"])
    for revision in REVISIONS.values():
        assert encode_error(revision, error) == {"code": 5, "message": "m", "data": ["d"]}


def test_url_elicitation_error_exists_in_one_revision_only():
    error = UrlElicitationRequired([{"message": "m", "url": "u", "elicitationId": "e"}])
    said = [encode_error(revision, error) for revision in REVISIONS.values()]
    assert [wire["code"] for wire in said] == [INVALID_REQUEST] * 3 + [-32042, INVALID_REQUEST]
    page = {"mode": "url", "message": "m", "url": "u", "elicitationId": "e"}
    assert said[3]["data"] == {"elicitations": [page]}
    assert not any("data" in wire for wire in (*said[:3], said[4]))


def test_header_mismatch_has_its_own_code_in_the_latest_revision():
    said = [encode_error(revision, HeaderMismatch())["code"] for revision in REVISIONS.values()]
    assert said == [INVALID_REQUEST] * 4 + [-32020]


@pytest.mark.parametrize("revision", REVISIONS.values(), ids=str)
def test_error_data_is_kept_in_all_revisions(revision):
    supported = {"supported": list(SUPPORTED), "requested": "x"}
    assert encode_error(revision, UnsupportedVersion("x"))["data"] == supported
    required = {"requiredCapabilities": {"roots": {}}}
    assert encode_error(revision, MissingCapability({"roots": {}}))["data"] == required


def test_subclass_of_an_error_is_encoded_as_that_error():
    class Missing(ResourceNotFound):
        """Gone"""

    assert encode_error(FIRST, Missing("a:b")) == {
        "code": -32002,
        "message": "Gone",
        "data": {"uri": "a:b"},
    }
