"""Forms of questions to the user: the schema that the client shows, its checks, reading the answer.

Elicitation forms are flat objects of primitives and choices (client/elicitation). ``form_for``
makes a ``Form`` of a type, a Django form or a JSON Schema. It raises ``TypeError`` for types that
no flat form can show, which system checks report. An answer is validated against the schema that
was shown. A Django form also validates the answer itself.

A Django form may offer rows of a model. If the model is registered, ``narrow`` limits the choices
to rows that a resource of the model would show to this user. If it is not, the form's own queryset
decides.

``form_schema`` and ``base_property`` write the fields of a Django form as properties of the schema:
type, choices, limits and initial value.

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
import dataclasses
import enum
import inspect
import ipaddress
import json
import logging
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import islice
from textwrap import dedent
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.core.checks import CheckMessage, Warning
from django.db.models import Choices, Model, Q, QuerySet
from django.utils import timezone
from pydantic import BaseModel, TypeAdapter, ValidationError

from ..exceptions import ToolError, WrongAnswer
from .declaration import Declaration
from .fields.columns import as_number
from .form_values import as_posted, flat_choices, json_widget, limits
from .redaction import SECRET, SECRET_WORDS, words
from .schemas import answers_validator, violations

if TYPE_CHECKING:
    from .model_rows import ModelRows
    from .request import Request

MAX_CHOICE_ROWS = 200  # rows that one question offers

logger = logging.getLogger("django_mcp.calls")

# A form that is made of a plain type has one field, "answer". Its message says what is asked for,
# such as "Your password?" or "API key".
MESSAGE_ASKS_FOR_SECRET = re.compile(
    rf"\b(your|my)\b[^.?!]*\b({SECRET_WORDS})\b|^\W*({SECRET_WORDS})\W*$"
)
LINK = re.compile(r"\b(?:https?://|www\.)\S", re.IGNORECASE)
UNSAFE = re.compile(r"[\s\x00-\x20\"<>\\^`{|}\x7f]")


def narrow(form: forms.BaseForm, request: Request) -> None:
    """Limit the rows that ``form`` offers to those that ``request``'s user may see."""
    for field in form.fields.values():
        if isinstance(field, forms.ModelChoiceField) and field.queryset is not None:
            field.queryset = _visible_rows(field.queryset, request)


def _visible_rows(offered: QuerySet[Any], request: Request) -> QuerySet[Any]:
    """Return those of the offered rows that a resource of the model shows to the user."""
    exposing = request.server._catalog.models.get(offered.model)
    if exposing is None:
        return offered
    admitted = [resource for resource in exposing if resource._is_allowed(request)]
    visible = Q(pk__in=[])
    for resource in admitted:
        visible |= Q(pk__in=resource.get_queryset(request).values("pk"))
    rows = offered.filter(visible)
    if all(resource._row_check(request) is None for resource in admitted):
        return rows
    return offered.filter(pk__in=_permitted(rows, admitted, request))


def _permitted(rows: QuerySet[Any], admitted: Sequence[ModelRows], request: Request) -> list[Any]:
    """Return the keys of rows on which the user has object permission, up to the limit."""
    allowed = (
        row.pk for row in rows if any(one._permits(request, row, "view") for one in admitted)
    )
    return list(islice(allowed, MAX_CHOICE_ROWS + 1))


FIELD_SCHEMAS: tuple[tuple[type[forms.Field], dict[str, Any]], ...] = (
    (forms.BooleanField, {"type": "boolean"}),
    (forms.FloatField, {"type": "number"}),
    (forms.DecimalField, {"type": "number"}),
    (forms.IntegerField, {"type": "integer"}),
    (forms.EmailField, {"type": "string", "format": "email"}),
    (forms.URLField, {"type": "string", "format": "uri"}),
    (forms.DateTimeField, {"type": "string", "format": "date-time"}),
    (forms.SplitDateTimeField, {"type": "string", "format": "date-time"}),
    (forms.DateField, {"type": "string", "format": "date"}),
)
STRING: dict[str, Any] = {"type": "string"}
# A format for password and hidden fields. It marks them as secrets and is never sent.
HIDDEN = "hidden"
CHOICE_FIELDS = (forms.ChoiceField, forms.ModelChoiceField)
UNSUPPORTED_FIELDS = (forms.FileField, forms.MultiValueField)
MULTIPLE_CHOICE_FIELDS = (forms.MultipleChoiceField, forms.ModelMultipleChoiceField)


