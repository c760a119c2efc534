"""Resources, as server/resources of each revision requires."""

import base64
import json

import pytest
from django.core.files.base import ContentFile
from django.http import Http404

import django_mcp as mcp
from tests.shop.models import Customer, Invoice

from .helpers import list_items, list_names, request_error, startup_errors

pytestmark = pytest.mark.django_db


def read(client, uri):
    return client.request("resources/read", uri=uri)["contents"]


def not_found(revision):
    return -32602 if revision >= "2026-07-28" else -32002


@pytest.fixture
def shelf(server):
    """Books by their names, on a shelf that remembers what was asked for."""
    asked = []

    @server.resource("shelf://books/{name}", permission=mcp.PUBLIC)
    def book(request, name: str) -> str:
        asked.append(name)
        if name != "emma":
            raise Http404
        return "Emma Woodhouse, handsome, clever, and rich"

    @server.resource("shelf://index", permission=mcp.PUBLIC)
    def index(request) -> list[str]:
        return []

    return asked


# Addresses.


@pytest.mark.parametrize("uri", ["https://shop.example/menu", "http://shop.example/{page}"])
def test_https_uri_is_a_warning_at_declaration(server, uri):
    """ "Servers SHOULD use this scheme only when the client is able to fetch [it] on its own"."""

    def menu(request, page: str = "") -> str: ...

    server.resource(uri)(menu)
    (problem,) = server.check()
    assert problem.id == "django_mcp.W041" and not problem.is_serious()


@pytest.mark.parametrize(
    "uri", ["file:///srv/menu", "git://repository/menu", "https://shop.example/menu", "s3://a/menu"]
)
def test_resources_of_standard_schemes_are_listed_and_read(connect, server, revision, uri):
    @server.resource(uri, permission=mcp.PUBLIC)
    def menu(request) -> str:
        return "Soup"

    client = connect(server=server, revision=revision)
    assert [one["uri"] for one in list_items(client, "resources")] == [uri]
    assert read(client, uri) == [{"uri": uri, "mimeType": "text/plain", "text": "Soup"}]


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "menu",
        "/menu",
        "//menu",
        ":menu",
        "1menu://today",
        "-menu://today",
        "my_menu://today",
        "menü://today",
        "me nu://today",
        "menu ://today",
        "{scheme}://today",
        "menu://to day",
        "menu://today\n",
        "menu://<today>",
        "menu://to|day",
        "menu://today%",
        "menu://today%2",
        "menu://today%zz",
        "menu://heute-für-alle",
        'menu://"today"',
        "menu://to\\day",
        "menu://to^day",
        "menu://to`day",
        "menu://to\x00day",
    ],
)
def test_invalid_uri_is_rejected_at_declaration(server, uri):
    @server.resource(uri)
    def menu(request, scheme: str = "") -> str: ...

    assert any(repr(uri) in problem for problem in startup_errors(server))


@pytest.mark.parametrize(
    "uri",
    [
        "menu:today",
        "menu://today",
        "x-menu.v2+json://today",
        "menu://today/%7Esoup?hot=1#top",
        "urn:isbn:0451450523",
        "tag:shop.example,2026:menu",
        "menu://[::1]/today",
    ],
)
def test_resources_of_custom_schemes_are_listed_and_read(connect, server, revision, uri):
    @server.resource(uri, permission=mcp.PUBLIC)
    def menu(request) -> str:
        return "Soup"

    client = connect(server=server, revision=revision)
    assert [one["uri"] for one in list_items(client, "resources")] == [uri]
    assert read(client, uri) == [{"uri": uri, "mimeType": "text/plain", "text": "Soup"}]


BAD_URIS = [
    "",
    "shelf",
    "emma",
    "shelf://books",
    "shelf://books/emma/",
    "shelf://books/emma/1",
    "shelf://books/emma?x=1",
    "shelf://books/emma#x",
    "SHELF://books/emma",
    "shelf://books/emma%",
    "shelf://books/emma%zz",
    "shelf://books/%ff",
    "shelf://books/em%00ma",
    "shelf://books/em\x00ma",
    "shelf://books/em ma/x",
    "shelf://books/{name}/x",
    "shelf://books/../index",
    "shelf://books/" + "x" * 10_000,
    "file:///etc/passwd",
    "https://shop.example/",
]


def test_uri_is_checked_before_project_code_runs(connect, server, shelf, revision):
    client = connect(server=server, revision=revision)
    codes = {uri: request_error(client, "resources/read", uri=uri).code for uri in BAD_URIS}
    assert codes == dict.fromkeys(BAD_URIS, not_found(revision))
    assert shelf == []


