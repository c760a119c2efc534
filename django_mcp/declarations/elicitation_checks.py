"""What a question must not ask for in a form, and where it may send the user.

Rule: a secret never passes through the client ("Servers MUST NOT request
sensitive information (passwords, API keys, etc.) via form mode",
client/elicitation): what looks like one is refused before it is sent, and is
to be asked for at a URL.

What a function's source tells before it runs: which questions it will ask.

Rule: only what is certain is said: calls of the request's own methods, and
forms that are named by a global. What cannot be read - no source, an alias, a
form made on the way - is left to the moment of asking, which refuses it too.
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
from .elicitation_forms import HIDDEN, base_property
from .secret_names import SECRET, SECRET_WORDS, words

logger = logging.getLogger("django_mcp")

# A single text field has no name of its own: the message names what is wanted.
OWN_SECRET = re.compile(rf"\b(your|my)\b[^.?!]*\b({SECRET_WORDS})\b|^\W*({SECRET_WORDS})\W*$")
LINK = re.compile(r"\b(?:https?://|www\.)\S", re.IGNORECASE)
UNSAFE = re.compile(r"[\s\x00-\x20\"<>\\^`{|}\x7f]")


def secrets(schema: Any, message: str = "") -> list[str]:
    """The fields of a form that look like credentials, by name. Raises ``TypeError``."""
    shown = _shown(schema)
    found = {name for name, field in shown.items() if asks_secret(name, field)}
    if shown.keys() == {"answer"} and _is_text(shown["answer"]):
        found |= {"answer"} if OWN_SECRET.search(words(message)) else set()
    return sorted(found)


def form_problem(schema: Any) -> str | None:
    """Why a form will be refused when it is asked, where that is certain before, or None."""
    try:
        found = secrets(schema)
    except TypeError as error:
        return str(error)
    return f"A form must not ask for secrets ({', '.join(found)})." if found else None


def _shown(schema: Any) -> dict[str, Any]:
    """The properties of a form, without the choices of a Django form: those may be rows."""
    from .elicitation_forms import form_for, is_django_form

    if is_django_form(schema):
        form: Any = schema
        fields = form.base_fields if isinstance(schema, type) else form.fields
        return {name: base_property(name, field) for name, field in fields.items()}
    shown: dict[str, Any] = form_for(schema).schema.get("properties", {})
    return shown


def asks_secret(name: str, field: dict[str, Any]) -> bool:
    """Whether a property of a schema looks like a credential."""
    named = f"{words(name)} {words(str(field.get('title', '')))}"
    hidden = field.get("format") == HIDDEN
    return hidden or (_is_text(field) and SECRET.search(named) is not None)


def _is_text(field: dict[str, Any]) -> bool:
    """Whether anything may be written there: choices and boxes hold no secret."""
    return field.get("type") in ("string", "integer", "number") and not {"enum", "oneOf"} & set(
        field
    )


def warn_of_links(params: dict[str, Any]) -> None:
    """Forms "SHOULD NOT include URLs intended to be clickable": tell the developer."""
    if LINK.search(json.dumps([params.get("message"), params.get("requestedSchema")], default=str)):
        logger.warning("The text of a question contains a link; use elicit(..., url=...) instead")


def url_problem(url: str) -> str | None:
    """What is wrong with the URL of a question, or None."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return "is no URL"
    if parts.scheme not in ("http", "https") or not host or UNSAFE.search(url):
        return "is no URL"
    if parts.username is not None:
        return "holds credentials"
    if parts.scheme == "http" and not (settings.DEBUG or _is_loopback(host)):
        return "is not https"
    return None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


FORMS = {"elicit", "aelicit"}
ASKING = FORMS | {"sample", "asample", "roots", "aroots", "ask", "aask"}
REMEMBERING = {"once", "aonce"}
MISSING: Any = object()


@dataclass
class FunctionSource:
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

    for form in FunctionSource(thing._implementation).forms():
        if wrong := form_problem(form):
            hint = "Ask for plain values; for a secret by elicit(..., url=...)."
            yield thing._error(wrong, 27, hint)


def replay_problems(thing: Declaration) -> Iterator[CheckMessage]:
    """What an async tool does above a question, it does again for every answer."""
    source = FunctionSource(thing._implementation)
    if thing._is_async and source.does(ASKING) and not source.does(REMEMBERING):
        yield Warning(
            "It is async, writes, and asks: what it does above a question is not rolled back.",
            hint="Ask first and act after, or act in request.aonce(); say read_only if it is.",
            obj=thing,
            id="django_mcp.W028",
        )
