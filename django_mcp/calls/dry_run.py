"""Dry runs: run the tool of an approval as its caller, show what it changes, and roll it back.

Only tools that are ``transactional`` have dry runs. They have declared that they have no effects
except writes in their transaction, so a rollback undoes everything, and ``on_commit`` hooks do not
run. A write to any other database is refused.

``ChangeRecorder`` records rows. Django's signals name the rows that ``save()``, ``delete()`` and
many-to-many relations write, and the values before and after are read from the database.
``update()``, ``bulk_create()`` and raw SQL send no signals. So written rows are also counted by
table, from all statements.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete, pre_save
from django.utils import translation
from django.utils.translation import gettext_lazy as _

from ..declarations.redaction import MASK, SECRET_COLUMN
from ..declarations.request import Request
from ..declarations.server import server_named
from ..declarations.tools import Tool
from ..exceptions import InputRequired, OnceNeeded, TimeLimitExceeded
from ..models import Approval
from ..protocol.capabilities import offered
from ..protocol.jsonrpc import InvalidParams
from ..protocol.revisions import REVISIONS
from . import results
from .call_state import Invocation
from .callers import SessionCaller
from .errors import in_words
from .execution import check, queries_through, row_count, surrounded

MAX_ROWS = 200
MAX_VALUE_LENGTH = 200  # characters of one value
OWN_APP = "django_mcp"
WRITE = re.compile(
    r"""\s*(INSERT\s+INTO|UPDATE|DELETE\s+FROM|REPLACE\s+INTO|MERGE\s+INTO)\s+(?:ONLY\s+)?([^\s(]+)""",
    re.I,
)
# Statements that may be executed on another database: every read that Django's compiler makes, and
# what controls a transaction. ``QuerySet.union`` puts its parts in parentheses. Only the beginning
# is compared, so raw SQL such as ``SELECT ... INTO`` passes. Everything else counts as a write,
# although some of it only reads:
# - PostgreSQL writes by ``WITH x AS (DELETE ...) SELECT ...``.
# - MariaDB executes the content of a comment like ``/*! DELETE ... */``.
# - ``EXPLAIN ANALYZE`` executes its statement, and so does ``ANALYZE`` on MariaDB.
READ = re.compile(
    r"""
    (?:\s*(?:EXPLAIN|ANALYZE)(?:\s+(?:ANALYZE|VERBOSE|QUERY\s+PLAN|FORMAT=\w+|\([^()]*\)))*\s)?
    [\s(]*SELECT\b
    | \s*(?:SHOW|PRAGMA|SAVEPOINT|RELEASE|ROLLBACK|BEGIN|SET)\b
    """,
    re.I | re.X,
)
ACTION_LABELS = {"created": _("created"), "changed": _("changed"), "deleted": _("deleted")}
# Takes a model, a key and the alias of a database. Returns the names of the fields of that row that
# the approver may see, or None if they may not see the row.
VisibleFields = Callable[[type[Model], Any, str], frozenset[str] | None]


class DryRunRefused(Exception):
    """The tool did something that cannot be rolled back."""


class _RollBack(BaseException):
    """Rolls back the transaction of a dry run that has succeeded."""


@dataclass(frozen=True)
class FieldChange:
    """One field of a row: its text before and after. None if there is no row."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class RowChange:
    """A row that the dry run has created, changed or deleted.

    ``fields`` is empty for a row that the approver may not see (``is_hidden``).
    """

    action: str  # "created", "changed" or "deleted"
    model: type[Model]
    key: str
    fields: tuple[FieldChange, ...]
    is_hidden: bool = False

    @property
    def action_label(self) -> str:
        return str(ACTION_LABELS[self.action])

    @property
    def model_name(self) -> str:
        return str(self.model._meta.verbose_name)


@dataclass
class DryRun:
    """The outcome of a dry run.

    ``tables`` are names of tables, and how many rows were written to each, by whatever statement.
    ``is_cut`` says that there were more than ``MAX_ROWS`` rows. ``problem`` is the error that the
    caller would get. ``question`` is what the tool would ask the client, and ``step`` the key of
    the step (``request.once``) at which the dry run ended. What the tool would do after these is
    unknown.
    """

    rows: list[RowChange] = field(default_factory=list)
    tables: list[tuple[str, int]] = field(default_factory=list)
    is_cut: bool = False
    problem: str = ""
    question: str = ""
    step: str = ""


def tool_of(approval: Approval) -> Tool | None:
    """Return the tool of an approval, or None if it is not declared any more."""
    try:
        catalog = server_named(approval.server)._catalog
    except LookupError:
        return None
    return catalog.tools.get(approval.tool) or catalog.model_tools.get(approval.tool)


def can_run(approval: Approval) -> bool:
    """Whether there is a dry run of this call. Not if an argument is secret and so not stored."""
    tool = tool_of(approval)
    return tool is not None and tool.transactional and not approval.has_secrets


def dry_run(approval: Approval, visible: VisibleFields) -> DryRun:
    """Run the call of ``approval`` as its caller and roll it back.

    Call it in a thread. ``visible`` is called in the transaction.
    """
    tool = tool_of(approval)
    assert tool is not None and can_run(approval)
    # The project's code may set a language, or other values of the context. They must not stay.
    with translation.override(translation.get_language()):
        return copy_context().run(_run, approval, tool, visible)


def _run(approval: Approval, tool: Tool, visible: VisibleFields) -> DryRun:
    request = _request(approval)
    alias = tool.atomic if isinstance(tool.atomic, str) else DEFAULT_DB_ALIAS
    recorder, outcome = ChangeRecorder(alias, visible), DryRun()
    try:
        with surrounded(request):
            _call(tool, request, approval.arguments, recorder)
    except _RollBack:
        pass
    except InputRequired as asked:
        outcome.question = " / ".join(
            str(getattr(one, "message", one.method)) for _, _, one in asked.questions.values()
        )
    except OnceNeeded as needed:
        outcome.step = needed.key
    except Exception as error:
        outcome.problem = _problem(error)
    # The tool may have caught ``DryRunRefused``. The call would do the write that was refused.
    outcome.problem = outcome.problem or recorder.refusal
    outcome.rows, outcome.is_cut = recorder.rows, recorder.is_cut
    outcome.tables = sorted(recorder.tables.items())
    return outcome


def _call(tool: Tool, request: Request, arguments: Any, recorder: ChangeRecorder) -> None:
    """Call the tool as a call does, record what it writes, and raise to roll back."""
    work = Invocation(
        tool,
        read=partial(tool._arguments.read, arguments),
        finish=partial(results.tool_result, tool, request),
        unknown=partial(InvalidParams, "The caller may not use this tool any more."),
        arguments=tool._arguments,
        atomic=recorder.alias,
        write=True,
    )
    check(tool, request, work.unknown)
    values = work.read()
    with transaction.atomic(using=recorder.alias), recorder.recording():
        try:
            with _time_limit(tool, request):
                bound = work.arguments.bind(values, request, write=True)
                value = tool._implementation(request, **bound)
                request._may_ask = False
                work.finish(value)
        except (InputRequired, OnceNeeded):
            recorder.read_values()  # what comes before the question
            raise
        recorder.read_values()
        raise _RollBack


@contextmanager
def _time_limit(tool: Tool, request: Request) -> Iterator[None]:
    """Stop the code at its first query after the tool's ``timeout``, as a call is stopped.

    Raise ``TimeLimitExceeded`` if the code took longer.
    """
    seconds = tool._owner.timeout
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, setattr, (request, "_is_out_of_time", True))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        # The timer may be running. It must not stop the queries that follow.
        timer.join()
        if request._is_out_of_time:
            raise TimeLimitExceeded(f"{tool.name} took longer than {seconds:g} s and was stopped.")


def _problem(error: Exception) -> str:
    """Return an error as text: what the caller would read, or the class of a bug."""
    if isinstance(error, DryRunRefused | InvalidParams):
        return str(error)
    return in_words(error) or type(error).__name__


def _request(approval: Approval) -> Request:
    """Return a request of the approval's caller, as the call has it."""
    caller: dict[str, Any] = approval.caller
    user = None if approval.user_id is None else str(approval.user_id)
    session_caller = SessionCaller.from_stored(user, caller.get("scopes"), caller.get("owner", ""))
    principal = replace(session_caller.load(), impersonator=approval.impersonator)
    revision = REVISIONS.get(caller.get("revision", ""))
    return Request(
        principal,
        server_named(approval.server),
        host=caller.get("host"),
        revision=caller.get("revision", ""),
        client_info=caller.get("client_info"),
        offered=partial(offered, revision, caller.get("capabilities") or {}) if revision else dict,
    )


# Recording.

Key = tuple[type[Model], Any]


class ChangeRecorder:
    """Records the rows that this thread writes to the database ``alias``."""

    def __init__(self, alias: str, visible: VisibleFields) -> None:
        self.alias, self._visible = alias, visible
        self.rows: list[RowChange] = []
        self.tables: Counter[str] = Counter()
        self.is_cut = False
        self.refusal = ""  # why a statement was not executed
        self._thread = threading.get_ident()
        # The values of each row before the dry run, None if it did not exist, in the order of the
        # first write, and which fields of it the approver may see.
        self._before: dict[Key, dict[str, Any] | None] = {}
        self._shown: dict[Key, frozenset[str] | None] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        handlers: dict[Any, Callable[..., None]] = {
            pre_save: self._on_row, post_save: self._on_row, pre_delete: self._on_row,
            post_delete: self._on_row, m2m_changed: self._on_relation,
        }  # fmt: skip
        for signal, handler in handlers.items():
            signal.connect(handler, weak=False)
        try:
            with queries_through(self._execute):
                yield
        finally:
            for signal, handler in handlers.items():
                signal.disconnect(handler)

    def _execute(self, execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        """Count written rows by table, and refuse writes to other databases."""
        text, alias = str(sql), context["connection"].alias
        if threading.get_ident() != self._thread:
            return execute(sql, params, many, context)
        if alias != self.alias and not READ.match(text):
            self.refusal = f"The tool writes to the database {alias!r}, outside of its transaction."
            raise DryRunRefused(self.refusal)
        result = execute(sql, params, many, context)
        if written := WRITE.match(text):
            table = written[2].rpartition(".")[2].strip('"`[]')
            if not table.startswith(f"{OWN_APP}_"):
                self.tables[table] += row_count(text, params, many, context)
        return result

    # Signals. They come from all threads.

    def _on_row(self, sender: type[Model], instance: Model, using: str, **kwargs: Any) -> None:
        self._note(sender, instance.pk, using, is_new=bool(kwargs.get("created")))

    def _on_relation(
        self, sender: type[Model], instance: Model, using: str, action: str, **kwargs: Any
    ) -> None:
        # The relation shows among the values of both of its rows.
        self._note(type(instance), instance.pk, using)
        for key in kwargs.get("pk_set") or ():
            self._note(kwargs["model"], key, using)

    def _note(self, model: type[Model], key: Any, using: str, *, is_new: bool = False) -> None:
        """Read the values of a row before its first write. A new row has none."""
        if threading.get_ident() != self._thread or using != self.alias or key is None:
            return
        model = model._meta.concrete_model or model
        if model._meta.app_label == OWN_APP or (model, key) in self._before:
            return
        if len(self._before) >= MAX_ROWS:
            self.is_cut = True
            return
        self._before[model, key] = before = None if is_new else self._values(model, key)
        if before is not None:
            self._shown[model, key] = self._visible(model, key, self.alias)

    def _values(self, model: type[Model], key: Any) -> dict[str, Any] | None:
        manager = model._base_manager.using(self.alias)
        names = [one.attname for one in model._meta.concrete_fields]
        found = manager.filter(pk=key).values(*names).first()
        if found is None:
            return None
        row = cast(Any, model(pk=key))
        row._state.db = self.alias
        for relation in model._meta.many_to_many:
            keys = getattr(row, relation.name).using(self.alias).order_by("pk")
            found[relation.name] = [*keys.values_list("pk", flat=True)[:MAX_ROWS]]
        return found

    def read_values(self) -> None:
        """Compare all noted rows with what is in the database now, before the rollback."""
        for (model, key), before in self._before.items():
            after = self._values(model, key)
            if before == after:
                continue
            shown = self._shown.get((model, key), frozenset())
            if after is not None:
                now = self._visible(model, key, self.alias)
                was = self._shown.get((model, key), now)  # of a created row there is only ``now``
                shown = None if now is None or was is None else now & was
            self.rows.append(_row_change(model, key, before, after, shown))


def _row_change(
    model: type[Model],
    key: Any,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    shown: frozenset[str] | None,
) -> RowChange:
    action = "created" if before is None else "deleted" if after is None else "changed"
    if shown is None:
        return RowChange(action, model, _text(key), (), is_hidden=True)
    old, new = before or {}, after or {}
    names = [
        (one.name, getattr(one, "attname", one.name))
        for one in (*model._meta.concrete_fields, *model._meta.many_to_many)
        if one.name in shown
    ]
    fields = tuple(
        FieldChange(
            name,
            None if before is None else _field_text(name, old.get(column)),
            None if after is None else _field_text(name, new.get(column)),
        )
        for name, column in names
        if before is None or after is None or old.get(column) != new.get(column)
    )
    return RowChange(action, model, _text(key), fields)


def _field_text(name: str, value: Any) -> str:
    return MASK if SECRET_COLUMN.search(name) and value else _text(value)


def _text(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"
