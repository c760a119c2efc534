"""
One run of a call: everything a method needs to do its work, and nothing that outlives it.

Rule: each run starts fresh - request, permissions, bound objects - and takes
over from earlier ones only the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..declare.requests import Answers, Request, Say
from ..protocol.capabilities import offered
from ..protocol.headers import Mirrored
from .active import Stop

if TYPE_CHECKING:
    from ..declare.servers import Server
    from ..principal import Principal
    from ..protocol.events import Call
    from ..protocol.jsonrpc import Id
    from .running import Work

Conclusion = Callable[[dict[str, Any]], None]


class Session(Protocol):
    """What the methods may change about the client they talk to."""

    async def set_log_level(self, level: str) -> None: ...

    async def subscribe(self, uri: str, place: str) -> None: ...

    async def unsubscribe(self, uri: str) -> None: ...

    async def listen(self, id: Id, wanted: dict[str, Any], places: Mapping[str, str]) -> None:
        """Acknowledge, then deliver what is ``wanted`` until the client or the server ends it."""
        ...


@dataclass(eq=False)
class Run:
    """One run of ``call``, on ``server``, as ``principal``."""

    call: Call
    server: Server
    principal: Principal
    session: Session
    say: Say
    answers: Answers = field(default_factory=Answers)
    stop: Stop = field(default_factory=Stop)
    host: str | None = None
    mirrored: Mirrored | None = None  # the headers that came with it, where there are any
    conclude: Conclusion | None = None  # with its result, at the end of its transaction
    goes_on: bool = False  # a run came before: it is not turned away any more
    work: Work | None = None  # what of the project's is run, once that is known

    def __post_init__(self) -> None:
        self.request = Request(
            self.principal,
            self.server,
            host=self.host,
            revision=self.call.revision.name,
            client_info=self.call.client_info,
            offered=offered(self.call.revision, self.call.capabilities),
            meta=self.call.meta,
            answers=self.answers,
            say=self.say,
            stopped=self.stop.is_set,
        )

    @property
    def params(self) -> dict[str, Any]:
        return self.call.params

    @property
    def subject(self) -> str:
        """What is asked for, for the log: the method and the name or URI."""
        target = self.params.get("name") or self.params.get("uri") or ""
        shown = repr(str(target)[:200])[1:-1]  # a line break in it begins no line of the log
        return f"{self.call.method} {shown}".strip()
