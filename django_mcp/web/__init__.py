"""
The HTML page at the URL of a server, snippets to connect clients, and health checks.

The page shows only what its visitor may use. It needs no script and changes nothing.

- ``page``: the page
- ``clients``: how to connect well-known clients, for the page and for ``mcp_connect``
- ``health``: liveness and readiness probes
"""
