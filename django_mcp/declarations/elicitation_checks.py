"""Checks of elicitations: secrets in forms, URLs that users open, and writes before a question.

A *question* is a request to the client: an elicitation, a sampling request or a request for roots.

A secret must never pass through the client ("Servers MUST NOT request sensitive information
(passwords, API keys, etc.) via form mode", client/elicitation). A form that seems to ask for one is
rejected before it is sent. Secrets are asked for at a URL instead.

Some mistakes are found by system checks, before the tool runs. ``FunctionSource`` reads the source
of a function and finds calls of the request's methods, and forms that are global names. It reports
only what is certain. A form that it cannot find, because it is made at run time or there is no
source, is checked when it is asked.
"""

from __future__ import annotations

import ast
import inspect
import ipaddress
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from textwrap import dedent
from tokenize import TokenError
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Warning

from .declaration import Declaration
from .elicitation_forms import HIDDEN, base_property, form_for, is_django_form
from .secret_names import SECRET, SECRET_WORDS, words

logger = logging.getLogger("django_mcp.calls")

# A form that is made of a plain type has one field, "answer". Its message says what is asked for,
# such as "Your password?" or "API key".
MESSAGE_ASKS_FOR_SECRET = re.compile(
    rf"\b(your|my)\b[^.?!]*\b({SECRET_WORDS})\b|^\W*({SECRET_WORDS})\W*$"
)
LINK = re.compile(r"\b(?:https?://|www\.)\S", re.IGNORECASE)
UNSAFE = re.compile(r"[\s\x00-\x20\"<>\\^`{|}\x7f]")


def find_secret_fields(schema: Any, message: str = "") -> list[str]:
    """Return the names of form fields that look like credentials.

    Raise ``TypeError`` for a bad form.
    """
    shown = _properties(schema)
    found = {name for name, field in shown.items() if asks_secret(name, field)}
    if shown.keys() == {"answer"} and _accepts_typed_input(shown["answer"]):
        found |= {"answer"} if MESSAGE_ASKS_FOR_SECRET.search(words(message)) else set()
    return sorted(found)


def form_problem(schema: Any) -> str | None:
    """Return why the fields of a form will be rejected when it is asked, or None.

    The message of the form is checked only when it is asked.
    """
    try:
        found = find_secret_fields(schema)
    except TypeError as error:
        return str(error)
    return f"A form must not ask for secrets ({', '.join(found)})." if found else None


def _properties(schema: Any) -> dict[str, Any]:
    """Return the properties of a form.

    The choices of a Django form are left out, because reading them may query the database.
    """
    if is_django_form(schema):
        form: Any = schema
        fields = form.base_fields if isinstance(schema, type) else form.fields
        return {name: base_property(name, field) for name, field in fields.items()}
    shown: dict[str, Any] = form_for(schema).schema.get("properties", {})
    return shown


def asks_secret(name: str, field: dict[str, Any]) -> bool:
    """Whether a property of a schema looks like a credential.

    Password inputs and hidden inputs always do.
    """
    named = f"{words(name)} {words(str(field.get('title', '')))}"
    hidden = field.get("format") == HIDDEN
    return hidden or (_accepts_typed_input(field) and SECRET.search(named) is not None)


def _accepts_typed_input(field: dict[str, Any]) -> bool:
    """Whether the user can type any value. Choices and checkboxes contain no secrets."""
    return field.get("type") in ("string", "integer", "number") and not {"enum", "oneOf"} & set(
        field
    )


def warn_of_links(params: dict[str, Any]) -> None:
    """Log a warning for a link: forms "SHOULD NOT include URLs intended to be clickable"."""
    if LINK.search(json.dumps([params.get("message"), params.get("requestedSchema")], default=str)):
        logger.warning("The text of a question contains a link; use elicit(..., url=...) instead")


def url_problem(url: str) -> str | None:
    """Return what is wrong with the URL of a question, or None."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https") or not host or UNSAFE.search(url):
        return "is not a URL"
    if parts.username is not None:
        return "contains credentials"
    if parts.scheme == "http" and not (settings.DEBUG or _is_loopback(host)):
        return "is not https"
    return None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


ELICIT_METHODS = {"elicit", "aelicit"}
CLIENT_REQUEST_METHODS = ELICIT_METHODS | {"sample", "asample", "roots", "aroots", "ask", "aask"}
ONCE_METHODS = {"once", "aonce"}
MISSING: Any = object()


@dataclass
class FunctionSource:
    """The source code of one function, if it is available."""

    function: Callable[..., Any]

    @cached_property
    def code(self) -> Any:
        return getattr(inspect.unwrap(self.function), "__code__", None)

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls in the function; [] if it asks nothing or has no source."""
        if not {*CLIENT_REQUEST_METHODS, "Elicit"} & {*getattr(self.code, "co_names", ())}:
            return []  # most functions ask nothing: do not parse them
        try:
            tree = ast.parse(dedent(inspect.getsource(self.code)))
        except (OSError, SyntaxError, TokenError, IndexError):  # no source, or an outdated one
            return []
        return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]

    def calls_any_of(self, names: set[str]) -> bool:
        """Whether the function calls one of the request's methods ``names``."""
        return any(self._is_request_method(call.func, names) for call in self.calls)

    def forms(self) -> Iterator[Any]:
        """Yield the schemas that the function asks for, if they are global names."""
        for call in self.calls:
            if self._is_request_method(call.func, ELICIT_METHODS) or _name(call.func) == "Elicit":
                given = [one.value for one in call.keywords if one.arg == "schema"]
                found = [self._value(node) for node in [*call.args[1:2], *given]]
                yield from (value for value in found if value is not MISSING)

    def _is_request_method(self, node: ast.expr, names: set[str]) -> bool:
        if not isinstance(node, ast.Attribute) or node.attr not in names:
            return False
        # The request is the first parameter, after ``self``.
        first = 1 if inspect.ismethod(self.function) else 0
        named = self.code.co_varnames[first : self.code.co_argcount][:1]
        return isinstance(node.value, ast.Name) and node.value.id in named

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Attribute):
            return getattr(self._value(node.value), node.attr, MISSING)
        local = (*self.code.co_varnames, *self.code.co_freevars, *self.code.co_cellvars)
        if not isinstance(node, ast.Name) or node.id in local:
            return MISSING
        return inspect.unwrap(self.function).__globals__.get(node.id, MISSING)


def _name(node: ast.expr) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def question_problems(declaration: Declaration) -> Iterator[CheckMessage]:
    """Yield what is wrong with the forms that ``declaration`` asks for."""

    for form in FunctionSource(declaration._implementation).forms():
        if wrong := form_problem(form):
            hint = "Ask for plain values. Ask for secrets with elicit(..., url=...)."
            yield declaration._error(wrong, 27, hint)


def replay_problems(declaration: Declaration) -> Iterator[CheckMessage]:
    """Warn of an asynchronous tool that asks. The caller leaves out tools that only read.

    Each answer runs it again from the start. Its writes before the question are not rolled back.
    """
    source = FunctionSource(declaration._implementation)
    if (
        declaration._is_async
        and source.calls_any_of(CLIENT_REQUEST_METHODS)
        and not source.calls_any_of(ONCE_METHODS)
    ):
        yield Warning(
            "It is asynchronous and asks the client. Database writes before a question are not "
            "rolled back, and are repeated after the answer.",
            hint="Ask first, or write in request.aonce(). Set read_only = True if it only reads.",
            obj=declaration,
            id="django_mcp.W028",
        )
