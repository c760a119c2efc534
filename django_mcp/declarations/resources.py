"""Resources: contents that a client may read at a URI.

A resource has one URI or one RFC 6570 template, whose variables are the arguments of its function.
Reading returns text, bytes or data, and never a file path of the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured

from ..protocol.uri_template import Template
from .content import MEDIA_TYPE, URI, Annotations
from .declaration import Declaration, Find

if TYPE_CHECKING:
    from .arguments import Arguments
    from .completions import Completer
    from .request import Request

SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):")
# "Servers SHOULD use this scheme only when the client is able to fetch and load the resource
# directly from the web" (server/resources, "https://"); or what a client might take for contents.
FETCHED_BY_CLIENTS = {"http", "https", "data", "javascript"}


class Resource(Declaration):
    """Contents to read: set ``uri`` and write ``read(self, request, ...)``.

    ``uri`` may be an RFC 6570 template, whose variables are the arguments of ``read``. ``listed``
    says whether lists contain it. ``size`` is in bytes. ``cache`` is how many seconds a client may
    cache the contents. ``shared`` says that the contents are the same for everybody, so that caches
    between the client and the server may also keep them.
    """

    _kind = "resource"
    _entry_method = "read"
    uri: str = ""
    mime_type: str | None = None
    size: int | None = None
    last_modified: datetime | None = None
    audience: Iterable[str] | None = None
    priority: float | None = None
    listed: bool = True
    cache: int = 0
    shared: bool = False

    _template: Template | None
    _arguments: Arguments
    _completers: dict[str, Completer]

    def read(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the contents: text, bytes, data, ``Contents`` or a list of them."""
        raise NotImplementedError

    def get_size(self, request: Request) -> int | None:
        """Return the number of bytes, or None if it is not known without reading."""
        return self.size

    def get_last_modified(self, request: Request) -> datetime | None:
        """Return when the contents last changed, or None."""
        return self.last_modified

    @property
    def _is_alike(self) -> bool:
        """Whether the list entry is the same for every user."""
        own, plain = type(self), Resource
        sized = own.get_size is not plain.get_size
        return not sized and own.get_last_modified is plain.get_last_modified

    @property
    def _is_template(self) -> bool:
        return "{" in self.uri

    @cached_property
    def _has_secret_variable(self) -> bool:
        """Whether a variable of the URI is secret, so that no URI may be stored or logged."""
        redaction, names = self._arguments.redaction, self._arguments.parameters
        return any(redaction.is_secret(name, "text") for name in names)

    def _match(self, uri: str) -> dict[str, str] | None:
        """Return the variables if ``uri`` is a URI of this resource, or None."""
        if self._template is not None:
            return self._template.match(uri)
        return {} if uri == self.uri else None

    def _definition(self) -> dict[str, Any]:
        """Return the template, or the resource without what depends on the user."""
        address = {"uriTemplate": self.uri} if self._is_template else {"uri": self.uri}
        mime_type = {"mimeType": self.mime_type} if self.mime_type else {}
        return address | self._common_definition() | mime_type | self._annotations(None)

    def _list_entry(self, request: Request) -> dict[str, Any]:
        """Return the resource as ``request``'s list shows it.

        Without the required scopes it is shown as declared, and no code of the project runs.
        """
        if self._missing_scopes(request.auth):
            return self._definition()
        size = self.get_size(request)
        shown = self._definition() | self._annotations(self.get_last_modified(request))
        return shown | ({"size": size} if size is not None else {})

    def _annotations(self, modified: datetime | None) -> dict[str, Any]:
        audience = None if self.audience is None else list(self.audience)
        written = Annotations(audience, self.priority, modified).write()
        return {"annotations": written} if written else {}

    @property
    def _depends_on(self) -> Iterable[Declaration]:
        """The model resources whose rows its arguments are."""
        return self._arguments.resources

    # Resolution.

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        yield from super()._resolve(find)
        if self.shared and not self._is_public:
            hint = "Set permission = mcp.PUBLIC, or remove shared."
            yield self._error("It is shared, but not public.", 46, hint)
        wrong = [*self._address_problems(), *self._argument_problems(find)]
        yield from wrong or self._variable_problems()

    def _common_problems(self) -> Iterator[CheckMessage]:
        yield from super()._common_problems()
        if type(self.cache) is not int or self.cache < 0:
            hint = "Write whole seconds. With 0, clients do not cache it."
            yield self._error(f"cache is {self.cache!r}, which is not a time.", 47, hint)
        if self.mime_type is not None and not MEDIA_TYPE.match(self.mime_type):
            hint = 'Write a media type such as "text/markdown".'
            yield self._error(f"{self.mime_type!r} is not a media type.", 48, hint)
        try:
            self._annotations(None)
        except (TypeError, ValueError) as error:
            hint = 'Write values such as audience = ["user"] and priority = 0.5.'
            yield self._error(str(error), 49, hint)

    def _address_problems(self) -> Iterator[CheckMessage]:
        """Yield what is wrong with the URI, and parse its template."""
        self._template = None
        scheme = SCHEME.match(self.uri) if isinstance(self.uri, str) else None
        if scheme is None or not (self._is_template or URI.match(self.uri)):
            hint = 'Write a URI such as "policy://{name}".'
            yield self._error(f"{self.uri!r} is not a URI.", 40, hint)
            return
        if scheme[1] in FETCHED_BY_CLIENTS:
            hint = "Use a scheme of your own for contents of this server."
            message = f"Clients may fetch {scheme[1]!r} URIs themselves, without their token."
            yield Warning(message, hint=hint, obj=self, id="django_mcp.W041")
        try:
            self._template = Template(self.uri) if self._is_template else None
        except ValueError as error:
            message = f"{self.uri!r} is not a URI template: {error}"
            yield self._error(message, 42, "See RFC 6570.")

    def _argument_problems(self, find: Find) -> Iterator[CheckMessage]:
        """Yield what is wrong with the arguments, and set them and their completers."""
        from .arguments import arguments_of, text_problems

        try:
            self._require_method()
            self._arguments = arguments_of(self._implementation, find)
        except ImproperlyConfigured as error:
            yield self._error(str(error), 43, "Every argument needs a name and a type.")
            return
        wrong = [*text_problems(self, self._arguments)]
        yield from wrong
        self._completers = {} if wrong else self._arguments.completers

    def _variable_problems(self) -> Iterator[CheckMessage]:
        """Yield variables of the URI and arguments of the function that do not match."""
        variables = set(self._template.names if self._template else ())
        parameters = self._arguments.parameters
        for name in sorted(set(parameters) - variables):
            if parameters[name].required:
                message = f"The argument {name} is not a variable of {self.uri}."
                yield self._error(message, 44, "Add it to the URI, or give it a default.")
        for name in sorted(variables - set(parameters)):
            message = f"The variable {{{name}}} is not an argument of the function."
            yield self._error(message, 45, "Add the argument.")

    def _exists(self, request: Request, variables: Mapping[str, str]) -> bool:
        """Whether the contents exist, beyond the rows that the arguments name."""
        return True

    @property
    def _read_by_text(self) -> str:
        """What decides last whether the contents can be read, as text for developers."""
        return f"{self._origin()} reads it"

    def _values(self, variables: Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments in a URI's variables. Raise ``InvalidArguments``."""
        return self._arguments.read_text(variables)
