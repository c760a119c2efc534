"""
What a function's source tells before it runs: which questions it will ask.

Rule: only what is certain is said: calls of the request's own methods, and
forms that are named by a global. What cannot be read - no source, an alias, a
form made on the way - is left to the moment of asking, which refuses it too.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from textwrap import dedent
from tokenize import TokenError
from typing import Any

from django.core.checks import CheckMessage, Warning

from .declarations import Declaration

FORMS = {"elicit", "aelicit"}
ASKING = FORMS | {"sample", "asample", "roots", "aroots", "ask", "aask"}
REMEMBERING = {"once", "aonce"}
MISSING: Any = object()


@dataclass
class Source:
    """The source of one function, as far as it can be had."""

    function: Callable[..., Any]

    @cached_property
    def code(self) -> Any:
        return getattr(inspect.unwrap(self.function), "__code__", None)

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Every call in the function; none where there is no source."""
        if not {*ASKING, "Elicit"} & {*getattr(self.code, "co_names", ())}:
            return []  # most functions ask nothing, and need no parsing
        try:
            tree = ast.parse(dedent(inspect.getsource(self.code)))
        except (OSError, SyntaxError, TokenError, IndexError):  # no source, or another file's
            return []
        return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]

    def does(self, names: set[str]) -> bool:
        """Whether one of the request's methods ``names`` is called."""
        return any(self._is_requests(call.func, names) for call in self.calls)

    def forms(self) -> Iterator[Any]:
        """What is asked for in forms, where that is a global's value."""
        for call in self.calls:
            if self._is_requests(call.func, FORMS) or _name(call.func) == "Elicit":
                given = [one.value for one in call.keywords if one.arg == "schema"]
                found = [self._value(node) for node in [*call.args[1:2], *given]]
                yield from (value for value in found if value is not MISSING)

    def _is_requests(self, node: ast.expr, names: set[str]) -> bool:
        if not isinstance(node, ast.Attribute) or node.attr not in names:
            return False
        first = 1 if inspect.ismethod(self.function) else 0
        named = self.code.co_varnames[first : self.code.co_argcount][:1]
        return isinstance(node.value, ast.Name) and node.value.id in named

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Attribute):
            return getattr(self._value(node.value), node.attr, MISSING)
        if not isinstance(node, ast.Name) or node.id in self.code.co_varnames:
            return MISSING
        return inspect.unwrap(self.function).__globals__.get(node.id, MISSING)


def _name(node: ast.expr) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def question_problems(thing: Declaration) -> Iterator[CheckMessage]:
    """What is wrong with the forms that ``thing`` will ask its user to fill in."""
    from .sensitive import form_problem

    for form in Source(thing.function).forms():
        if wrong := form_problem(form):
            hint = "Ask for plain values; for a secret by elicit(..., url=...)."
            yield thing.error(wrong, 27, hint)


def replay_problems(thing: Declaration) -> Iterator[CheckMessage]:
    """What an async tool does above a question, it does again for every answer."""
    source = Source(thing.function)
    if thing.is_async and source.does(ASKING) and not source.does(REMEMBERING):
        yield Warning(
            "It is async, writes, and asks: what it does above a question is not rolled back.",
            hint="Ask first and act after, or act in request.aonce(); say read_only if it is.",
            obj=thing,
            id="django_mcp.W028",
        )
