"""System checks of REST framework views: each has an id and a hint."""

from __future__ import annotations

from types import ModuleType

import pytest
from django.contrib.auth.models import AnonymousUser
from django.urls import include, path, re_path
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from oauth2_provider.contrib.rest_framework import (
    IsAuthenticatedOrTokenHasScope,
    TokenHasReadWriteScope,
    TokenHasScope,
)
from rest_framework import filters, parsers, permissions, renderers, routers, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response
from rest_framework.views import APIView

import django_mcp as mcp
from django_mcp.bridges.rest_framework import APIViewTools, ViewSetTools
from tests.declarations.helpers import problem_ids, single_problem, valid_catalog
from tests.shop.models import Customer, Invoice, Note

from . import api

pytestmark = pytest.mark.urls("tests.bridges.rest_framework.api")


@pytest.fixture
def routed(settings):
    """Return a function that makes a URLconf of the given views and viewsets."""

    def made(*patterns, **named):
        router = routers.SimpleRouter()
        found = [*patterns]
        for name, view in named.items():
            if hasattr(view, "get_extra_actions"):
                router.register(name, view, basename=name)
            else:
                found.append(path(f"{name}/", view.as_view(), name=name))
        module = ModuleType("urls_of_test")
        module.urlpatterns = [*found, *router.urls]  # type: ignore[attr-defined]
        settings.ROOT_URLCONF = module

    return made


@pytest.fixture
def problem(routed, expose):
    """Return a function that exposes one view at a URL, and returns the only check message."""

    def found(view, listed, **attributes):
        routed(thing=view)
        return single_problem(expose(view, listed, **attributes))

    return found


def number(message):
    return message.id.removeprefix("django_mcp.")


# The class.


@pytest.mark.parametrize(
    ("base", "subject", "hint"),
    [
        (ViewSetTools, Invoice, "@mcp.register"),
        (ViewSetTools, api.ReportView, "APIViewTools"),
        (APIViewTools, api.InvoiceViewSet, "ViewSetTools"),
        (APIViewTools, "report", "@mcp.register"),
    ],
)
def test_wrong_kind_of_view_is_an_error(server, base, subject, hint):
    listed = {"actions": ["list"]} if base is ViewSetTools else {"methods": ["get"]}
    server.register(subject, type("Exposed", (base,), listed))
    message = single_problem(server)
    assert number(message) == "E180" and hint in message.hint


def test_class_without_a_view_is_an_error(server):
    server.register(type("Exposed", (ViewSetTools,), {"actions": ["list"]}))
    assert number(single_problem(server)) == "E180"


@pytest.mark.parametrize("view", [api.InvoiceViewSet, api.ReportView])
@pytest.mark.parametrize("listed", [None, []])
def test_list_is_required(expose, view, listed):
    assert number(single_problem(expose(view, listed))) == "E181"


def test_list_must_not_be_a_text(expose):
    assert problem_ids(expose(api.InvoiceViewSet, "list")) == ["E060"]


@pytest.mark.parametrize(
    ("view", "entry", "hint"),
    [
        (api.InvoiceViewSet, "remimd", "Did you mean 'remind'?"),
        (api.InvoiceViewSet, "get_queryset", "InvoiceViewSet has list"),
        (api.CustomerViewSet, "destroy", "CustomerViewSet has list, create."),
        (api.ReportView, "put", "ReportView has get, post, delete."),
        (api.ReportView, "options", "ReportView has get"),
        (api.ReportView, "GET", "Did you mean 'get'?"),
    ],
)
def test_unknown_action_or_method_is_an_error(expose, view, entry, hint):
    message = single_problem(expose(view, [entry]))
    assert number(message) == "E182" and hint in message.hint


class ReadOnly(api.NoteViewSet):
    http_method_names = ["get"]


def test_action_without_its_method_is_an_error(problem):
    message = problem(ReadOnly, ["create"])
    assert number(message) == "E197" and "http_method_names" in message.hint


