"""
The protocol of all MCP revisions, without I/O: messages in, events and messages out.

This package imports only the standard library. It has no socket, clock, lock or task.
"""
