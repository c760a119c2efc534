"""Cache hints of results, as server/utilities/caching of revision 2026-07-28 requires."""

from contextlib import contextmanager

import pytest

import django_mcp as mcp
from tests.shop.models import Company

from .helpers import LISTS, request_error, server_info, startup_errors

pytestmark = pytest.mark.django_db
METHODS = {kind: method for kind, (method, _) in LISTS.items()}
HINTS = ("ttlMs", "cacheScope")


def hints(client, method, **params):
    result = client.request(method, **params)
    return result["ttlMs"], result["cacheScope"]


def thing(request) -> str:
    """A thing."""
    return "text"


def things(request, id: str) -> str:
    """Several things."""
    return id


@pytest.fixture
def declared(server):
    """Declares one of each kind."""

    def declare(name, permission=mcp.PUBLIC, **options):
        given = {"name": name, "permission": permission}
        server.tool(**given)(thing)
        server.prompt(**given)(thing)
        server.resource(f"thing://{name}", **given, **options)(thing)
        server.resource(f"thing://{name}/{{id}}", **given, **options)(things)

    return declare


REQUESTS = [
    *((method, {}) for method in METHODS.values()),
    ("resources/read", {"uri": "thing://one"}),
    ("resources/read", {"uri": "thing://one/2"}),
]


@pytest.mark.parametrize(("method", "params"), [("server/discover", {}), *REQUESTS])
@pytest.mark.parametrize("permission", [mcp.PUBLIC, mcp.AUTHENTICATED])
def test_complete_result_has_ttl_and_cache_scope(
    connect, server, declared, alice, method, params, permission
):
    declared("one", permission, cache=60)
    result = connect(alice, server=server).request(method, **params)
    assert result["resultType"] == "complete"
    assert type(result["ttlMs"]) is int and result["ttlMs"] >= 0
    assert result["cacheScope"] in ("public", "private")


@pytest.mark.parametrize(("method", "params"), REQUESTS)
def test_older_revisions_get_no_cache_hints(connect, server, declared, handshake, method, params):
    declared("one", cache=60, shared=True)
    result = connect(server=server, revision=handshake).request(method, **params)
    assert not result.keys() & set(HINTS)


@pytest.mark.parametrize("seconds", [0, 1, 60, 86_400])
def test_ttl_is_the_declared_cache_time(connect, server, declared, seconds):
    declared("one", cache=seconds)
    client = connect(server=server)
    assert hints(client, "resources/read", uri="thing://one") == (seconds * 1000, "private")


@pytest.mark.parametrize("seconds", [-1, -0.5, "60", None, 1.5, True])
def test_invalid_cache_time_is_rejected_at_declaration(server, declared, seconds):
    declared("one", cache=seconds)
    assert any("cache" in problem for problem in startup_errors(server))


# What may not be kept.


@pytest.fixture
def asking(server):
    """A resource that everybody may keep, if it were not for its question."""

    @server.resource("menu://today", permission=mcp.PUBLIC, cache=3600, shared=True)
    def menu(request) -> str:
        if request.can.elicit:
            return f"Vegetarian: {request.elicit('Vegetarian?', bool)}"
        return "Soup"

    return server


def test_input_required_result_has_no_cache_hints(connect, asking):
    asked = connect(server=asking).request("resources/read", uri="menu://today")
    assert asked["resultType"] == "input_required" and not asked.keys() & set(HINTS)


def test_result_after_answers_is_not_cacheable(connect, asking):
    client = connect(server=asking)
    read = {"method": "resources/read", "uri": "menu://today"}
    asked = client.request(**read)
    [key] = asked["inputRequests"]
    answers = {key: {"action": "accept", "content": {"answer": True}}}
    state = {"requestState": asked["requestState"]}
    answered = client.request(**read, inputResponses=answers, **state)
    assert answered["contents"][0]["text"] == "Vegetarian: True"
    assert (answered["ttlMs"], answered["cacheScope"]) == (0, "private")
    unasked = connect(server=asking, capabilities={})
    assert hints(unasked, **read) == (3_600_000, "public")
    for carried in ({"inputResponses": {}}, {"inputResponses": answers}):
        assert hints(unasked, **read, **carried) == (0, "private")
        assert hints(unasked, "resources/list", **carried) == (0, "private")


# What may change, and how one learns of it.


def test_server_sends_the_current_content_before_the_ttl_ends(connect, server):
    menu = ["Soup"]

    @server.resource("menu://today", permission=mcp.PUBLIC, cache=3600)
    def today(request) -> str:
        return menu[0]

    client = connect(server=server)
    first = client.request("resources/read", uri="menu://today")
    menu[0] = "Salad"
    second = client.request("resources/read", uri="menu://today")
    texts = [result["contents"][0]["text"] for result in (first, second)]
    assert texts == ["Soup", "Salad"]
    assert first["ttlMs"] == second["ttlMs"] == 3_600_000


def test_cache_hints_are_sent_with_and_without_list_changed(connect, server, declared):
    bare = connect(server=server)
    found = server_info(bare)
    assert found["ttlMs"] > 0 and "listChanged" not in str(found["capabilities"])
    server._forget()
    declared("one")
    client = connect(server=server)
    found = server_info(client)["capabilities"]
    for kind in ("tools", "prompts", "resources"):
        assert found[kind]["listChanged"] is True
        assert hints(client, METHODS[kind])[0] > 0