def test_keys_must_be_listed(expose):
    texts = {"names": {"retrieve": "x"}, "serializers": {"create": None}}
    assert problem_ids(expose(api.InvoiceViewSet, ["list"], **texts)) == ["E191", "E191"]


def test_attributes_of_other_frameworks_are_errors(expose):
    server = expose(api.InvoiceViewSet, ["list"], permission_classes=[])
    assert problem_ids(server) == ["E009"]


def test_several_views_for_one_class_are_an_error(server):
    server.register(api.InvoiceViewSet, api.NoteViewSet, type("Both", (ViewSetTools,), {}))
    assert problem_ids(server) == ["E003"]


def test_host_that_is_not_allowed_is_a_warning(expose, settings):
    settings.ALLOWED_HOSTS = ["elsewhere.example"]
    assert problem_ids(expose(api.NoteViewSet, ["list"])) == ["W111"]


# URLs.


class NowhereViewSet(api.NoteViewSet):
    pass


def test_view_without_a_url_is_an_error(expose):
    assert number(single_problem(expose(NowhereViewSet, ["list"]))) == "E183"


@pytest.fixture
def two_versions(routed):
    """Two URLs for a viewset, in two namespaces, and two for a view."""
    one, two = routers.SimpleRouter(), routers.SimpleRouter()
    one.register("notes", api.NoteViewSet, basename="note")
    two.register("notes", api.NoteViewSet, basename="note")
    routed(
        path("v1/", include((one.urls, "v1"))),
        path("v2/", include((two.urls, "v2"))),
        path("a/", api.ReportView.as_view(), name="a"),
        path("b/", api.ReportView.as_view(), name="b"),
    )


def test_view_with_several_urls_is_an_error(expose, two_versions):
    message = single_problem(expose(api.NoteViewSet, ["list"]))
    assert number(message) == "E184" and "v1:note-list, v2:note-list" in message.msg
    assert "basename" in message.hint


def test_one_of_several_urls_can_be_chosen(expose, two_versions):
    expose(api.NoteViewSet, ["list"], basename="v2:note")
    tools = valid_catalog(expose(api.ReportView, ["get"], url_name="b")).tools.values()
    assert [tool._route.name for tool in tools] == ["v2:note-list", "b"]


def test_basename_may_be_the_beginning_of_another(settings, expose):
    router = routers.SimpleRouter()
    router.register("a", api.NoteViewSet, basename="note")
    router.register("b", api.NoteViewSet, basename="note-old")
    module = ModuleType("urls_of_test")
    module.urlpatterns = router.urls  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = module
    (tool,) = valid_catalog(expose(api.NoteViewSet, ["list"], basename="note")).tools.values()
    assert tool._route.name == "note-list"


def test_url_that_cannot_be_reversed_is_an_error(routed, expose):
    routed(re_path(r"^x/(\d+)/$", api.ReportView.as_view(), name="x"))
    assert number(single_problem(expose(api.ReportView, ["get"]))) == "E185"


def test_url_without_the_key_is_an_error(routed, expose):
    routed(path("n/<int:number>/", api.NoteViewSet.as_view({"get": "retrieve"}), name="n"))
    message = single_problem(expose(api.NoteViewSet, ["retrieve"]))
    assert number(message) == "E195" and "'pk'" in message.msg


class Profile(api.NoteViewSet):
    def get_object(self):
        return Note.objects.first()


def test_view_that_finds_its_row_by_itself_needs_no_key(routed, expose):
    routed(path("me/", Profile.as_view({"get": "retrieve"}), name="me"))
    assert list(valid_catalog(expose(Profile, ["retrieve"])).tools) == ["retrieve_note"]


class Unmade(api.NoteViewSet):
    def initialize_request(self, request, *args, **kwargs):
        return super().initialize_request(request) if request.user.pk else 1 / 0


