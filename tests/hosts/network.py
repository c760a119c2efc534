"""Hosts with their own addresses: network namespaces on a bridge in another namespace.

The network of this machine is not changed, and nothing remains afterwards. A thread that is
``inside`` a host opens its sockets and starts its processes there.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str | None:
    """Return why network namespaces are not available, or an empty text."""
    if shutil.which("ip") is None:
        return "There is no ip: install iproute2."
    probe = f"mcp-{os.getpid()}-probe"
    tried = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if tried.returncode:
        return f"No network namespace may be made here: {tried.stderr.strip()}"
    ip("netns", "del", probe)
    return None


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Network:
    """All hosts are in 10.0.0.0/24."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._lan = self._named("lan")

    def __enter__(self) -> Network:
        self._make(self._lan)
        ip("-n", self._lan, "link", "add", "bridge", "type", "bridge")
        ip("-n", self._lan, "link", "set", "bridge", "up")
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def _named(self, name: str) -> str:
        return f"mcp-{os.getpid()}-{name}"

    def _make(self, space: str) -> None:
        ip("netns", "add", space)
        self._stack.callback(ip, "netns", "del", space)

    def add(self, name: str, address: str) -> None:
        space = self._named(name)
        self._make(space)
        ip("-n", self._lan, "link", "add", name, "type", "veth", "peer", "eth0", "netns", space)
        ip("-n", self._lan, "link", "set", name, "master", "bridge", "up")
        ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", space, "link", "set", device, "up")

    def also(self, name: str, *addresses: str) -> None:
        """Give a host more addresses. IPv6 addresses are in fd00::/16, which all hosts reach."""
        for address in addresses:
            words = [f"{address}/16", "dev", "eth0", "nodad"] if ":" in address else [
                f"{address}/24", "dev", "eth0",
            ]  # fmt: skip
            ip("-n", self._named(name), "addr", "replace", *words)

    def cut(self, name: str) -> None:
        """Drop all packets from and to this host."""
        ip("-n", self._lan, "link", "set", name, "down")

    def mend(self, name: str) -> None:
        ip("-n", self._lan, "link", "set", name, "up")

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Run the block on that host."""
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self._named(name)}", os.O_RDONLY)
        try:
            _enter(there)
            yield
        finally:
            _enter(here)
            os.close(there)
            os.close(here)


def _enter(space: int) -> None:
    if _libc.setns(space, NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
