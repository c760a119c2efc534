"""
The HTTP transports: one endpoint and one consumer for all revisions.

``consumer`` takes each request through the same order: check Host and Origin (``security``), find
the caller (``authentication``), and only then read the body. ``stateless`` answers requests of
revisions without a handshake, ``sessions`` those of sessions, and ``legacy_sse`` those of HTTP+SSE.
"""
