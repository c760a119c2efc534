"""
The inspector: call a tool, read a resource or get a prompt from the admin, as a client would.

The page makes a form from the JSON Schema of a tool, prompt or resource template. It shows the
result, the questions of the call, and all messages as they were sent in the chosen revision.
Without JavaScript, the browser posts each form and loads the page again. With JavaScript, the
response is a stream of JSON lines (``_updates``), so that messages and progress appear at once.

To call as another user, staff need a second permission. Only superusers act as superusers, and
nobody acts as an inactive user. Each call is in the admin's history before it runs, without its
arguments. Results may be hostile: the page escapes them, shows no HTML or SVG, and loads nothing
that they link to.

Django imports this module for every command. Modules that import pydantic are imported when the
page is shown.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django import forms
from django.conf import settings as project
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.db import transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.middleware.csrf import get_token
from django.shortcuts import render
from django.template.loader import get_template
from django.urls import URLPattern, path, reverse
from django.utils import translation
from django.utils.decorators import method_decorator
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from ..auth.principal import Auth, Principal, anonymous
from ..auth.scopes import offered
from ..conf import settings
from ..declarations.cursors import digest, seal, unseal
from ..declarations.server import Server, server_named
from ..exceptions import Misdeclared
from ..protocol.revisions import LATEST, REVISIONS, SUPPORTED
from ..protocol.uri_template import Template
from .log import ReadOnlyAdmin, as_text
from .switches import servers_with_declarations

if TYPE_CHECKING:
    from ..transports.inspector import InspectorConnection, WireMessage

JSON = dict[str, Any]
MAX_STATE_LENGTH = 1_000_000  # characters of the sealed state of a call that asks
MAX_LISTED = 1_000  # entries of one kind
MAX_BLOCKS = 100  # of a result
STREAM_TYPE = "application/x-ndjson"
# Entries of the admin's history.
VIEWED = _("Viewed the lists of the server %(server)s as %(caller)s, in revision %(revision)s.")
CALLED = _("Called the %(what)s of the server %(server)s as %(caller)s, in revision %(revision)s.")
ANSWERED = _(
    "Answered questions of the %(what)s of the server %(server)s as %(caller)s, "
    "in revision %(revision)s."
)
LOGGED_KINDS = {
    "tool": _("tool"), "resource": _("resource"), "template": _("template"), "prompt": _("prompt"),
}  # fmt: skip
# The kinds of what can be called: the method and member of the list, and the key of an entry.
KINDS = {
    "tool": ("tools/list", "tools", "name"),
    "resource": ("resources/list", "resources", "uri"),
    "template": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    "prompt": ("prompts/list", "prompts", "name"),
}
TITLES = {
    "tool": _("Tools"), "resource": _("Resources"), "template": _("Resource templates"),
    "prompt": _("Prompts"),
}  # fmt: skip
# Images that cannot contain scripts or load anything.
IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
SELF, ANONYMOUS, OTHER = "self", "anonymous", "user"


class ClientForm(forms.Form):
    """The client that calls: server, user, scopes and revision. ``principal`` is its caller."""

    required_css_class = "required"
    server = forms.ChoiceField(label=_("Server"))
    caller = forms.ChoiceField(label=_("Call as"))
    user = forms.CharField(
        label=_("Other user"), required=False, help_text=_("The name with which the user signs in.")
    )
    revision = forms.ChoiceField(label=_("Revision of the protocol"))
    scopes = forms.MultipleChoiceField(
        label=_("Scopes"), required=False, widget=forms.CheckboxSelectMultiple,
        help_text=_("Scopes of the client's token. Without scopes, the token is not limited."),
    )  # fmt: skip

    def __init__(self, data: Any, *, by: Any, may_impersonate: bool) -> None:
        super().__init__(data)
        self._by, self._is_superuser = by, getattr(by, "is_superuser", False)
        fields: Any = self.fields
        fields["server"].choices = [
            (server.name, server.public_name) for server in servers_with_declarations()
        ]
        fields["caller"].choices = [
            (SELF, gettext("You: %s") % by.get_username()),
            (ANONYMOUS, _("An anonymous client")),
            *([(OTHER, _("Another user"))] if may_impersonate else []),
        ]
        fields["revision"].choices = [(name, name) for name in SUPPORTED]
        fields["scopes"].choices = [(name, f"{name}: {one}") for name, one in offered().items()]
        if not may_impersonate:
            del fields["user"]
        if not fields["scopes"].choices:
            del fields["scopes"]

    def clean(self) -> JSON:
        data: JSON = super().clean() or {}
        caller = data.get("caller")
        if caller == OTHER:
            data["principal"] = self._principal(self._other(data.get("user", "")))
        elif caller == SELF:
            data["principal"] = self._principal(self._by)
        else:
            data["principal"] = anonymous()
        return data

    def _other(self, name: str) -> Any:
        users = get_user_model()
        found: Any = users._default_manager.filter(**{users.USERNAME_FIELD: name}).first()
        if found is None:
            self.add_error("user", _("There is no such user."))
        elif not found.is_active:
            self.add_error("user", _("This user is not active."))
        elif getattr(found, "is_superuser", False) and not self._is_superuser:
            self.add_error("user", _("Only superusers may act as a superuser."))
        else:
            return found
        return None

    def _principal(self, user: Any) -> Principal:
        if user is None:  # ``_other`` has added an error, so the form is invalid and calls nothing
            return anonymous()
        scopes = self.cleaned_data.get("scopes")
        impersonator = "" if user.pk == self._by.pk else str(self._by.pk)
        auth = Auth(frozenset(scopes)) if scopes else None
        return Principal(user, auth, impersonator=impersonator)


class ArgumentsAsJSON(forms.Form):
    """All arguments as one JSON object, instead of the fields."""

    def __init__(self, *args: Any, **options: Any) -> None:
        from .schema_forms import JSONValueField

        super().__init__(*args, **options)
        self.fields["json"] = JSONValueField(
            kind=dict, required=False, label=_("Arguments as a JSON object"),
            help_text=_("If it is filled in, the fields above are ignored."),
        )  # fmt: skip


@dataclass(frozen=True)
class CallTarget:
    """The tool, prompt, resource or template to call. ``definition`` is its entry in the list."""

    kind: str
    name: str  # of a resource its URI, and of a template its URI template
    definition: JSON = field(default_factory=dict)

    @property
    def method(self) -> str:
        return {"tool": "tools/call", "prompt": "prompts/get"}.get(self.kind, "resources/read")

    @property
    def schema(self) -> JSON:
        """The JSON Schema of the arguments."""
        if self.kind == "tool":
            schema: JSON = self.definition.get("inputSchema", {})
            return schema
        if self.kind == "prompt":
            given = self.definition.get("arguments", [])
            fields = {
                one["name"]: {"type": "string", "description": one.get("description", "")}
                for one in given
            }
            return {
                "properties": fields,
                "required": [one["name"] for one in given if one.get("required")],
            }
        names = Template(self.name).names if self.kind == "template" else ()
        return {"properties": {name: {"type": "string", "maxLength": 200} for name in names}}

    @property
    def reference(self) -> JSON | None:
        """How a request for completions names it; None if its arguments are not completed."""
        if self.kind == "prompt":
            return {"type": "ref/prompt", "name": self.name}
        return {"type": "ref/resource", "uri": self.name} if self.kind == "template" else None

    def params(self, arguments: JSON) -> JSON:
        """Return the parameters of the request."""
        if self.kind in ("tool", "prompt"):
            return {"name": self.name, "arguments": arguments}
        if self.kind == "template":
            return {"uri": Template(self.name).expand(arguments)}
        return {"uri": self.name}


@dataclass(frozen=True)
class Block:
    """A part of a result. Exactly one of ``text``, ``image`` and ``about`` says what it is."""

    heading: str = ""
    text: str = ""
    image: str = ""  # a data URL
    about: str = ""  # describes content that is not shown
    link: str = ""  # the inspector's page of a resource


class AskedQuestion:
    """A question of the call, as a form. ``number`` is its position on the page."""

    def __init__(self, number: int, question: JSON, data: Any = None) -> None:
        from .schema_forms import SchemaForm

        self.method, params = question["method"], question.get("params", {})
        self.message, self.url = params.get("message", ""), params.get("url", "")
        self.messages: list[Block] = []
        schema: JSON = {}
        if self.method == "roots/list":
            self.message = gettext("The server asks for the folders that the client works in.")
            item = {"type": "string", "description": gettext("file:// URIs")}
            schema = {
                "properties": {"roots": {"type": "array", "items": item}},
                "required": ["roots"],
            }
        elif self.method == "sampling/createMessage":
            self.message = gettext("The server asks the client's language model to continue.")
            self.messages = [
                block for one in params.get("messages", []) for block in message_blocks(one)
            ]
            schema = {"properties": {"text": {"type": "string"}}, "required": ["text"]}
        elif not self.url:
            schema = params.get("requestedSchema", {})
        self.form = SchemaForm(schema, data, prefix=f"question-{number}")
        self.action = ActionForm(data, prefix=f"action-{number}")
        self.has_action = self.method == "elicitation/create"
        self.is_web_page = self.url.lower().startswith(("https://", "http://"))

    @property
    def _action(self) -> str:
        return str(self.action.cleaned_data["action"]) if self.has_action else "accept"

    def is_valid(self) -> bool:
        if self.has_action and not self.action.is_valid():
            return False
        if self._action != "accept":
            self.form.is_bound = False  # a client that declines sends no values
            return True
        return self.form.is_valid()

    def result(self) -> JSON:
        """Return the answer, as the client sends it."""
        if self._action != "accept":
            return {"action": self._action}
        values = self.form.values()
        if self.method == "roots/list":
            return {"roots": [{"uri": uri} for uri in values["roots"]]}
        if self.method == "sampling/createMessage":
            return {
                "role": "assistant", "content": {"type": "text", "text": values["text"]},
                "model": "a person in the inspector", "stopReason": "endTurn",
            }  # fmt: skip
        return {"action": "accept"} | ({} if self.url else {"content": values})


class ActionForm(forms.Form):
    """Whether an elicitation is accepted."""

    action = forms.ChoiceField(
        label=_("Answer"),
        choices=[("accept", _("Accept")), ("decline", _("Decline")), ("cancel", _("Cancel"))],
    )


class Inspection:
    """The client that one request of the page stands for."""

    def __init__(self, request: HttpRequest, client: JSON, query: JSON) -> None:
        self.user: Any = request.user
        self.server: Server = server_named(client["server"])
        self.revision = REVISIONS[client["revision"]]
        self.principal: Principal = client["principal"]
        self._host, self._query = request.get_host(), query

    def connection(self, state: JSON | None = None) -> InspectorConnection:
        """Return a new connection, or one that continues from ``state``. Needs an event loop."""
        from ..calls.callers import reload_principal
        from ..transports.inspector import InspectorConnection

        return InspectorConnection(
            self.server, self.revision, partial(reload_principal, self.principal), host=self._host,
            # Records of the call that name its client thus name who made it as another user.
            client_name=f"Inspector of {self.user.get_username()}"[:200], state=state,
        )  # fmt: skip

    @property
    def caller(self) -> str:
        """The name of the user that calls, as text for staff."""
        if not self.principal.is_authenticated:
            return gettext("an anonymous client")
        return str(self.principal.user.get_username())

    @property
    def is_other(self) -> bool:
        return self.principal.is_authenticated and self.principal.user.pk != self.user.pk

    def link(self, kind: str = "", name: str = "") -> str:
        """Return a link to this page, for the same client."""
        query = self._query | ({"kind": kind, "name": name} if kind else {})
        return f"{reverse('admin:django_mcp_inspector_changelist')}?{urlencode(query, doseq=True)}"

    def purpose(self, target: CallTarget) -> str:
        """Return the purpose of a sealed state: only the same user continues the same call."""
        auth = self.principal.auth
        scopes = None if auth is None else sorted(auth.scopes)
        return "inspector:" + digest(
            str(self.user.pk), self.server.name, self.principal.key, scopes, self.revision.name,
            target.kind, target.name,
        )  # fmt: skip

    # Lists, as the client gets them.

    async def fetch_lists(self) -> dict[str, list[JSON]]:
        connection = self.connection()
        await connection.open()
        return {
            kind: [one async for one in _entries(connection, kind)][:MAX_LISTED] for kind in KINDS
        }

    async def find(self, kind: str, name: str) -> CallTarget | None:
        """Return the target of a call, or None for what is not in the client's lists.

        A resource need not be listed, because clients may read any URI.
        """
        if kind == "resource":
            return CallTarget(kind, name)
        connection = self.connection()
        await connection.open()
        async for entry in _entries(connection, kind):
            if entry.get(KINDS[kind][2]) == name:
                return CallTarget(kind, name, entry)
        return None

    def can_suggest(self, target: CallTarget) -> bool:
        """Whether the server completes arguments, and a client may ask for those of ``target``."""
        return (
            "completions" in self.server._catalog.capabilities
            and target.reference is not None
            and bool(target.schema["properties"])
        )

    async def fetch_suggestions(self, target: CallTarget, typed: Mapping[str, str]) -> list[JSON]:
        """Return the responses to a request for completions of each argument, in their order."""
        connection = self.connection()
        await connection.open()
        return [
            await connection.request("completion/complete", {
                "ref": target.reference, "argument": {"name": name, "value": text},
                "context": {"arguments": {key: typed[key] for key in typed if key != name}},
            })
            for name, text in typed.items()
        ]  # fmt: skip


async def _entries(connection: InspectorConnection, kind: str) -> AsyncGenerator[JSON, None]:
    """Yield the entries of a list, from all of its pages; none if the server has no such list."""
    method, member, _key = KINDS[kind]
    cursor: JSON = {}
    while True:
        result = (await connection.request(method, cursor)).get("result", {})
        for entry in result.get(member, []):
            yield entry
        if "nextCursor" not in result:
            return
        cursor = {"cursor": result["nextCursor"]}


class InspectorAdmin(ReadOnlyAdmin):
    """The page of the inspector, in place of a list of rows."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_perm(request, "use_inspector")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.inspect)
        return [path("", view, name="django_mcp_inspector_changelist")]

    @method_decorator(never_cache)
    @method_decorator(sensitive_post_parameters())
    # Not in a transaction of the view (ATOMIC_REQUESTS): the tool and the audit log write in
    # transactions of their own, and would wait for locks that the view's transaction holds.
    @method_decorator(transaction.non_atomic_requests)
    def inspect(self, request: HttpRequest) -> HttpResponseBase:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return InspectorPage(self, request).response()

    def log_use(
        self, inspection: Inspection, message: str | Promise, target: CallTarget | None = None
    ) -> None:
        """Write an entry to the admin's history: who did what, as which user; no arguments.

        It is in the language of the site, as all entries are.
        """
        with translation.override(project.LANGUAGE_CODE):
            server = inspection.server
            what = gettext("lists") if target is None else _logged_name(server, target)
            text = str(message) % {
                "what": what, "server": server.name, "caller": inspection.caller,
                "revision": inspection.revision.name,
            }  # fmt: skip
        self.log_page_action(inspection.user, what, text)


