"""Server-sent events, parsed as in the HTML standard ("9.2.6 Interpreting an event stream").

Bytes may arrive in pieces of any size. An event is complete with its empty line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Event(NamedTuple):
    """One event. ``id`` is None if it had none."""

    data: str
    id: str | None = None
    name: str = "message"
    retry: int | None = None


@dataclass
class Block:
    data: list[str] = field(default_factory=list)
    id: str | None = None
    name: str = ""
    retry: int | None = None

    def take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self.data.append(value)
        elif name == "id" and "\0" not in value:
            self.id = value
        elif name == "event":
            self.name = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry = int(value)


class Parser:
    """An incremental parser: bytes in, events out."""

    def __init__(self) -> None:
        self._rest = b""
        self._block = Block()
        self._is_first, self._skips_newline = True, False
        self.last_id = ""
        self.comments = 0

    def feed(self, piece: bytes) -> list[Event]:
        """Parse ``piece``, and return the events that it completes."""
        lines = self._lines(piece)
        return [event for line in lines if (event := self._line(line)) is not None]

    @property
    def is_amid(self) -> bool:
        """Whether the bytes so far end within an event."""
        block = self._block
        return bool(self._rest or block.data or block.id is not None or block.name)

    def _lines(self, piece: bytes) -> list[bytes]:
        if self._skips_newline and piece:
            piece = piece.removeprefix(b"\n")
            self._skips_newline = False
        self._skips_newline = piece.endswith(b"\r")
        piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return lines

    def _line(self, raw: bytes) -> Event | None:
        if self._is_first:
            self._is_first, raw = False, raw.removeprefix(b"\xef\xbb\xbf")
        if not raw:
            return self._dispatched()
        if raw.startswith(b":"):
            self.comments += 1
        else:
            self._block.take(raw.decode("utf-8", "replace"))
        return None

    def _dispatched(self) -> Event | None:
        block, self._block = self._block, Block()
        if block.id is not None:
            self.last_id = block.id
        if not block.data:
            return None
        return Event("\n".join(block.data), block.id, block.name or "message", block.retry)
