"""
Look up the tokens and sessions of concurrent requests together.

A look-up takes a job in a thread and a query or two, which cost more than everything else that a
short call does. So requests that arrive while all jobs run wait, and the next job looks up all of
them, with one query for each verifier and one for the sessions. A single request waits for nothing.
Nothing is kept after its request: a revoked token is rejected from the next look-up on.

A job runs in the context of its first request. Others join it only if their context variables have
the same values, because a database router of the project may choose a tenant's database by them.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from ...auth.principal import LookupVerifier, Principal
from ...exceptions import Busy
from ...runtime import threads
from ...runtime.runtime import Service
from ...storage import sessions

if TYPE_CHECKING:
    from ...declarations.server import Server
    from ...models import Session

MAX_JOBS = 2  # that run at the same time, in each event loop
MAX_LOOKUPS_PER_JOB = 64
MAX_WAITING_LOOKUPS = 1_000  # when a worker restarts, all of its clients reconnect at once
Found = tuple[Principal | None, "Session | None"]


class Lookup:
    """The token and session id of one request, and what was found for it."""

    __slots__ = ("is_done", "principal", "server", "session", "session_id", "token")

    def __init__(self, server: Server, token: str | None, session_id: str | None) -> None:
        self.server, self.token, self.session_id = server, token, session_id
        self.is_done = asyncio.get_running_loop().create_future()
        self.principal: Principal | BaseException | None = None
        self.session: Session | BaseException | None = None

    def result(self) -> Found:
        """Return the principal and the session. Raise the error of this look-up."""
        if isinstance(self.principal, BaseException):
            raise self.principal
        if isinstance(self.session, BaseException):
            raise self.session
        return self.principal, self.session


class LookupJob:
    """Requests that are looked up together, by the same verifiers and in the same context."""

    def __init__(self, verifiers: Sequence[LookupVerifier], context: contextvars.Context) -> None:
        self.verifiers, self.context = verifiers, context
        self.lookups: list[Lookup] = []

    def accepts(self, verifiers: Sequence[LookupVerifier], context: contextvars.Context) -> bool:
        """Whether a request with these verifiers and in this context may join."""
        return (
            len(self.lookups) < MAX_LOOKUPS_PER_JOB
            and verifiers == self.verifiers
            and len(context) == len(self.context)
            and all(
                name in self.context and self.context[name] is value
                for name, value in context.items()
            )
        )

    def run(self) -> None:
        """Find the principal and the session of each request. Runs in a thread."""
        pending = [lookup for lookup in self.lookups if lookup.token is not None]
        for verifier in self.verifiers if pending else ():
            requests = [(cast(str, lookup.token), lookup.server) for lookup in pending]
            try:
                found = verifier._lookup_all(requests)
            except Exception as error:  # the database cannot be queried
                found = [error] * len(requests)
            for lookup, principal in zip(pending, found, strict=True):
                lookup.principal = principal
            pending = [lookup for lookup in pending if lookup.principal is None]
        with_session = [
            lookup
            for lookup in self.lookups
            if lookup.session_id is not None
            and (lookup.token is None or isinstance(lookup.principal, Principal))
        ]
        if with_session:
            self._find_sessions(with_session)

    def _find_sessions(self, lookups: Sequence[Lookup]) -> None:
        found: Sequence[Session | Exception | None]
        try:
            found = sessions.find_all([cast(str, lookup.session_id) for lookup in lookups])
        except Exception as error:  # requests without a session are not affected
            found = [error] * len(lookups)
        for lookup, session in zip(lookups, found, strict=True):
            lookup.session = session

    def end(self, error: BaseException | None = None) -> None:
        """Let the requests continue, with ``error`` if the job did not run."""
        for lookup in self.lookups:
            lookup.principal = lookup.principal if error is None else error
            if not lookup.is_done.done():  # else the request was cancelled
                lookup.is_done.set_result(None)


class LookupQueue:
    """The look-ups of one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[LookupJob] = deque()
        self._running = 0  # jobs

    async def find(
        self,
        verifiers: Sequence[LookupVerifier],
        server: Server,
        token: str | None,
        session_id: str | None,
    ) -> Found:
        """Return the principal of a token and the session of an id.

        Without a token, return None as the principal. A token that no verifier knows has neither a
        principal nor a session. Raise what the verifier raises, and ``Busy``.
        """
        lookup, context = Lookup(server, token, session_id), contextvars.copy_context()
        if not (self._waiting and self._waiting[-1].accepts(verifiers, context)):
            if sum(len(job.lookups) for job in self._waiting) >= MAX_WAITING_LOOKUPS:
                raise Busy(Busy.__doc__)
            self._waiting.append(LookupJob(verifiers, context))
        self._waiting[-1].lookups.append(lookup)
        self._start()
        await lookup.is_done
        return lookup.result()

    def _start(self) -> None:
        """Start the next jobs, if threads are free."""
        while self._waiting and self._running < MAX_JOBS:
            job = self._waiting.popleft()
            try:
                future = threads.lookups.submit(job.run, job.context)
            except (Busy, RuntimeError) as error:  # RuntimeError: no thread can be started
                job.end(error)
                continue
            self._running += 1
            asyncio.wrap_future(future).add_done_callback(partial(self._ended, job))

    def _ended(self, job: LookupJob, future: asyncio.Future[None]) -> None:
        self._running -= 1
        # Cancelled: the thread pool was shut down.
        job.end(Busy(Busy.__doc__) if future.cancelled() else future.exception())
        self._start()


lookups = Service(LookupQueue)
