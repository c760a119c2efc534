"""OAuth 2.0 protected resource metadata (RFC 9728): resource identifiers, documents, views, CORS.

``resource`` is the identifier of a server, which a client names to get a token for it (RFC 8707).
It is made from settings and never from a request. ``canonical`` makes equivalent spellings equal
(RFC 9728, 3.3; RFC 3986, 6.2): the case of scheme and host, the default port, a slash at the end.

A document is made from the settings and the verifiers. It is the same for every client, except for
a slash at the end of the identifier, which follows the requested path. If no verifier names an
issuer, there is no document. The 404 is JSON, so that clients that try several URLs in turn do not
take an HTML page for a document.

``cors`` allows all origins, and therefore never credentials: browsers send no cookies. It answers
preflights before the view runs. It must not be used on the consent page, because no other origin
may read or submit that page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.urls import URLPattern, path, register_converter
from django.utils.encoding import escape_uri_path

from ..auth.principal import IssuingVerifier, verifiers
from ..auth.scopes import OFFLINE
from ..conf import project
from ..conf import settings as mcp
from ..declarations.server import servers

if TYPE_CHECKING:
    from ..declarations.server import Server

View = Callable[..., HttpResponseBase]

ALLOWED_HEADERS = ("authorization", "content-type", "mcp-protocol-version")
EXPOSED_HEADERS = ("www-authenticate", "retry-after")
CREDENTIALS = "Access-Control-Allow-Credentials"
PREFLIGHT_CACHE_SECONDS = 7200  # no browser caches a preflight for longer


def cors(*methods: str) -> Callable[[View], View]:
    """Allow pages of any origin to call a view by these methods: ``@cors("POST")``.

    Use it as the outermost decorator. It answers OPTIONS itself, and the view does not run.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if request.method == "OPTIONS":
                return _allow_all_origins(_options(request, methods))
            return _allow_all_origins(view(request, *args, **kwargs))

        return wrapper

    return decorate


def _options(request: HttpRequest, methods: tuple[str, ...]) -> HttpResponse:
    response = HttpResponse(status=204, headers={"Allow": ", ".join((*methods, "OPTIONS"))})
    if "Access-Control-Request-Method" in request.headers:
        response["Access-Control-Allow-Methods"] = ", ".join(methods)
        response["Access-Control-Allow-Headers"] = ", ".join(ALLOWED_HEADERS)
        response["Access-Control-Max-Age"] = str(PREFLIGHT_CACHE_SECONDS)
    return response


def _allow_all_origins(response: HttpResponseBase) -> HttpResponseBase:
    """Allow all origins without credentials, and override the CORS headers that the view set."""
    response.headers.pop(CREDENTIALS, None)
    response["Access-Control-Allow-Origin"] = "*"
    response["Access-Control-Expose-Headers"] = ", ".join(EXPOSED_HEADERS)
    return response


Document = dict[str, Any]

METHODS = ("GET", "HEAD")
METADATA_CACHE_SECONDS = 3600  # seconds for which a document may be cached


def published(
    find: Callable[[str], Document | None],
) -> Callable[[HttpRequest, str], HttpResponseBase]:
    """Make a view that returns a document as JSON.

    ``find`` takes the part of the path after the well-known prefix. It returns the document, or
    None for a 404.
    """

    @login_not_required
    @cors(*METHODS)
    @wraps(find)
    def view(request: HttpRequest, suffix: str | None = None) -> HttpResponseBase:
        if request.method not in METHODS:
            return _error(405, "method_not_allowed", Allow=", ".join((*METHODS, "OPTIONS")))
        if (found := find(suffix or "")) is None:
            return _error(404, "not_found")
        return JsonResponse(
            found, headers={"Cache-Control": f"public, max-age={METADATA_CACHE_SECONDS}"}
        )

    return view


def _error(status: int, error: str, **headers: str) -> JsonResponse:
    all_headers = {"Cache-Control": "no-store", **headers}
    return JsonResponse({"error": error}, status=status, headers=all_headers)


def published_scopes(scopes: Iterable[str]) -> list[str]:
    """Return the scopes to publish, each once, without ``offline_access``."""
    return [scope for scope in dict.fromkeys(scopes) if scope != OFFLINE]


PORTS = {"http": 80, "https": 443}


def origin() -> str:
    """Return the public origin of the project, from the setting ``URL``."""
    return str(mcp.URL).rstrip("/")


def endpoint(path: str) -> str:
    """Return the public URL of a path of the project, with FORCE_SCRIPT_NAME."""
    return _below(str(mcp.URL), project.FORCE_SCRIPT_NAME, path)