def test_uri_must_be_a_string(connect, server, shelf, revision):
    client = connect(server=server, revision=revision)
    for uri in (None, 1, ["shelf://books/emma"], {"uri": "x"}, True):
        assert request_error(client, "resources/read", uri=uri).code == -32602
    assert shelf == []


def test_template_variables_are_validated_before_project_code_runs(connect, server, revision):
    asked = []

    @server.resource("page://{number}", permission=mcp.PUBLIC)
    def page(request, number: int) -> str:
        asked.append(number)
        return "text"

    client = connect(server=server, revision=revision)
    for wrong in ("x", "1.5", "", "1,2"):
        assert request_error(client, "resources/read", uri=f"page://{wrong}").code == not_found(
            revision
        )
    assert asked == []
    assert read(client, "page://7")[0]["text"] == "text"
    assert asked == [7]


# What is not there.


def test_missing_resource_has_the_error_code_of_the_revision(connect, server, shelf, revision):
    client = connect(server=server, revision=revision)
    assert read(client, "shelf://books/emma")[0]["text"].startswith("Emma")
    for uri in ("shelf://books/ulysses", "shelf://nowhere", "cellar://books/emma"):
        refused = request_error(client, "resources/read", uri=uri)
        assert refused.code == not_found(revision)
        assert refused.data == {"uri": uri}
    assert shelf == ["emma", "ulysses"]


def test_missing_row_has_the_error_code_of_the_revision(connect, alice, invoice, revision):
    client = connect(alice, revision=revision)
    gone = f"model://shop/customer/{invoice.customer_id + 1}"
    for uri in ("invoice://none", gone, "model://shop/customer/x", "invoice://A-1/attachment"):
        refused = request_error(client, "resources/read", uri=uri)
        assert (refused.code, refused.data) == (not_found(revision), {"uri": uri})