def test_view_that_cannot_be_made_is_an_error(problem):
    message = problem(Unmade, ["list"])
    assert number(message) == "E196" and "division" in message.msg


class ByMethod(api.NoteViewSet):
    def get_authenticators(self):
        return [] if self.request.method == "GET" else super().get_authenticators()


def test_authenticators_may_depend_on_the_request(routed, expose):
    routed(thing=ByMethod)
    assert valid_catalog(expose(ByMethod, ["list"])).tools


# Arguments.


class Bodies(viewsets.ViewSet):
    def create(self, request):
        return Response(request.data)

    @action(detail=False, methods=["post"])
    def indirect(self, request):
        return Response(self.request.POST)

    @action(detail=False, methods=["post"])
    def nothing(self, request):
        serializer = api.ReportSerializer({"month": "2026-01", "kinds": []})
        return Response(serializer.data)


class HiddenBodies(viewsets.GenericViewSet):
    """Actions that read the body in ways which their own code shows only in part."""

    serializer_class = api.ReminderSerializer

    @action(detail=False, methods=["post"])
    def other_name(self, req):
        return Response(req.data)

    @action(detail=False, methods=["post"])
    def helper(self, request):
        return self._helped(request)

    def _helped(self, request):
        return Response(request.data)

    @action(detail=False, methods=["post"])
    def attribute(self, request):
        return self._helped(self.request)

    @action(detail=False, methods=["post"])
    def second_argument(self, request):
        return self._both(1, request)

    def _both(self, number, request):
        return Response(request.data)

    @action(detail=False, methods=["post"])
    def inner_function(self, request):
        read = lambda: request.data  # noqa: E731
        return Response(read())

    @action(detail=False, methods=["post"])
    def alias(self, request):
        other = request
        return Response(other.data)

    @action(detail=False, methods=["post"])
    def comprehension(self, request, *args, **kwargs):
        return Response([one for one in [1] if request.data])

    @action(detail=False, methods=["delete"])
    def deletion(self, request):
        return Response(request.data)

    @action(detail=False, methods=["post"])
    def overridden(self, request):
        self.check_permissions(request)
        return Response({})

    def check_permissions(self, request):
        super().check_permissions(request)


HIDDEN = [
    "other_name", "helper", "attribute", "second_argument", "inner_function", "alias",
    "comprehension", "deletion", "overridden",
]  # fmt: skip


@pytest.mark.parametrize("entry", HIDDEN)
def test_body_that_is_read_elsewhere_is_an_error(problem, entry):
    assert number(problem(HiddenBodies, [entry])) == "E186"


class NoBodies(api.NoteViewSet):
    """Actions that pass the request only to REST framework."""

    def destroy(self, request, *args, **kwargs):
        self.check_object_permissions(request, self.get_object())
        return super().destroy(request, *args, **kwargs)

    @action(detail=True, methods=["post"])
    def send(self, request, pk=None):
        if not hasattr(request, "mcp") and request.user.is_anonymous:
            self.permission_denied(request)
        names = [one for one in [1] if request.user.pk == one]
        return Response({"sent": (lambda: request.method)(), "names": names})

    @method_decorator(never_cache)
    @action(detail=True, methods=["post"])
    def decorated(self, request, pk=None):
        return Response({"user": request.user.pk})


@pytest.mark.parametrize("entry", ["destroy", "send", "decorated"])
def test_action_that_reads_no_body_needs_no_serializer(routed, expose, entry):
    routed(thing=NoBodies)
    (tool,) = valid_catalog(expose(NoBodies, [entry])).tools.values()
    assert list(tool._arguments.schema["properties"]) == ["pk"]


class DeletesSome(api.NoteViewSet):
    serializer_class = api.ReminderSerializer

    @action(detail=False, methods=["delete"])
    def some(self, request):
        given = self.get_serializer(data=request.data)
        given.is_valid(raise_exception=True)
        return Response(given.data)


