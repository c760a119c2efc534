"""
The HTTP transports: one endpoint and one consumer for all revisions.

- ``consumer``: takes each request through the same order: Host and Origin, then the caller, and
  only then the body
- ``request``: one request and its response over ASGI, with size limits and timeouts
- ``security``: Host and Origin, header names, scopes, and the responses 401 and 403
- ``authentication``: the principal of the token, and the session
- ``lookups``: look up the tokens and sessions of concurrent requests together
- ``stateless``: requests of revisions without a handshake
- ``sessions``: requests of Streamable HTTP in sessions
- ``legacy_sse``: HTTP+SSE, the transport of the first revision
- ``streams``: SSE responses that send a session's stream from the log
- ``shutdown``: graceful shutdown
"""
