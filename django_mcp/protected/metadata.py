"""
What a server says of itself as a protected resource (RFC 9728): who gives out tokens for it.

Rule: made from settings and the verifiers; of the path of a request only the slash at the end of a
server that is there is in it. Who names no issuer has no document.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from django.utils.encoding import escape_uri_path

from ..principal import Issuing, verifiers
from .documents import Document, listed, published
from .names import origin, resource, served

if TYPE_CHECKING:
    from ..declare.servers import Server

PATH = ".well-known/oauth-protected-resource"
PATTERN = rf"^{re.escape(PATH)}(?P<suffix>/.*)?\Z"


def resource_metadata_url(server: Server) -> str:
    """Where the document of a server is: its path after the well-known one (RFC 9728, 3.1)."""
    return f"{origin()}/{PATH}{urlsplit(resource(server)).path}"


def challenge(server: Server, scopes: Sequence[str]) -> dict[str, str]:
    """What a ``Challenging`` verifier says: where the document is, and what to ask for."""
    named = {"resource_metadata": resource_metadata_url(server)}
    return named | ({"scope": " ".join(scopes)} if scopes else {})


def protected_resource_metadata(server: Server) -> Document | None:
    """The document of a server (RFC 9728, 2); None where no verifier has an issuer."""
    issuing = [one for one in verifiers() if isinstance(one, Issuing)]
    if not issuing:
        return None
    scopes = listed(scope for one in issuing for scope in one.asked)
    return {
        "resource": resource(server),
        "authorization_servers": list(dict.fromkeys(one.issuer for one in issuing)),
        **({"scopes_supported": scopes} if scopes else {}),
        "bearer_methods_supported": ["header"],
        "resource_name": str(server.title or server.public_name),
    }


@published
def protected_resource(suffix: str) -> Document | None:
    """By the path of each server; at the root, for whoever knows no path, the only one there is.

    Clients hold ``resource`` against the URL that they were given, which may end in a slash.
    """
    found = {urlsplit(name).path: server for name, server in served().items()}
    server = found.get(escape_uri_path(suffix.removesuffix("/")))
    if server is not None:
        document = protected_resource_metadata(server)
        return document and document | {"resource": _echoed(document["resource"], suffix)}
    alone = list(found.values()) if suffix in ("", "/") else []
    return protected_resource_metadata(alone[0]) if len(alone) == 1 else None


def _echoed(name: str, suffix: str) -> str:
    return name + ("/" if suffix.endswith("/") else "")