def test_delete_may_have_a_body(routed, expose, connect, alice):
    routed(thing=DeletesSome)
    (tool,) = valid_catalog(expose(DeletesSome, ["some"])).tools.values()
    assert list(tool._arguments.schema["properties"]) == ["text", "copies"]


@pytest.mark.parametrize("entry", ["create", "indirect"])
def test_unknown_serializer_is_an_error(problem, entry):
    message = problem(Bodies, [entry])
    assert number(message) == "E186" and "serializers = " in message.hint


@pytest.mark.parametrize("stated", [api.ReportSerializer, None])
def test_serializer_can_be_stated(routed, expose, stated):
    routed(bodies=Bodies)
    server = expose(Bodies, ["create", "nothing"], serializers={"create": stated})
    made, nothing = (tool._arguments.schema for tool in valid_catalog(server).tools.values())
    assert list(made["properties"]) == (["month", "kinds"] if stated else [])
    assert nothing["properties"] == {}


class Failing(api.NoteViewSet):
    def get_serializer_class(self):
        return {1: 2}[self.request.user.pk]


class Several(api.NoteViewSet):
    def get_serializer(self, *args, **kwargs):
        return super().get_serializer(*args, many=True, **kwargs)


@pytest.mark.parametrize("viewset", [Failing, Several])
def test_serializer_that_cannot_be_made_is_an_error(problem, viewset):
    assert number(problem(viewset, ["create"])) == "E186"


class RowChoices(serializers.Serializer):
    customer = serializers.ChoiceField(choices=[])

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        view = self.context.get("view")
        if not (self.context.get("tolerant") and view.swagger_fake_view):
            rows = [(one.pk, one.notes) for one in Customer.objects.all()]
            self.fields["customer"].choices = rows


class OfRows(api.NoteViewSet):
    serializer_class = RowChoices


class OfRowsOrNone(OfRows):
    def get_serializer_context(self):
        return super().get_serializer_context() | {"tolerant": True}


@pytest.mark.django_db
def test_serializer_that_reads_rows_is_an_error(problem, foreign_invoice):
    """Their schema would show the rows of all users to each of them."""
    message = problem(OfRows, ["create"])
    assert number(message) == "E186" and "queries the database" in message.msg
    assert "swagger_fake_view" in message.hint and "hunter2" not in message.msg


def test_serializer_that_reads_no_rows_for_the_schema_takes_any_choice(routed, expose):
    routed(thing=OfRowsOrNone)
    (tool,) = valid_catalog(expose(OfRowsOrNone, ["create"])).tools.values()
    assert "enum" not in tool._arguments.schema["properties"]["customer"]


class ReadsSite(api.NoteViewSet):
    def initialize_request(self, request, *args, **kwargs):
        Note.objects.exists()
        return super().initialize_request(request, *args, **kwargs)


class RowFilter(filters.BaseFilterBackend):
    def get_schema_operation_parameters(self, view):
        return [{"name": one.name} for one in Customer.objects.all()]


class FilteredByRows(api.NoteViewSet):
    filter_backends = [RowFilter]


@pytest.mark.django_db
@pytest.mark.parametrize(("view", "wanted"), [(ReadsSite, "E196"), (FilteredByRows, "W194")])
def test_views_and_filters_that_read_rows_for_the_schema_are_found(problem, view, wanted):
    message = problem(view, ["list"])
    assert number(message) == wanted and "queries the database" in message.msg


class Clashing(api.NoteViewSet):
    lookup_field = "text"


def test_argument_of_url_and_body_is_an_error(problem):
    message = problem(Clashing, ["update"])
    assert number(message) == "E187" and "from URL and body" in message.msg
    assert "lookup_url_kwarg" in message.hint


class Async(APIView):
    async def get(self, request):
        return Response({})


def test_asynchronous_method_is_an_error(problem):
    assert number(problem(Async, ["get"])) == "E189"


class Pages(APIView):
    renderer_classes = [renderers.StaticHTMLRenderer]

    def get(self, request):
        return Response("")