def _logged_name(server: Server, target: CallTarget) -> str:
    """Return the kind and name of a target. For a resource, the name is its URI template.

    The variables of a URI are arguments, which the history must not contain.
    """
    kind = str(LOGGED_KINDS[target.kind])
    if target.kind != "resource":
        return f"{kind} {target.name[:200]}"
    found = next((resource for resource, _ in server._catalog.at(target.name)), None)
    return kind if found is None else f"{kind} {found.uri}"


class InspectorPage:
    """The response to one request of the page."""

    def __init__(self, model_admin: InspectorAdmin, request: HttpRequest) -> None:
        self._admin, self._request = model_admin, request
        self._data = request.POST if request.method == "POST" else None
        # The query string says what to show. Arguments are read from the form's data only: a link
        # could be made by someone else.
        query = request.GET.copy()
        servers = servers_with_declarations()
        query.setdefault("server", servers[0].name if servers else "")
        query.setdefault("caller", SELF)
        query.setdefault("revision", LATEST.name)
        self._client = ClientForm(
            query, by=request.user,
            may_impersonate=model_admin.has_perm(request, "impersonate_in_inspector"),
        )  # fmt: skip
        self._kind, self._name = query.get("kind", ""), query.get("name", "")
        names = ("server", "caller", "user", "revision", "scopes")
        self._query = {name: query.getlist(name) for name in names if name in query}
        self._context: JSON = {"client_form": self._client, "wire_messages": []}
        self._is_logged = False

    def response(self) -> HttpResponseBase:
        from ..transports.inspector import run_in_new_loop

        if not self._client.is_valid():
            return self._page()
        try:
            self._inspection = Inspection(self._request, self._client.cleaned_data, self._query)
            self._context["inspection"] = self._inspection
            if self._kind not in KINDS:
                return self._render_lists()
            if self._data is None and self._kind != "resource":  # which is in no list
                self._log_view()
            self._target = run_in_new_loop(self._inspection.find(self._kind, self._name))
        except Misdeclared as error:
            self._client.add_error("server", str(error))
            return self._page()
        if self._target is None:
            self._context["is_missing"] = True
            return self._page()
        return self._handle_call(self._target)

    def _render_lists(self) -> HttpResponse:
        from ..transports.inspector import run_in_new_loop

        self._log_view()
        found = run_in_new_loop(self._inspection.fetch_lists())
        self._context["lists"] = [
            (TITLES[kind], [self._list_entry(kind, entry) for entry in entries])
            for kind, entries in found.items()
            if entries
        ]
        return self._page()

    def _log(self, message: str | Promise, target: CallTarget | None = None) -> None:
        self._admin.log_use(self._inspection, message, target)
        self._is_logged = True

    def _log_view(self) -> None:
        """Log that staff viewed lists or definitions of another user, once for each request.

        They may contain what only that user may see, such as titles of rows.
        """
        if self._inspection.is_other and not self._is_logged:
            self._log(VIEWED)

    def _list_entry(self, kind: str, entry: JSON) -> JSON:
        name = entry[KINDS[kind][2]]
        return {
            "name": name, "link": self._inspection.link(kind, name),
            "title": entry.get("title", ""), "description": entry.get("description", ""),
        }  # fmt: skip

    # Calls.

    def _handle_call(self, target: CallTarget) -> HttpResponseBase:
        from .schema_forms import SchemaForm

        is_call = self._data is not None and "state" not in self._data
        data = self._data if is_call else None
        form = SchemaForm(target.schema, data, prefix="argument")
        raw = ArgumentsAsJSON(data, prefix="arguments")
        self._context |= {"target": target, "form": form, "raw": raw}
        self._context["can_suggest"] = self._inspection.can_suggest(target)
        if self._data is None:
            return self._page()
        if "suggest" in self._data and self._context["can_suggest"]:
            return self._suggest(target)
        if not is_call:
            return self._answer(target)
        if not raw.is_valid():
            form.is_bound = False
            return self._page(has_errors=True)
        arguments = raw.cleaned_data["json"]
        if isinstance(arguments, dict):
            form.is_bound = False  # its errors do not matter
        elif not form.is_valid():
            return self._page(has_errors=True)
        else:
            arguments = form.values()
        params = target.params(arguments)
        self._log(CALLED, target)
        return self._run(target, None, lambda connection: connection.call(target.method, params))

    def _suggest(self, target: CallTarget) -> HttpResponse:
        """Show the form again, with the server's completions of what was typed."""
        from ..transports.inspector import run_in_new_loop
        from .schema_forms import SchemaForm

        assert self._data is not None
        names = target.schema["properties"]
        typed = {name: self._data.get(f"argument-{name}", "") for name in names}
        form = SchemaForm(target.schema, prefix="argument")
        form.initial = typed
        responses = run_in_new_loop(self._inspection.fetch_suggestions(target, typed))
        for name, response in zip(typed, responses, strict=True):
            if "error" in response:
                self._context["error"] = str(response["error"]["message"])
                break
            form.suggest(name, response["result"]["completion"]["values"])
        self._context |= {"form": form, "has_suggestions": True}
        return self._page()

    def _answer(self, target: CallTarget) -> HttpResponseBase:
        assert self._data is not None
        purpose = self._inspection.purpose(target)
        try:
            state = unseal(
                self._data["state"], purpose, seconds=settings.STATE_LIFETIME,
                limit=MAX_STATE_LENGTH,
            )  # fmt: skip
        except ValueError:
            self._context["error"] = gettext(
                "These questions cannot be answered any more. Call again."
            )
            return self._page()
        asked = state["questions"]
        questions = {
            key: AskedQuestion(number, one, self._data)
            for number, (key, one) in enumerate(asked.items())
        }
        invalid = [question for question in questions.values() if not question.is_valid()]
        if invalid:  # all are validated, so that each shows its errors
            self._context |= {"state": self._data["state"], "questions": questions.values()}
            self._context["wire_messages"] = _shown_messages(state["connection"]["messages"])
            return self._page(has_errors=True)
        answers = {key: question.result() for key, question in questions.items()}
        self._log(ANSWERED, target)
        return self._run(target, state["connection"], lambda connection: connection.answer(answers))

    def _run(
        self,
        target: CallTarget,
        state: JSON | None,
        start: Callable[[InspectorConnection], Awaitable[None]],
    ) -> HttpResponseBase:
        from ..transports.inspector import iterate_in_new_loop

        updates = self._updates(target, state, start)
        if STREAM_TYPE in self._request.headers.get("Accept", ""):
            lines = _lines(updates, translation.get_language())
            is_async = isinstance(self._request, ASGIRequest)
            response = StreamingHttpResponse(
                lines if is_async else iterate_in_new_loop(lines), content_type=STREAM_TYPE
            )
            response["X-Accel-Buffering"] = "no"  # a proxy must not wait for the end
            return response
        *_others, last = iterate_in_new_loop(updates)
        self._context |= last["context"]
        return self._page()

    async def _updates(
        self,
        target: CallTarget,
        state: JSON | None,
        start: Callable[[InspectorConnection], Awaitable[None]],
    ) -> AsyncGenerator[JSON, None]:
        """Yield each new message, and then the context of the result."""
        connection = self._inspection.connection(state)
        async for message in connection.follow(start(connection)):
            yield {"message": message}
        yield {"context": self._result_context(target, connection)}

    def _result_context(self, target: CallTarget, connection: InspectorConnection) -> JSON:
        messages = [[one.sender, one.body] for one in connection.messages]
        found: JSON = {
            "wire_messages": _shown_messages(messages), "omitted": connection.omitted,
            "csrf_token": self._csrf_token, "target": target, "inspection": self._inspection,
        }  # fmt: skip
        if asked := connection.questions:
            questions = [AskedQuestion(number, one) for number, one in enumerate(asked.values())]
            state = {"connection": connection.state, "questions": asked}
            sealed = seal(state, self._inspection.purpose(target))
            if len(sealed) > MAX_STATE_LENGTH:
                return found | {"error": gettext("The messages are too large to go on with.")}
            return found | {"questions": questions, "state": sealed}
        return found | {"result": ShownResult(target, connection.response, self._inspection)}

    @cached_property
    def _csrf_token(self) -> str:
        return get_token(self._request)

    def _page(self, *, has_errors: bool = False) -> HttpResponse:
        if self._data is not None and "inspection" in self._context:  # nothing may have been called
            self._log_view()
        context = self._admin.admin_site.each_context(self._request)
        context |= {"title": _("Inspector"), "opts": self._admin.opts, "has_errors": has_errors}
        return render(self._request, "django_mcp/admin/inspector.html", context | self._context)


