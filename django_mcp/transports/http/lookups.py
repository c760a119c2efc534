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
from itertools import islice
from typing import TYPE_CHECKING, cast

from ...auth.principal import LookupVerifier, Principal, takes_several
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
MAX_JOBS_TO_JOIN = 4  # the last waiting jobs, one of which a request may join
Found = tuple[Principal | None, "Session | None"]


class Lookup:
    """The token and session id of one request, and what was found for it."""

    __slots__ = ("error", "is_done", "principal", "server", "session", "session_id", "token")

    def __init__(self, server: Server, token: str | None, session_id: str | None) -> None:
        self.server, self.token, self.session_id = server, token, session_id
        self.is_done = asyncio.get_running_loop().create_future()
        self.principal: Principal | None = None
        self.session: Session | None = None
        self.error: BaseException | None = None


class LookupJob:
    """Requests that are looked up together, by the same verifiers and in the same context."""

    def __init__(
        self, verifiers: Sequence[LookupVerifier], context: contextvars.Context, first: Lookup
    ) -> None:
        self.verifiers, self.context, self.lookups = verifiers, context, [first]
        self.is_repeated = False  # whether it failed together with others

    def accepts(self, verifiers: Sequence[LookupVerifier], context: contextvars.Context) -> bool:
        """Whether a request with these verifiers and in this context may join.

        Verifiers of the project look up one token in each job. Their errors, the context variables
        that they set and the time that they take do not affect other requests.
        """
        return (
            not self.is_repeated
            and len(self.lookups) < MAX_LOOKUPS_PER_JOB
            and verifiers == self.verifiers
            and all(map(takes_several, verifiers))
            and len(context) == len(self.context)
            and all(
                name in self.context and self.context[name] is value
                for name, value in context.items()
            )
        )

    def run(self) -> None:
        """Find the principal and the session of each request. Runs in a thread."""
        # A request that was cancelled while it waited is not looked up.
        lookups = [lookup for lookup in self.lookups if not lookup.is_done.cancelled()]
        unknown = [lookup for lookup in lookups if lookup.token is not None]
        for verifier in self.verifiers:
            if unknown:
                _verify(verifier, unknown)
            unknown = [one for one in unknown if one.principal is None and one.error is None]
        with_session = [
            lookup
            for lookup in lookups
            if lookup.session_id is not None
            and (lookup.token is None or lookup.principal is not None)
        ]
        if with_session:
            found = sessions.find_all([cast(str, lookup.session_id) for lookup in with_session])
            for lookup, session in zip(with_session, found, strict=True):
                lookup.session = session

    def end(self, error: BaseException | None = None) -> None:
        """Let the requests continue, with ``error`` if there is one."""
        for lookup in self.lookups:
            if error is not None:
                lookup.error = error
            if not lookup.is_done.done():  # else the request was cancelled
                lookup.is_done.set_result(None)


def _verify(verifier: LookupVerifier, lookups: Sequence[Lookup]) -> None:
    """Store the principal or the error of each token that ``verifier`` knows."""
    requests = [(cast(str, lookup.token), lookup.server) for lookup in lookups]
    if not takes_several(verifier):
        lookups[0].principal = verifier.lookup(*requests[0])
        return
    for lookup, found in zip(lookups, verifier.look_up_all(requests), strict=True):
        if isinstance(found, Exception):
            lookup.error = found
        else:
            lookup.principal = found


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
        lookup = Lookup(server, token, session_id)
        self._add(lookup, verifiers)
        self._start()
        await lookup.is_done
        error = lookup.error
        try:
            if error is not None:
                raise error
            return lookup.principal, lookup.session
        finally:
            # The error has this frame. A reference cycle would keep the token in memory.
            del lookup, error

    def _add(self, lookup: Lookup, verifiers: Sequence[LookupVerifier]) -> None:
        """Add a look-up to a waiting job, or to a new one. Raise ``Busy``."""
        context = contextvars.copy_context()
        for job in islice(reversed(self._waiting), MAX_JOBS_TO_JOIN):
            if job.accepts(verifiers, context):
                job.lookups.append(lookup)
                return
        if sum(len(job.lookups) for job in self._waiting) >= MAX_WAITING_LOOKUPS:
            raise Busy(Busy.__doc__)
        self._waiting.append(LookupJob(verifiers, context, lookup))

    def _start(self) -> None:
        """Start the next jobs, if threads are free."""
        while self._waiting and self._running < MAX_JOBS:
            job = self._waiting.popleft()
            try:
                future = threads.lookups.submit(job.run, job.context)
            except (Busy, RuntimeError):  # RuntimeError: no thread can be started
                job.end(Busy(Busy.__doc__))
                continue
            self._running += 1
            asyncio.wrap_future(future).add_done_callback(partial(self._ended, job))

    def _ended(self, job: LookupJob, future: asyncio.Future[None]) -> None:
        self._running -= 1
        if future.cancelled():  # the thread pool was shut down
            job.end(Busy(Busy.__doc__))
        elif (error := future.exception()) is None or len(job.lookups) == 1:
            job.end(error)
        else:
            # The row of one request may have caused the error. Repeat each look-up alone, so that
            # it fails only this one, and no error has the tokens of other requests.
            for lookup in job.lookups:
                lookup.principal = lookup.error = None
                self._waiting.append(LookupJob(job.verifiers, job.context.copy(), lookup))
                self._waiting[-1].is_repeated = True
        self._start()


lookups = Service(LookupQueue)
