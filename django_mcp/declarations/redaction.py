"""Secrets: names that look like names of credentials, and the arguments of a call without them.

There are three lists of names for three purposes. ``SECRET`` and ``SECRET_COLUMN`` reject a form or
a column, and a false match stops a developer, so they match whole words. ``LOGGED_SECRET`` masks
values in logs, and a false match costs little, so it matches parts of words.

Arguments are redacted so that they can be stored and shown to administrators. A value is replaced
by ``MASK`` if its schema says that it is secret (``writeOnly`` or the format "password", as
pydantic's ``SecretStr`` has), if its name looks like the name of a credential, or if the schema
does not describe it. If several schemas may describe a value, it is masked if one of them says that
it is secret. Long texts and lists are cut off. ``Redaction.whole`` masks only secrets and cuts
nothing off, for a person who decides about a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .declaration import Declaration

# Fields that a form must not ask for.
SECRET_WORDS = (
    r"pass(wd|phrase|code)|\w*password|pwd|secrets?|credentials?|api ?keys?"
    r"|(?<!page )(?<!next )tokens?|(auth|access|refresh|session)tokens?"
    r"|(private|access|secret|ssh|encryption|signing) ?keys?"
    r"|(credit ?|debit )?card (number|no)|credit ?card|cv[cv]2?"
    r"|t?otp|pin( code)?|one time code|security code|iban"
)
SECRET = re.compile(rf"\b({SECRET_WORDS})\b")

# The columns that no client may see, whatever a resource declares.
SECRET_COLUMN = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|api_?key|(private|secret)_?key"
    r"|(access|refresh|auth|session)_(token|key))(_hash)?$",
    re.IGNORECASE,
)

# Names whose values are masked in logs. Like Django's SafeExceptionReporterFilter, most of them
# match parts of a name.
# The short ones in the second half are whole words, because "pin" is also a part of "shipping".
LOGGED_SECRET = re.compile(
    r"auth|token|key|secret|pass|signature|cookie|pwd|credential|bearer|csrf|xsrf|sess(ion)? ?id"
    r"|credit ?card|card ?(number|no\b)|(one time|security|recovery|backup) codes?"
    r"|(database|db|redis|broker|cache|amqp|mongo(db)?) ?ur[il]"
    r"|\b(pin|t?otp|dsn|jwt|cv[cv]2?|iban)\b"
)
# Words that contain such a part but are not secrets. They are removed from a name first.
NOT_SECRET = re.compile(
    r"^keys?$|\b((co ?)?author(s|ed|ing|ship)?|authorit(y|ies)"
    r"|(primary|foreign|natural|public|cache|sort|order|row|object|partition|idempotency) ?keys?"
    r"|key(board|word|note|frame|press|stone)s?|(mon|tur|don|joc)keys?|hockey|whiskey"
    r"|pass(enger|age|port)s?|pass(ed|es|ing|ive|ion)|(com|by|sur|over|under|tres|encom)pass"
    r"|(page|next|progress) ?tokens?|token ?(count|limit|usage|type)s?"
    r"|(max|min|total|prompt|completion|input|output|cached|reasoning)( \w+)? ?tokens"
    r"|(?<!secret )key ?ids?|pass(ing)? ?(rate|count)s?|tokeni[sz]\w*"
    r"|secretar(y|ies|iat))\b"
)

MASK = "***"
MAX_TEXT_LENGTH = 500  # characters of one text
MAX_NAME_LENGTH = 100  # characters of the name of a property
MAX_ITEMS = 50  # of one list, and properties of one object
MAX_DEPTH = 10
MAX_LENGTH = 10_000  # characters of all arguments as JSON
# Keywords of JSON Schema whose schemas describe the same value: in lists, alone, and in objects.
LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf")
SCHEMAS = ("if", "then", "else")
OBJECTS_OF_SCHEMAS = ("dependentSchemas",)
# Keywords whose schema describes all other properties of an object, or items of a list.
SCHEMAS_OF_PROPERTIES = ("additionalProperties", "unevaluatedProperties")
SCHEMAS_OF_ITEMS = ("items", "contains", "unevaluatedItems")

# ``json.dumps`` with these separators would make an encoder for each call.
encode = json.JSONEncoder(separators=(",", ":")).encode

Schema = Mapping[str, Any]
SECRET_SCHEMA: Schema = {"writeOnly": True}


def words(name: str) -> str:
    """Return a name in lower case words: ``apiKey``, ``API_KEY`` and "API key" are the same."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+", " ", name)
    return spaced.lower().strip()