async def _lines(
    updates: AsyncGenerator[JSON, None], language: str | None
) -> AsyncGenerator[str, None]:
    """Yield the updates as lines of JSON, with HTML that the script inserts into the page."""
    async for update in updates:
        # The middleware may have deactivated the user's language by now.
        with translation.override(language):
            if "message" in update:
                yield _line(_message_line(update["message"]))
            else:
                template = get_template("django_mcp/admin/inspector_result.html")
                # Without the request: context processors of the project may use the database.
                yield _line({"result": template.render(update["context"])})


def _line(value: JSON) -> str:
    return json.dumps(value) + "\n"


def _message_line(message: WireMessage) -> JSON:
    template = get_template("django_mcp/admin/inspector_message.html")
    line = {"message": template.render({"one": ShownMessage(message.sender, message.body)})}
    if message.body.get("method") == "notifications/progress":
        params = message.body["params"]
        line |= {name: params.get(name) for name in ("progress", "total")}
        line["status"] = params.get("message")
    return line


# What is shown.


@dataclass(frozen=True)
class ShownMessage:
    """A message as it was sent."""

    sender: str
    body: JSON

    @property
    def name(self) -> str:
        """The method, or what the message responds with."""
        if "method" in self.body:
            return str(self.body["method"])
        return gettext("error") if "error" in self.body else gettext("result")

    @property
    def text(self) -> str:
        return as_text(self.body)


