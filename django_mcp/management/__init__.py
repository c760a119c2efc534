"""
The code behind the ``manage.py`` commands: arguments, output, and what several commands share.

Commands parse arguments and print. The work is done by the same code that serves clients.

- ``arguments``: arguments that several commands take
- ``output``: tables, colours and help
- ``access_report``: who may use what on a server, which rule decides, and the conditions under
  which a URI can be read
- ``audit_export``: the audit log as CSV and JSON lines, for ``mcp_audit`` and the admin
- ``client_files``: add a server to a client's configuration file, for ``mcp_connect``
- ``starter_file``: a first ``mcp.py``, for ``startmcp``
- ``doctor``: the checks of ``mcp_doctor``
"""
