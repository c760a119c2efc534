"""Progress notifications and log messages of a running call.

Progress is sent only if the client gave a progress token, and only with increasing values. Log
messages are sent from the level that the client asked for. Both are limited in size and rate. A
call that sends faster than the event writer commits is paused.

``masked_json`` converts the data of a log message to JSON and masks secrets: "Log messages MUST NOT
contain credentials or secrets" (server/utilities/logging). It masks before it encodes, because the
encoded text has no keys to recognize secrets by.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import enum
import json
import logging
import math
import re
import threading
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from ..declarations.redaction import is_secret
from ..protocol.jsonrpc import JSON
from ..protocol.revisions import LOG_LEVELS, encode_notification
from ..runtime.runtime import environment
from . import throttling

if TYPE_CHECKING:
    from .call_state import ActiveCall

MAX_MESSAGE_LENGTH = 100_000  # characters of one message
MAX_DEPTH = 64
MAX_INTEGER_BITS = 10_000  # Python refuses to write integers of over 4,300 digits
MASK = "********************"  # as Django's error reports write a secret
OMITTED = "..."  # replaces a value that contains itself, is nested too deep, or is too long
# The credentials of an Authorization header. "Basic" is also a word of English, so what follows it
# must have a digit, "=", "_" or a capital letter inside.
AUTHORIZATION = re.compile(
    r"\b((?i:bearer) +)[\w.~+/=-]{8,}|\b((?i:basic) +)(?=\S*[0-9=_]|\S+[A-Z])[\w.~+/=-]{4,}"
)
# A match starts only after "://" and ends before the next "/", so a long text takes linear time.
URL_PASSWORD = re.compile(r"(?<=://)([^\s/?#:@]*):[^\s/?#]*@")


def masked_json(data: Any) -> Any:
    """Return ``data`` as JSON with secrets masked. If it is too long, return its JSON text, cut."""
    if type(data) is str and len(data) <= MAX_MESSAGE_LENGTH:
        return mask_credentials(data)
    plain = _Walk().value(data)
    text = json.dumps(plain, ensure_ascii=False)
    return text[:MAX_MESSAGE_LENGTH] + "…" if len(text) > MAX_MESSAGE_LENGTH else plain


class _Walk:
    """Converts one log message's data. No error of an object in it fails the call."""

    def __init__(self) -> None:
        self._parents: set[int] = set()
        self._left = MAX_MESSAGE_LENGTH  # values left: each takes one character or more

    def value(self, value: Any) -> Any:
        self._left -= 1
        if id(value) in self._parents or len(self._parents) >= MAX_DEPTH or self._left < 0:
            return OMITTED
        self._parents.add(id(value))
        try:
            return self._plain(value)
        except Exception:
            return f"<{type(value).__name__}>"
        finally:
            self._parents.discard(id(value))

    def _plain(self, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str | int | float):
            return _scalar(value)
        if isinstance(value, enum.Enum):
            return str(value) if "__str__" not in vars(type(value)) else value.name
        if (items := _items(value)) is not None:
            return self._object(items)
        if isinstance(value, bytes | bytearray):
            return base64.b64encode(value).decode()
        if isinstance(value, Sequence | Set):
            # A pair may be one of the items of a dict, or a header.
            if isinstance(value, Sequence) and _is_secret_pair(value):
                return [_key(value[0]), MASK]
            return [self.value(one) for one in islice(value, max(self._left, 0) + 1)]
        if hasattr(value, "_proxy____cast"):  # a lazy translation, or a lazy row
            return self.value(value._proxy____cast())
        return _text(value)

    def _object(self, items: Iterable[tuple[Any, Any]]) -> JSON:
        made: JSON = {}
        for key, value in islice(items, max(self._left, 0) + 1):
            name = _key(key)
            made[name] = MASK if is_secret(name, value) else self.value(value)
        return made


