"""A client over HTTP+SSE in this process, which validates everything that it receives."""

from __future__ import annotations

import itertools
import re
from typing import Any
from urllib.parse import unquote

from .client import Speaker, result_of
from .http import JSON, ClientExchange, HttpClient

STREAM = {"accept": "text/event-stream"}
ADDRESS = re.compile(r"(/\S*)\?session_id=([A-Za-z0-9_-]{43})\Z")
ID = re.compile(r"[A-Za-z0-9_-]{43}\.[0-9]+(\.[0-9]+)?\Z")


class SseClient(HttpClient):
    """Opens a stream, and posts to the address in its first event.

    Clients in other processes and loops may use the same session.
    """

    def __init__(
        self,
        *args: Any,
        path: str = "/mcp/sse",
        revision: str = "2024-11-05",
        initialize: bool = True,
        opens: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(*args, revision=revision, initialize=False, **options)
        self.path, self.streams = path, []  # type: str, list[ClientExchange]
        self.address = self.query = ""
        try:
            if opens:
                self.open_stream()
            if initialize:
                self.initialize()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    # The stream.

    def open_stream(self, last: str | None = None, *, path: str | None = None) -> ClientExchange:
        """Open the stream, or resume it after the event ``last``. The address must be the same."""
        headers = self._around() | STREAM | {"last-event-id": last}
        exchange = self.open("GET", path or self.path, headers=headers)
        exchange.until(lambda: exchange.over or exchange.sse.found)
        if exchange.is_stream:
            self.streams.append(exchange)
            self._named(exchange)
        return exchange

    def _named(self, exchange: ClientExchange) -> None:
        first = exchange.sse.found[0]
        assert first.event == "endpoint" and first.retry is not None
        assert first.id is not None and ID.match(first.id)
        found = ADDRESS.match(first.data)
        assert found, first.data
        assert not self.address or self.address == first.data, "it has changed"
        self.address = first.data
        self.post_path, self.query = unquote(found[1]), f"session_id={found[2]}"

    @property
    def last(self) -> str:
        """The id of the last event received."""
        ids = [event.id for exchange in self.streams for event in exchange.sse.found]
        assert ids[-1] is not None
        return ids[-1]

    @property
    def messages(self) -> list[JSON]:
        """All messages received, over all connections."""
        return [one for exchange in self.streams for one in exchange.messages]

    def seqs(self) -> list[int]:
        """Return the numbers of the messages, in the order received."""
        found = (event for exchange in self.streams for event in exchange.sse.found)
        assert all(event.event in ("endpoint", "message") for event in found)
        told = (event for exchange in self.streams for event in exchange.sse.found)
        return [int(e.id.split(".")[1]) for e in told if e.event == "message" and e.id]

    # What goes.

    def _around(self) -> dict[str, str | None]:
        return {"authorization": self.token and f"Bearer {self.token}"} | self.more

    def headers(self, message: Any = None, **changed: str | None) -> dict[str, str | None]:
        found = self._around() | {"content-type": "application/json"}
        return found | {name.replace("_", "-"): v for name, v in changed.items()}

    def post(self, message: Any, **changed: Any) -> ClientExchange:
        scope = {"query_string": self.query.encode()} | changed.pop("scope", {})
        path = changed.pop("path", self.post_path)
        return super().post(message, path=path, scope=scope, **changed)

    def _scope(self, body: JSON) -> JSON:
        return super()._scope(body) | {
            "path": self.post_path, "query_string": self.query.encode(),
        }  # fmt: skip

    def accepted(self, message: Any, **changed: Any) -> None:
        exchange = self.post(message, **changed).wait()
        assert (exchange.status, exchange.body) == (202, b""), exchange

    def ask(self, method: str, *, id: Any = None, **params: Any) -> Any:
        """Send a request, which must be accepted. Return its id."""
        message = self.message(method, params, id=id)
        self.accepted(message)
        return message["id"]

    def answer_to(self, id: Any) -> JSON:
        """Wait for the response to a request, and return it."""

        def came() -> JSON | None:
            return next((m for m in self.messages if "method" not in m and m["id"] == id), None)

        found: JSON = self.until(came)
        return found

    def result(self, method: str, params: JSON) -> JSON:
        return result_of(self.answer_to(self.ask(method, **params)))

    # The session is that of the stream, and not of an answer.
    initialize = Speaker.initialize


def gapless(client: SseClient) -> bool:
    """Whether each message was received once, in order."""
    return client.seqs() == list(itertools.islice(itertools.count(1), len(client.seqs())))