class NoRows(ToolError, TypeError):
    """There are no rows to choose from."""


def form_schema(form: forms.BaseForm) -> dict[str, Any]:
    """Return the schema of the form.

    Raise ``TypeError`` for a field that no question can ask for.
    """
    asked = {name: field for name, field in form.fields.items() if not field.disabled}
    properties = {}
    for name, field in asked.items():
        try:
            properties[name] = _property(form, name, field)
        except NoRows:
            if field.required:  # an optional field without choices is left out
                raise
    required = [name for name in properties if asked[name].required]
    return {"type": "object", "properties": properties, "required": required}


def base_property(name: str, field: forms.Field) -> dict[str, Any]:
    """Return the property of a field without choices, so without queries. Raise ``TypeError``."""
    if isinstance(field, UNSUPPORTED_FIELDS) and not isinstance(field, forms.SplitDateTimeField):
        raise TypeError(f"{name}: a question cannot contain a {type(field).__name__}.")
    found = (schema for kind, schema in FIELD_SCHEMAS if isinstance(field, kind))
    schema = {"type": "array"} if isinstance(field, CHOICE_FIELDS) else dict(next(found, STRING))
    if isinstance(field.widget, forms.PasswordInput | forms.HiddenInput):
        schema["format"] = HIDDEN
    texts = {"title": field.label, "description": field.help_text}
    return schema | {key: str(value) for key, value in texts.items() if value}


def _property(form: forms.BaseForm, name: str, field: forms.Field) -> dict[str, Any]:
    """Return the property of a field, with choices, limits and the initial value."""
    schema = base_property(name, field) | limits(field)
    if isinstance(field, CHOICE_FIELDS):
        schema |= _choices_schema(name, field)
    default = _default(field, form.get_initial_for_field(field, name))
    fits = default is not None and not violations(schema, default, formats=False)
    return schema | ({"default": default} if fits else {})


def _choices_schema(name: str, field: Any) -> dict[str, Any]:
    """Return the choices with their labels.

    Raise ``TypeError`` for more rows than a person can look through.
    """
    limit = MAX_CHOICE_ROWS if isinstance(field, forms.ModelChoiceField) else None
    pairs = list(islice(flat_choices(field.choices), limit and limit + 1))
    if not pairs:
        kind = TypeError if limit is None else NoRows
        raise kind(f"{name}: there are no choices.")
    if limit and len(pairs) > limit:
        raise TypeError(f"{name}: there are more than {limit} rows to choose from.")
    titled = [{"const": str(value), "title": str(label)} for value, label in pairs]
    if isinstance(field, MULTIPLE_CHOICE_FIELDS):
        return {"type": "array", "items": {"anyOf": titled}}
    return {"type": "string", "oneOf": titled}


def _default(field: forms.Field, value: Any) -> Any:
    if value in (None, ""):
        return None
    if isinstance(field, MULTIPLE_CHOICE_FIELDS):
        return [str(_key(one)) for one in value if one is not None]
    if isinstance(field, CHOICE_FIELDS):
        return str(_key(value))
    return _json(value)


def _key(value: Any) -> Any:
    return value.pk if isinstance(value, Model) else value


def _json(value: Any) -> Any:
    if isinstance(value, Decimal):
        return as_number(value)
    if isinstance(value, datetime) and timezone.is_naive(value):
        return timezone.make_aware(value).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    return value if isinstance(value, bool | int | float) else str(value)


PRIMITIVES: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
}
PLAIN = ("string", "integer", "number", "boolean")
FORMATS = {"email", "uri", "date", "date-time"}
# The keywords that the specification allows. Others that pydantic writes are left out.
ALLOWED = {
    "type", "title", "description", "default", "enum", "enumNames", "oneOf", "items",
    "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "format",
}  # fmt: skip

KEPT_BESIDE_CHOICES = {"title", "description", "default", "minItems", "maxItems"}


