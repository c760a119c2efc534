"""``UIResource``: the resource ``ui://SERVER/TOOL`` with the page of a tool.

The catalog adds one for each tool with ``ui``. It is not listed: clients with MCP Apps find its URI
in the definition of the tool, and no other client needs it. It has the permission of the tool.

The page is rendered without the arguments and the result of any call. The client may keep it and
show it again, and sends it each result by ``postMessage``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from . import django_templates
from .content import Contents
from .declaration import Declaration
from .resources import Resource
from .ui import MIME_TYPE, UI

if TYPE_CHECKING:
    from .permissions import Decision
    from .request import Request
    from .server import Server
    from .tools import Tool


def ui_resource_of(tool: Tool, server: Server) -> Iterator[UIResource]:
    """Yield the page of ``tool`` if it has one."""
    if tool.ui is not None:
        resource = UIResource(tool, UI.from_value(tool.ui), server)
        tool._ui_uri = resource.uri
        yield resource


class UIResource(Resource):
    """The page of a tool. Everybody who may use the tool may read it."""

    listed = False
    mime_type = MIME_TYPE
    _finish_queries = True  # the template may query the database

    def __init__(self, tool: Tool, ui: UI, server: Server) -> None:
        self._tool, self._ui = tool, ui
        self.name, self.title, self.permission = tool.name, tool.title, tool.permission
        self.description = f"The user interface of the tool {tool.name}."
        self.icons, self.audit = tool.icons, tool._owner.audit
        self.meta = {"ui": written} if (written := ui.write()) else None
        self.uri = f"ui://{quote(server.public_name, safe='')}/{tool.name}"

    def read(self, request: Any) -> Contents:
        context = {"request": request, "server": request.server, "tool": self._tool}
        # Always with autoescape, whatever the options of the engine: the text is HTML.
        html = django_templates.render(self._ui.template_name, context, autoescape=True)
        return Contents(html, meta=self.meta)

    # The permission is that of the tool, and a switch for the tool is one for its page.

    def _decide_permission(self, request: Request) -> Decision:
        return self._tool._decide(request)

    @property
    def _depends_on(self) -> Iterable[Declaration]:
        return (self._tool,)

    def _own_scopes(self) -> tuple[str, ...]:
        return ()

    @cached_property
    def _qualified_name(self) -> str:
        return self._tool._qualified_name

    @cached_property
    def _limit_names(self) -> frozenset[str]:
        return frozenset()  # a limit of the tool counts its calls, not the reads of its page

    @property
    def _is_public(self) -> bool:
        return self._tool._is_public

    @property
    def _decides_without_database(self) -> bool:
        return False

    @property
    def _rule(self) -> str:
        return self._tool._rule

    def _origin(self) -> str:
        return self._tool._origin()

    @property
    def _source(self) -> Any:
        return self._tool._source