def test_invisible_row_of_a_template_is_reported_as_missing(
    connect, server, bob, invoice, revision
):
    @server.register(Customer)
    class Customers(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

    @server.resource("card://{customer}")
    def card(request, customer: Customer) -> str:
        return customer.notes

    client = connect(bob, server=server, revision=revision)
    for key in (invoice.customer_id, 0, "x"):
        refused = request_error(client, "resources/read", uri=f"card://{key}")
        assert (refused.code, refused.data) == (not_found(revision), {"uri": f"card://{key}"})


def test_missing_resource_is_an_error_and_not_empty_contents(connect, server, shelf, revision):
    client = connect(server=server, revision=revision)
    [contents] = read(client, "shelf://index")  # is there, and is an empty list
    assert json.loads(contents["text"]) == []
    assert request_error(client, "resources/read", uri="shelf://books/none").code == not_found(
        revision
    )


@pytest.mark.parametrize("error", [RuntimeError("hunter2"), KeyError("hunter2"), OSError("/srv/x")])
def test_unexpected_exception_is_a_masked_internal_error(connect, server, revision, error, caplog):
    @server.resource("menu://today", permission=mcp.PUBLIC)
    def menu(request) -> str:
        raise error

    refused = request_error(
        connect(server=server, revision=revision), "resources/read", uri="menu://today"
    )
    assert refused.code == -32603
    assert "hunter2" not in f"{refused}" and "/srv" not in f"{refused}"
    assert caplog.records[-1].exc_info[1] is error


# Who may read.


@pytest.mark.parametrize("permission", [None, "shop.add_note", lambda request: False])
def test_permission_is_checked_before_project_code_runs(connect, server, bob, revision, permission):
    asked = []
    options = {} if permission is None else {"permission": permission}

    @server.resource("menu://secret", **options)
    def secret(request) -> str:
        asked.append("secret")

    @server.resource("menu://secret/{day}", **options)
    def day(request, day: str) -> str:
        asked.append(day)

    client = connect(None if permission is None else bob, server=server, revision=revision)
    assert list_names(client, "resources") == list_names(client, "templates") == []
    for uri in ("menu://secret", "menu://secret/monday"):
        refused = request_error(client, "resources/read", uri=uri)
        unknown = request_error(client, "resources/read", uri=uri.replace("secret", "nothing"))
        assert (refused.code, refused.message) == (unknown.code, unknown.message)
        assert refused.code == not_found(revision)
    assert asked == []


def test_invisible_rows_are_reported_as_missing(connect, alice, bob, invoice, revision):
    customer = f"model://shop/customer/{invoice.customer_id}"
    theirs = connect(alice, revision=revision)
    assert "Carla" in read(theirs, customer)[0]["text"]
    assert "12.50" in read(theirs, "invoice://A-1")[0]["text"]
    for user in (bob, None):
        client = connect(user, revision=revision)
        for uri in (customer, "invoice://A-1"):
            refused = request_error(client, "resources/read", uri=uri)
            missing = request_error(client, "resources/read", uri="invoice://none")
            assert (refused.code, refused.message) == (missing.code, missing.message)
        assert "Carla" not in json.dumps(list_items(client, "resources"))


def test_object_permission_is_checked_before_a_read(connect, server, invoice, revision):
    @server.register(Customer)
    class Customers(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request)

        def has_object_permission(self, request, obj, operation):
            return obj.name != "Carla"

    Customer.objects.create(company=invoice.company, name="Dora")
    client = connect(server=server, revision=revision)
    dora, carla = (f"model://shop/customer/{c.pk}" for c in Customer.objects.order_by("-name"))
    assert "Dora" in read(client, dora)[0]["text"]
    assert request_error(client, "resources/read", uri=carla).code == not_found(revision)


# What is read.


def test_bytes_are_sent_as_base64(connect, server, revision):
    data = bytes(range(256))

    @server.resource("menu://logo.png", permission=mcp.PUBLIC)
    def logo(request) -> bytes:
        return data

    client = connect(server=server, revision=revision)
    [contents] = read(client, "menu://logo.png")
    assert contents.keys() == {"uri", "mimeType", "blob"}
    assert contents["mimeType"] == "image/png"
    assert base64.b64decode(contents["blob"], validate=True) == data


@pytest.fixture
def media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"
    (tmp_path / "secret.txt").write_text("hunter2")
    return tmp_path


def test_file_field_is_read_by_users_who_see_its_row(connect, alice, bob, invoice, media, revision):
    invoice.attachment.save("scan.pdf", ContentFile(b"%PDF"))
    client = connect(alice, revision=revision)
    row = json.loads(read(client, "invoice://A-1")[0]["text"])
    assert str(media) not in json.dumps(row)
    [contents] = read(client, "invoice://A-1/attachment")
    assert contents["mimeType"] == "application/pdf"
    assert base64.b64decode(contents["blob"]) == b"%PDF"
    stranger = connect(bob, revision=revision)
    assert request_error(
        stranger, "resources/read", uri="invoice://A-1/attachment"
    ).code == not_found(revision)


@pytest.mark.parametrize(
    "path", ["../secret.txt", "invoices/../../secret.txt", "{media}/secret.txt"]
)
def test_file_path_outside_of_the_media_root_is_rejected(
    connect, alice, invoice, media, revision, path, caplog
):
    path = path.format(media=media)
    Invoice.objects.filter(pk=invoice.pk).update(attachment=path)
    client = connect(alice, revision=revision)
    refused = request_error(client, "resources/read", uri="invoice://A-1/attachment")
    assert refused.code in (-32603, not_found(revision))
    assert "hunter2" not in f"{refused}" and str(media) not in f"{refused}"
    assert str(media) not in json.dumps(read(client, "invoice://A-1"))


def test_uri_with_path_traversal_is_rejected(connect, alice, invoice, media, revision):
    invoice.attachment.save("scan.pdf", ContentFile(b"%PDF"))
    client = connect(alice, revision=revision)
    for name in ("../secret.txt", "..%2Fsecret.txt", "%2e%2e%2fsecret.txt", "attachment/..", "pk"):
        refused = request_error(client, "resources/read", uri=f"invoice://A-1/{name}")
        assert refused.code == not_found(revision)


def test_read_may_return_several_contents(connect, server, revision):
    @server.resource("menu://week", permission=mcp.PUBLIC, mime_type="text/markdown")
    def week(request):
        return [
            mcp.Contents("# Monday", uri="menu://week/monday"),
            mcp.Contents(b"\x00", uri="menu://week/photo", mime_type="image/png"),
            mcp.Contents({"closed": True}, uri="menu://week/sunday", mime_type="application/json"),
        ]

    contents = read(connect(server=server, revision=revision), "menu://week")
    assert [part["uri"].rpartition("/")[2] for part in contents] == ["monday", "photo", "sunday"]
    assert contents[0]["mimeType"] == "text/markdown"
    assert contents[1]["blob"] == "AA=="


def test_resource_may_declare_an_inode_mime_type(connect, server, revision):
    @server.resource("tree://src", permission=mcp.PUBLIC, mime_type="inode/directory")
    def src(request):
        return [
            mcp.Contents("src/a.py", uri="tree://src/a.py", mime_type="text/x-python"),
            mcp.Contents("", uri="tree://src/pipe", mime_type="inode/fifo"),
        ]

    client = connect(server=server, revision=revision)
    assert list_items(client, "resources")[0]["mimeType"] == "inode/directory"
    assert [part["mimeType"] for part in read(client, "tree://src")] == [
        "text/x-python",
        "inode/fifo",
    ]
