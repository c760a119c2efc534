"""Less usual views: other links, clashing names, versions, headers, ETags, failing handlers."""

from __future__ import annotations

from types import ModuleType

import django_filters
import pytest
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views.decorators.http import condition
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import pagination, permissions, routers, serializers, throttling, versioning
from rest_framework.decorators import action
from rest_framework.response import Response

from tests.declarations.helpers import valid_catalog
from tests.shop.models import Invoice, Tag

from . import api

pytestmark = [pytest.mark.urls("tests.bridges.rest_framework.api"), pytest.mark.django_db]


@pytest.fixture
def routed(settings):
    """Return a function that adds a viewset with the basename "it" to the URLconf."""

    def added(viewset, prefix="it"):
        router = routers.SimpleRouter()
        router.register(prefix, viewset, basename="it")
        module = ModuleType("urls_of_test")
        module.urlpatterns = [*api.urlpatterns, *router.urls]  # type: ignore[attr-defined]
        settings.ROOT_URLCONF = module
        return viewset

    return added


def data(result):
    assert not result["isError"], result
    return result["structuredContent"]


def failure(result):
    assert result["isError"], result
    assert "hunter2" not in str(result)
    return result["content"][0]["text"]


def messages(server):
    return [str(one.id).removeprefix("django_mcp.") for one in server.check()]


# Pages.


class NestedLinks(pagination.PageNumberPagination):
    page_size = 2
    page_query_param = "number"

    def get_paginated_response(self, rows):
        links = {"next": self.get_next_link(), "previous": self.get_previous_link()}
        return Response({"links": links, "count": self.page.paginator.count, "results": rows})


class OtherNames(NestedLinks):
    def get_paginated_response(self, rows):
        further = {"further": self.get_next_link(), "back": self.get_previous_link()}
        return Response(further | {"total": self.page.paginator.count, "rows": rows})

    def get_paginated_response_schema(self, schema):
        link = {"type": "string", "format": "uri", "nullable": True}
        properties = {"further": link, "back": link, "total": {"type": "integer"}, "rows": schema}
        return {"type": "object", "properties": properties}


class CursorNames(pagination.CursorPagination):
    page_size, ordering, cursor_query_param = 2, "number", "after"

    def get_paginated_response(self, rows):
        return Response({"more": self.get_next_link(), "items": rows})


@pytest.mark.parametrize(
    ("paginator", "link", "rows"),
    [
        (NestedLinks, lambda page: page["links"]["next"], "results"),
        (OtherNames, lambda page: page["further"], "rows"),
        (CursorNames, lambda page: page["more"], "items"),
    ],
)
def test_links_of_other_names_are_arguments(
    routed, expose, connect, alice, more_invoices, caplog, paginator, link, rows
):
    viewset = routed(type("Linked", (api.InvoiceViewSet,), {"pagination_class": paginator}))
    client = connect(alice, server=expose(viewset, ["list"]))
    page, numbers = data(client.call("list_it", status="draft")), []
    while True:
        numbers += [row["number"] for row in page[rows]]
        if link(page) is None:
            break
        assert isinstance(link(page), dict) and link(page)["status"] == "draft"
        page = data(client.call("list_it", **link(page)))
    assert numbers == ["A-2", "A-3", "A-4", "A-5"]
    assert "does not fit" not in caplog.text


class UrlSerializer(serializers.ModelSerializer):
    site = serializers.SerializerMethodField()

    class Meta:
        model = Invoice
        fields = ["number", "site"]

    def get_site(self, row) -> str:
        return str(self.context["request"].build_absolute_uri("/it/?page=2"))


def test_urls_of_rows_stay_as_they_are(routed, call, more_invoices):
    viewset = type("Sites", (api.InvoiceViewSet,), {"serializer_class": UrlSerializer})
    page = data(call(routed(viewset), "list"))
    assert page["results"][0]["site"].endswith("/it/?page=2") and page["next"] == {"page": 2}


class PageFilters(django_filters.FilterSet):
    page = django_filters.CharFilter(field_name="number")

    class Meta:
        model = Invoice
        fields = ["status"]


class ClashingFilter(api.InvoiceViewSet):
    filter_backends = [DjangoFilterBackend]
    filterset_class = PageFilters


def test_filter_and_page_of_the_same_name_are_a_warning(routed, expose):
    server = expose(routed(ClashingFilter), ["list"])
    (message,) = server.check()
    assert message.id == "django_mcp.W195" and "'page'" in message.msg


def test_stated_parameter_replaces_a_filter_without_a_warning(routed, expose):
    query = type("Query", (serializers.Serializer,), {"status": serializers.CharField()})
    viewset = routed(type("Stated", (api.InvoiceViewSet,), {}))
    assert messages(expose(viewset, ["list"], query={"list": query})) == []


# Serializers.


class LineSerializer(serializers.Serializer):
    label = serializers.CharField(max_length=5)
    amount = serializers.IntegerField(min_value=1)


