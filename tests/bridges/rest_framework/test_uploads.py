"""Files in the arguments of a tool of a REST framework view."""

from __future__ import annotations

from base64 import b64encode

import pytest
from django.urls import path
from rest_framework import parsers, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.test import APIClient
from rest_framework.views import APIView

from tests.declarations.helpers import valid_catalog

pytestmark = [pytest.mark.urls("tests.bridges.rest_framework.test_uploads"), pytest.mark.django_db]
FILE_TYPES = {"name": {"type": "string", "maxLength": 255},
              "data": {"type": "string", "contentEncoding": "base64"}}  # fmt: skip


class PartSerializer(serializers.Serializer):
    label = serializers.CharField()
    scan = serializers.FileField()


class DocumentSerializer(serializers.Serializer):
    title = serializers.CharField(max_length=20)
    file = serializers.FileField(allow_empty_file=False)
    thumbnail = serializers.ImageField(required=False, allow_null=True)
    more = serializers.ListField(child=serializers.FileField(), required=False)
    parts = PartSerializer(many=True, required=False)
    public = serializers.BooleanField(default=True)
    tags = serializers.ListField(child=serializers.IntegerField(), required=False)

    def validate_file(self, file):
        if file.name.endswith(".exe"):
            raise serializers.ValidationError("No programs.")
        return file


def described(value):
    if isinstance(value, list):
        return [described(one) for one in value]
    if isinstance(value, dict):
        return {name: described(one) for name, one in value.items()}
    return (
        [value.name, value.content_type, value.read().decode()] if hasattr(value, "read") else value
    )


class DocumentViewSet(viewsets.GenericViewSet):
    serializer_class = DocumentSerializer

    def create(self, request):
        """Add a document."""
        given = self.get_serializer(data=request.data)
        given.is_valid(raise_exception=True)
        files = {name: len(request.FILES.getlist(name)) for name in request.FILES}
        told = {"files": files, "type": request.content_type.partition(";")[0]}
        return Response(described(dict(given.validated_data)) | told)

    @action(detail=False, methods=["post"], parser_classes=[parsers.MultiPartParser])
    def attach(self, request):
        """Only forms are parsed."""
        copied = request.data.copy()
        copied.update({"title": copied["title"].upper()})
        given = self.get_serializer(data=copied)
        given.is_valid(raise_exception=True)
        return Response(described(dict(given.validated_data)))


class RawView(APIView):
    def post(self, request):
        return Response({"got": described(request.FILES["file"])})


router = SimpleRouter()
router.register("documents", DocumentViewSet, basename="document")
urlpatterns = [*router.urls, path("raw/", RawView.as_view(), name="raw")]


def file(name="a.txt", data=b"hello"):
    return {"name": name, "data": b64encode(data).decode()}


def data(result):
    assert not result["isError"], result
    return result["structuredContent"]


def failure(result):
    assert result["isError"], result
    return result["content"][0]["text"]


def test_file_is_an_object_with_name_and_base64(expose):
    (tool,) = valid_catalog(expose(DocumentViewSet, ["create"])).tools.values()
    schema = tool._arguments.schema
    assert schema["required"] == ["title", "file"]
    shown = schema["properties"]
    assert shown["file"]["properties"] == FILE_TYPES
    assert shown["thumbnail"]["type"] == ["object", "null"]
    assert shown["more"]["items"]["properties"] == FILE_TYPES
    assert shown["parts"]["items"]["properties"]["scan"]["properties"] == FILE_TYPES


def test_files_reach_the_view_and_other_values_keep_their_types(call):
    told = data(call(DocumentViewSet, "create", title="7", file=file(), tags=[1], thumbnail=None))
    assert told == {
        "title": "7", "file": ["a.txt", "text/plain", "hello"], "thumbnail": None, "tags": [1],
        "public": True, "files": {"file": 1}, "type": "multipart/form-data",
    }  # fmt: skip


def test_lists_of_files_and_files_of_nested_serializers(call):
    more, parts = [file("b.txt"), file("c.bin")], [{"label": "x", "scan": file("d.txt", b"scan")}]
    told = data(call(DocumentViewSet, "create", title="t", file=file(), more=more, parts=parts))
    assert [name for name, *_ in told["more"]] == ["b.txt", "c.bin"]
    assert told["parts"] == [{"label": "x", "scan": ["d.txt", "text/plain", "scan"]}]
    assert told["files"] == {"file": 1, "more": 2, "parts.scan": 1}


def test_view_that_parses_only_forms_gets_a_form(call):
    told = data(call(DocumentViewSet, "attach", title="t", file=file(), more=[file("b.txt")]))
    assert told["title"] == "T" and told["more"] == [["b.txt", "text/plain", "hello"]]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (file("../a.txt"), "file: The name of a file must not be a path."),
        ({"name": "a.txt", "data": "?"}, "file: The data are not valid base64."),
        (file("a.exe"), "file: No programs."),
        (file(data=b""), "file: The submitted file is empty."),
        ("text", "file"),
        ({"name": "a.txt"}, "data"),
        (file() | {"content_type": "text/html"}, "content_type"),
    ],
)
def test_wrong_file_is_an_error_of_its_field(call, given, words):
    assert words in failure(call(DocumentViewSet, "create", title="t", file=given))


def test_file_above_the_limit_is_rejected(call, settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"RESULT_SIZE": 1000}
    told = failure(call(DocumentViewSet, "create", title="t", file=file(data=b"x" * 1001)))
    assert told == "file: A file must have at most 1,000 bytes."


def test_api_view_reads_request_files(call):
    stated = type("Stated", (serializers.Serializer,), {"file": serializers.FileField()})
    told = data(call(RawView, "post", attributes={"serializers": {"post": stated}}, file=file()))
    assert told == {"got": ["a.txt", "text/plain", "hello"]}


def test_endpoint_itself_takes_the_same_file(alice):
    from django.core.files.uploadedfile import SimpleUploadedFile

    client = APIClient()
    client.force_authenticate(alice)
    posted = {"title": "7", "file": SimpleUploadedFile("a.txt", b"hello", "text/plain")}
    told = client.post("/documents/", posted, format="multipart").json()
    assert told["file"] == ["a.txt", "text/plain", "hello"]
