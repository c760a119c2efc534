"""Examples of all results, requests, notifications and errors, for the latest revision."""

from typing import Any

from django_mcp.protocol.jsonrpc import (
    CustomError,
    HeaderMismatch,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    ParseError,
    ProtocolError,
    ResourceNotFound,
    UnsupportedVersion,
    UrlElicitationRequired,
)

PREFIX = "io.modelcontextprotocol/"
ICONS = [{"src": "https://e.x/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}]
INFO = {
    "name": "atlas",
    "title": "The atlas",
    "version": "1",
    "description": "Cities",
    "websiteUrl": "https://e.x",
    "icons": ICONS,
}
ENVELOPE: dict[str, Any] = {"resultType": "complete", "_meta": {PREFIX + "serverInfo": INFO}}
OWN_META = {"resultType": "complete", "_meta": {PREFIX + "serverInfo": INFO, "shop.x/trace": "t"}}
CACHE = {"ttlMs": 1000, "cacheScope": "private"}
META = {"shop.x/k": {"any": [1, None, "v"]}}
ANNOTATIONS = {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"}

TEXT = {"type": "text", "text": "t", "annotations": ANNOTATIONS, "_meta": META}
IMAGE = {
    "type": "image",
    "data": "aGk=",
    "mimeType": "image/png",
    "annotations": ANNOTATIONS,
    "_meta": META,
}
AUDIO = IMAGE | {"type": "audio", "mimeType": "audio/wav"}
LINK = {
    "type": "resource_link",
    "uri": "model://shop/invoice/1",
    "name": "n",
    "title": "T",
    "description": "d",
    "mimeType": "text/plain",
    "size": 3,
    "icons": ICONS,
    "annotations": ANNOTATIONS,
    "_meta": META,
}
BARE_LINK = {"type": "resource_link", "uri": "model://shop/invoice/1", "name": "n"}
TEXT_CONTENTS = {
    "uri": "model://shop/invoice/1",
    "text": "x",
    "mimeType": "text/plain",
    "_meta": META,
}
BLOB_CONTENTS = {
    "uri": "model://shop/invoice/2",
    "blob": "aGk=",
    "mimeType": "image/png",
    "_meta": META,
}
EMBEDDED = {
    "type": "resource",
    "resource": TEXT_CONTENTS,
    "annotations": ANNOTATIONS,
    "_meta": META,
}
EMBEDDED_BLOB = {"type": "resource", "resource": BLOB_CONTENTS}
BLOCKS = [TEXT, IMAGE, AUDIO, LINK, BARE_LINK, EMBEDDED, EMBEDDED_BLOB]

DISPLAY = {"title": "T", "description": "d", "icons": ICONS, "_meta": META}
ANYTHING: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "any": True, "none": False},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"x": {"type": "integer"}},
}
NODE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "array",
    "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/leaf"}]},
    "$defs": {"leaf": {"type": "string"}},
}
OUTPUTS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": True}, "required": ["a"]},
    {"type": "array", "items": {"type": "string"}},
    {"type": ["string", "null"]},
    {"anyOf": [{"type": "object"}, {"type": "object", "required": ["a"]}]},
    {"anyOf": [{"type": "object"}, {"type": "array"}]},
    {"enum": ["a", 1, None]},
    NODE,
    {},
]
TOOLS = [
    DISPLAY
    | {
        "name": f"tool_{number}",
        "inputSchema": ANYTHING,
        "outputSchema": output,
        "annotations": {
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        },
    }
    for number, output in enumerate(OUTPUTS)
] + [{"name": "plain", "inputSchema": {"type": "object"}}]

FORM = {
    "type": "object",
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "properties": {
        "name": {"type": "string", "title": "N", "minLength": 1, "maxLength": 9, "default": "Ada"},
        "mail": {"type": "string", "format": "email", "description": "d"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150, "default": 30},
        "weight": {"type": "number", "minimum": 0.5, "default": 1.5},
        "agree": {"type": "boolean", "title": "Agree?", "default": True},
        "colour": {"type": "string", "enum": ["r", "g"], "default": "r"},
        "size": {
            "type": "string",
            "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}],
            "default": "s",
        },
        "toppings": {
            "type": "array",
            "title": "Toppings",
            "description": "d",
            "minItems": 1,
            "maxItems": 2,
            "items": {"anyOf": [{"const": "c", "title": "Cheese"}, {"const": "h", "title": "Ham"}]},
            "default": ["c"],
        },
        "extras": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}},
        "legacy": {"type": "string", "enum": ["1", "2"], "enumNames": ["One", "Two"]},
    },
    "required": ["name", "toppings"],
}

TOOL_USE = {"type": "tool_use", "id": "u1", "name": "tool", "input": {"a": 1}, "_meta": META}
TOOL_RESULT = {
    "type": "tool_result",
    "toolUseId": "u1",
    "content": [TEXT, IMAGE, LINK],
    "structuredContent": ["a"],
    "isError": False,
    "_meta": META,
}
SAMPLING = {
    "messages": [
        {"role": "user", "content": TEXT, "_meta": META},
        {"role": "user", "content": [TEXT, IMAGE, AUDIO]},
        {"role": "assistant", "content": [TOOL_USE]},
        {"role": "user", "content": [TOOL_RESULT]},
        {"role": "user", "content": AUDIO},
    ],
    "modelPreferences": {
        "hints": [{"name": "claude"}],
        "costPriority": 0.1,
        "speedPriority": 0.2,
        "intelligencePriority": 0.9,
    },
    "systemPrompt": "s",
    "includeContext": "none",
    "temperature": 0.5,
    "maxTokens": 100,
    "stopSequences": ["."],
    "metadata": {"m": 1},
    "tools": TOOLS,
    "toolChoice": {"mode": "auto"},
}
ELICITATION = {"mode": "form", "message": "m", "requestedSchema": FORM}
PAGE = {"mode": "url", "message": "m", "url": "https://e.x/pay"}

