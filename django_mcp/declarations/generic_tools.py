"""The generic tools of ``register_models``: five tools that serve many models.

There are six if a model has a ``vector_search``.

The tools of a model resource exist but are not listed. A generic tool takes the name of a model,
and the server runs that model's own tool, with its permission, scopes, kill switch, arguments and
result. So clients reach rows only through the ``fields`` and the ``get_queryset`` of a resource.

The definitions of the generic tools are the same for all callers and contain no name of a model,
because callers may only know of models that they may use. ``list_models`` returns their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.checks import CheckMessage
from django.db.models import Model
from django.utils.translation import gettext

from ..exceptions import UnknownModel
from ..protocol.http_rules import Mirrored
from .arguments import Arguments
from .attribute_checks import did_you_mean
from .declaration import Declaration, Find, decide
from .outputs import Output
from .permissions import Decision
from .schemas import is_model
from .tools import Tool

if TYPE_CHECKING:
    from .model_resources import ModelResource
    from .request import Request

JSON = dict[str, Any]
MAX_ECHO = 80  # characters of a model's name in an error message
SEE_LIST = "list_models shows the models and the operations that you may use."


class GenericModels(Declaration):
    """One call of ``register_models``: it selects model resources, and reports wrong arguments."""

    _kind = "generic models"
    _entry_method = "_select"  # it is never called by a client

    def __init__(self, subjects: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        self._subjects, self._call = subjects, options
        self.name = "register_models"
        self._problems: list[CheckMessage] = []

    def _origin(self) -> str:
        return f"register_models({', '.join(map(_shown, self._subjects))})"

    def _select(
        self, registered: Mapping[type[Model], Sequence[ModelResource]]
    ) -> Iterator[ModelResource]:
        """Yield the model resources that generic tools serve. Note what is wrong with the call.

        ``registered`` has all model resources of the server. The catalog calls this method before
        it resolves any declaration.
        """
        chosen: dict[type[Model], None] = {}
        subjects, options = self._subjects, self._call
        if options["generic"] is not True:
            hint = "Write generic=True. Without this call each model resource has its own tools."
            self._problems.append(self._error(f"generic is {options['generic']!r:.80}.", 252, hint))
        if not subjects:
            hint = 'Write mcp.register_models("billing", generic=True).'
            self._problems.append(self._error("It names no app and no model.", 255, hint))
        for subject in subjects:
            chosen |= dict.fromkeys(self._models_of(subject, registered))
        for model in options["exclude"]:
            if model not in chosen:
                hint = "Remove it, or name its app."
                self._problems.append(
                    self._error(f"exclude: {_shown(model)} is not served in any case.", 254, hint)
                )
            chosen.pop(model, None)
        for model in chosen:
            yield from registered[model]

    def _models_of(self, subject: Any, registered: Iterable[type[Model]]) -> list[type[Model]]:
        """Return the registered models that ``subject`` means."""
        if isinstance(subject, str) and subject in apps.app_configs:
            found = [model for model in registered if model._meta.app_label == subject]
        elif is_model(subject):
            found = [model for model in registered if model is subject]
        else:
            near = did_you_mean(str(subject), apps.app_configs)
            hint = near or "Write the label of an installed app, or a model."
            self._problems.append(
                self._error(f"{_shown(subject)} is neither an app nor a model.", 250, hint)
            )
            return []
        if not found:
            hint = "Register a model resource with fields: only what it shows can be served."
            words = f"{_shown(subject)} has no model resource on this server."
            self._problems.append(self._error(words, 251, hint))
        return found

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        yield from self._problems


def _shown(subject: Any) -> str:
    return subject._meta.label if is_model(subject) else f"{subject!r:.80}"


# The tools.


def generic_tools(
    resources: Sequence[ModelResource], model_tools: Iterable[Tool]
) -> Iterator[GenericTool]:
    """Yield the generic tools for ``resources``, whose own tools are ``model_tools``.

    A tool to search, aggregate or write exists if at least one model has that operation.
    """
    tools = [*model_tools]
    yield ListModelsTool(resources, tools)
    yield DescribeModelTool(resources, tools)
    for kind in (SearchRowsTool, FindSimilarRowsTool, AggregateRowsTool, WriteRowTool):
        if served := [tool for tool in tools if tool._row_operation in kind.operations]:
            yield kind(served)


class GenericTool(Tool):
    """Base of the tools that serve many models.

    Users see a tool if they may use it for at least one of these models.
    """

    open_world = False
    _served: Sequence[Declaration]  # model resources, or their own tools

    def _origin(self) -> str:
        return "mcp.register_models"

    def _decide_permission(self, request: Request) -> Decision:
        """Allow the tool if one of ``_served`` is allowed.

        The server checks each call again, for the model that its arguments name.
        """
        missing: tuple[str, ...] = ()
        for one in self._served:
            decision = decide(one, request)
            if decision.allowed:
                return Decision(True, partial(_reason, one, decision))
            missing = missing or decision.missing_scopes
        return Decision(False, lambda: gettext("the caller may use it for no model"), missing)

    def _own_scopes(self) -> tuple[str, ...]:
        return ()

    @property
    def _rule(self) -> str:
        return "the permission of a model"

    @property
    def _is_public(self) -> bool:
        return any(one._is_public for one in self._served)

    @property
    def _decides_without_database(self) -> bool:
        return False

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        # The docstring of each tool is the description that language models read.
        self.description = " ".join(str(type(self).__doc__).split())
        self._output = Output()
        self._arguments = Arguments(schema=self._schema(), handwritten=True)
        yield from ()

    def _schema(self) -> JSON:
        """Return the JSON Schema of the arguments."""
        raise NotImplementedError


def _reason(served: Declaration, decision: Decision) -> str:
    return f"{served.name}: {decision.reason}"


def _object(properties: JSON, *required: str) -> JSON:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": [*required]} if required else {})


MODEL: JSON = {"type": "string", "description": "The name of a model in list_models."}


# Tools that list and describe the models.


class ModelInformationTool(GenericTool):
    """Base of the tools that list and describe the models that the caller may use."""

    read_only = True

    def __init__(self, resources: Sequence[ModelResource], tools: Sequence[Any]) -> None:
        self._served = self._resources = resources
        self._tools: dict[ModelResource, list[Tool]] = {one: [] for one in resources}
        for tool in tools:
            self._tools[tool._resource].append(tool)

    def _usable_tools(self, resource: ModelResource, request: Request) -> dict[str, Tool]:
        """Return the tools of a model that a list of tools would show to the caller."""
        found = self._tools[resource]
        return {tool._row_operation: tool for tool in found if decide(tool, request).is_listed}

    def _summary(self, resource: ModelResource, operations: Iterable[str]) -> JSON:
        """Return what a language model needs to choose a model."""
        fields = f"Each row has {', '.join(resource.fields)}."
        return {
            "name": resource.name,
            "title": str(resource.title),
            "description": str(resource.description or fields),
            "operations": [*operations],
        }


class ListModelsTool(ModelInformationTool):
    """List the models that you may use: name, description, and operations on rows. Call it first,
    and choose a model by its description.
    """

    name = "list_models"

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        yield from super()._resolve(find)
        names = [resource.name for resource in self._resources]
        for resource in self._resources:
            if names.count(resource.name) > 1:
                hint = f'Write another name on one of them: name = "{_label_name(resource)}".'
                words = f"Several models that generic tools serve have the name {resource.name!r}."
                yield resource._error(words, 253, hint)

    def _schema(self) -> JSON:
        return _object({})

    def handle(self, request: Any, *args: Any, **arguments: Any) -> JSON:
        """Return the models, in the order in which they were registered."""
        return {
            "models": [
                self._summary(resource, self._usable_tools(resource, request))
                for resource in self._resources
                if decide(resource, request).is_listed
            ]
        }


def _label_name(resource: ModelResource) -> str:
    return f"{resource.model._meta.app_label}_{resource.model._meta.model_name}"


class DescribeModelTool(ModelInformationTool):
    """Describe one model: the fields of its rows, and the JSON Schema of the arguments with which
    search_rows, aggregate_rows and write_row take it.
    """

    name = "describe_model"

    def _schema(self) -> JSON:
        return _object({"model": MODEL}, "model")

    def handle(self, request: Any, *args: Any, **arguments: Any) -> JSON:
        """Return the description.

        Raise ``UnknownModel`` if there is no such model, or the caller may not use it.
        """
        name = arguments["model"]
        for resource in self._resources:
            if resource.name == name and decide(resource, request).is_listed:
                tools = self._usable_tools(resource, request)
                schemas = {operation: tool._arguments.schema for operation, tool in tools.items()}
                return self._summary(resource, tools) | {
                    "uri": resource.uri,
                    "fields": resource._row_schema()["properties"],
                    "arguments": schemas,
                }
        raise UnknownModel(f"There is no model {name[:MAX_ECHO]!r} that you may use. {SEE_LIST}")


# Tools that run a model's own tool.


class RowsTool(GenericTool):
    """Base of the tools that run a model's own tool.

    The arguments contain the name of the model, and the arguments of its own tool.
    """

    operations: Sequence[str] = ()
    _always_fails = True  # a call that names a model runs that model's own tool

    def __init__(self, tools: Sequence[Any]) -> None:
        self._served = tools
        self._by_model = {(tool._resource.name, tool._row_operation): tool for tool in tools}
        for tool in tools:
            tool._called_by = self

    def _called_tool(self, arguments: Any) -> Tool | None:
        """Return the model's own tool that a call with these arguments runs.

        Return None if there is none, or if the arguments do not fit the schema. Then the server
        calls this generic tool, which always fails. So its errors do not reveal which models exist.
        """
        properties = self._arguments.schema["properties"]
        if not isinstance(arguments, Mapping) or not arguments.keys() <= properties.keys():
            return None
        model, given = arguments.get("model"), arguments.get("arguments", {})
        if not (isinstance(model, str) and isinstance(given, Mapping)):
            return None
        operation = arguments.get("operation") if self._is_choice else self.operations[0]
        return self._by_model.get((model, operation)) if isinstance(operation, str) else None

    @property
    def _is_choice(self) -> bool:
        """Whether the tool has several operations, so that the arguments must name one."""
        return len(self.operations) > 1

    def _refusal(self, arguments: Mapping[str, Any]) -> UnknownModel:
        """Return the error for a model that does not exist, and for one that is forbidden."""
        name = arguments["model"][:MAX_ECHO]
        operation = arguments["operation"] if self._is_choice else self.operations[0]
        what = f"{operation} rows".replace("_", " ")
        return UnknownModel(f"There is no model {name!r} of which you may {what}. {SEE_LIST}")

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        yield from super()._resolve(find)
        self._arguments = UnknownModelArguments(self)

    def _schema(self) -> JSON:
        known = [tool._row_operation for tool in self._by_model.values()]
        choices = [operation for operation in self.operations if operation in known]
        operation: JSON = {"operation": {"enum": choices}} if self._is_choice else {}
        about = f"Those that describe_model shows for {' or '.join(choices)}."
        given = {"arguments": {"type": "object", "description": about}}
        return _object({"model": MODEL} | operation | given, "model", *operation)


class UnknownModelArguments(Arguments):
    """The arguments of a call for which there is no model's own tool. They are never valid."""

    def __init__(self, tool: RowsTool) -> None:
        super().__init__(schema=tool._schema(), handwritten=True)
        self._tool = tool

    def read(self, given: Mapping[str, Any], mirrored: Mirrored | None = None) -> JSON:
        """Raise ``UnknownModel``, or ``InvalidArguments`` if the arguments do not fit the schema.

        It is called before a transaction begins. A model that the caller may not use is rejected
        before that too, so the two cannot be distinguished by their queries.
        """
        raise self._tool._refusal(super().read(given, mirrored))


class SearchRowsTool(RowsTool):
    """Find rows of one model by text and fields, page by page. The arguments differ by model: see
    describe_model.
    """

    name = "search_rows"
    operations = ("search",)
    read_only = True


class FindSimilarRowsTool(RowsTool):
    """Find rows of one model that are similar to a text or to another row. The arguments differ by
    model: see describe_model.
    """

    name = "find_similar_rows"
    operations = ("find_similar",)
    read_only = True


class AggregateRowsTool(RowsTool):
    """Count, sum and compare rows of one model, in groups, instead of reading many rows. The
    arguments differ by model: see describe_model.
    """

    name = "aggregate_rows"
    operations = ("aggregate",)
    read_only = True


class WriteRowTool(RowsTool):
    """Create, update or delete one row of a model. The arguments differ by model and operation: see
    describe_model.
    """

    name = "write_row"
    operations = ("create", "update", "delete")
    read_only = False
    destructive = True