class Form:
    """A schema for the client to show, and the reading of the answer."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def read(self, content: dict[str, Any]) -> Any:
        """Return the value of the answer ``content``.

        Raise ``WrongAnswer``, with a message for the user.
        """
        # Some clients send null for fields that the user left empty.
        given = {name: value for name, value in content.items() if value is not None}
        problems = violations(self.schema, given)
        if problems:
            raise WrongAnswer("; ".join(problems))
        return self.value(given)

    def value(self, content: dict[str, Any]) -> Any:
        """Return the value of ``content``, which fits the schema."""
        return content


class TypedForm(Form):
    """A form of a Python type, validated by pydantic. ``single`` is the name of its only field."""

    def __init__(self, schema: dict[str, Any], adapter: TypeAdapter[Any], single: str = "") -> None:
        super().__init__(schema)
        self._validator, self._single = answers_validator(adapter.core_schema), single

    def value(self, content: dict[str, Any]) -> Any:
        given = content[self._single] if self._single else content
        try:
            return self._validator.validate_python(given)
        except ValidationError as error:
            raise WrongAnswer("; ".join(e["msg"] for e in error.errors())) from None


class DjangoForm(Form):
    """A Django form: the client shows its fields, and the form cleans the answer.

    ``form`` is a form class, or an unbound form that was made with arguments. With a ``request``,
    it offers only rows that the user may see.
    """

    def __init__(self, form: Any, request: Request | None = None) -> None:
        self._form, self._request = form, request
        super().__init__(form_schema(self._new_form()))

    def _new_form(self, **options: Any) -> forms.BaseForm:
        """Return a new form, whose choices are limited to rows that the user may see."""
        form: forms.BaseForm = (
            self._form(**options) if isinstance(self._form, type) else copied(self._form, **options)
        )
        if self._request is not None:
            narrow(form, self._request)
        return form

    def value(self, content: dict[str, Any]) -> Any:
        form = self._new_form(data=as_posted(self._prefixed(content)))
        for name in content.keys() & form.fields.keys():
            if not isinstance(form.fields[name], TEXT_FIELDS):
                form.fields[name].widget = json_widget(form.fields[name], content[name])
        if form.is_valid():
            return form.cleaned_data
        raise WrongAnswer("\n".join(_error_lines(form)))

    def _prefixed(self, content: Mapping[str, Any]) -> dict[str, Any]:
        names = self._new_form().add_prefix
        return {names(name): value for name, value in content.items()}


# Fields whose value in the answer is the same text as in a browser's form.
TEXT_FIELDS = (forms.JSONField, forms.ModelChoiceField)


def copied(form: forms.BaseForm, data: Any = None) -> forms.BaseForm:
    """Return a copy of an unbound form, bound to ``data`` if there is any."""
    made = copy(form)
    made.fields = deepcopy(form.fields)
    made._bound_fields_cache = {}  # type: ignore[attr-defined]
    if isinstance(made, forms.BaseModelForm):
        made.instance = copy(made.instance)  # cleaning a model form changes its instance
    if data is not None:
        made.data, made.is_bound = data, True
    return made


def _error_lines(form: forms.BaseForm) -> Iterator[str]:
    """Yield the errors of a form, with the labels that the user has seen."""
    for name, errors in form.errors.items():
        words = " ".join(map(str, errors))
        yield f"{form[name].label}: {words}" if name in form.fields else words


def form_for(schema: Any, request: Request | None = None) -> Form:
    """Return the form of a type, Django form or JSON Schema.

    Raise ``TypeError`` if it is not flat.
    """
    if isinstance(schema, dict):
        return Form(_flat_object(schema))
    if is_django_form(schema):
        return DjangoForm(schema, request)
    return _typed_form(schema)


def is_django_form(schema: Any) -> bool:
    """Whether it is a Django form or the class of one."""
    kind = schema if isinstance(schema, type) else type(schema)
    return issubclass(kind, forms.BaseForm)


@lru_cache(maxsize=256)
def _typed_form(schema: Any) -> Form:
    if _is_object(schema):
        return _object_form(schema)
    single = _single_schema(schema)
    wrapped = {"type": "object", "properties": {"answer": single}, "required": ["answer"]}
    return TypedForm(wrapped, TypeAdapter(schema), single="answer")


def _flat_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a hand-written schema if it is one of a flat form. Raise ``TypeError`` otherwise."""
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise TypeError("The schema of a question must be an object with properties.")
    for name, prop in schema["properties"].items():
        if not (_is_plain(prop) or _is_several(prop)):
            raise TypeError(f"{name}: a question cannot ask for objects or lists.")
    return schema


def _is_plain(prop: Any) -> bool:
    return isinstance(prop, dict) and prop.get("type") in PLAIN


def _is_several(prop: Any) -> bool:
    items = prop.get("items") if isinstance(prop, dict) and prop.get("type") == "array" else None
    return isinstance(items, dict) and ("enum" in items or "anyOf" in items)


