"""
One view as a tool (``ViewTool``) or as a resource (``ViewResource``).

The arguments of a tool are those of its URL path, its query string and its form. A name may occur
in only one of the three. Permissions of decorators, and those that the view's code checks, apply
when the view runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from django.core.checks import CheckMessage
from django.core.exceptions import PermissionDenied
from django.forms import BaseForm
from django.views.generic.detail import SingleObjectMixin
from django.views.generic.edit import BaseCreateView, BaseUpdateView, DeletionMixin, FormMixin
from django.views.generic.list import MultipleObjectMixin

from ...declarations.arguments import Arguments, Parameter
from ...declarations.content import Contents
from ...declarations.declaration import Declaration, Find
from ...declarations.outputs import Output
from ...declarations.resources import Resource
from ...declarations.tools import Tool
from ...protocol.jsonrpc import ResourceNotFound
from ...protocol.uri_template import Template
from .execution import request_environment, response_of
from .requests import Body, Fields, PageNumber, fields_of
from .results import contents, tool_value
from .urls import GROUP, Route, Target
from .view_declaration import ViewDeclaration

if TYPE_CHECKING:
    from ...declarations.request import Request

JSON = dict[str, Any]

# Default descriptions for Django's generic views, used where the view's class has no docstring.
POST_DESCRIPTIONS = (
    (DeletionMixin, "Delete one {one}."),
    (BaseUpdateView, "Change one {one}. Fields that are not given keep their value."),
    (BaseCreateView, "Add one {one}."),
)
GET_DESCRIPTIONS = ((MultipleObjectMixin, "List {many}."), (SingleObjectMixin, "Show one {one}."))


class ViewTool(ViewDeclaration, Tool):
    """A view that is called by GET or POST.

    Redirects are followed to the URL names ``redirects_to`` and to no others.
    """

    def __init__(
        self,
        views: Declaration,
        route: Route,
        *,
        posts: bool = False,
        form: Any = None,
        query: Any = None,
        pages: str,
        redirects_to: Collection[str],
        **options: Any,
    ) -> None:
        super().__init__(views, route, **options)
        self._pages, self._redirects_to = pages, redirects_to
        self._posts, self._declared_form, self._declared_query = posts, form, query
        self.description = self.description or _sentence(route, posts)
        self.read_only = None if posts else True
        self.destructive = True if posts and _is_kind(route, DeletionMixin) else None
        self.atomic = self._view_transaction

    @property
    def _http_method(self) -> str:
        return "POST" if self._posts else "GET"

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        yield from self._common_problems()
        yield from self._atomic_problems()
        self._output = Output()
        self._output.embeds = (
            True  # a view may return a file, which is sent as an embedded resource
        )
        try:
            self._queries, self._form = self._query_fields(), self._form_fields()
        except Exception as error:  # form classes run the project's code
            hint = "Set model or form_class on the view, or name a form in forms or query."
            yield self._error(f"{self._route.name!r} has no usable form: {error}", 109, hint)
            return
        yield from (self._error(one.message, one.number, one.hint) for one in self._problems())
        for name in self._clashes():
            hint = "Rename the argument in the URL path, the query or the form."
            yield self._error(
                f"{self._route.name!r} takes {name!r} from two of URL path, query and form.",
                110,
                hint,
            )
        self._arguments = Arguments(schema=self._schema(), handwritten=True)

    def _query_fields(self) -> list[Fields]:
        if self._posts:
            return []
        declared = fields_of(self._declared_query, flat=True)
        name = self._route.option("page_kwarg") or ""
        paged = _is_kind(self._route, MultipleObjectMixin) and self._route.option("paginate_by")
        taken = {*declared.schema["properties"], *self._route.properties}
        return [declared, *([PageNumber(name)] if paged and name not in taken else [])]

    def _form_fields(self) -> Fields:
        if not self._posts:
            return Fields()
        form = self._declared_form
        if form is None and _is_kind(self._route, FormMixin):
            form = self._route.make_view().get_form_class()
        return fields_of(form, partial=_is_kind(self._route, BaseUpdateView))

    def _schemas(self) -> list[JSON]:
        path = {"properties": self._route.properties, "required": self._route.required}
        return [path, *(one.schema for one in (*self._queries, self._form))]

    def _problems(self) -> Iterator[Any]:
        yield from chain.from_iterable(one.problems for one in (*self._queries, self._form))

    def _clashes(self) -> list[str]:
        names = [name for part in self._schemas() for name in part.get("properties", {})]
        return [name for name in dict.fromkeys(names) if names.count(name) > 1]

    def _schema(self) -> JSON:
        parts = self._schemas()
        schema: JSON = {"type": "object", "properties": {}, "additionalProperties": False}
        for part in parts:
            schema["properties"] |= part.get("properties", {})
            schema["$defs"] = schema.get("$defs", {}) | part.get("$defs", {})
        required = [name for part in parts for name in part.get("required", ())]
        filled = {key: value for key, value in schema.items() if value != {} or key == "properties"}
        return filled | ({"required": required} if required else {})

    def handle(self, request: Any, *args: Any, **arguments: Any) -> Any:
        """Run the view and return the tool's result. Raise ``ToolError`` if the view rejects it."""
        # The URL prefix, language and time zone of a request: ``target`` reverses URLs with them.
        with request_environment():
            queries = (one.query(_arguments_in(one.schema, arguments)) for one in self._queries)
            path = _arguments_in({"properties": self._route.properties}, arguments)
            target = self._route.target(path, "&".join(filter(None, queries)))
            body = self._body(request, target, arguments) if self._posts else None
            rejected_form = self._rejected_form(body) if body is not None else None
            with response_of(request, target, body, views=self._redirects_to) as answer:
                return tool_value(answer, self._pages, rejected_form)

    def _body(self, request: Request, target: Target, arguments: JSON) -> Body:
        given = _arguments_in(self._form.schema, arguments)
        return self._form.body(given, self._page_form(request, target))

    def _rejected_form(self, body: Body) -> BaseForm | None:
        """Return the form of a function view if it rejects the posted data, else None.

        A function view does not expose its form, so the form is built here a second time.
        """
        if self._route.view_class is not None:
            return None
        try:
            form = self._form.form(body)
            return None if form is None or form.is_valid() else form
        except Exception:  # The form may need arguments that only the view knows.
            return None

    def _page_form(self, request: Request, target: Target) -> BaseForm | None:
        """Run a ``FormMixin`` view by GET and return the form in its context, or None.

        It has the fields and initial values that this user gets.
        """
        if not (self._form.schema["properties"] and _is_kind(self._route, FormMixin)):
            return None
        with response_of(request, target) as answer:
            form = (getattr(answer.response, "context_data", None) or {}).get("form")
            return form if isinstance(form, BaseForm) else None