class Unread(api.NoteViewSet):
    parser_classes = [parsers.FileUploadParser]


class AsyncDispatch(api.NoteViewSet):
    async def dispatch(self, request, *args, **kwargs):
        return super().dispatch(request, *args, **kwargs)


def test_asynchronous_dispatch_is_an_error(problem):
    message = problem(AsyncDispatch, ["list"])
    assert number(message) == "E270" and "dispatch()" in message.msg


@pytest.mark.parametrize(("view", "entry"), [(Pages, "get"), (Unread, "create")])
def test_view_without_json_is_an_error(problem, view, entry):
    assert number(problem(view, [entry])) == "E190"


class FileSerializer(serializers.Serializer):
    name = serializers.CharField()
    file = serializers.FileField()
    picture = serializers.ImageField(required=False)


class Files(api.NoteViewSet):
    serializer_class = FileSerializer
    parser_classes = [parsers.JSONParser]


def test_required_file_of_a_view_without_uploads_is_an_error(problem):
    message = problem(Files, ["create"])
    assert number(message) == "E192" and "'file'" in message.msg


def test_file_of_a_partial_update_is_left_out(routed, expose):
    routed(files=Files)
    (tool,) = valid_catalog(expose(Files, ["partial_update"])).tools.values()
    assert list(tool._arguments.schema["properties"]) == ["pk", "name"]


class SecretSerializer(serializers.Serializer):
    password = serializers.CharField(write_only=True)


class Secrets(api.NoteViewSet):
    serializer_class = SecretSerializer


def test_secret_is_a_warning(problem, server):
    assert number(problem(Secrets, ["create"])) == "W193"
    assert "password" in server._catalog.tools["create_thing"]._arguments.schema["properties"]


class SecretQuery(serializers.Serializer):
    api_key = serializers.CharField()


def test_secret_in_the_query_is_a_warning(problem):
    message = problem(api.NoteViewSet, ["list"], query={"list": SecretQuery})
    assert number(message) == "W193" and "'api_key'" in message.msg


class NestedQuery(serializers.Serializer):
    one = api.ReminderSerializer(required=False, allow_null=True)


class NestedListQuery(serializers.Serializer):
    one = api.ReminderSerializer(many=True)


class NestedLists(serializers.Serializer):
    one = serializers.ListField(child=serializers.ListField())


@pytest.mark.parametrize("query", [NestedQuery, NestedListQuery, NestedLists])
def test_object_in_the_query_is_an_error(problem, query):
    message = problem(api.NoteViewSet, ["list"], query={"list": query})
    assert number(message) == "E199" and "'one'" in message.msg


class Filtered(api.NoteViewSet):
    filter_backends = [filters.OrderingFilter]
    serializer_class = None


def test_filters_that_cannot_be_read_are_a_warning(problem, server):
    assert number(problem(Filtered, ["list"])) == "W194"
    assert server._catalog.tools["list_thing"]._definition()


class OfUser(api.NoteViewSet):
    queryset = None
    filter_backends = [filters.OrderingFilter]

    def get_queryset(self):
        return self.request.user.notes.all()


def test_queryset_that_needs_a_user_is_replaced_by_the_serializers_model(routed, expose):
    routed(notes=OfUser)
    (tool,) = valid_catalog(expose(OfUser, ["list"])).tools.values()
    assert "text" in tool._arguments.schema["properties"]["ordering"]["items"]["enum"]


# Authenticators.


class NeedsScope(api.NoteViewSet):
    permission_classes = [TokenHasScope]
    required_scopes = ["read"]


class NeedsReadWrite(api.NoteViewSet):
    permission_classes = [TokenHasReadWriteScope | permissions.IsAdminUser]


class HasClaim(permissions.BasePermission):
    def has_permission(self, request, view):
        return request.auth["tenant"] == "acme"


