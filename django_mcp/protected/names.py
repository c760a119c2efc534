"""
What a token may be for: MCP servers, by the URL that names each (RFC 8707).

Rule: the name of a server is made from settings and never from a request. Two spellings of one name
are one (RFC 9728, 3.3; RFC 3986, 6.2): the case of scheme and host, the default port, a slash at
the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from django.utils.encoding import escape_uri_path

from ..conf import project
from ..conf import settings as mcp
from ..declare.servers import servers

if TYPE_CHECKING:
    from ..declare.servers import Server

PORTS = {"http": 80, "https": 443}


def origin() -> str:
    """Where the project is, for everybody."""
    return str(mcp.URL).rstrip("/")


def endpoint(path: str) -> str:
    """The URL of what is at a path of the project's, wherever that is mounted."""
    return f"{origin()}{(project.FORCE_SCRIPT_NAME or '').rstrip('/')}/{path}"


def resource(server: Server) -> str:
    """The name of a server."""
    found = canonical(endpoint(escape_uri_path(server.path)))
    assert found is not None, "manage.py check refuses such a URL"
    return found


def served() -> dict[str, Server]:
    """Every server that there is, by its name."""
    return {resource(server): server for server in servers() if not server.is_empty}


def canonical(uri: str) -> str | None:
    """A resource indicator in its one spelling; None where it can be none."""
    try:
        parts = urlsplit(uri)
        host, port, scheme = parts.hostname, parts.port, parts.scheme.lower()
    except ValueError:
        return None
    if not (scheme and host) or "@" in parts.netloc or parts.query or "#" in uri:
        return None
    host = f"[{host}]" if ":" in host else host
    at = "" if port in (None, PORTS.get(scheme)) else f":{port}"
    return f"{scheme}://{host}{at}{parts.path.rstrip('/')}"