def _is_object(schema: Any) -> bool:
    return isinstance(schema, type) and (
        issubclass(schema, BaseModel) or dataclasses.is_dataclass(schema)
    )


def _object_form(schema: Any) -> Form:
    """Return the form of a pydantic model or dataclass. Raise ``TypeError`` if it is not flat."""
    adapter: TypeAdapter[Any] = TypeAdapter(schema)
    written = adapter.json_schema()
    definitions = written.get("$defs", {})
    titles = _choice_titles(schema)
    properties = {
        name: _flat(name, prop, definitions, titles.get(name))
        for name, prop in written.get("properties", {}).items()
    }
    shown = {"type": "object", "properties": properties, "required": written.get("required", [])}
    return TypedForm(shown, adapter)


def _flat(name: str, prop: dict[str, Any], definitions: dict[str, Any], titled: Any) -> Any:
    """Return one property without references, nesting or null."""
    prop = {key: value for key, value in prop.items() if (key, value) != ("default", None)}
    if titled is not None:
        return {key: value for key, value in prop.items() if key in KEPT_BESIDE_CHOICES} | titled
    prop = _resolved(prop, definitions)
    if "anyOf" in prop:
        prop = _without_null(name, prop, definitions)
    if prop.get("format") not in FORMATS:
        prop.pop("format", None)
    if prop.get("type") == "array":
        prop["items"] = _resolved(prop.get("items", {}), definitions)
        if "enum" not in prop["items"]:
            raise TypeError(f"{name}: a list in a question must be a list of fixed choices.")
    elif not _is_plain(prop):
        raise TypeError(f"{name}: a question cannot ask for objects or lists.")
    return {key: value for key, value in prop.items() if key in ALLOWED}


def _resolved(prop: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a property with its ``$ref`` resolved, and ``const`` written as ``enum``."""
    prop = dict(prop)
    if "$ref" in prop:
        prop = dict(definitions[prop.pop("$ref").rsplit("/", 1)[1]]) | prop
    if "const" in prop:
        prop["enum"] = [prop.pop("const")]
    return prop


def _without_null(name: str, prop: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    branches = [b for b in prop.pop("anyOf") if b.get("type") != "null"]
    if len(branches) != 1:
        raise TypeError(f"{name}: a question can only ask for one type of value.")
    return _resolved(branches[0], definitions) | prop


def _choice_titles(schema: Any) -> dict[str, Any]:
    """Return the fields that are choices with labels. pydantic would leave the labels out."""
    hints = typing.get_type_hints(schema)
    found = {name: _choices(_optional(hint)) for name, hint in hints.items()}
    return {name: choices for name, choices in found.items() if choices is not None}


def _optional(hint: Any) -> Any:
    """Return the type inside ``X | None``."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return inner[0] if len(inner) == 1 else hint
    return hint


def _single_schema(schema: Any) -> dict[str, Any]:
    """Return the schema of a form with a single field. Raise ``TypeError`` for other types."""
    if schema in PRIMITIVES:
        return dict(PRIMITIVES[schema])
    choices = _choices(schema)
    if choices is None:
        raise TypeError(f"{schema!r} cannot be asked for. Use a flat model, a form or choices.")
    return choices


def _choices(schema: Any) -> dict[str, Any] | None:
    """Return the schema of one or several fixed choices, or None if it is neither."""
    if typing.get_origin(schema) is list:
        one = _choices(typing.get_args(schema)[0])
        return one and {"type": "array", "items": _multiple(one)}
    if typing.get_origin(schema) is Literal:
        return {"type": "string", "enum": _strings(typing.get_args(schema))}
    if isinstance(schema, type) and issubclass(schema, enum.Enum):
        return _enum_schema(schema)
    return None


def _strings(values: tuple[Any, ...]) -> list[str]:
    if not all(isinstance(value, str) for value in values):
        raise TypeError("The choices of a question must be strings.")
    return list(values)


def _enum_schema(schema: type[enum.Enum]) -> dict[str, Any]:
    if issubclass(schema, Choices):
        pairs: Any = schema.choices
        titled = [{"const": str(value), "title": str(label)} for value, label in pairs]
        return {"type": "string", "oneOf": titled}
    return {"type": "string", "enum": _strings(tuple(member.value for member in schema))}


def _multiple(one: Mapping[str, Any]) -> dict[str, Any]:
    if "oneOf" in one:
        return {"anyOf": one["oneOf"]}
    return {"type": "string", "enum": one["enum"]}


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
