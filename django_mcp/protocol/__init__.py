"""
The protocol of all MCP revisions, without I/O: messages in, events and messages out.

This package imports only the standard library. It has no socket, clock, lock or task.

- ``connection``: the state of one conversation
- ``revisions``: facts about each revision, and the encoding of messages
- ``changes``: the differences between revisions
- ``capabilities``: the questions that a client supports
- ``content``: content blocks
- ``jsonrpc``: JSON-RPC 2.0
- ``http_rules``, ``sse``: headers, statuses and server-sent events of the HTTP transports
- ``uri_template``: URI templates (RFC 6570)
"""
