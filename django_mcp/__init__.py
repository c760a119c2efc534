"""
Make a Django project an MCP server: write an ``mcp.py`` beside ``admin.py``.

Rule: this file names what is public and imports nothing. A name is loaded when
it is first used, so that a project pays for no more than it writes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .conf import Scope as Scope
    from .declare.completions import Complete as Complete
    from .declare.contents import Annotations as Annotations
    from .declare.contents import Audio as Audio
    from .declare.contents import Contents as Contents
    from .declare.contents import EmbeddedResource as EmbeddedResource
    from .declare.contents import Icon as Icon
    from .declare.contents import Image as Image
    from .declare.contents import Message as Message
    from .declare.contents import ResourceLink as ResourceLink
    from .declare.contents import Text as Text
    from .declare.decorators import prompt as prompt
    from .declare.decorators import register as register
    from .declare.decorators import resource as resource
    from .declare.decorators import tool as tool
    from .declare.headers import Header as Header
    from .declare.model_resources import ModelResource as ModelResource
    from .declare.permissions import AUTHENTICATED as AUTHENTICATED
    from .declare.permissions import PUBLIC as PUBLIC
    from .declare.prompts import Prompt as Prompt
    from .declare.questions import Elicit as Elicit
    from .declare.questions import Root as Root
    from .declare.questions import Roots as Roots
    from .declare.questions import Sample as Sample
    from .declare.questions import Sampled as Sampled
    from .declare.requests import Request as Request
    from .declare.resources import Resource as Resource
    from .declare.servers import Server as Server
    from .declare.servers import default_server as server  # noqa: F401
    from .declare.tools import Tool as Tool
    from .dispatch.notices import notify_changed as notify_changed
    from .dispatch.notices import notify_elicitation_complete as notify_elicitation_complete
    from .dispatch.notices import notify_list_changed as notify_list_changed
    from .dispatch.notices import notify_permissions_changed as notify_permissions_changed
    from .exceptions import ClientError as ClientError
    from .exceptions import Declined as Declined
    from .exceptions import TimedOut as TimedOut
    from .exceptions import ToolError as ToolError
    from .exceptions import Unsupported as Unsupported
    from .exceptions import UrlRequired as UrlRequired
    from .principal import Auth as Auth
    from .principal import Principal as Principal
    from .principal import TokenVerifier as TokenVerifier
    from .protocol.jsonrpc import ProtocolError as ProtocolError

__version__ = "0.1.0"

_PUBLIC = {
    "conf": ["Scope"],
    "declare.completions": ["Complete"],
    "declare.contents": [
        "Annotations", "Audio", "Contents", "EmbeddedResource", "Icon", "Image", "Message",
        "ResourceLink", "Text",
    ],
    "declare.decorators": ["prompt", "register", "resource", "tool"],
    "declare.headers": ["Header"],
    "declare.model_resources": ["ModelResource"],
    "declare.permissions": ["AUTHENTICATED", "PUBLIC"],
    "declare.prompts": ["Prompt"],
    "declare.questions": ["Elicit", "Root", "Roots", "Sample", "Sampled"],
    "declare.requests": ["Request"],
    "declare.resources": ["Resource"],
    "declare.servers": ["Server"],
    "declare.tools": ["Tool"],
    "dispatch.notices": [
        "notify_changed", "notify_elicitation_complete", "notify_list_changed",
        "notify_permissions_changed",
    ],
    "exceptions": [
        "ClientError", "Declined", "TimedOut", "ToolError", "Unsupported", "UrlRequired",
    ],
    "principal": ["Auth", "Principal", "TokenVerifier"],
    "protocol.jsonrpc": ["ProtocolError"],
}  # fmt: skip
_PLACES = {name: (module, name) for module, names in _PUBLIC.items() for name in names}
_PLACES["server"] = ("declare.servers", "default_server")

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(import_module(f".{module}", __name__), attribute)


def __dir__() -> list[str]:
    return [*__all__, *globals()]