class NestedSerializer(serializers.ModelSerializer):
    lines = LineSerializer(many=True, allow_empty=False)
    address = LineSerializer(required=False, allow_null=True)

    class Meta:
        model = Tag
        fields = ["label", "lines", "address"]

    def create(self, given):
        names = [line["label"] for line in given.pop("lines")]
        given.pop("address", None)
        return Tag.objects.create(label=given["label"] + "".join(names))

    def to_representation(self, row):
        return {"label": row.label}


class NestedViewSet(api.NoteViewSet):
    queryset, serializer_class = Tag.objects.all(), NestedSerializer


def test_nested_serializers_are_written(routed, expose, connect, alice):
    client = connect(alice, server=expose(routed(NestedViewSet), ["create"]))
    line = {"label": "a", "amount": 1}
    assert data(client.call("create_it", label="t", lines=[line, line])) == {"label": "taa"}
    for wrong in ([], [{"label": "a"}], [line | {"amount": 0}], [line | {"owner": 1}]):
        assert "lines" in failure(client.call("create_it", label="t", lines=wrong))
    assert Tag.objects.count() == 1


class StaffSerializer(serializers.ModelSerializer):
    class Meta:
        model = Tag
        fields = ["id", "label"]

    def get_fields(self):
        found = super().get_fields()
        if self.context["request"].user.is_staff:
            found["secret_note"] = serializers.CharField(source="label", read_only=True)
        else:
            found["label"].read_only = True
        return found


class StaffViewSet(api.NoteViewSet):
    queryset, serializer_class = Tag.objects.all(), StaffSerializer


def test_fields_of_a_user_are_decided_when_the_view_runs(routed, expose, connect, alice, bob):
    tag = Tag.objects.create(label="old")
    bob.is_staff = True
    bob.save()
    server = expose(routed(StaffViewSet), ["retrieve", "partial_update"])
    shown = {}
    for user in (alice, bob):
        shown[user] = data(connect(user, server=server).call("retrieve_it", pk=tag.pk))
    assert "secret_note" not in shown[alice] and shown[bob]["secret_note"] == "old"
    # The schema is that of an anonymous user, for whom the label is read-only.
    told = failure(connect(alice, server=server).call("partial_update_it", pk=tag.pk, label="new"))
    assert "label" in told and Tag.objects.get().label == "old"


# Throttles.


class Never(throttling.BaseThrottle):
    def allow_request(self, request, view):
        return False


class Hourly(Never):
    def wait(self):
        return 3599.2


@pytest.mark.parametrize(("throttle", "when"), [(Never, "later"), (Hourly, "in 3600 seconds")])
def test_throttled_call_says_when_to_try_again(routed, call, throttle, when):
    viewset = routed(type("Throttled", (api.NoteViewSet,), {"throttle_classes": [throttle]}))
    assert failure(call(viewset, "list")) == f"Too many requests. Try again {when}."


# Versions.


class Versions(api.NoteViewSet):
    @action(detail=False)
    def which(self, request, **kwargs):
        """Which version."""
        return Response({"version": request.version})


@pytest.mark.parametrize(
    "base",
    [
        versioning.AcceptHeaderVersioning, versioning.QueryParameterVersioning,
        versioning.HostNameVersioning,
    ],
)  # fmt: skip
def test_version_is_the_default_version(routed, call, base):
    kind = type("Kind", (base,), {"default_version": "v2", "allowed_versions": ["v2"]})
    viewset = routed(type("Versioned", (Versions,), {"versioning_class": kind}))
    assert data(call(viewset, "which")) == {"version": "v2"}


@pytest.mark.parametrize(
    ("base", "found"),
    [
        (versioning.AcceptHeaderVersioning, ["E271"]),
        (versioning.QueryParameterVersioning, ["E271"]),
        (versioning.HostNameVersioning, []),
    ],
)
def test_version_without_a_default_is_an_error_if_calls_would_fail(routed, expose, base, found):
    kind = type("Kind", (base,), {"allowed_versions": ["v2"]})
    viewset = routed(type("Versioned", (Versions,), {"versioning_class": kind}))
    assert messages(expose(viewset, ["which"])) == found


def test_version_of_a_namespace_is_chosen_by_the_basename(settings, expose, connect, alice):
    kind = versioning.NamespaceVersioning
    viewset = type("Versioned", (Versions,), {"versioning_class": kind})
    router = routers.SimpleRouter()
    router.register("it", viewset, basename="it")
    module = ModuleType("urls_of_test")
    module.urlpatterns = [  # type: ignore[attr-defined]
        path(f"{one}/", include((router.urls, "shop"), namespace=one)) for one in ("v1", "v2")
    ]
    settings.ROOT_URLCONF = module
    server = expose(viewset, ["which"], basename="v2:it")
    assert data(connect(alice, server=server).call("which_it")) == {"version": "v2"}


# URLs and methods.


