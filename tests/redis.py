"""A Redis server of one test, which may be killed and restarted. Skip without Redis."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.database_servers import program
from tools.ports import free_port

SECONDS = 20
BACKENDS = {
    "core": "channels_redis.core.RedisChannelLayer",
    "pubsub": "channels_redis.pubsub.RedisPubSubChannelLayer",
}


class Redis:
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self.start()

    def start(self) -> None:
        """Start the server, without data."""
        self._process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no", "--dir", str(self._folder), "--logfile", "redis.log"],
        )  # fmt: skip
        end = time.monotonic() + SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self._process.poll() is None and time.monotonic() < end
                time.sleep(0.02)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def layers(self, backend: str = "core") -> dict[str, dict[str, object]]:
        """Return the setting ``CHANNEL_LAYERS`` for this server."""
        config = {"hosts": [f"redis://127.0.0.1:{self.port}"]}
        return {"default": {"BACKEND": BACKENDS[backend], "CONFIG": config}}


@contextmanager
def a_redis(folder: Path) -> Iterator[Redis]:
    if shutil.which("redis-server") is None:
        if not os.environ.get("CI"):
            pytest.skip("There is no redis-server.")
        program("redis-server", "redis-server")  # installs it, if it may
    made = Redis(folder)
    try:
        yield made
    finally:
        made.kill()
