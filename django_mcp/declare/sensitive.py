"""
What a question must not ask for in a form, and where it may send the user.

Rule: a secret never passes through the client ("Servers MUST NOT request
sensitive information (passwords, API keys, etc.) via form mode",
client/elicitation): what looks like one is refused before it is sent, and is
to be asked for at a URL. A word too many in the list costs a developer a
field's name; one too few costs a user a password.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import re
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from .form_fields import HIDDEN, base_property

logger = logging.getLogger("django_mcp")

_SECRET = (
    r"pass(word|wd|phrase|code)|pwd|secrets?|credentials?|(?<!page )(?<!next )tokens?|api ?keys?"
    r"|(private|access|secret) keys?|(credit ?|debit )?card (number|no)|credit ?card|cv[cv]2?"
    r"|otp|pin( code)?|one time code|security code|iban"
)
SECRET = re.compile(rf"\b({_SECRET})\b")
# A single text field has no name of its own: the message names what is wanted.
OWN_SECRET = re.compile(rf"\b(your|my)\b[^.?!]*\b({_SECRET})\b|^\W*({_SECRET})\W*$")
LINK = re.compile(r"\b(?:https?://|www\.)\S", re.IGNORECASE)
UNSAFE = re.compile(r"[\s\x00-\x20\"<>\\^`{|}\x7f]")


def words(name: str) -> str:
    """``apiKey``, ``API_KEY`` and "API key" as the same words."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+", " ", name)
    return spaced.lower().strip()


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
    from .forms import form_for, is_django_form

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
        logger.warning("A form holds a link; send the user there by elicit(..., url=...) instead")


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