def _scalar(value: str | int | float) -> Any:
    if isinstance(value, str):
        return mask_credentials(str.__str__(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return int(value) if int(value).bit_length() < MAX_INTEGER_BITS else f"<{type(value).__name__}>"


def _items(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """Return the name-value pairs of a mapping, model or named tuple, or None for other values.

    Fields that a class excludes from its ``repr()`` are excluded too, because they may be secret.
    """
    kind = value.__class__  # for a lazy object, the class of the object behind it
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, ItemsView):
        return value
    from pydantic import BaseModel  # not before something is logged: importing it takes long

    if isinstance(value, BaseModel):
        shown = [name for name, one in kind.model_fields.items() if one.repr and not one.exclude]
        extra = value.model_extra or {}
        return [*((name, getattr(value, name)) for name in shown), *extra.items()]
    if dataclasses.is_dataclass(kind):
        shown = [one.name for one in dataclasses.fields(kind) if one.repr]
        return [(name, getattr(value, name)) for name in shown]
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return list(zip(kind._fields, value, strict=False))
    return None


def _key(key: Any, depth: int = 0) -> str:
    """Return a key as text, in the form of ``json.dumps`` if that accepts it."""
    try:
        if key is None or isinstance(key, bool):
            return json.dumps(key)
        if isinstance(key, enum.Enum) and not isinstance(key, str):
            return key.name
        if isinstance(key, tuple | frozenset) and depth < MAX_DEPTH:
            return f"({', '.join(_key(one, depth + 1) for one in key)})"
        if isinstance(key, float):
            return str(float(key))
        return str(_scalar(key) if isinstance(key, str | int) else _text(key))
    except Exception:
        return f"<{type(key).__name__}>"


def _text(value: Any) -> str:
    """Return ``str(value)`` if its class defines ``__str__``, else only the name of the class.

    A ``repr()`` may contain secrets. The text of a model instance may contain fields that are not
    among the ``fields`` of its model resource, so the client gets only the class name.
    """
    kind = value.__class__
    if issubclass(kind, Model) or kind.__str__ in (object.__str__, kind.__repr__):
        return f"<{kind.__name__}>"
    return mask_credentials(str(value))


def _is_secret_pair(value: Any) -> bool:
    """Whether ``value`` is a list or tuple of a secret's name and the secret."""
    if not isinstance(value, list | tuple) or len(value) != 2 or not isinstance(value[0], str):
        return False
    return " " not in value[0] and is_secret(value[0], value[1])


def mask_credentials(text: str) -> str:
    """Mask passwords in URLs, and what follows "Bearer" and "Basic"."""
    text = AUTHORIZATION.sub(rf"\1\2{MASK}", text)
    return URL_PASSWORD.sub(rf"\1:{MASK}@", text)


logger = logging.getLogger("django_mcp.calls")
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.005, 30.0


class ClientNotifier:
    """Sends the progress and log notifications of one call, from any thread.

    ``level`` returns the minimum level of log messages, or None to send none. ``high_water`` is the
    last progress value of an earlier run.
    """

    def __init__(
        self,
        active: ActiveCall,
        owner: tuple[str, ...],
        level: Callable[[], str | None],
        high_water: float | None = None,
    ) -> None:
        self._active, self._call, self._owner, self._level = active, active.call, owner, level
        self.high_water, self.release = high_water, active.release
        self._lock = threading.Lock()

    def _pauses(self) -> Iterator[None]:
        """Yield while the writer is behind, for at most ``LONGEST_PAUSE_SECONDS``."""
        end = time.monotonic() + LONGEST_PAUSE_SECONDS
        while self._active.output.is_behind() and time.monotonic() < end:
            yield

    def pause(self) -> None:
        """Block a thread that sends faster than the event loop writes.

        It does nothing in the event loop, which must write meanwhile. Call it without the locks of
        the call and of this object: the event loop takes them too, and would wait instead of
        writing.
        """
        if _is_in_loop():
            return
        if seconds := self._active.output.take_pause():
            time.sleep(seconds)
        if environment().runs_jobs_in_parallel:
            for _ in self._pauses():
                time.sleep(PAUSE_SECONDS)

    async def apause(self) -> None:
        """Pause asynchronous code that sends faster than the event loop writes."""
        if seconds := self._active.output.take_pause():
            await asyncio.sleep(seconds)
        for _ in self._pauses():
            await asyncio.sleep(PAUSE_SECONDS)

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        if self._call.progress_token is None:
            return
        if not _is_finite(done):
            logger.warning("Progress dropped, it is not a finite number: progress=%r", done)
            return
        params: JSON = {"progressToken": self._call.progress_token, "progress": done}
        if total is not None and _is_finite(total):
            params["total"] = total
        if message is not None:
            params["message"] = _masked_text(message)[:MAX_MESSAGE_LENGTH]
        self.pause()
        # Progress MUST increase (utilities/progress). Without the lock two threads could both pass
        # the comparison and send decreasing values.
        with self._lock:
            if self.high_water is None or done > self.high_water:
                self.high_water = done
                self._notify("progress", "notifications/progress", params)

    def log(self, level: str, data: Any, name: str | None) -> None:
        if level not in LOG_LEVELS:
            raise ValueError(f"There is no level {level!r}; there are: {', '.join(LOG_LEVELS)}.")
        if not self._wanted(level):
            return
        params: JSON = {"level": level, "data": masked_json(data)}
        if name is not None:
            params["logger"] = _masked_text(name)
        self.pause()
        self._notify("log", "notifications/message", params)

    def _wanted(self, level: str) -> bool:
        least = self._level()
        return least is not None and LOG_LEVELS.index(level) >= LOG_LEVELS.index(least)

    def _notify(self, kind: str, method: str, params: JSON) -> None:
        if throttling.count_in_process(kind, *self._owner):
            logger.debug(
                "Notifications dropped, there are too many: kind=%s method=%s",
                kind,
                self._call.method,
            )
            return
        message = encode_notification(self._call.revision, method, params)
        if message is not None:
            self._active.send(message)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_finite(number: Any) -> bool:
    real = isinstance(number, int | float) and not isinstance(number, bool)
    try:
        return real and math.isfinite(number)
    except OverflowError:  # an integer too large for a float
        return False


def _masked_text(value: Any) -> str:
    """Return ``value`` as text, masked as the data of a log message is."""
    plain = masked_json(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
