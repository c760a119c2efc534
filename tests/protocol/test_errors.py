import pytest

from django_mcp.protocol import jsonrpc
from django_mcp.protocol.jsonrpc import (
    CustomError,
    InternalError,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    ParseError,
    ProtocolError,
    ResourceNotFound,
    UnsupportedVersion,
    UrlElicitationRequired,
)


def test_an_error_says_its_docstring_unless_told_otherwise():
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
def test_every_error_has_words_and_a_named_code(cause):
    assert cause.__doc__
    assert cause.code in [value for name, value in vars(jsonrpc).items() if name.isupper()]


def test_errors_carry_what_the_specification_says_of_them():
    assert ResourceNotFound("a:b").data == {"uri": "a:b"}
    assert MissingCapability({"roots": {}}).data == {"requiredCapabilities": {"roots": {}}}
    assert UnsupportedVersion("x").data == {"supported": [], "requested": "x"}
    page = {"message": "m", "url": "u", "elicitationId": "e"}
    assert UrlElicitationRequired([page]).elicitations == [{"mode": "url", **page}]


def test_http_statuses():
    assert (MethodNotFound().http_status, InternalError().http_status) == (404, 500)
    assert ParseError().http_status == ResourceNotFound("a:b").http_status == 400


@pytest.mark.parametrize("code", [1, 0, -31999, -32769, -32700, -32600, -32602])
def test_a_project_may_choose_a_code(code):
    error = ProtocolError("m", code=code, data=[1], about=3)
    assert (error.code, error.message, error.data, error.about) == (code, "m", [1], 3)
    assert CustomError(code, "m", {}).data == {}


@pytest.mark.parametrize("code", [-32000, -32002, -32020, -32042, -32099, -32100, -32768])
def test_a_project_may_not_choose_a_reserved_code(code):
    with pytest.raises(ValueError, match="reserved"):
        ProtocolError("m", code=code)


@pytest.mark.parametrize("code", ["1", 1.0, True])
def test_a_code_is_an_integer(code):
    with pytest.raises(TypeError):
        CustomError(code, "m")
