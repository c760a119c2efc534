"""
What the official schemas say about a message: is it valid, and has it keys they do not declare?

A message conforms to a revision if the schema that was published with it accepts it, and if every
key is one that the schema names (the schemas themselves would accept any). JSON Schemas within
messages are open, and must be valid.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for

SCHEMAS = Path(__file__).parent / "schemas"
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

RESULT_TYPES = {
    "completion/complete": "CompleteResult",
    "initialize": "InitializeResult",
    "logging/setLevel": "EmptyResult",
    "ping": "EmptyResult",
    "prompts/get": "GetPromptResult",
    "prompts/list": "ListPromptsResult",
    "resources/list": "ListResourcesResult",
    "resources/read": "ReadResourceResult",
    "resources/subscribe": "EmptyResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/unsubscribe": "EmptyResult",
    "server/discover": "DiscoverResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "tools/call": "CallToolResult",
    "tools/list": "ListToolsResult",
}

# Within the range that JSON-RPC reserves, only these may be sent.
STANDARD_CODES = {-32700, -32600, -32601, -32602, -32603}
CODES = {
    "2024-11-05": STANDARD_CODES | {-32002},
    "2025-03-26": STANDARD_CODES | {-32002},
    "2025-06-18": STANDARD_CODES | {-32002},
    "2025-11-25": STANDARD_CODES | {-32002, -32042},
    "2026-07-28": STANDARD_CODES | {-32020, -32021, -32022},
}
# What the schema says about the whole message that has such a code.
TYPED_ERRORS = {
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
    -32042: "URLElicitationRequiredError",
}
# Keys of _meta that the core specification gives a meaning, somewhere.
CORE_META = {
    "io.modelcontextprotocol/" + name
    for name in (
        "clientCapabilities",
        "clientInfo",
        "logLevel",
        "protocolVersion",
        "serverInfo",
        "subscriptionId",
    )
}

FORMATS = FormatChecker(formats=())


@FORMATS.checks("byte", raises=(binascii.Error, ValueError))
def _is_base64(value: object) -> bool:
    return not isinstance(value, str) or base64.b64decode(value, validate=True) is not None


@FORMATS.checks("uri")
def _is_uri(value: object) -> bool:
    return not isinstance(value, str) or bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*:\S*$", value))


def conforms(revision: Any, type_name: str, value: Any) -> bool:
    """Return True if ``value`` is a ``type_name`` of that revision, else raise AssertionError."""
    return _asserted(violations(revision, type_name, value), value)


def message_conforms(revision: Any, message: Any, answers: str | None = None) -> bool:
    """Do the same for a JSON-RPC message. ``answers`` is the method of a result."""
    return _asserted(message_violations(revision, message, answers), message)


def _asserted(problems: list[str], value: Any) -> bool:
    assert not problems, "\n".join([*problems, json.dumps(value, indent=1)])
    return True


def violations(revision: Any, type_name: str, value: Any) -> list[str]:
    """Return why ``value`` is not a valid ``type_name``: invalid, or not declared."""
    errors = _validator(str(revision), type_name).iter_errors(value)
    invalid = [f"{error.json_path}: {error.message}" for error in errors]
    return invalid or [
        *_undeclared(str(revision), {"$ref": f"/{type_name}"}, value, "$"),
        *_bad_schemas(value, "$"),
    ]


def message_violations(revision: Any, message: Any, answers: str | None = None) -> list[str]:
    """Return what is wrong with a message of a server."""
    revision = str(revision)
    if "error" in message:
        return _error_violations(revision, message)
    if "result" in message:
        return _result_violations(revision, message, answers)
    kind = "Request" if "id" in message else "Notification"
    return violations(revision, f"JSONRPC{kind}", message) + _call_violations(
        revision, message, kind
    )


def _call_violations(revision: str, message: Any, kind: str) -> list[str]:
    type_name = types_by_method(revision, kind).get(message["method"])
    if type_name is None:
        return [f"$: {revision} has no {kind.lower()} {message['method']}"]
    declared = _definitions(revision)[type_name]["properties"]
    envelope = {"jsonrpc", "id"} - declared.keys()
    return violations(
        revision, type_name, {key: value for key, value in message.items() if key not in envelope}
    )


def _result_violations(revision: str, message: Any, answers: str | None) -> list[str]:
    known = _definitions(revision)
    envelope = "JSONRPCResultResponse" if "JSONRPCResultResponse" in known else "JSONRPCResponse"
    result, type_name = message["result"], RESULT_TYPES[answers or ""]
    about = {key: result[key] for key in ("resultType",) if key in result}
    problems = violations(revision, envelope, message | {"result": about})
    if result.get("resultType") == "input_required":
        type_name = "InputRequiredResult"
    if type_name == "EmptyResult":  # the schema leaves it open; it is called empty
        extra = sorted(result.keys() - _definitions(revision)["Result"]["properties"].keys())
        problems += [f"$.result.{key}: not declared" for key in extra]
    return problems + violations(revision, type_name, result)


def _error_violations(revision: str, message: Any) -> list[str]:
    known = _definitions(revision)
    envelope = "JSONRPCErrorResponse" if "JSONRPCErrorResponse" in known else "JSONRPCError"
    code = message["error"].get("code")
    problems = violations(revision, envelope, message)
    if -32768 <= code <= -32000 and code not in CODES[revision]:
        problems.append(f"$.error.code: {revision} does not define {code}")
    if (type_name := TYPED_ERRORS.get(code)) in known:
        problems += violations(revision, str(type_name), message)
    return problems


@cache
def types_by_method(revision: str, kind: str) -> dict[str, str]:
    """Return the types of requests, or of notifications, by method."""
    return {
        definition["properties"]["method"]["const"]: name
        for name, definition in _definitions(revision).items()
        if name.endswith(kind) and "const" in definition.get("properties", {}).get("method", {})
    }


@cache
def methods_of(revision: str, union: str) -> frozenset[str]:
    """Return the methods of a union such as ``ClientRequest``."""
    known = _definitions(revision)
    members = known[union].get("anyOf", [known[union]])
    return frozenset(_resolved(revision, m)["properties"]["method"]["const"] for m in members)


@cache
def _document(revision: str) -> Any:
    text = (SCHEMAS / revision / "schema.json").read_text(encoding="utf-8")
    return json.loads(text)


@cache
def _definitions(revision: str) -> dict[str, Any]:
    document = _document(revision)
    found: dict[str, Any] = document.get("$defs") or document["definitions"]
    return found


@cache
def _validator(revision: str, type_name: str) -> Any:
    document = _document(revision)
    where = "$defs" if "$defs" in document else "definitions"
    schema = {**document, "$ref": f"#/{where}/{type_name}"}
    if where == "definitions":  # draft 7 looks at nothing beside $ref
        schema = {**document, "allOf": [{"$ref": f"#/{where}/{type_name}"}]}
    return validator_for(document)(schema, format_checker=FORMATS)


# Keys that no schema declares.


def _resolved(revision: str, schema: Any) -> Any:
    while "$ref" in schema:
        schema = _definitions(revision)[schema["$ref"].rsplit("/", 1)[1]]
    return schema


def _undeclared(revision: str, schema: Any, value: Any, path: str) -> list[str]:
    schema = _resolved(revision, schema)
    if path.endswith(("inputSchema", "outputSchema")):
        return []
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return _least_undeclared(revision, branches, value, path)
    if isinstance(value, dict):
        return list(_undeclared_keys(revision, schema, value, path))
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [
            problem
            for index, item in enumerate(value)
            for problem in _undeclared(revision, schema["items"], item, f"{path}[{index}]")
        ]
    return []


def _least_undeclared(revision: str, branches: list[Any], value: Any, path: str) -> list[str]:
    """Return the branch that accepts the value and declares most of its keys."""
    document = _document(revision)
    fitting = [
        _undeclared(revision, branch, value, path)
        for branch in branches
        if validator_for(document)({**_definitions_only(document), "allOf": [branch]}).is_valid(
            value
        )
    ]
    return min(fitting, key=len) if fitting else [f"{path}: fits no alternative"]


def _definitions_only(document: Any) -> Any:
    return {key: document[key] for key in ("$schema", "$defs", "definitions") if key in document}


def _undeclared_keys(revision: str, schema: Any, value: Any, path: str) -> Iterator[str]:
    parts = [schema, *(_resolved(revision, part) for part in schema.get("allOf", ()))]
    declared = {key: of for part in parts for key, of in part.get("properties", {}).items()}
    other = next((p["additionalProperties"] for p in parts if "additionalProperties" in p), None)
    for key, item in value.items():
        if key in declared:
            yield from _undeclared(revision, declared[key], item, f"{path}.{key}")
        elif isinstance(other, dict) and other:
            yield from _undeclared(revision, other, item, f"{path}.{key}")
        elif path.endswith("_meta") and key in CORE_META:
            yield f"{path}.{key}: has no meaning here"
        elif other is None and declared and not path.endswith("_meta"):
            yield f"{path}.{key}: not declared"


def _bad_schemas(value: Any, path: str) -> Iterator[str]:
    """Return what is wrong with the JSON Schemas in a message."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _bad_schemas(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in ("inputSchema", "outputSchema") and isinstance(item, dict):
                yield from _bad_schema(item, f"{path}.{key}")
            else:
                yield from _bad_schemas(item, f"{path}.{key}")


def _bad_schema(schema: Any, path: str) -> Iterator[str]:
    try:
        validator_for(schema, Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        yield f"{path}: {error.message}"
