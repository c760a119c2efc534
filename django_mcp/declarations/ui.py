"""``UI``: the page of a tool, which clients with the extension MCP Apps show beside its result.

The extension is ``io.modelcontextprotocol/ui`` (SEP-1865, revision 2026-01-26). The page runs in a
sandboxed frame of the client. The client's Content-Security-Policy allows it no other host than
those that are declared here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

EXTENSION = "io.modelcontextprotocol/ui"
MIME_TYPE = "text/html;profile=mcp-app"
VISIBILITY = ("model", "app")
# The names of the features in the protocol, by the name that a project writes.
BROWSER_PERMISSIONS = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboard_write": "clipboardWrite",
}
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
HOST = rf"{_LABEL}(\.{_LABEL})+"
# A client writes these into its Content-Security-Policy header. So only an origin may pass: a
# space, semicolon or quote could begin another directive.
ORIGIN = re.compile(rf"https://(\*\.)?{HOST}(:[1-9][0-9]{{0,4}})?\Z")
CONNECT_ORIGIN = re.compile(rf"(https|wss)://(\*\.)?{HOST}(:[1-9][0-9]{{0,4}})?\Z")
DOMAIN = re.compile(rf"{HOST}\Z")


@dataclass(frozen=True)
class UI:
    """The page of a tool: a Django template, and what the client's frame allows the page.

    ``connect_domains`` are origins for requests of scripts, ``resource_domains`` for scripts,
    styles, fonts, images and media, ``frame_domains`` for nested frames and ``base_uri_domains``
    for ``<base>``: "https://cdn.example" or "https://*.cdn.example". By default there are none.
    ``browser_permissions`` are "camera", "microphone", "geolocation" and "clipboard_write".
    ``domain`` is the host of the frame's origin, for clients that give each page its own origin:
    see the client's documentation. ``prefers_border`` is True, False, or None for no preference.
    """

    template_name: str
    connect_domains: Sequence[str] = ()
    resource_domains: Sequence[str] = ()
    frame_domains: Sequence[str] = ()
    base_uri_domains: Sequence[str] = ()
    browser_permissions: Sequence[str] = ()
    domain: str | None = None
    prefers_border: bool | None = None

    @classmethod
    def from_value(cls, value: str | UI) -> UI:
        """Return the ``UI`` for the value of ``Tool.ui``."""
        return cls(value) if isinstance(value, str) else value

    def write(self) -> dict[str, Any]:
        """Return the value of ``_meta.ui`` of the page."""
        csp = {
            "connectDomains": list(self.connect_domains),
            "resourceDomains": list(self.resource_domains),
            "frameDomains": list(self.frame_domains),
            "baseUriDomains": list(self.base_uri_domains),
        }
        shown: dict[str, Any] = {
            "csp": {name: domains for name, domains in csp.items() if domains},
            "permissions": {BROWSER_PERMISSIONS[one]: {} for one in self.browser_permissions},
            "domain": self.domain,
            "prefersBorder": self.prefers_border,
        }
        return {name: value for name, value in shown.items() if value not in ({}, None)}


def is_visibility(value: Sequence[str]) -> bool:
    """Whether ``value`` is "model", "app" or both, each once."""
    return bool(value) and len({*value}) == len(value) and {*value} <= {*VISIBILITY}


def ui_problems(ui: UI) -> Iterator[str]:
    """Yield what is wrong with the values of ``ui``."""
    domains = {
        "connect_domains": CONNECT_ORIGIN,
        "resource_domains": ORIGIN,
        "frame_domains": ORIGIN,
        "base_uri_domains": ORIGIN,
    }
    for name, pattern in domains.items():
        values = getattr(ui, name)
        if isinstance(values, str):
            yield f"{name}: {values!r:.200} is not a list."
            continue
        schemes = "https or wss" if pattern is CONNECT_ORIGIN else "https"
        for value in values:
            if not isinstance(value, str) or not pattern.match(value):
                yield f"{name}: {value!r:.200} is not an {schemes} origin."
    for one in ui.browser_permissions:
        if one not in BROWSER_PERMISSIONS:
            known = ", ".join(BROWSER_PERMISSIONS)
            yield f"browser_permissions: {one!r:.200} is not one of {known}."
    if ui.domain is not None and not (isinstance(ui.domain, str) and DOMAIN.match(ui.domain)):
        yield f"domain: {ui.domain!r:.200} is not the name of a host."
    if ui.prefers_border not in (True, False, None):
        yield f"prefers_border: {ui.prefers_border!r:.200} is not True, False or None."
