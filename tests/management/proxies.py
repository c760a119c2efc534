"""A proxy in front of a real server, with the defects that proxies have."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOP = {"transfer-encoding", "connection", "keep-alive", "content-length", "date", "server"}


class Proxy:
    """Listens on ``port`` and asks ``upstream``. Names of headers are in lower case.

    ``drops`` are headers of requests that do not get there, ``loses`` of answers; ``buffers``
    hands on an answer when it is whole; ``moves`` answers whatever is at that path by a redirect;
    ``strips`` takes away what follows the path; ``forwards`` says whose request it passes on.
    """

    def __init__(
        self,
        upstream: int,
        *,
        drops: Iterable[str] = (),
        loses: Iterable[str] = (),
        adds: dict[str, str] | None = None,
        refuses: Iterable[str] = (),
        buffers: bool = False,
        moves: dict[str, str] | None = None,
        strips: bool = False,
        forwards: bool = True,
    ) -> None:
        self.upstream, self.buffers, self.moves = upstream, buffers, moves or {}
        self.drops, self.loses, self.adds = set(drops), set(loses), adds or {}
        self.refuses, self.strips, self.forwards = set(refuses), strips, forwards
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                proxy.pass_on(self)

            do_GET = do_POST = do_DELETE = do_OPTIONS = handle_any

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def __enter__(self) -> Proxy:
        self.thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def pass_on(self, asked: BaseHTTPRequestHandler) -> None:
        asked.close_connection = True
        body = asked.rfile.read(int(asked.headers.get("content-length", 0)))
        if asked.path in self.moves or asked.command in self.refuses:
            self._answer_itself(asked)
            return
        headers = {k: v for k, v in asked.headers.items() if k.lower() not in self.drops}
        if self.forwards:
            headers = {k: v for k, v in headers.items() if k.lower() != "x-forwarded-for"}
            headers["X-Forwarded-For"] = asked.client_address[0]
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=20)
        try:
            path = asked.path.partition("?")[0] if self.strips else asked.path
            connection.request(asked.command, path, body, headers | self.adds)
            self._hand_on(asked, connection.getresponse())
        except OSError:
            pass  # the client or the server has closed the connection
        finally:
            connection.close()

    def _answer_itself(self, asked: BaseHTTPRequestHandler) -> None:
        moved = self.moves.get(asked.path)
        asked.send_response(301 if moved else 405)
        if moved:
            asked.send_header("Location", moved)
        asked.send_header("Content-Length", "0")
        asked.end_headers()

    def _hand_on(self, asked: BaseHTTPRequestHandler, answer: http.client.HTTPResponse) -> None:
        whole = answer.read() if self.buffers else None
        asked.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP | self.loses:
                asked.send_header(name, value)
        asked.send_header("Connection", "close")
        asked.end_headers()
        if whole is not None:
            asked.wfile.write(whole)
            return
        while part := answer.read1(65_536):
            asked.wfile.write(part)
            asked.wfile.flush()