class NeedsClaim(api.NoteViewSet):
    permission_classes = [permissions.IsAuthenticated & HasClaim]


class ReadsPayload(api.NoteViewSet):
    def get_queryset(self):
        return super().get_queryset().filter(text=self.request.auth.payload["tenant"])


class HasAuthenticator(permissions.BasePermission):
    def has_object_permission(self, request, view, row):
        return isinstance(request.successful_authenticator, api.OwnToken)


class NeedsAuthenticator(api.NoteViewSet):
    permission_classes = [HasAuthenticator]


class LogOut(APIView):
    def post(self, request):
        request._auth.delete()
        return Response(status=204)


@pytest.mark.parametrize(
    ("view", "entry", "read"),
    [
        (NeedsScope, "list", "TokenHasScope"),
        (NeedsReadWrite, "list", "TokenHasReadWriteScope"),
        (NeedsClaim, "list", "request.auth["),
        (ReadsPayload, "list", "request.auth.payload"),
        (NeedsAuthenticator, "retrieve", "request.successful_authenticator"),
        (LogOut, "post", "request._auth.delete"),
    ],
)
def test_view_that_needs_its_own_authenticator_is_a_warning(problem, view, entry, read):
    message = problem(view, [entry])
    assert number(message) == "W188" and read in message.msg
    assert message.obj._definition()
    assert "authentication_classes" in message.hint


class Initializing(api.NoteViewSet):
    def initialize_request(self, request, *args, **kwargs):
        made = super().initialize_request(request, *args, **kwargs)
        made.authenticators = [api.OwnToken()]
        return made


class Authenticating(api.NoteViewSet):
    def perform_authentication(self, request):
        request.user = api.OwnToken().authenticate(request)


class LazilyAuthenticated(api.NoteViewSet):
    def perform_authentication(self, request):
        """Leave it to the code that reads the user."""


@pytest.mark.parametrize("view", [Initializing, Authenticating])
def test_view_that_assigns_a_user_is_a_warning(problem, view):
    message = problem(view, ["list"])
    assert number(message) == "W188" and "assigns a user" in message.msg


@pytest.mark.parametrize(("user", "wanted"), [(None, ["E198"]), (AnonymousUser, [])])
def test_public_view_with_another_anonymous_user_is_an_error(settings, expose, user, wanted):
    path_of_user = user and f"{user.__module__}.{user.__name__}"
    settings.REST_FRAMEWORK = {"UNAUTHENTICATED_USER": path_of_user}
    assert problem_ids(expose(api.CompanyList, ["get"], permission=mcp.PUBLIC)) == wanted


def test_view_with_another_anonymous_user_may_require_a_user(settings, expose):
    settings.REST_FRAMEWORK = {"UNAUTHENTICATED_USER": None}
    assert problem_ids(expose(api.CompanyList, ["get"])) == []


class Tolerant(api.NoteViewSet):
    permission_classes = [IsAuthenticatedOrTokenHasScope]
    authentication_classes = [api.OwnToken]


class OwnScopes(permissions.BasePermission):
    def has_permission(self, request, view):
        return request.auth is None or "read" in request.auth.scopes


class KnowsScopes(api.NoteViewSet):
    permission_classes = [OwnScopes]


class KnowsTools(permissions.BasePermission):
    def has_permission(self, request, view):
        return hasattr(request, "mcp") or request.auth.is_valid(["read"])


class Prepared(api.NoteViewSet):
    permission_classes = [KnowsTools]


@pytest.mark.parametrize("view", [Tolerant, KnowsScopes, Prepared, LazilyAuthenticated])
def test_view_that_accepts_other_authenticators_has_no_warning(routed, expose, view):
    routed(notes=view)
    assert valid_catalog(expose(view, ["list"])).tools


def test_public_views_are_public(routed, expose):
    (tool,) = valid_catalog(expose(api.CompanyList, ["get"], permission=mcp.PUBLIC)).tools.values()
    assert tool._is_public