# Whom a list is for.


def pages(client, method):
    """Every page of a list."""
    found = [client.request(method)]
    while "nextCursor" in found[-1]:
        found.append(client.request(method, cursor=found[-1]["nextCursor"]))
    return found


@pytest.mark.parametrize("method", METHODS.values())
@pytest.mark.parametrize("guarded", [None, 0, 2, 6])
def test_all_pages_of_a_list_have_the_same_cache_scope(
    connect, server, declared, alice, settings, method, guarded
):
    settings.DJANGO_MCP = {"PAGE_SIZE": 2}
    for number in range(7):
        declared(f"n{number}", mcp.AUTHENTICATED if number == guarded else mcp.PUBLIC)
    for user in (alice, None):
        found = pages(connect(user, server=server), method)
        assert len(found) >= 3
        scope = "public" if guarded is None else "private"
        assert {page["cacheScope"] for page in found} == {scope}
        assert all(page["ttlMs"] >= 0 for page in found)


def test_pages_with_and_without_rows_have_the_same_cache_scope(connect, server, bob, settings):
    settings.DJANGO_MCP = {"PAGE_SIZE": 2}
    for number in range(4):
        server.resource(f"thing://{number}", permission=mcp.PUBLIC, name=f"n{number}")(thing)

    @server.register(Company)
    class Companies(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["name"]
        ordering = ["name"]
        listed = True

        def get_queryset(self, request):
            return super().get_queryset(request)

    found = pages(connect(server=server), "resources/list")
    assert len(found) == 3 and Company.objects.count() == 1
    assert {page["cacheScope"] for page in found} == {"private"}


@pytest.mark.parametrize("method", METHODS.values())
@pytest.mark.parametrize(
    ("permission", "scope"),
    [
        (mcp.PUBLIC, "public"),
        (mcp.AUTHENTICATED, "private"),
        ("shop.change_invoice", "private"),
        (lambda request: True, "private"),
    ],
)
def test_list_is_public_only_if_it_is_equal_for_all_callers(
    connect, server, declared, alice, bob, method, permission, scope
):
    declared("one")
    declared("two", permission)
    seen = [connect(user, server=server).request(method) for user in (alice, bob, None)]
    assert {result["cacheScope"] for result in seen} == {scope}
    if scope == "public":
        assert seen[0] == seen[1] == seen[2]
    else:
        assert seen[0] != seen[2]


def test_list_with_a_custom_permission_method_is_private(connect, server):
    @server.register
    class Mine(mcp.Tool):
        """Mine."""

        permission = mcp.PUBLIC

        def has_permission(self, request):
            return request.user.is_staff

        def handle(self, request): ...

    assert hints(connect(server=server), "tools/list") == (0, "private")


@pytest.mark.parametrize("method", ["get_size", "get_last_modified"])
def test_list_with_custom_entries_is_private(connect, server, method):
    class Menu(mcp.Resource):
        """The menu."""

        uri = "menu://today"
        permission = mcp.PUBLIC

        def read(self, request) -> str: ...

    setattr(Menu, method, lambda self, request: None)
    server.register(Menu)
    assert hints(connect(server=server), "resources/list") == (0, "private")


@contextmanager
def in_the_callers_language(request):
    yield


@pytest.mark.parametrize("method", METHODS.values())
def test_list_is_private_if_around_is_set(connect, server, declared, settings, method):
    declared("one")
    settings.DJANGO_MCP = {"AROUND": [f"{__name__}.in_the_callers_language"]}
    assert hints(connect(server=server), method)[1] == "private"


def test_resource_is_private_unless_declared_shared(connect, server, declared):
    declared("one", cache=60)
    declared("all", cache=60, shared=True)
    client = connect(server=server)
    assert hints(client, "resources/read", uri="thing://one")[1] == "private"
    assert hints(client, "resources/read", uri="thing://all")[1] == "public"


@pytest.mark.parametrize("permission", [mcp.AUTHENTICATED, "shop.view_note", lambda request: True])
def test_shared_requires_public_permission(server, declared, permission):
    declared("one", permission, shared=True)
    assert any("shared" in problem for problem in startup_errors(server))


@pytest.mark.parametrize("scope", ["public", "private"])
def test_permission_is_checked_regardless_of_the_cache_scope(connect, server, alice, scope):
    allowed = [True]

    @server.register
    class Menu(mcp.Resource):
        """The menu."""

        uri = "menu://today"
        permission = mcp.PUBLIC
        cache = 3600

        def read(self, request) -> str:
            return "Soup"

        def has_permission(self, request):
            return allowed[0]

    @server.resource("menu://all", permission=mcp.PUBLIC, cache=3600, shared=True)
    def everything(request) -> str:
        return "Soup"

    client = connect(alice, server=server)
    uri = "menu://today" if scope == "private" else "menu://all"
    assert hints(client, "resources/read", uri=uri) == (3_600_000, scope)
    allowed[0] = False
    server._catalog.resources["menu://all"].permission = "shop.nobody"
    assert request_error(client, "resources/read", uri=uri).code == -32602
    assert client.request("resources/list")["resources"] == []