def is_secret(name: str, value: Any) -> bool:
    """Whether ``value``, which is logged under ``name``, looks like a credential.

    True and False only say whether there is one. A number of tokens is not a credential.
    """
    if value is None or isinstance(value, bool) or not _names_secret(name):
        return False
    return not (isinstance(value, int | float) and "tokens" in words(name).split())


@lru_cache(maxsize=512)
def _names_secret(name: str) -> bool:
    return LOGGED_SECRET.search(NOT_SECRET.sub("|", words(name))) is not None


class Rule:
    """How to redact values that one or several schemas describe.

    The rules of properties and items are made when they are first needed, because schemas may refer
    to themselves. The schema limits their number: names that a client invents add no rules.
    """

    __slots__ = ("_items", "_others", "_prefix", "_properties", "_rules", "is_secret", "takes_text")

    def __init__(self, schemas: Iterable[Any], root: Schema) -> None:
        parts = list(_parts(schemas, root))
        # An object with secret keys is masked as a whole, and so is text that contains JSON
        # (pydantic's ``Json``): nothing redacts what is in the text.
        names = [one["propertyNames"] for one in parts if "propertyNames" in one]
        self.is_secret = any(
            one.get("writeOnly") or one.get("format") == "password" or "contentSchema" in one
            for one in (*parts, *_parts(names, root))
        )
        self._properties: dict[str, list[Any]] = {}
        self._others: list[Any] = []  # schemas of properties that are not named
        self._items: list[Any] = []
        self._prefix: list[list[Any]] = []  # schemas of the first items, by position
        takes_text, is_structured = False, False
        for part in parts:
            for name, schema in _object(part, "properties").items():
                self._properties.setdefault(name, []).append(schema)
            self._others += [*_object(part, "patternProperties").values()]
            for key in SCHEMAS_OF_PROPERTIES:
                if isinstance(part.get(key), dict):
                    self._others.append(part[key])
            for key in SCHEMAS_OF_ITEMS:
                if isinstance(part.get(key), dict):
                    self._items.append(part[key])
            for position, schema in enumerate(part.get("prefixItems") or ()):
                self._prefix += [[] for _ in range(position + 1 - len(self._prefix))]
                self._prefix[position].append(schema)
            kinds = part.get("type")
            kinds = {kinds} if isinstance(kinds, str) else set(kinds or ())
            takes_text = takes_text or "string" in kinds or "enum" in part or "const" in part
            is_structured = is_structured or bool(kinds & {"object", "array"})
        is_structured = is_structured or bool(
            self._properties or self._others or self._items or self._prefix
        )
        # A client may send an object as JSON text. What is in the text is not known.
        self.takes_text = takes_text or not is_structured
        self._rules: dict[Any, Rule | None] = {}

    def of_property(self, name: str, root: Schema) -> Rule | None:
        """Return the rule of a property, or None if the schema does not describe it."""
        key = name if name in self._properties else None
        if key not in self._rules:
            # Properties that match a pattern are described by both.
            schemas = [*self._properties.get(name, ()), *self._others]
            self._rules[key] = Rule(schemas, root) if schemas else None
        return self._rules[key]

    def of_item(self, position: int, root: Schema) -> Rule | None:
        """Return the rule of an item of a list, or None if the schema does not describe it."""
        key = min(position, len(self._prefix))
        if key not in self._rules:
            here = self._prefix[key] if key < len(self._prefix) else []
            schemas = [*here, *self._items]
            self._rules[key] = Rule(schemas, root) if schemas else None
        return self._rules[key]