def _shown_messages(messages: list[Any]) -> list[ShownMessage]:
    return [ShownMessage(sender, body) for sender, body in messages]


class ShownResult:
    """The response to a call, for the page. Nothing in it is trusted."""

    def __init__(self, target: CallTarget, response: JSON, inspection: Inspection) -> None:
        self._target, self._inspection = target, inspection
        self._result: JSON = response.get("result", {})
        self._error: JSON = response.get("error", {})
        self._is_stopped = not response

    @property
    def status(self) -> str:
        if self._is_stopped:
            return gettext("The call was stopped.")
        if self._error:
            text = gettext("The server responded with the error %(code)s: %(message)s")
            return text % self._error
        if self._result.get("isError"):
            return gettext("The tool reported an error.")
        return gettext("The call has succeeded.")

    @property
    def is_error(self) -> bool:
        return self._is_stopped or bool(self._error) or bool(self._result.get("isError"))

    @property
    def data(self) -> str:
        """The structured content of a tool's result, or the data of an error, as JSON."""
        found = self._error.get("data") if self._error else self._result.get("structuredContent")
        return "" if found is None else as_text(found)

    @property
    def blocks(self) -> list[Block]:
        result = self._result
        found = [
            *(self._block(one) for one in result.get("content", [])),
            *(block for one in result.get("messages", []) for block in message_blocks(one)),
            *(_contents(one) for one in result.get("contents", [])),
        ]
        return found[:MAX_BLOCKS]

    def _block(self, block: JSON) -> Block:
        if block.get("type") == "resource_link":
            uri = str(block.get("uri", ""))
            name = str(block.get("title") or block.get("name") or "")
            return Block(heading=name, text=uri, link=self._inspection.link("resource", uri))
        return content_block(block)