def _below(url: str, prefix: str | None, path: str) -> str:
    return f"{url.rstrip('/')}{(prefix or '').rstrip('/')}/{path}"


def resource(server: Server) -> str:
    """Return the resource identifier of a server: its canonical public URL."""
    return _resource(str(mcp.URL), project.FORCE_SCRIPT_NAME, server.path)


@lru_cache(maxsize=64)
def _resource(url: str, prefix: str | None, path: str) -> str:
    identifier = canonical(_below(url, prefix, escape_uri_path(path)))
    assert identifier is not None, "manage.py check refuses such a URL"
    return identifier


def served() -> dict[str, Server]:
    """Return the servers that have declarations, by resource identifier."""
    return {resource(server): server for server in servers() if not server._is_empty}


@lru_cache(maxsize=256)
def canonical(uri: str) -> str | None:
    """Return a resource indicator in its canonical spelling; None if it is not valid."""
    try:
        parts = urlsplit(uri)
        host, port, scheme = parts.hostname, parts.port, parts.scheme.lower()
    except ValueError:
        return None
    if not (scheme and host) or "@" in parts.netloc or parts.query or "#" in uri:
        return None
    host = f"[{host}]" if ":" in host else host
    suffix = "" if port in (None, PORTS.get(scheme)) else f":{port}"
    return f"{scheme}://{host}{suffix}{parts.path.rstrip('/')}"


PATH = ".well-known/oauth-protected-resource"


def is_server_path(path: str) -> bool:
    """Whether this is the path of an MCP server, with or without the mount point.

    It has no slash at its start or end.
    """
    escaped = escape_uri_path(path)
    return any(
        escaped in (escape_uri_path(server.path), urlsplit(name).path.removeprefix("/"))
        for name, server in served().items()
    )


class ServerSuffix:
    """Path converter for what follows a well-known path: a slash, or the path of an MCP server.

    Any other suffix does not match, because it may be of a document of the project itself.
    """

    regex = r"/.*"

    def to_python(self, value: str) -> str:
        if value != "/" and not is_server_path(value.removeprefix("/").removesuffix("/")):
            raise ValueError("This is not the path of an MCP server.")
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(ServerSuffix, "mcp-server-suffix")


def well_known(location: str, view: View, name: str) -> list[URLPattern]:
    """Return the URL patterns of a metadata document."""
    return [
        path(location, view, name=name),
        path(f"{location}<mcp-server-suffix:suffix>", view, name=f"{name}-of-server"),
    ]


def resource_metadata_url(server: Server) -> str:
    """Return the URL of a server's document: the well-known path and its own (RFC 9728, 3.1)."""
    return f"{origin()}/{PATH}{urlsplit(resource(server)).path}"


def challenge(server: Server, scopes: Sequence[str]) -> dict[str, str]:
    """Return the WWW-Authenticate parameters for a ``Challenging`` verifier: URL and scopes."""
    parameters = {"resource_metadata": resource_metadata_url(server)}
    return parameters | ({"scope": " ".join(scopes)} if scopes else {})


def protected_resource_metadata(server: Server) -> Document | None:
    """Return the metadata document of a server (RFC 9728, 2); None if no verifier has an issuer."""
    issuing = [one for one in verifiers() if isinstance(one, IssuingVerifier)]
    if not issuing:
        return None
    scopes = published_scopes(scope for one in issuing for scope in one.advertised_scopes)
    return {
        "resource": resource(server),
        "authorization_servers": list(dict.fromkeys(one.issuer for one in issuing)),
        **({"scopes_supported": scopes} if scopes else {}),
        "bearer_methods_supported": ["header"],
        "resource_name": str(server.title or server.public_name),
    }


@published
def protected_resource(suffix: str) -> Document | None:
    """Return the document for a server's path; for the root, that of the only server.

    None if no server is at that path. Clients compare ``resource`` with the URL that they were
    given, so it ends in a slash if the requested path does.
    """
    servers_by_path = {urlsplit(name).path: server for name, server in served().items()}
    server = servers_by_path.get(escape_uri_path(suffix.removesuffix("/")))
    if server is not None:
        document = protected_resource_metadata(server)
        return document and document | {"resource": _with_slash_of(document["resource"], suffix)}
    is_only = suffix in ("", "/") and len(servers_by_path) == 1
    return protected_resource_metadata(*servers_by_path.values()) if is_only else None


def _with_slash_of(name: str, suffix: str) -> str:
    return name + ("/" if suffix.endswith("/") else "")
