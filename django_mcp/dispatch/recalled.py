"""
Sessions and calls as the protocol has them, made from their rows.

Rule: rows are all that there is: whichever process finds them can go on.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from ..models import Call as Row
from ..models import Session
from ..protocol.connection import Connection, Phase, State
from ..protocol.envelope import progress_token
from ..protocol.events import Call
from ..protocol.jsonrpc import encode
from .asking import withdrawal
from .rounds import Rounds


def connection_of(session: Session) -> Connection:
    """The protocol's side of a session, as its row has it."""
    phase = Phase.OPENING if session.revision else Phase.NEW
    phase = Phase.OPEN if session.initialized else phase
    state = State(session.revision, phase, session.client_info, session.capabilities)
    return Connection(state, transport=session.transport)


def call_of(row: Row, connection: Connection) -> Call:
    """The call that a row keeps."""
    state = connection.state
    return Call(
        json.loads(row.request_id), row.method, row.params, connection.revision,
        client_info=state.client_info, capabilities=state.capabilities,
        progress_token=progress_token(row.meta), meta=row.meta,
    )  # fmt: skip


def rounds_of(row: Row) -> Rounds:
    """What a call has been told, and how far it was."""
    return Rounds(
        f"c{row.pk}", known=row.known, high_water=row.high_water, count=row.rounds, has_steps=True
    )


def withdrawals(session: Session, asks: Collection[str]) -> list[str]:
    """What tells the client that nobody waits for these answers any more."""
    revision = connection_of(session).revision
    told = (withdrawal(revision, ask) for ask in asks)
    return [encode(message) for message in told if message is not None]