def message_blocks(message: JSON) -> Iterator[Block]:
    """Yield the content of a message of a prompt or of sampling, under its role."""
    content = message.get("content")
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, dict):
            yield content_block(block, str(message.get("role", "")))


def content_block(block: JSON, heading: str = "") -> Block:
    """Return a content block as it is shown."""
    if block.get("type") == "text":
        return Block(heading, text=as_text(block.get("text", "")))
    if block.get("type") == "resource":
        return _contents(block.get("resource", {}), heading)
    if block.get("type") in ("image", "audio"):
        return _binary(heading, block.get("mimeType", ""), block.get("data", ""))
    return Block(heading, text=as_text(block))


def _contents(contents: JSON, heading: str = "") -> Block:
    """Return the contents of a resource as they are shown: HTML and SVG are shown as text."""
    heading = " ".join(filter(None, (heading, str(contents.get("uri", "")))))
    if "blob" in contents:
        return _binary(heading, contents.get("mimeType", ""), contents["blob"])
    return Block(heading, text=as_text(contents.get("text", "")))


def _binary(heading: str, mime_type: Any, data: Any) -> Block:
    """Return an image as a data URL, and the type and size of everything else."""
    kind, text = str(mime_type).lower(), str(data)
    if kind in IMAGE_TYPES:
        return Block(heading, image=f"data:{kind};base64,{text}")
    about = gettext("%(type)s, %(size)d bytes") % {
        "type": kind or gettext("unknown type"), "size": len(text) * 3 // 4,
    }  # fmt: skip
    return Block(heading, about=about)
