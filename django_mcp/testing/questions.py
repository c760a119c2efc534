"""
Answers to the server's questions.

A test gives answers as values or functions. A question without an answer fails the test with the
question's text. It is never answered by a default. Answers have the format of the newest revision.

Sources: client/elicitation, client/sampling and client/roots of each revision.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

JSON = dict[str, Any]
# Calls a function of the test where its code may use the ORM.
Caller = Callable[..., Awaitable[Any]]
MODEL = "a model of the test's"


class Unanswered(AssertionError):
    """The server asked a question without an answer: see ``Client.answers``."""


class Refusal(enum.Enum):
    """The user declines to answer, or closes the form."""

    DECLINE = "decline"
    CANCEL = "cancel"


DECLINE, CANCEL = Refusal.DECLINE, Refusal.CANCEL


class AnswerKind(Protocol):
    """Return the arguments for the test's function, and the function that writes its answer."""

    def __call__(self, params: JSON) -> tuple[tuple[Any, ...], Callable[[Any], JSON]]: ...


class Answers:
    """The answers of a test to ``elicit``, ``visit``, ``sample`` and ``roots``."""

    def __init__(self, **given: Any) -> None:
        self._given: dict[str, Any] = {}
        self.give(**given)

    def give(self, **given: Any) -> None:
        """Set answers for all later questions. Raise ``TypeError`` for an unknown kind."""
        if unknown := sorted(set(given) - set(KINDS)):
            raise TypeError(f"Nobody asks for {', '.join(unknown)}; answers: {', '.join(KINDS)}.")
        self._given |= given

    async def answer(self, method: str, params: JSON, call: Caller) -> JSON:
        """Return the result that answers a question. Raise ``Unanswered``."""
        kind = _kind(method, params)
        if kind not in self._given:
            raise Unanswered(_unanswered_message(method, params, kind))
        arguments, written = KINDS[kind](params)
        answer = self._given[kind]
        if inspect.iscoroutinefunction(answer):
            return written(await answer(*arguments))
        return written(await call(answer, *arguments) if callable(answer) else answer)


def _kind(method: str, params: JSON) -> str:
    if method == "elicitation/create":
        return "visit" if "url" in params else "elicit"
    return {"sampling/createMessage": "sample", "roots/list": "roots"}.get(method, method)


def _unanswered_message(method: str, params: JSON, kind: str) -> str:
    asked = params.get("message") or params.get("messages") or ""
    return (
        f"The server asked ({method}): {asked!r}, and nobody answers. "
        f"Give an answer: client.answers({kind}=...)."
    )


def _form(params: JSON) -> tuple[tuple[Any, ...], Callable[[Any], JSON]]:
    schema = params.get("requestedSchema", {})
    return (params.get("message", ""), schema), lambda answer: _filled_in(answer, schema)


def _filled_in(answer: Any, schema: JSON) -> JSON:
    if isinstance(answer, Refusal):
        return {"action": answer.value}
    if isinstance(answer, Mapping):
        return {"action": "accept", "content": dict(answer)}
    fields = list(schema.get("properties", {}))
    if len(fields) != 1 or answer is None:
        raise TypeError(
            f"{answer!r} does not fill in a form of {', '.join(fields)}: answer by a dict, by one "
            "value where there is one field, by DECLINE or by CANCEL."
        )
    return {"action": "accept", "content": {fields[0]: answer}}


def _page(params: JSON) -> tuple[tuple[Any, ...], Callable[[Any], JSON]]:
    return (params.get("message", ""), params["url"]), _page_result


def _page_result(answer: Any) -> JSON:
    if answer is not True and not isinstance(answer, Refusal):
        raise TypeError(f"{answer!r} says nothing of a page: answer True, DECLINE or CANCEL.")
    return {"action": "accept" if answer is True else answer.value}


def _sample(params: JSON) -> tuple[tuple[Any, ...], Callable[[Any], JSON]]:
    return (params.get("messages", []),), _sampling_result


def _sampling_result(answer: Any) -> JSON:
    said = {"role": "assistant", "model": MODEL, "stopReason": "endTurn"}
    if isinstance(answer, Mapping):
        return said | dict(answer)
    return said | {"content": {"type": "text", "text": str(answer)}}


def _roots(params: JSON) -> tuple[tuple[Any, ...], Callable[[Any], JSON]]:
    return (), lambda answer: {"roots": [_root(one) for one in answer]}


def _root(given: str | Mapping[str, Any] | Iterable[str]) -> JSON:
    if isinstance(given, str):
        return {"uri": given}
    return dict(given) if isinstance(given, Mapping) else dict(zip(("uri", "name"), given))  # noqa: B905


KINDS: dict[str, AnswerKind] = {"elicit": _form, "visit": _page, "sample": _sample, "roots": _roots}
