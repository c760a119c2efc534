"""What the specification asks of pagination: server/utilities/pagination of each revision."""

import pytest

import django_mcp as mcp
from tests.shop.models import Company

from .seen import LISTS, declare, refusal

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


def test_pages_make_up_the_list(connect, server, revision, kind):
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


def test_a_cursor_outlives_a_deployment(connect, server, revision, kind):
    """Another process, in which something new stands before and something old is gone."""
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


def test_a_cursor_stays_right_while_rows_come_and_go(connect, companies, bob, revision):
    client = connect(bob, server=companies, revision=revision)
    first, cursor = page(client, "resources")
    assert first == ["c10", "c11", "c12"]
    Company.objects.filter(name__in=["c10", "c12", "c14"]).delete()  # shown, the last, to come
    Company.objects.bulk_create(Company(name=name) for name in ("c00", "c115", "c135"))
    second, cursor = page(client, "resources", cursor)
    assert second == ["c13", "c135", "c15"]  # none twice, none left out
    third, cursor = page(client, "resources", cursor)
    assert (third, cursor) == (["c16", "c17"], None)


def test_a_cursor_stays_right_when_its_row_moves(connect, companies, bob, revision):
    client = connect(bob, server=companies, revision=revision)
    _, cursor = page(client, "resources")
    Company.objects.filter(name="c12").update(name="c99")
    assert page(client, "resources", cursor)[0] == ["c13", "c14", "c15"]


BAD_CURSORS = [
    "", "x", "0", "3", "eyJwYWdlIjogMn0=", "a:b:c", "..", "null", "é", "\0", "x" * 100_000,
    1, 0, True, False, [], ["x"], {}, {"page": 2}, 1.5,
]  # fmt: skip


def test_what_is_no_cursor_is_an_invalid_parameter(connect, server, revision, kind):
    for name in NAMES:
        declare(server, kind, name)
    client = connect(server=server, revision=revision)
    method, _ = LISTS[kind]
    for cursor in BAD_CURSORS:
        refused = refusal(client, method, cursor=cursor)
        assert refused.code == -32602 and refused.message.startswith("cursor"), cursor
    assert page(client, kind)[0] == NAMES[:3]


def test_a_cursor_that_was_changed_is_none(connect, server, revision):
    for name in NAMES:
        declare(server, "tools", name)
    client = connect(server=server, revision=revision)
    _, cursor = page(client, "tools")
    changed = [cursor[:-1], cursor + "A", cursor[1:], cursor.swapcase(), f"{cursor}:x"]
    changed += [cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :]
                for at in range(0, len(cursor) - 1, 7)]  # fmt: skip
    for one in changed:
        assert refusal(client, "tools/list", cursor=one).code == -32602


def test_a_cursor_is_of_one_list(connect, server, alice, revision):
    for kind in LISTS:
        for name in NAMES:
            declare(server, kind, f"{kind}-{name}")
    client = connect(alice, server=server, revision=revision)
    for kind in LISTS:
        _, cursor = page(client, kind)
        for other in set(LISTS) - {kind}:
            assert refusal(client, LISTS[other][0], cursor=cursor).code == -32602
    others = mcp.Server(f"not the one of {revision}")
    for name in NAMES:
        declare(others, "tools", name)
    _, cursor = page(client, "tools")
    elsewhere = connect(alice, server=others, revision=revision)
    assert refusal(elsewhere, "tools/list", cursor=cursor).code == -32602


def test_a_cursor_of_ones_own_list_is_ones_own(connect, server, alice, bob, revision, kind):
    declare(server, kind, "guarded", permission=mcp.AUTHENTICATED)
    for name in NAMES:
        declare(server, kind, name)
    mine = connect(alice, server=server, revision=revision)
    _, cursor = page(mine, kind)
    assert page(mine, kind, cursor)[0] == NAMES[2:5]
    for user in (bob, None):
        stranger = connect(user, server=server, revision=revision)
        assert refusal(stranger, LISTS[kind][0], cursor=cursor).code == -32602


def test_a_cursor_of_everybodys_list_is_everybodys(connect, server, alice, bob, revision, kind):
    """The page it stands on may have come out of a shared cache."""
    for name in NAMES:
        declare(server, kind, name)
    _, cursor = page(connect(alice, server=server, revision=revision), kind)
    for user in (alice, bob, None):
        client = connect(user, server=server, revision=revision)
        assert page(client, kind, cursor)[0] == NAMES[3:6]


def test_a_cursor_of_rows_that_cannot_be_is_an_invalid_parameter(
    connect, companies, bob, revision, monkeypatch
):
    """One that an earlier release sealed, when the order was another."""
    client = connect(bob, server=companies, revision=revision)
    _, cursor = page(client, "resources")
    [resource] = companies._catalog.templates.values()
    del resource._keyset
    monkeypatch.setattr(type(resource), "ordering", ["-name", "id"])
    assert refusal(client, "resources/list", cursor=cursor).code == -32602
