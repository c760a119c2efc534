"""Protocol errors: messages, codes, data and HTTP statuses."""

import pytest

from django_mcp.protocol import jsonrpc
from django_mcp.protocol.jsonrpc import (
    CustomError,
    InvalidParams,
    MissingCapability,
    ParseError,
    ProtocolError,
    ResourceNotFound,
    UnsupportedVersion,
    UrlElicitationRequired,
)


def test_default_message_is_the_docstring():
    assert ParseError().message == str(ParseError()) == "Parse error"
    assert InvalidParams("no such tool").message == "no such tool"
    assert CustomError(5, "").message == "The request could not be served"


@pytest.mark.parametrize(
    "cause",
    [
        value
        for value in vars(jsonrpc).values()
        if isinstance(value, type) and issubclass(value, ProtocolError)
    ],
)
def test_every_error_has_a_docstring_and_a_named_code(cause):
    assert cause.__doc__
    assert cause.code in [value for name, value in vars(jsonrpc).items() if name.isupper()]


def test_errors_have_the_specified_data():
    assert ResourceNotFound("a:b").data == {"uri": "a:b"}
    assert MissingCapability({"roots": {}}).data == {"requiredCapabilities": {"roots": {}}}
    assert UnsupportedVersion("x").data == {"supported": [], "requested": "x"}
    page = {"message": "m", "url": "u", "elicitationId": "e"}
    assert UrlElicitationRequired([page]).elicitations == [{"mode": "url", **page}]


@pytest.mark.parametrize("code", [1, 0, -31999, -32769, -32700, -32600, -32602])
def test_project_may_choose_unreserved_codes(code):
    error = ProtocolError("m", code=code, data=[1], about=3)
    assert (error.code, error.message, error.data, error.about) == (code, "m", [1], 3)
    assert CustomError(code, "m", {}).data == {}


@pytest.mark.parametrize("code", [-32000, -32002, -32020, -32042, -32099, -32100, -32768])
def test_reserved_codes_are_rejected(code):
    with pytest.raises(ValueError, match="reserved"):
        ProtocolError("m", code=code)


@pytest.mark.parametrize("code", ["1", 1.0, True])
def test_code_must_be_an_integer(code):
    with pytest.raises(TypeError):
        CustomError(code, "m")