class Redaction:
    """Redacts values that a JSON Schema describes."""

    def __init__(self, schema: Schema) -> None:
        self._root = schema
        self._rule = Rule([schema], schema)

    def is_secret(self, name: str, value: Any) -> bool:
        """Whether the value of a property must not be stored."""
        rule = self._rule.of_property(name, self._root)
        return rule is None or rule.is_secret or is_secret(name, value)

    def of(self, value: Any) -> Any:
        """Return a JSON value without secrets."""
        return self._redact(value, self._rule, 0)

    def _redact(self, value: Any, rule: Rule | None, depth: int) -> Any:
        if rule is None or rule.is_secret or depth > MAX_DEPTH:
            return MASK
        if isinstance(value, dict):
            found: dict[str, Any] = {}
            for name, one in value.items():
                if len(found) == MAX_ITEMS:
                    break
                if is_secret(name, one):
                    found[name[:MAX_NAME_LENGTH]] = MASK
                else:
                    # Without a rule it is masked: a client may send a secret under any name.
                    inner = rule.of_property(name, self._root)
                    found[name[:MAX_NAME_LENGTH]] = self._redact(one, inner, depth + 1)
            return found
        if isinstance(value, list):
            return [
                self._redact(one, rule.of_item(position, self._root), depth + 1)
                for position, one in enumerate(value[:MAX_ITEMS])
            ]
        if isinstance(value, str):
            return cut(value) if rule.takes_text else MASK
        return value

    def whole(self, value: Any) -> Any:
        """Return all of a JSON value that fits the schema, and mask only what is secret."""
        return self._without_secrets(value, self._rule, 0)

    def _without_secrets(self, value: Any, rule: Rule | None, depth: int) -> Any:
        if (rule is not None and rule.is_secret) or depth > MAX_DEPTH:
            return MASK
        if isinstance(value, dict):
            return {
                name: MASK
                if is_secret(name, one)
                else self._without_secrets(
                    one, rule and rule.of_property(name, self._root), depth + 1
                )
                for name, one in value.items()
            }
        if isinstance(value, list):
            return [
                self._without_secrets(one, rule and rule.of_item(at, self._root), depth + 1)
                for at, one in enumerate(value)
            ]
        return value


def redacted_json(arguments: Mapping[str, Any], declaration: Declaration | None) -> str:
    """Return the arguments of a call of ``declaration`` without secrets, as JSON in ASCII.

    ``arguments`` are as the client sent them. Without a declaration every value is masked, because
    nothing is known about them.
    """
    declared: Any = declaration
    if declared is None:
        # Anybody may call what does not exist, so little is stored of it.
        found: Any = {name[:MAX_NAME_LENGTH]: MASK for name in list(arguments)[:MAX_ITEMS]}
    elif getattr(declared, "_called_by", None) is not None:
        # Called by a generic tool, which has its own arguments around those of the model's tool.
        model, inner = arguments.get("model"), arguments.get("arguments", {})
        inner = declared._arguments.redaction.of(inner) if isinstance(inner, dict) else MASK
        found = {"model": cut(model) if isinstance(model, str) else MASK, "arguments": inner}
    else:
        found = declared._arguments.redaction.of(arguments)
    text = encode(found)
    if len(text) <= MAX_LENGTH:
        return text
    return json.dumps({"...": f"{len(text)} characters"})


def cut(text: str) -> str:
    """Return the first characters of a long text, and how long it was."""
    if len(text) <= MAX_TEXT_LENGTH:
        return text
    return f"{text[:MAX_TEXT_LENGTH]}... ({len(text)} characters)"


def _parts(schemas: Iterable[Any], root: Schema) -> Iterator[Schema]:
    """Yield schemas and the schemas that they refer to or combine, each once."""
    waiting, seen = list(schemas), set()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict) or id(schema) in seen:  # true and false are schemas too
            continue
        seen.add(id(schema))
        yield schema
        for key in ("$ref", "$dynamicRef"):
            if key in schema:
                waiting.append(_target(schema[key], root))
        for key in LISTS_OF_SCHEMAS:
            waiting += schema.get(key) or ()
        waiting += [schema[key] for key in SCHEMAS if key in schema]
        for key in OBJECTS_OF_SCHEMAS:
            waiting += _object(schema, key).values()


def _target(reference: Any, root: Schema) -> Schema:
    """Return what a reference within the schema points to. If it is not found, it is secret."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return SECRET_SCHEMA
    found: Any = root
    for step in filter(None, reference[1:].split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return SECRET_SCHEMA
    return found if isinstance(found, dict) else SECRET_SCHEMA


def _object(schema: Schema, key: str) -> dict[str, Any]:
    found = schema.get(key)
    return found if isinstance(found, dict) else {}
