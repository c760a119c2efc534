"""
The messages of a sample: what is sent to a client's model, and what it says.

Rule: nothing is sent that the specification does not allow, and nothing
reaches a tool that is not of the form it promises ("Both parties SHOULD
validate message content", client/sampling). A tool use is answered by its
result in the next message, which holds nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..protocol import content
from .content import Content, Message
from .schemas import violations

JSON = dict[str, Any]

# The kinds of block in sampling, and who may say them.
SPEAKERS = {
    "text": ("user", "assistant"),
    "image": ("user", "assistant"),
    "audio": ("user", "assistant"),
    "tool_use": ("assistant",),
    "tool_result": ("user",),
}


def messages(given: Any, tools: Sequence[Mapping[str, Any]] | None) -> list[JSON]:
    """``given`` as messages. Raises ``ValueError`` for what may not be sent."""
    several = isinstance(given, list | tuple)
    written = [_message(one) for one in (given if several else [given])]
    for message in written:
        for block in blocks(message["content"]):
            _check(block, message["role"])
    _check_pairs(written)
    _check_results(written, tools or ())
    return written


def check_options(max_tokens: Any, include_context: Any, tool_choice: Any) -> None:
    """Raises ``ValueError`` for an option that no client knows."""
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1:
        raise ValueError("max_tokens is a number of tokens.")
    if include_context not in (None, "none", "thisServer", "allServers"):
        raise ValueError("include_context is none, thisServer or allServers.")
    if tool_choice not in (None, "auto", "required", "none"):
        raise ValueError("tool_choice is auto, required or none.")


def _message(message: Any) -> JSON:
    if isinstance(message, Message):
        message = {"role": message.role, "content": message.content}
    elif not isinstance(message, Mapping):
        message = {"role": "user", "content": message}
    said = message.get("content")
    if message.get("role") not in content.ROLES or not said:
        raise ValueError("A message has content, and the role of user or assistant.")
    written = [_block(one) for one in said] if isinstance(said, list | tuple) else _block(said)
    return {**message, "content": written}


def _block(said: Any) -> Any:
    """A string or a content as a block; what is a dict is taken for one."""
    if isinstance(said, str):
        return content.text(said)
    return said.block() if isinstance(said, Content) else said


def blocks(said: Any) -> list[Any]:
    """The blocks of a message's content, which is one or several."""
    return said if isinstance(said, list) else [said]


def _check(block: Any, role: str) -> None:
    """Raises ``ValueError`` unless ``role`` may say such a block."""
    content.check(block)
    if role not in SPEAKERS.get(block["type"], ()):
        raise ValueError(f"In sampling, the {role} says nothing of type {block['type']}.")


def _of(message: JSON, kind: str) -> list[JSON]:
    return [block for block in blocks(message["content"]) if block["type"] == kind]


def _check_pairs(written: Sequence[JSON]) -> None:
    """Every tool use is answered in the next message, which holds nothing else."""
    waiting: list[str] = []
    for message in written:
        results = _of(message, "tool_result")
        if results and len(results) != len(blocks(message["content"])):
            raise ValueError("A message with tool results holds nothing else.")
        if sorted(block["toolUseId"] for block in results) != sorted(waiting):
            raise ValueError("Every tool use is answered by one tool result in the next message.")
        waiting = [block["id"] for block in _of(message, "tool_use")]
    if waiting:
        raise ValueError("The last message uses tools whose results are missing.")


def _check_results(written: Sequence[JSON], tools: Sequence[Mapping[str, Any]]) -> None:
    """The structured content of a result fits the output schema of its tool."""
    schemas = {tool.get("name"): tool.get("outputSchema") for tool in tools}
    named = {use["id"]: use["name"] for one in written for use in _of(one, "tool_use")}
    for result in (result for one in written for result in _of(one, "tool_result")):
        schema = schemas.get(named[result["toolUseId"]])
        if schema is None or "structuredContent" not in result or result.get("isError"):
            continue
        if wrong := violations(dict(schema), result["structuredContent"]):
            raise ValueError(f"A tool's result does not fit its schema: {'; '.join(wrong)}")


def said(answer: Mapping[str, Any]) -> list[JSON]:
    """The blocks that the model said. Raises ``ValueError`` for what is no message."""
    found = [_known(block) for block in blocks(answer.get("content"))]
    for block in found:
        _check(block, str(answer.get("role", "assistant")))
    return found


def _known(block: Any) -> Any:
    """A block without the members that only the client knows."""
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str) or kind not in SPEAKERS:
        return block
    return {key: value for key, value in block.items() if key in content.BLOCKS[kind][1]}
