"""What Sentry shows of the calls of clients: the name of the transaction, the user and the tool.

``apps`` uses it if the project's settings have imported ``sentry_sdk``. This package sends no
arguments. Sentry's own settings decide what the project's code sends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .calls.records import CallRecord


def remove_variables(event: Any, hint: Any) -> Any:
    """Remove the local variables of this package from an event.

    They contain the arguments as the client sent them. The variables of the project's code, where
    pydantic hides secrets, are sent as Sentry's settings say.
    """
    for error in event.get("exception", {}).get("values", ()):
        for frame in (error.get("stacktrace") or {}).get("frames", ()):
            if (frame.get("module") or "").startswith(f"{__package__}."):
                frame.pop("vars", None)
    return event


@contextmanager
def describe_to_sentry(record: CallRecord) -> Iterator[None]:
    """Give Sentry the name of the transaction, the user and the tool of a call."""
    sentry: Any = sys.modules["sentry_sdk"]
    if not sentry.is_initialized():
        yield
        return
    with sentry.isolation_scope() as scope:
        name = record.call.params.get("name") if record.method != "resources/read" else None
        known = isinstance(name, str) and (
            name in record.server._catalog.tools or name in record.server._catalog.prompts
        )
        scope.set_transaction_name(f"{record.method} {name}" if known else record.method)
        scope.set_tag("mcp.server", record.server.name)
        scope.set_tag("mcp.method", record.method)
        if known:
            scope.set_tag("mcp.tool" if record.method == "tools/call" else "mcp.prompt", name)
        if record.principal.is_authenticated:
            scope.set_user({"id": str(record.user.pk)})
        yield