class ViewResource(ViewDeclaration, Resource):
    """A view that is read as a resource, by GET."""

    def __init__(
        self,
        views: Declaration,
        route: Route,
        *,
        pages: str,
        redirects_to: Collection[str],
        **options: Any,
    ) -> None:
        super().__init__(views, route, **options)
        self._pages, self._redirects_to = pages, redirects_to
        path = "/".join(quote(part, safe="") for part in route.name.split(":"))
        self.description = self.description or _sentence(route, posts=False)
        self.uri = "/".join([f"view://{path}", *map(_expression, route.converters.items())])

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        yield from self._common_problems()
        self._template = Template(self.uri) if self._is_template else None
        text = {name: Parameter(name, str) for name in self._route.converters}
        self._arguments = Arguments(text)
        self._completers = {}

    @property
    def _read_by_text(self) -> str:
        return f"the view {self._route.name!r} checks permissions when it is read"

    def _values(self, variables: Mapping[str, str]) -> dict[str, Any]:
        return dict(variables)

    def read(self, request: Any, *args: Any, **variables: Any) -> Contents:
        """Run the view and return its contents.

        Raise ``ResourceNotFound`` if the caller may not see the page.
        """
        with request_environment():
            target = self._route.target(variables)
            try:
                with response_of(request, target, views=self._redirects_to) as answer:
                    return contents(answer, self._pages)
            except PermissionDenied:
                raise ResourceNotFound(self.uri) from None


def _sentence(route: Route, posts: bool) -> str:
    model = _model(route)
    for kind, sentence in POST_DESCRIPTIONS if posts else GET_DESCRIPTIONS:
        if _is_kind(route, kind) and model is not None:
            about = model._meta
            return sentence.format(one=about.verbose_name, many=about.verbose_name_plural)
    return f"{'Submit' if posts else 'See'} {route.path}"


def _model(route: Route) -> Any:
    """Return the model of a generic view as far as its class states it, else None."""
    queryset, form = route.option("queryset"), route.option("form_class")
    return (
        route.option("model")
        or getattr(queryset, "model", None)
        or getattr(getattr(form, "_meta", None), "model", None)
    )


def _is_kind(route: Route, kind: type) -> bool:
    return route.view_class is not None and issubclass(route.view_class, kind)


def _arguments_in(schema: JSON, arguments: JSON) -> JSON:
    return {name: arguments[name] for name in schema.get("properties", {}) if name in arguments}


def _expression(parameter: tuple[str, Any]) -> str:
    """Return ``{+name}`` if the path converter matches slashes, else ``{name}``."""
    name, converter = parameter
    slashes = converter is not GROUP and re.fullmatch(converter.regex, "a/b")
    return f"{{+{name}}}" if slashes else f"{{{name}}}"