# (method, canonical result)
RESULTS: list[tuple[str, dict[str, Any]]] = [
    (
        "initialize",
        ENVELOPE
        | {
            "protocolVersion": "any",
            "capabilities": {
                "completions": {},
                "experimental": {"shop.x/e": {"a": 1}},
                "extensions": {"shop.x/e": {"a": 1}},
                "logging": {},
                "prompts": {"listChanged": True},
                "resources": {"subscribe": True, "listChanged": True},
                "tools": {"listChanged": True},
            },
            "serverInfo": INFO,
            "instructions": "i",
        },
    ),
    (
        "server/discover",
        OWN_META
        | CACHE
        | {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}, "extensions": {"shop.x/e": {}}},
            "instructions": "i",
        },
    ),
    ("ping", ENVELOPE),
    ("logging/setLevel", ENVELOPE),
    ("resources/subscribe", ENVELOPE),
    ("resources/unsubscribe", ENVELOPE),
    (
        "subscriptions/listen",
        {
            "resultType": "complete",
            "_meta": {PREFIX + "serverInfo": INFO, PREFIX + "subscriptionId": 1},
        },
    ),
    ("tools/list", OWN_META | CACHE | {"tools": TOOLS, "nextCursor": "c"}),
    ("tools/call", OWN_META | {"content": BLOCKS, "structuredContent": ["a"], "isError": False}),
    ("tools/call", ENVELOPE | {"content": [], "structuredContent": None}),
    ("tools/call", ENVELOPE | {"content": [], "structuredContent": {"a": 1}, "isError": True}),
    ("tools/call", {"resultType": "complete", "content": []}),
    (
        "resources/list",
        ENVELOPE
        | CACHE
        | {
            "resources": [
                DISPLAY
                | {
                    "uri": "model://shop/invoice/1",
                    "name": "n",
                    "mimeType": "text/plain",
                    "size": 3,
                    "annotations": ANNOTATIONS,
                },
                {"uri": "model://shop/invoice/2", "name": "n"},
            ],
            "nextCursor": "c",
        },
    ),
    (
        "resources/templates/list",
        ENVELOPE
        | CACHE
        | {
            "resourceTemplates": [
                DISPLAY
                | {
                    "uriTemplate": "model://shop/invoice/{pk}",
                    "name": "n",
                    "mimeType": "text/plain",
                    "annotations": ANNOTATIONS,
                }
            ],
        },
    ),
    ("resources/read", ENVELOPE | CACHE | {"contents": [TEXT_CONTENTS, BLOB_CONTENTS]}),
    (
        "prompts/list",
        ENVELOPE
        | CACHE
        | {
            "prompts": [
                DISPLAY
                | {
                    "name": "p",
                    "arguments": [
                        {"name": "a", "title": "A", "description": "d", "required": True}
                    ],
                },
                {"name": "q"},
            ],
            "nextCursor": "c",
        },
    ),
    (
        "prompts/get",
        ENVELOPE
        | {
            "description": "d",
            "messages": [{"role": "user", "content": block} for block in BLOCKS],
        },
    ),
    (
        "completion/complete",
        ENVELOPE | {"completion": {"values": ["a"], "total": 1, "hasMore": False}},
    ),
]

SUBSCRIBED = {"_meta": {PREFIX + "subscriptionId": 7}}
NOTIFICATIONS: list[tuple[str, dict[str, Any]]] = [
    ("notifications/cancelled", {"requestId": 1, "reason": "r", "_meta": META}),
    ("notifications/cancelled", {"requestId": 1} | SUBSCRIBED),
    ("notifications/elicitation/complete", {"elicitationId": "e"}),
    (
        "notifications/message",
        {"level": "info", "logger": "l", "data": {"any": [1]}, "_meta": META},
    ),
    (
        "notifications/progress",
        {"progressToken": "t", "progress": 0.5, "total": 2, "message": "m", "_meta": META},
    ),
    ("notifications/prompts/list_changed", {}),
    ("notifications/resources/list_changed", SUBSCRIBED),
    (
        "notifications/resources/updated",
        {"uri": "model://shop/invoice/1", "_meta": META | SUBSCRIBED["_meta"]},
    ),
    (
        "notifications/subscriptions/acknowledged",
        {"notifications": {"toolsListChanged": True, "resourceSubscriptions": []}} | SUBSCRIBED,
    ),
    ("notifications/tools/list_changed", {"_meta": META}),
]

REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("elicitation/create", ELICITATION),
    ("elicitation/create", {"message": "m", "requestedSchema": FORM}),
    ("elicitation/create", PAGE),
    ("ping", {}),
    ("roots/list", {}),
    ("sampling/createMessage", SAMPLING),
    (
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": TEXT}], "maxTokens": 1},
    ),
]

ERRORS: list[ProtocolError] = [
    ParseError(),
    InvalidRequest(),
    MethodNotFound(),
    InvalidParams("m", data={"any": 1}),
    InternalError(),
    ResourceNotFound("model://shop/invoice/1"),
    HeaderMismatch(),
    MissingCapability({"sampling": {}}),
    UnsupportedVersion("1900-01-01"),
    UrlElicitationRequired([{"message": "m", "url": "https://e.x", "elicitationId": "e"}]),
    CustomError(17, "m", {"any": 1}),
]
