"""
What a request for completion names: a prompt or a template, an argument, those filled in before.

Rule: all of it is checked before any code of the project sees it, and what is
not there is refused in the words of who may not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..protocol.jsonrpc import InvalidParams, ProtocolError, ResourceNotFound

if TYPE_CHECKING:
    from .runs import Run

MAX_TEXT = 1000


def referred(run: Run) -> tuple[Any, ProtocolError]:
    """What is completed, and what to say to a caller who may not use it."""
    ref = run.params.get("ref")
    kind, name, uri = (_member(ref, key) for key in ("type", "name", "uri"))
    catalog = run.server.catalog
    if kind == "ref/prompt" and isinstance(name, str):
        return _found(catalog.prompts.get(name), InvalidParams(f"Unknown prompt: {name[:200]}"))
    if kind == "ref/resource" and isinstance(uri, str):
        matching = (one for one, _ in catalog.at(uri))
        found = catalog.templates.get(uri) or next(matching, None)
        return _found(found, ResourceNotFound(uri))
    raise InvalidParams("ref is required: ref/prompt with a name, or ref/resource with a uri.")


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _found(thing: Any, unknown: ProtocolError) -> tuple[Any, ProtocolError]:
    if thing is None:
        raise unknown
    return thing, unknown


def typed(run: Run) -> tuple[str, str]:
    """The argument's name, and what was typed of it."""
    argument = run.params.get("argument")
    name, text = _member(argument, "name"), _member(argument, "value")
    if not (isinstance(name, str) and isinstance(text, str)):
        raise InvalidParams("argument is required, with a name and a value.")
    return name, text[:MAX_TEXT]


def filled_in(run: Run) -> dict[str, str]:
    """The arguments filled in before."""
    context = run.params.get("context")
    before = context.get("arguments") if isinstance(context, dict) else context
    if before is None:
        return {}
    if not isinstance(before, dict) or not all(isinstance(v, str) for v in before.values()):
        raise InvalidParams("context.arguments is an object of strings.")
    return before
