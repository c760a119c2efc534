"""
Make a Django project an MCP server: write an ``mcp.py`` beside ``admin.py``.

This module lists the public names. It imports a module when one of its names is first used, so that
a project loads only what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .auth.principal import Auth as Auth
    from .auth.principal import Principal as Principal
    from .auth.principal import TokenVerifier as TokenVerifier
    from .bridges.admin_site import register_admin as register_admin
    from .bridges.commands import command_tool as command_tool
    from .changes.api import notify_changed as notify_changed
    from .changes.api import notify_elicitation_complete as notify_elicitation_complete
    from .changes.api import notify_list_changed as notify_list_changed
    from .changes.api import notify_permissions_changed as notify_permissions_changed
    from .conf import Scope as Scope
    from .declarations.arguments import Header as Header
    from .declarations.completions import Complete as Complete
    from .declarations.content import Annotations as Annotations
    from .declarations.content import Audio as Audio
    from .declarations.content import Contents as Contents
    from .declarations.content import EmbeddedResource as EmbeddedResource
    from .declarations.content import Icon as Icon
    from .declarations.content import Image as Image
    from .declarations.content import Message as Message
    from .declarations.content import ResourceLink as ResourceLink
    from .declarations.content import Text as Text
    from .declarations.content import read_file as read_file
    from .declarations.fields.field_types import FieldType as FieldType
    from .declarations.fields.field_types import register_field_type as register_field_type
    from .declarations.fields.search_methods import FullTextSearch as FullTextSearch
    from .declarations.fields.search_methods import VectorSearch as VectorSearch
    from .declarations.model_resources import ModelResource as ModelResource
    from .declarations.outputs import trusted as trusted
    from .declarations.permissions import AUTHENTICATED as AUTHENTICATED
    from .declarations.permissions import PUBLIC as PUBLIC
    from .declarations.prompts import Prompt as Prompt
    from .declarations.questions import Elicit as Elicit
    from .declarations.questions import Root as Root
    from .declarations.questions import Roots as Roots
    from .declarations.questions import Sample as Sample
    from .declarations.questions import Sampled as Sampled
    from .declarations.request import Request as Request
    from .declarations.resources import Resource as Resource
    from .declarations.server import Server as Server
    from .declarations.server import prompt as prompt
    from .declarations.server import register as register
    from .declarations.server import register_models as register_models
    from .declarations.server import resource as resource
    from .declarations.server import tool as tool
    from .declarations.throttles import ClientThrottle as ClientThrottle
    from .declarations.throttles import Throttle as Throttle
    from .declarations.throttles import TotalThrottle as TotalThrottle
    from .declarations.throttles import UserThrottle as UserThrottle
    from .declarations.tools import Tool as Tool
    from .declarations.ui import UI as UI
    from .exceptions import ClientError as ClientError
    from .exceptions import Declined as Declined
    from .exceptions import Throttled as Throttled
    from .exceptions import TimedOut as TimedOut
    from .exceptions import ToolError as ToolError
    from .exceptions import Unsupported as Unsupported
    from .exceptions import UrlRequired as UrlRequired
    from .protocol.jsonrpc import ProtocolError as ProtocolError

    server: Server  # the default one

__version__ = "0.1.0"

_PUBLIC = {
    "bridges.commands": ["command_tool"],
    "conf": ["Scope"],
    "declarations.completions": ["Complete"],
    "declarations.content": [
        "Annotations", "Audio", "Contents", "EmbeddedResource", "Icon", "Image", "Message",
        "ResourceLink", "Text", "read_file",
    ],
    "declarations.arguments": ["Header"],
    "declarations.model_resources": ["ModelResource"],
    "declarations.permissions": ["AUTHENTICATED", "PUBLIC"],
    "declarations.prompts": ["Prompt"],
    "declarations.questions": ["Elicit", "Root", "Roots", "Sample", "Sampled"],
    "declarations.request": ["Request"],
    "declarations.resources": ["Resource"],
    "declarations.outputs": ["trusted"],
    "declarations.fields.search_methods": ["FullTextSearch", "VectorSearch"],
    "declarations.fields.field_types": ["FieldType", "register_field_type"],
    "declarations.server": [
        "Server", "prompt", "register", "register_models", "resource", "tool",
    ],
    "declarations.throttles": ["ClientThrottle", "Throttle", "TotalThrottle", "UserThrottle"],
    "declarations.tools": ["Tool"],
    "declarations.ui": ["UI"],
    "bridges.admin_site": ["register_admin"],
    "changes.api": [
        "notify_changed", "notify_elicitation_complete", "notify_list_changed",
        "notify_permissions_changed",
    ],
    "exceptions": [
        "ClientError", "Declined", "Throttled", "TimedOut", "ToolError", "Unsupported",
        "UrlRequired",
    ],
    "auth.principal": ["Auth", "Principal", "TokenVerifier"],
    "protocol.jsonrpc": ["ProtocolError"],
}  # fmt: skip
_PLACES = {name: (module, name) for module, names in _PUBLIC.items() for name in names}
_PLACES["server"] = ("declarations.server", "default_server")

__all__ = sorted(_PLACES)


if not TYPE_CHECKING:  # with __getattr__, type checkers would take any name

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, attribute = _PLACES[name]
        return getattr(import_module(f".{module}", __name__), attribute)


def __dir__() -> list[str]:
    return [*__all__, *globals()]
