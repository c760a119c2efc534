"""
The transports: Streamable HTTP, HTTP+SSE, stdio, and that of the admin's inspector.

A transport authenticates the client and moves messages. ``protocol`` decides what a message means,
and ``calls`` runs it.

- ``http``: Streamable HTTP and HTTP+SSE
- ``stdio``: one client on the standard streams of the process
- ``pipe``: a conversation in memory, on which stdio is built
- ``inspector``: both ends of a client's connection, for the admin's inspector
"""
