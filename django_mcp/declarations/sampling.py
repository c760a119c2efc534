"""The messages of a sampling request, and the content that the client's model returns.

Messages are checked before they are sent and after they arrive ("Both parties SHOULD validate
message content", client/sampling). Each tool use is followed by its result in the next message,
which contains nothing but tool results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..protocol import content
from .content import Content, Message
from .schemas import violations

JSON = dict[str, Any]

# The types of content blocks in sampling, and the roles whose messages may contain them.
ROLES_OF_BLOCKS = {
    "text": ("user", "assistant"),
    "image": ("user", "assistant"),
    "audio": ("user", "assistant"),
    "tool_use": ("assistant",),
    "tool_result": ("user",),
}


def messages(given: Any, tools: Sequence[Mapping[str, Any]] | None) -> list[JSON]:
    """Return ``given`` as messages. Raise ``ValueError`` for messages that may not be sent."""
    several = isinstance(given, list | tuple)
    written = [_message(one) for one in (given if several else [given])]
    for message in written:
        for block in blocks(message["content"]):
            _check(block, message["role"])
    _check_pairs(written)
    _check_results(written, tools or ())
    return written


def check_options(max_tokens: Any, include_context: Any, tool_choice: Any) -> None:
    """Raise ``ValueError`` for an option that the specification does not have."""
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1:
        raise ValueError("max_tokens must be a positive integer.")
    if include_context not in (None, "none", "thisServer", "allServers"):
        raise ValueError("include_context must be none, thisServer or allServers.")
    if tool_choice not in (None, "auto", "required", "none"):
        raise ValueError("tool_choice must be auto, required or none.")


def _message(message: Any) -> JSON:
    """Return a message as a dict. Text and content without a role are messages of the user."""
    if isinstance(message, Message):
        message = {"role": message.role, "content": message.content}
    elif not isinstance(message, Mapping):
        message = {"role": "user", "content": message}
    body = message.get("content")
    if message.get("role") not in content.ROLES or not body:
        raise ValueError("A message must have content, and the role user or assistant.")
    written = [_block(one) for one in body] if isinstance(body, list | tuple) else _block(body)
    return {**message, "content": written}


def _block(value: Any) -> Any:
    """Return a string or content as a block. A dict already is one."""
    if isinstance(value, str):
        return content.text(value)
    return value.block() if isinstance(value, Content) else value


def blocks(value: Any) -> list[Any]:
    """Return the blocks of a message's content, which is one block or a list."""
    return value if isinstance(value, list) else [value]


def _check(block: Any, role: str) -> None:
    """Raise ``ValueError`` unless a message of ``role`` may contain the block."""
    content.check(block)
    if role not in ROLES_OF_BLOCKS.get(block["type"], ()):
        raise ValueError(
            f"In sampling, a message of the {role} cannot contain a block of type {block['type']}."
        )


def _of(message: JSON, kind: str) -> list[JSON]:
    return [block for block in blocks(message["content"]) if block["type"] == kind]


def _check_pairs(written: Sequence[JSON]) -> None:
    """Raise ``ValueError`` unless the next message after a tool use contains its result."""
    waiting: list[str] = []
    for message in written:
        results = _of(message, "tool_result")
        if results and len(results) != len(blocks(message["content"])):
            raise ValueError("A message with tool results must not contain anything else.")
        if sorted(block["toolUseId"] for block in results) != sorted(waiting):
            raise ValueError("Every tool use must have one tool result in the next message.")
        waiting = [block["id"] for block in _of(message, "tool_use")]
    if waiting:
        raise ValueError("The results of the tools that the last message uses are missing.")


def _check_results(written: Sequence[JSON], tools: Sequence[Mapping[str, Any]]) -> None:
    """Raise ``ValueError`` if the structured content of a result does not fit its tool's schema."""
    schemas = {tool.get("name"): tool.get("outputSchema") for tool in tools}
    named = {use["id"]: use["name"] for one in written for use in _of(one, "tool_use")}
    for result in (result for one in written for result in _of(one, "tool_result")):
        schema = schemas.get(named[result["toolUseId"]])
        if schema is None or "structuredContent" not in result or result.get("isError"):
            continue
        if wrong := violations(dict(schema), result["structuredContent"]):
            raise ValueError(f"A tool's result does not fit its schema: {'; '.join(wrong)}")


def returned_blocks(answer: Mapping[str, Any]) -> list[JSON]:
    """Return the blocks that the model returned. Raise ``ValueError`` if they are invalid."""
    found = [_known_members(block) for block in blocks(answer.get("content"))]
    for block in found:
        _check(block, str(answer.get("role", "assistant")))
    return found


def _known_members(block: Any) -> Any:
    """Return a block without members that the specification does not have."""
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str) or kind not in ROLES_OF_BLOCKS:
        return block
    return {key: value for key, value in block.items() if key in content.BLOCKS[kind][1]}
