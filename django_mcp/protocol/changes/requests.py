"""
The way back for the parameters of requests, which the server sends to ask the client something.

Each change is given the request's id too. None as a result means: this revision has no words for
the question. What a form loses here that its answer must have again, ``answers`` puts back.
"""

from __future__ import annotations

import json
from typing import Any

from django_mcp.protocol.errors import Id

from . import Changelog
from .results import undated, unheard
from .schemas import as_object_schema, plain_properties, wrap_value
from .shapes import JSON, each, text, within, without

REQUESTS = Changelog()
introduced_in = REQUESTS.introduced_in

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"


def blocks(content: Any) -> list[JSON]:
    """The content of a message of sampling, which is one block or several, as a list."""
    return content if isinstance(content, list) else [content]


def _contents(params: JSON, move: Any) -> JSON:
    """``params`` with ``move`` applied to every block of every message."""

    def moved(content: Any) -> Any:
        done = [move(block) for block in blocks(content)]
        return done if isinstance(content, list) else done[0]

    return each(params, "messages", lambda message: within(message, "content", moved))


def _properties(params: JSON, move: Any) -> JSON:
    """``params`` with ``move`` applied to the schema of every field of the form."""

    def moved(properties: JSON) -> JSON:
        return {name: move(schema) for name, schema in properties.items()}

    return within(params, "requestedSchema", lambda form: within(form, "properties", moved))


@introduced_in("2026-07-28", ELICIT)
def no_elicitation_id(params: JSON, id: Id) -> JSON:
    """Elicitations of a page to visit are not identified; they were."""
    return params | {"elicitationId": str(id)} if params.get("mode") == "url" else params


@introduced_in("2026-07-28", SAMPLE)
def any_schema(params: JSON, id: Id) -> JSON:
    """Schemas of tools may use any keyword, and outputs be of any type."""

    def plain(tool: JSON) -> JSON:
        tool = within(tool, "inputSchema", plain_properties)
        return within(
            tool, "outputSchema", lambda schema: plain_properties(as_object_schema(schema))
        )

    return each(params, "tools", plain)


@introduced_in("2026-07-28", SAMPLE)
def any_structured_content(params: JSON, id: Id) -> JSON:
    """Structured content may be any JSON value, not only an object."""
    return _contents(params, lambda block: within(block, "structuredContent", wrap_value))


@introduced_in("2025-11-25", ELICIT)
def url_mode(params: JSON, id: Id) -> JSON | None:
    """The user may be sent to a page instead of being given a form."""
    return None if params.get("mode") == "url" else without(params, "mode")


@introduced_in("2025-11-25", ELICIT)
def schema_dialect(params: JSON, id: Id) -> JSON:
    """A form may name the dialect of its schema."""
    return within(params, "requestedSchema", lambda form: without(form, "$schema"))


@introduced_in("2025-11-25", ELICIT)
def titled_options(params: JSON, id: Id) -> JSON:
    """One of several titled options is chosen by ``oneOf``."""

    def legacy(schema: JSON) -> JSON:
        if "oneOf" not in schema:
            return schema
        values = [option["const"] for option in schema["oneOf"]]
        names = [option["title"] for option in schema["oneOf"]]
        return without(schema, "oneOf") | {"enum": values, "enumNames": names}

    return _properties(params, legacy)


@introduced_in("2025-11-25", ELICIT)
def several_options(params: JSON, id: Id) -> JSON:
    """Several options may be chosen in one field; before, each is a box to be ticked."""

    def boxes(form: JSON) -> JSON:
        properties: JSON = {}
        for name, schema in form.get("properties", {}).items():
            properties |= boxes_of(name, schema) if is_choice_of_several(schema) else {name: schema}
        # A box need not be ticked, so it cannot be required.
        required = [name for name in form.get("required", ()) if name in properties]
        form = form | {"properties": properties}
        return form | {"required": required} if "required" in form else form

    return within(params, "requestedSchema", boxes)


def is_choice_of_several(schema: JSON) -> bool:
    """Whether a field of a form takes several of its options."""
    return schema.get("type") == "array"


def options_of(schema: JSON) -> dict[str, str]:
    """The options of a field that takes several, and how each is called."""
    items = schema["items"]
    if "anyOf" in items:
        return {option["const"]: option["title"] for option in items["anyOf"]}
    return {value: value for value in items["enum"]}


def box_name(name: str, option: str) -> str:
    """How the box of one option of the field ``name`` is called in the form."""
    return f"{name}[{option}]"


def boxes_of(name: str, schema: JSON) -> JSON:
    """The boxes that stand in for a field that takes several options."""
    heading, chosen = schema.get("title", name), schema.get("default", ())
    described = {"description": schema["description"]} if "description" in schema else {}

    def box(value: str, title: str) -> JSON:
        box = {"type": "boolean", "title": f"{heading}: {title}", "default": value in chosen}
        return box | described

    return {box_name(name, value): box(value, title) for value, title in options_of(schema).items()}


@introduced_in("2025-11-25", ELICIT)
def defaults(params: JSON, id: Id) -> JSON:
    """Every field may have a default; before, only boxes had."""

    def bare(schema: JSON) -> JSON:
        return schema if schema.get("type") == "boolean" else without(schema, "default")

    return _properties(params, bare)


@introduced_in("2025-11-25", SAMPLE)
def tools(params: JSON, id: Id) -> JSON:
    """The model may use tools; before, what it did with them is told in words."""
    return _contents(without(params, "tools", "toolChoice"), _told)


def _told(block: JSON) -> JSON:
    if block["type"] == "tool_use":
        return text(f"[{block['name']}({json.dumps(block['input'], ensure_ascii=False)})]", block)
    if block["type"] == "tool_result":
        words = (item.get("text", f"[{item['type']}]") for item in block["content"])
        return text("\n".join(words), block)
    return block


@introduced_in("2025-11-25", SAMPLE)
def several_blocks(params: JSON, id: Id) -> JSON:
    """A message may have several blocks; before, it is several messages."""
    messages = [
        message | {"content": block}
        for message in params["messages"]
        for block in blocks(message["content"])
    ]
    return params | {"messages": messages}


@introduced_in("2025-11-25", SAMPLE)
def message_metadata(params: JSON, id: Id) -> JSON:
    """Messages of sampling carry metadata."""
    return each(params, "messages", lambda message: without(message, "_meta"))


@introduced_in("2025-06-18", SAMPLE)
def block_metadata(params: JSON, id: Id) -> JSON:
    """Content carries metadata."""
    return _contents(params, lambda block: without(block, "_meta"))


@introduced_in("2025-06-18", SAMPLE)
def last_modified(params: JSON, id: Id) -> JSON:
    """Annotations say when content was last modified."""
    return _contents(params, undated)


@introduced_in("2025-03-26", SAMPLE)
def audio(params: JSON, id: Id) -> JSON:
    """A block may be audio; older clients are told that there was some."""
    return _contents(params, unheard)
