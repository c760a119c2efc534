"""
The command by which a client starts this project, to speak with it over stdio.

Rule: it works from whatever folder and in whatever environment it is started.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import ENVIRONMENT_VARIABLE

if TYPE_CHECKING:
    from ..declare.servers import Server


def own_command(user: str | None, server: Server) -> list[str]:
    """``mcp_stdio`` of ``server`` as ``user``, with paths and settings spelt out."""
    started = Path(sys.argv[0])
    manage = started.suffix == ".py" and started.name != "__main__.py" and started.exists()
    program = [str(started.resolve())] if manage else ["-m", "django"]
    settings_module = os.environ.get(ENVIRONMENT_VARIABLE)
    return [
        *(os.path.abspath(sys.executable), *program, "mcp_stdio"),
        *(["--user", user] if user else []),
        *(["--server", server.name] if server.name != "default" else []),
        *(["--settings", settings_module] if settings_module else []),
        *([] if manage else ["--pythonpath", os.getcwd()]),
    ]
