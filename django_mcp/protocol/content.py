"""
Content blocks of tool results, prompts and sampling messages, in the form of the newest revision.

``protocol.changes`` converts them for older revisions. A block is a plain dict with only the given
members. ``more`` are optional members, by name. Functions that return a block validate it, and
raise ``ValueError``. ``text_contents`` and ``blob_contents`` return the contents of a resource,
whose members are validated when ``embedded_resource`` puts them into a block.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from typing import Any

JSON = dict[str, Any]

ROLES = ("user", "assistant")
# Media types of text beside text/*.
TEXTUAL = re.compile(
    r"application/(x-)?(json5?|jsonlines|ndjson|xml|yaml|toml|javascript|ecmascript|typescript|csv"
    r"|sql|sh|graphql|www-form-urlencoded)|[^/]+/[^/]+\+(json|xml|yaml)"
)


def text(text: str, **more: Any) -> JSON:
    """Return a text block. ``more``: ``annotations _meta``."""
    if isinstance(text, str) and not more:
        return {"type": "text", "text": text}
    return _block("text", more, text=text)


def image(data: bytes | str, mime_type: str, **more: Any) -> JSON:
    """Return an image block; ``data`` is bytes or base64 text. ``more``: ``annotations _meta``."""
    return _block("image", more, data=as_base64(data), mimeType=mime_type)


def audio(data: bytes | str, mime_type: str, **more: Any) -> JSON:
    """Return an audio block; ``data`` is bytes or base64 text. ``more``: ``annotations _meta``."""
    return _block("audio", more, data=as_base64(data), mimeType=mime_type)


def resource_link(uri: str, name: str, **more: Any) -> JSON:
    """Return a link; ``more``: ``title description mimeType size icons annotations _meta``."""
    return _block("resource_link", more, uri=uri, name=name)


def embedded_resource(contents: JSON, **more: Any) -> JSON:
    """Return a block that embeds a resource: ``contents`` as reading the resource returns it.

    ``more``: ``annotations _meta``.
    """
    return _block("resource", more, resource=contents)


def tool_use(id: str, name: str, input: JSON, **more: Any) -> JSON:
    """Return a block for the model's request, in sampling, to use a tool. ``more``: ``_meta``."""
    return _block("tool_use", more, id=id, name=name, input=input)


def tool_result(tool_use_id: str, content: Iterable[JSON], **more: Any) -> JSON:
    """Return a tool's result for sampling; ``more``: ``isError structuredContent _meta``."""
    return _block("tool_result", more, toolUseId=tool_use_id, content=list(content))


def text_contents(uri: str, text: str, mime_type: str | None = None, **more: Any) -> JSON:
    """Return the contents of a resource as text."""
    return _present(uri=uri, mimeType=mime_type, text=text, **more)


def blob_contents(uri: str, data: bytes | str, mime_type: str | None = None, **more: Any) -> JSON:
    """Return the contents of a resource as base64; ``data`` is bytes or base64 text."""
    return _present(uri=uri, mimeType=mime_type, blob=as_base64(data), **more)


def annotations(
    audience: Iterable[str] | None = None,
    priority: float | None = None,
    last_modified: str | None = None,
) -> JSON:
    """Return annotations: roles of the audience, importance (0 to 1), time of the last change."""
    chosen = None if audience is None else list(audience)
    made = _present(audience=chosen, priority=priority, lastModified=last_modified)
    _check_annotations(made)
    return made


def is_textual(mime_type: str) -> bool:
    """Whether contents of this media type are text: also JSON, XML, YAML and the like."""
    kind = mime_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or TEXTUAL.fullmatch(kind) is not None


def text_or_bytes(data: bytes, mime_type: str) -> str | bytes:
    """Return ``data`` as text if its media type is textual and it is UTF-8, else unchanged."""
    try:
        return data.decode() if is_textual(mime_type) else data
    except UnicodeDecodeError:
        return data


