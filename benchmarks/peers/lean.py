"""
A floor: a Channels consumer that overrides what costs most.

`__call__` runs no tasks beside the connection, and `dispatch` sweeps no database connections in a
thread for every message. What is left is the consumer class, and a handler found by name.
"""

from typing import Any

from channels.consumer import AsyncConsumer

from benchmarks.peers.bare import answer, respond


class Lean(AsyncConsumer):
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope, self.base_send, self.body, self.answered = scope, send, b"", False
        while not self.answered:
            await self.dispatch(await receive())

    async def dispatch(self, message: Any) -> None:
        await getattr(self, message["type"].replace(".", "_"))(message)

    async def http_request(self, message: Any) -> None:
        self.body += message.get("body", b"")
        if not message.get("more_body"):
            await respond(answer(self.body), self.send)
            self.answered = True

    async def http_disconnect(self, message: Any) -> None:
        self.answered = True


consumer = Lean.as_asgi()


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await consumer(scope, receive, send)