class BySlug(api.InvoiceViewSet):
    lookup_field, lookup_url_kwarg, lookup_value_regex = "number", "code", "[A-Z]-[0-9]+"


def test_row_is_found_by_another_field_and_name(routed, expose, connect, alice, invoice):
    server = expose(routed(BySlug), ["retrieve"])
    shown = valid_catalog(server).tools["retrieve_it"]._arguments.schema["properties"]
    assert list(shown) == ["code"] and shown["code"]["type"] == "string"
    client = connect(alice, server=server)
    assert data(client.call("retrieve_it", code="A-1"))["number"] == "A-1"
    for wrong in ("A-1/remind", "../notes", "a-1", "A-1?format=api"):
        assert "no /it/" in failure(client.call("retrieve_it", code=wrong)) or "cannot be part"


class Mapped(api.NoteViewSet):
    @action(detail=False, methods=["get", "post"])
    def draft(self, request):
        """Read or keep a draft."""
        return Response({"method": request.method, "text": request.data.get("text")})

    @draft.mapping.delete
    def drop_draft(self, request):
        """Drop the draft."""
        return Response(status=204)


def test_action_of_several_methods_without_a_row(routed, expose, connect, alice):
    stated = type("Stated", (serializers.Serializer,), {"text": serializers.CharField()})
    listed = {"serializers": {"draft": stated}}
    server = expose(routed(Mapped), ["draft", "drop_draft"], **listed)
    tools = valid_catalog(server).tools
    assert list(tools) == ["get_draft_it", "post_draft_it", "drop_draft_it"]
    assert tools["get_draft_it"]._arguments.schema["properties"] == {}
    client = connect(alice, server=server)
    assert data(client.call("get_draft_it")) == {"method": "GET", "text": None}
    assert data(client.call("post_draft_it", text="x")) == {"method": "POST", "text": "x"}
    assert not client.call("drop_draft_it")["isError"]


# Headers.


class HasKey(permissions.BasePermission):
    def has_permission(self, request, view):
        return request.headers.get("X-Api-Key") == "hunter2"


class HasMeta(permissions.BasePermission):
    def has_permission(self, request, view):
        return request.META["HTTP_X_API_KEY"] == "hunter2"


class KnowsTools(permissions.BasePermission):
    def has_permission(self, request, view):
        return hasattr(request, "mcp") or request.headers.get("X-Api-Key") == "hunter2"


class OfTenant(api.NoteViewSet):
    def get_queryset(self):
        return super().get_queryset().filter(text=self.request.headers["X-Tenant"])


@pytest.mark.parametrize(
    ("attributes", "warned"),
    [
        ({"permission_classes": [HasKey]}, ["W196"]),
        ({"permission_classes": [HasMeta | permissions.IsAdminUser]}, ["W196"]),
        ({"permission_classes": [KnowsTools]}, []),
        ({"throttle_classes": [throttling.AnonRateThrottle]}, []),
    ],
)
def test_permission_that_reads_a_header_is_a_warning(routed, expose, attributes, warned):
    viewset = routed(type("Reading", (api.NoteViewSet,), attributes))
    assert messages(expose(viewset, ["list"])) == warned


def test_queryset_that_reads_a_header_is_a_warning(routed, expose):
    assert messages(expose(routed(OfTenant), ["list"])) == ["W196"]


@pytest.mark.parametrize(
    ("permission", "told"),
    [(HasKey, "You do not have permission"), (HasMeta, "Something went wrong")],
)
def test_permission_that_needs_a_header_denies(routed, call, permission, told):
    viewset = routed(type("Reading", (api.NoteViewSet,), {"permission_classes": [permission]}))
    assert failure(call(viewset, "list")).startswith(told)


def etag(request, *args, **kwargs):
    return '"1"'


class Tagged(api.NoteViewSet):
    @method_decorator(condition(etag_func=etag))
    def list(self, request, *args, **kwargs):
        return super().list(request, *args, **kwargs)

    @method_decorator(condition(etag_func=etag))
    def create(self, request, *args, **kwargs):
        return super().create(request, *args, **kwargs)


def test_conditional_view_always_answers(routed, expose, connect, alice):
    client = connect(alice, server=expose(routed(Tagged), ["list", "create"]))
    for _ in range(2):
        assert data(client.call("create_it", text="x"))["text"] == "x"
        assert data(client.call("list_it"))


# Handlers of exceptions.


class FailingHandler(api.NoteViewSet):
    def get_exception_handler(self):
        def handler(error, context):
            Tag.objects.create(label="written")
            raise RuntimeError("hunter2")

        return handler

    @action(detail=False, methods=["post"])
    def fail(self, request):
        """Fail."""
        raise serializers.ValidationError("hunter2")


def test_handler_that_fails_is_a_generic_error_and_rolls_back(routed, call):
    assert failure(call(routed(FailingHandler), "fail")).startswith("Something went wrong")
    assert not Tag.objects.exists()
