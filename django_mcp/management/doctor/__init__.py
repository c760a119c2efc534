"""
The checks of ``mcp_doctor``, and its findings.

Checks look at a server from outside, as clients do, and change nothing.

- ``findings``: what a check found, and the HTTP requests of checks
- ``installation``: checks on this machine
- ``live``: checks of a running server
"""
