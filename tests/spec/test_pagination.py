"""Pagination, as server/utilities/pagination of each revision requires."""

import pytest

import django_mcp as mcp
from tests.shop.models import Company

from .helpers import LISTS, declare, request_error

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def short_pages(settings):
    settings.DJANGO_MCP = {"PAGE_SIZE": 3}


def page(client, kind, cursor=None):
    """The names on a page, and the cursor of the next."""
    method, member = LISTS[kind]
    result = client.request(method, **({} if cursor is None else {"cursor": cursor}))
    return [item["name"] for item in result[member]], result.get("nextCursor")


@pytest.fixture(params=LISTS)
def kind(request):
    return request.param


NAMES = [f"n{number}" for number in range(8)]


def test_pages_together_are_the_list(connect, server, revision, kind):
    for name in NAMES:
        declare(server, kind, name)
    client = connect(server=server, revision=revision)
    first, cursor = page(client, kind)
    second, next_cursor = page(client, kind, cursor)
    third, end = page(client, kind, next_cursor)
    assert (first, second, third, end) == (NAMES[:3], NAMES[3:6], NAMES[6:], None)
    assert page(client, kind, cursor)[0] == second  # again
    other = connect(server=server, revision=revision)
    assert page(other, kind, cursor)[0] == second  # it is of no connection


def test_cursor_survives_a_deployment(connect, server, revision, kind):
    """The next process has new entries first and lacks an old one."""
    for name in NAMES:
        declare(server, kind, name)
    _, cursor = page(connect(server=server, revision=revision), kind)
    kept = server._records[:1] + server._records[2:]
    server._records.clear()
    server._forget()
    declare(server, kind, "new")
    declare(server, kind, "newer")
    server._records += kept
    assert page(connect(server=server, revision=revision), kind, cursor)[0] == NAMES[3:6]


@pytest.fixture
def companies(server, bob):
    """Companies as resources, one row each."""

    @server.register(Company)
    class Companies(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["name"]
        ordering = ["name"]
        listed = True

        def get_queryset(self, request):
            return super().get_queryset(request)

        def get_title(self, request, row):
            return row.name

    Company.objects.all().delete()
    Company.objects.bulk_create(Company(name=f"c{number}") for number in range(10, 18))
    return server


def test_cursor_stays_valid_when_rows_are_added_and_deleted(connect, companies, bob, revision):
    client = connect(bob, server=companies, revision=revision)
    first, cursor = page(client, "resources")
    assert first == ["c10", "c11", "c12"]
    Company.objects.filter(name__in=["c10", "c12", "c14"]).delete()  # shown, the last, to come
    Company.objects.bulk_create(Company(name=name) for name in ("c00", "c115", "c135"))
    second, cursor = page(client, "resources", cursor)
    assert second == ["c13", "c135", "c15"]  # none twice, none left out
    third, cursor = page(client, "resources", cursor)
    assert (third, cursor) == (["c16", "c17"], None)


def test_cursor_stays_valid_when_its_row_moves(connect, companies, bob, revision):
    client = connect(bob, server=companies, revision=revision)
    _, cursor = page(client, "resources")
    Company.objects.filter(name="c12").update(name="c99")
    assert page(client, "resources", cursor)[0] == ["c13", "c14", "c15"]


BAD_CURSORS = [
    "", "x", "0", "3", "eyJwYWdlIjogMn0=", "a:b:c", "..", "null", "é", "\0", "x" * 100_000,
    1, 0, True, False, [], ["x"], {}, {"page": 2}, 1.5,
]  # fmt: skip


def test_invalid_cursor_is_invalid_params(connect, server, revision, kind):
    for name in NAMES:
        declare(server, kind, name)
    client = connect(server=server, revision=revision)
    method, _ = LISTS[kind]
    for cursor in BAD_CURSORS:
        refused = request_error(client, method, cursor=cursor)
        assert refused.code == -32602 and refused.message.startswith("cursor"), cursor
    assert page(client, kind)[0] == NAMES[:3]


def test_modified_cursor_is_rejected(connect, server, revision):
    for name in NAMES:
        declare(server, "tools", name)
    client = connect(server=server, revision=revision)
    _, cursor = page(client, "tools")
    changed = [cursor[:-1], cursor + "A", cursor[1:], cursor.swapcase(), f"{cursor}:x"]
    changed += [cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :]
                for at in range(0, len(cursor) - 1, 7)]  # fmt: skip
    for one in changed:
        assert request_error(client, "tools/list", cursor=one).code == -32602


def test_cursor_is_valid_for_one_list_only(connect, server, alice, revision):
    for kind in LISTS:
        for name in NAMES:
            declare(server, kind, f"{kind}-{name}")
    client = connect(alice, server=server, revision=revision)
    for kind in LISTS:
        _, cursor = page(client, kind)
        for other in set(LISTS) - {kind}:
            assert request_error(client, LISTS[other][0], cursor=cursor).code == -32602
    others = mcp.Server(f"not the one of {revision}")
    for name in NAMES:
        declare(others, "tools", name)
    _, cursor = page(client, "tools")
    elsewhere = connect(alice, server=others, revision=revision)
    assert request_error(elsewhere, "tools/list", cursor=cursor).code == -32602


def test_cursor_of_a_private_list_is_valid_for_its_user_only(
    connect, server, alice, bob, revision, kind
):
    declare(server, kind, "guarded", permission=mcp.AUTHENTICATED)
    for name in NAMES:
        declare(server, kind, name)
    mine = connect(alice, server=server, revision=revision)
    _, cursor = page(mine, kind)
    assert page(mine, kind, cursor)[0] == NAMES[2:5]
    for user in (bob, None):
        stranger = connect(user, server=server, revision=revision)
        assert request_error(stranger, LISTS[kind][0], cursor=cursor).code == -32602


def test_cursor_of_a_public_list_is_valid_for_everybody(
    connect, server, alice, bob, revision, kind
):
    """The page with the cursor may come from a shared cache."""
    for name in NAMES:
        declare(server, kind, name)
    _, cursor = page(connect(alice, server=server, revision=revision), kind)
    for user in (alice, bob, None):
        client = connect(user, server=server, revision=revision)
        assert page(client, kind, cursor)[0] == NAMES[3:6]


def test_cursor_of_another_ordering_is_invalid_params(
    connect, companies, bob, revision, monkeypatch
):
    """An earlier release of the project may have used another ordering."""
    client = connect(bob, server=companies, revision=revision)
    _, cursor = page(client, "resources")
    [resource] = companies._catalog.templates.values()
    del resource._keyset
    monkeypatch.setattr(type(resource), "ordering", ["-name", "id"])
    assert request_error(client, "resources/list", cursor=cursor).code == -32602
