"""
Parts of a serving process that know nothing of the protocol.

- ``thread_pools``: run synchronous code for event loops. ``threads`` are those of this process.
- ``async_orm``: run the ORM of asynchronous calls
- ``runtime``: the services of each event loop, such as its poller, and the environment, which
  decides how jobs use database connections and what runs in the background
- ``outages``: log databases that cannot be reached, and close broken connections
- ``view_limits``: limits on the requests of the package's Django views
- ``address_probe``: show ``mcp_doctor`` the client address that the server sees

Threads of a process:

| thread | started by | ends |
|---|---|---|
| event loop | the ASGI server or ``mcp_stdio``; tests run several | with its server |
| ``mcp-<pool>_<n>`` | the first job of a pool in ``thread_pools`` | with the process |
| ``mcp-async_0`` | the first ORM access of an asynchronous call (``async_orm``) | with the call |
| ``mcp-heartbeat`` | the first stored call (``storage.leases``) | with the lease |

The code of a project runs in pool threads, in ``mcp-async`` threads and, if it is ``async def``, in
the event loop. Objects of an event loop are used only in that loop. Other threads reach them by
``loop.call_soon_threadsafe``.
"""

from .thread_pools import threads

__all__ = ["threads"]
