"""Changes to the questions that a server asks the client, and to the client's answers.

``REQUESTS`` converts the parameters of a question to an older revision. Its functions get the
request's id too. They return None if the revision cannot express the question.

``ANSWERS`` converts a client's answer back to the newest revision, oldest change first. Its
functions get the question's canonical parameters, because an answer must have the fields of the
canonical form again.
"""

from __future__ import annotations

import json
from typing import Any

from django_mcp.protocol.jsonrpc import Id

from . import Changelog
from .responses import without_audio, without_last_modified
from .schemas import (
    JSON,
    as_object_schema,
    each,
    plain_properties,
    text,
    within,
    without,
    wrap_value,
)

REQUESTS = Changelog()
introduced_in = REQUESTS.introduced_in

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"


def blocks(content: Any) -> list[JSON]:
    """Return the content of a sampling message, which is one block or a list, as a list."""
    return content if isinstance(content, list) else [content]


def _contents(params: JSON, edit: Any) -> JSON:
    """Return ``params`` with ``edit`` applied to every block of every message."""

    def edited(content: Any) -> Any:
        done = [edit(block) for block in blocks(content)]
        return done if isinstance(content, list) else done[0]

    return each(params, "messages", lambda message: within(message, "content", edited))


def _properties(params: JSON, edit: Any) -> JSON:
    """Return ``params`` with ``edit`` applied to the schema of every field of the form."""

    def edited(properties: JSON) -> JSON:
        return {name: edit(schema) for name, schema in properties.items()}

    return within(params, "requestedSchema", lambda form: within(form, "properties", edited))


@introduced_in("2026-07-28", ELICIT)
def no_elicitation_id(params: JSON, id: Id) -> JSON:
    """URL elicitations have no id; before, they had one."""
    return params | {"elicitationId": str(id)} if params.get("mode") == "url" else params


@introduced_in("2026-07-28", SAMPLE)
def any_schema(params: JSON, id: Id) -> JSON:
    """Schemas of tools may use any keyword, and outputs may have any type."""

    def with_plain_schemas(tool: JSON) -> JSON:
        tool = within(tool, "inputSchema", plain_properties)
        return within(
            tool, "outputSchema", lambda schema: plain_properties(as_object_schema(schema))
        )

    return each(params, "tools", with_plain_schemas)


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
    """A choice of titled options is ``oneOf``; before, it was ``enum`` and ``enumNames``."""

    def with_enum_names(schema: JSON) -> JSON:
        if "oneOf" not in schema:
            return schema
        values = [option["const"] for option in schema["oneOf"]]
        names = [option["title"] for option in schema["oneOf"]]
        return without(schema, "oneOf") | {"enum": values, "enumNames": names}

    return _properties(params, with_enum_names)


@introduced_in("2025-11-25", ELICIT)
def several_options(params: JSON, id: Id) -> JSON:
    """One field may take several options; before, each option is a boolean field."""

    def with_boolean_fields(form: JSON) -> JSON:
        properties: JSON = {}
        for name, schema in form.get("properties", {}).items():
            properties |= (
                boolean_fields_of(name, schema) if is_choice_of_several(schema) else {name: schema}
            )
        # The user may leave a boolean field unset, so the fields of options are never required.
        required = [name for name in form.get("required", ()) if name in properties]
        form = form | {"properties": properties}
        return form | {"required": required} if "required" in form else form

    return within(params, "requestedSchema", with_boolean_fields)


def is_choice_of_several(schema: JSON) -> bool:
    """Whether a field of a form takes several of its options."""
    return schema.get("type") == "array"


def options_of(schema: JSON) -> dict[str, str]:
    """Return the options of a field that takes several: titles by value."""
    items = schema["items"]
    if "anyOf" in items:
        return {option["const"]: option["title"] for option in items["anyOf"]}
    return {value: value for value in items["enum"]}


def boolean_field_name(name: str, option: str) -> str:
    """Return the name of the boolean field for one option of the field ``name``."""
    return f"{name}[{option}]"


def boolean_fields_of(name: str, schema: JSON) -> JSON:
    """Return the boolean fields that replace a field with several options: schemas by name."""
    heading, chosen = schema.get("title", name), schema.get("default", ())
    described = {"description": schema["description"]} if "description" in schema else {}

    def boolean_field(value: str, title: str) -> JSON:
        field = {"type": "boolean", "title": f"{heading}: {title}", "default": value in chosen}
        return field | described

    return {
        boolean_field_name(name, value): boolean_field(value, title)
        for value, title in options_of(schema).items()
    }


@introduced_in("2025-11-25", ELICIT)
def defaults(params: JSON, id: Id) -> JSON:
    """Every field may have a default; before, only boolean fields could."""

    def without_default(schema: JSON) -> JSON:
        return schema if schema.get("type") == "boolean" else without(schema, "default")

    return _properties(params, without_default)


@introduced_in("2025-11-25", SAMPLE)
def tools(params: JSON, id: Id) -> JSON:
    """The model may use tools; before, text describes their use."""
    return _contents(without(params, "tools", "toolChoice"), _as_text)


def _as_text(block: JSON) -> JSON:
    """Return a text block instead of a tool use or its result."""
    if block["type"] == "tool_use":
        return text(f"[{block['name']}({json.dumps(block['input'], ensure_ascii=False)})]", block)
    if block["type"] == "tool_result":
        words = (item.get("text", f"[{item['type']}]") for item in block["content"])
        return text("\n".join(words), block)
    return block


@introduced_in("2025-11-25", SAMPLE)
def several_blocks(params: JSON, id: Id) -> JSON:
    """A message may have several blocks; before, each block is a message."""
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
    return _contents(params, without_last_modified)


@introduced_in("2025-03-26", SAMPLE)
def audio(params: JSON, id: Id) -> JSON:
    """A block may be audio; before, a text block replaces it."""
    return _contents(params, without_audio)


ANSWERS = Changelog()
answers_introduced_in = ANSWERS.introduced_in


@answers_introduced_in("2025-11-25", ELICIT)
def answers_several_options(answer: JSON, params: JSON) -> JSON:
    """One field may take several options; before, each option is a boolean field."""
    form = params.get("requestedSchema", {})

    def choices(content: JSON) -> JSON:
        for name, schema in form.get("properties", {}).items():
            if is_choice_of_several(schema):
                content = _choice(content, name, schema, name in form.get("required", ()))
        return content

    return within(answer, "content", choices)


def _choice(content: JSON, name: str, schema: JSON, required: bool) -> JSON:
    """Return ``content`` with the boolean fields of one field replaced by a list of options.

    The list is left out if the field is optional and the user did not answer it.
    """
    fields = {boolean_field_name(name, value): value for value in options_of(schema)}
    chosen = [value for field, value in fields.items() if content.get(field) is True]
    answered = required or not fields.keys().isdisjoint(content)
    content = without(content, *fields)
    return content | {name: chosen} if answered else content