def as_base64(data: bytes | str) -> str:
    """Return ``data`` in base64. A string must be base64 already, or else raise ``ValueError``."""
    if isinstance(data, bytes):
        return base64.b64encode(data).decode()
    if not isinstance(data, str):
        raise ValueError("data must be bytes, or a string of base64")
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"Not base64: {error}") from None
    return data


def _present(**values: Any) -> JSON:
    return {key: value for key, value in values.items() if value is not None}


def _block(type_: str, more: JSON, **values: Any) -> JSON:
    block = {"type": type_, **values, **_present(**more)}
    check(block)
    return block


# Checking.

_OBJECTS, _LISTS = {"_meta", "input"}, {"content", "icons"}
_TEXTS = {"type", "text", "mimeType", "uri", "name", "title", "description", "id", "toolUseId"}
# Type -> the required members of such a block, and all members that it may have.
BLOCKS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    type_: (frozenset(required.split()), frozenset(f"type {required} {optional}".split()))
    for type_, required, optional in (
        ("text", "text", "annotations _meta"),
        ("image", "data mimeType", "annotations _meta"),
        ("audio", "data mimeType", "annotations _meta"),
        ("resource_link", "uri name", "title description mimeType size icons annotations _meta"),
        ("resource", "resource", "annotations _meta"),
        ("tool_use", "id name input", "_meta"),
        ("tool_result", "toolUseId content", "isError structuredContent _meta"),
    )
}

# A tuple, because ``in`` compares its items: the type in a block may be an unhashable value.
TYPES = tuple(BLOCKS)


def check(block: Any) -> None:
    """Raise ``ValueError`` unless ``block`` is a valid content block."""
    if not isinstance(block, dict) or block.get("type") not in TYPES:
        raise ValueError(f"A block of content has one of the types {', '.join(BLOCKS)}")
    required, known = BLOCKS[block["type"]]
    if missing := required - block.keys():
        raise ValueError(f"A block of type {block['type']} must have {', '.join(sorted(missing))}")
    if unknown := block.keys() - known:
        names = ", ".join(sorted(unknown))
        raise ValueError(f"A block of type {block['type']} must not have {names}")
    for key, value in block.items():
        _check_member(key, value)


def _check_member(key: str, value: Any) -> None:
    if key in _TEXTS and not isinstance(value, str):
        raise ValueError(f"{key} must be a string")
    if key in _OBJECTS and not isinstance(value, dict):
        raise ValueError(f"{key} must be an object")
    if key in _LISTS and not isinstance(value, list):
        raise ValueError(f"{key} must be a list")
    if key in _CHECKS:
        _CHECKS[key](value)


def _check_data(value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError("data must be a string")
    as_base64(value)


def _check_size(value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("size must be a number of bytes")


def _check_annotations(value: Any) -> None:
    if not isinstance(value, dict) or value.keys() - {"audience", "priority", "lastModified"}:
        raise ValueError("annotations are audience, priority and lastModified")
    audience = value.get("audience", [])
    if not isinstance(audience, list) or any(role not in ROLES for role in audience):
        raise ValueError(f"audience is a list of {', '.join(ROLES)}")
    priority = value.get("priority", 0)
    if not isinstance(priority, (int, float)) or not 0 <= priority <= 1:
        raise ValueError("priority must be a number from 0 to 1")
    if not isinstance(value.get("lastModified", ""), str):
        raise ValueError("lastModified must be a string")


def _check_contents(value: Any) -> None:
    held = {"text", "blob"} & value.keys() if isinstance(value, dict) else set()
    if len(held) != 1 or not all(isinstance(value.get(key), str) for key in (*held, "uri")):
        raise ValueError("The contents of a resource have a uri, and either text or blob")


def _check_blocks(value: Any) -> None:
    for block in value:
        check(block)


_CHECKS: dict[str, Callable[[Any], object]] = {
    "annotations": _check_annotations,
    "content": _check_blocks,
    "data": _check_data,
    "resource": _check_contents,
    "size": _check_size,
}
