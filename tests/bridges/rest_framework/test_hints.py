"""Hints of drf-spectacular: ``@extend_schema`` on methods, classes and fields."""

from __future__ import annotations

from types import ModuleType

import pytest
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_field,
    extend_schema_view,
)
from rest_framework import permissions, routers, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response

from django_mcp.bridges.serializer_schemas import SerializerInput, anything, output_schema
from tests.declarations.helpers import valid_catalog

from . import api

pytestmark = pytest.mark.django_db


class SentSerializer(serializers.Serializer):
    sent = serializers.IntegerField()


class WindowSerializer(serializers.Serializer):
    days = serializers.IntegerField(min_value=1)


def viewset():
    """Return a viewset with hints. They use the schema class of the settings when it is made."""

    @extend_schema_view(list=extend_schema(description="Every note.", responses=SentSerializer))
    class Hinted(viewsets.GenericViewSet):
        permission_classes = [permissions.IsAuthenticated]
        queryset = api.Note.objects.all()
        serializer_class = api.NoteViewSet.Written

        @extend_schema(
            parameters=[
                OpenApiParameter("kind", str, enum=["a", "b"], description="Which kind."),
                OpenApiParameter("ids", OpenApiTypes.INT, many=True, explode=False),
                OpenApiParameter("page", exclude=True),
                OpenApiParameter("X-Header", str, OpenApiParameter.HEADER),
                WindowSerializer,
            ]
        )
        def list(self, request):
            return Response({"sent": 1, "query": request.query_params.dict()})

        @extend_schema(
            request=api.ReminderSerializer,
            responses={202: OpenApiResponse(SentSerializer), 400: None},
            description="Send a reminder.",
        )
        @action(detail=False, methods=["post"])
        def send(self, request):
            return Response({"sent": request.data["copies"]}, status=202)

        @extend_schema(request=None, responses={200: SentSerializer(many=True)})
        @action(detail=False, methods=["post"])
        def count(self, request):
            return Response([{"sent": len(request.data)}])

        @extend_schema(description="Only described.")
        @action(detail=False, methods=["post"], serializer_class=WindowSerializer)
        def other(self, request):
            return Response(request.data)

    return Hinted


def test_hint_of_a_base_class_is_inherited(settings, expose):
    settings.REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
    base = extend_schema(description="From the base.")(type("Base", (api.NoteViewSet,), {}))
    view, router = type("Child", (base,), {}), routers.SimpleRouter()
    router.register("children", view, basename="child")
    module = ModuleType("urls_of_test")
    module.urlpatterns = router.urls  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = module
    (tool,) = valid_catalog(expose(view, ["list"])).tools.values()
    assert tool.description == "From the base."
    assert tool._output.schema["type"] == "array"


@pytest.fixture
def hinted(settings, expose):
    settings.REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
    view, router = viewset(), routers.SimpleRouter()
    router.register("hinted", view, basename="hinted")
    module = ModuleType("urls_of_test")
    module.urlpatterns = router.urls  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = module
    return expose(view, ["list", "send", "count", "other"])


def test_hints_replace_what_the_view_shows(hinted):
    tools = {name: one._definition() for name, one in valid_catalog(hinted).tools.items()}
    listed, sent = tools["list_hinted"], tools["send_hinted"]
    assert (listed["description"], sent["description"]) == ("Every note.", "Send a reminder.")
    taken = listed["inputSchema"]["properties"]
    assert taken["kind"] == {"type": "string", "enum": ["a", "b"], "description": "Which kind."}
    assert taken["ids"]["items"]["type"] == "integer"
    assert list(taken) == ["kind", "ids", "days"]
    assert listed["inputSchema"]["required"] == ["days"]
    assert list(listed["outputSchema"]["properties"]) == ["sent"]
    assert list(sent["inputSchema"]["properties"]) == ["text", "copies"]
    assert list(sent["outputSchema"]["properties"]) == ["sent"]
    count = tools["count_hinted"]
    assert count["inputSchema"]["properties"] == {}
    assert count["outputSchema"]["type"] == "array"


def test_description_alone_leaves_the_serializer(hinted):
    other = valid_catalog(hinted).tools["other_hinted"]._definition()
    assert other["description"] == "Only described."
    assert list(other["inputSchema"]["properties"]) == ["days"]
    assert "outputSchema" not in other


def test_hinted_view_can_be_called(hinted, connect, alice):
    client = connect(alice, server=hinted)
    found = client.call("list_hinted", kind="a", ids=[1, 2], days=3)["structuredContent"]
    assert found["query"] == {"kind": "a", "ids": "1,2", "days": "3"}
    sent = client.call("send_hinted", text="x", copies=2)
    assert sent["structuredContent"] == {"sent": 2}
    assert client.call("count_hinted")["structuredContent"] == [{"sent": 0}]


class Colour(serializers.CharField):
    def to_representation(self, value):
        return {"hex": value}


def hinted_colour(hint):
    """Return a field of a class of its own: the decorator changes the class."""
    return extend_schema_field(hint)(type("Hinted", (Colour,), {}))()


class Hints(serializers.Serializer):
    plain = Colour()
    hinted = hinted_colour(OpenApiTypes.INT)
    computed = serializers.SerializerMethodField()
    nullable = hinted_colour({"type": "number", "nullable": True})
    nested = hinted_colour(WindowSerializer)

    @extend_schema_field(serializers.ListField(child=serializers.IntegerField()))
    def get_computed(self, row):
        return []


def test_hints_of_fields_are_their_schemas():
    shown = output_schema(Hints())["properties"]
    assert shown["plain"] == anything()
    assert shown["hinted"]["type"] == ["integer", "null"]
    assert shown["nullable"]["type"] == ["number", "null"]
    assert shown["computed"]["items"]["type"] == ["integer", "null"]
    assert list(shown["nested"]["properties"]) == ["days"]
    taken = SerializerInput(Hints()).schema["properties"]
    assert taken["hinted"]["type"] == "integer" and taken["plain"]["type"] == "string"
