"""
The transports: Streamable HTTP, HTTP+SSE and stdio.

A transport authenticates the client and moves messages. ``protocol`` decides what a message means,
and ``calls`` runs it.
"""
