"""Full-text search of a model resource, on the database of the test run.

The migrations of the documentation make the index of MariaDB and the table of SQLite.
"""

from __future__ import annotations

from typing import Any

import django
import pytest
from django.core.management import call_command
from django.db import connection, migrations, models
from django.test.utils import isolate_apps
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import django_mcp as mcp
from django_mcp.declarations.fields.search import Search
from django_mcp.exceptions import InvalidArguments
from tests.docs.pages import ROOT, blocks
from tests.shop.models import Article, Company, LedgerLine

from .helpers import make_request, single_problem, valid_catalog

PAGE = ROOT / "docs/how-to/full-text-search.md"
MIGRATIONS = dict(
    zip(
        ("mysql", "sqlite"),
        [code for code in blocks(PAGE, "python") if "migrations" in code],
        strict=True,
    )
)
# InnoDB finds only what is committed.
pytestmark = pytest.mark.django_db(transaction=True)
DECLARED = mcp.FullTextSearch(config="english", sqlite_table="shop_article_text")
TABLE = "shop_article_text"


class Own(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["title", "body"]
    search_fields = ["title", "body"]
    ordering = ["title"]
    group_fields = ["title"]
    full_text_search = DECLARED

    def get_queryset(self, request):
        return super().get_queryset(request).filter(team__members=request.user)


def only_on(vendor: str) -> Any:
    return pytest.mark.skipif(connection.vendor != vendor, reason=f"needs {vendor}")


def migration() -> Any:
    """Return the operation of the page for this database, or None."""
    namespace: dict[str, Any] = {"migrations": migrations}
    if (code := MIGRATIONS.get(connection.vendor)) is None:
        return None
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    return namespace["operations"][0]


def run(operation: Any, sql: str) -> None:
    with connection.schema_editor(atomic=False) as editor:
        operation._run_sql(editor, getattr(operation, sql))


@pytest.fixture
def index(transactional_db):
    """Make the index or table of the page."""
    operation = migration()
    if operation is not None:
        run(operation, "sql")
    yield
    if operation is not None:
        run(operation, "reverse_sql")


@pytest.fixture
def articles(index, alice):
    acme = Company.objects.get(name="Acme")
    other = Company.objects.create(name="Other")
    texts = [
        ("Red foxes", "A quick fox jumps over the lazy dog. It is 42.", acme),
        ("Blue whales", "The fox does not know about whales. whales, whales!", acme),
        ("Dogs", "Nothing to see: dog food and part A-3 of it.", acme),
        ("Theirs", "A quick secret fox of others.", other),
    ]
    for title, body, team in texts:
        Article.objects.create(title=title, body=body, draft="unfinished", team=team)


@pytest.fixture
def declare(server):
    def declared(**attributes):
        server.register(Article, type("Rows", (Own,), attributes))
        return valid_catalog(server)

    return declared


def search(catalog, user, tool="search_article", **arguments):
    found = catalog.tools[tool]
    values = found._arguments.read(arguments)
    return found._implementation(make_request(user, catalog.server), **values)


def titles(*args, **arguments):
    return [row["title"] for row in search(*args, **arguments)["results"]]


def test_words_are_found_with_the_index_of_the_database(declare, alice, articles, queries):
    catalog = declare()
    found = {
        "fox": {"Red foxes", "Blue whales"},
        "quick fox": {"Red foxes"},
        "fox quick": {"Red foxes"},
        '"quick fox"': {"Red foxes"},
        '"fox quick"': set(),
        "QUICK": {"Red foxes"},
        "blue fox": {"Blue whales"},  # each word in any of the fields
        "secret": set(),  # the row of others
        "unfinished": set(),  # a column that is not searched
        "nothing-at-all": set(),
        "ood": set(),  # a part of a word
        "42 dog": {"Red foxes"},
        "food A-3": {"Dogs"},
    }
    for query, expected in found.items():
        assert set(titles(catalog, alice, query=query)) == expected, query
    words = {"postgresql": "websearch_to_tsquery", "mysql": "AGAINST", "sqlite": "MATCH"}
    assert words[connection.vendor] in queries.captured_queries[-1]["sql"]


def test_words_that_the_index_omits_are_found_too(declare, alice, articles):
    catalog = declare()
    assert titles(catalog, alice, query="the quick fox is") == ["Red foxes"]
    # PostgreSQL drops stop words from texts and from queries.
    expected = [] if connection.vendor == "postgresql" else ["Red foxes"]
    assert titles(catalog, alice, query="the is") == expected
    assert titles(catalog, alice, query="") == ["Blue whales", "Dogs", "Red foxes"]


def test_best_matches_are_first_where_the_database_ranks(declare, alice, articles):
    acme = Company.objects.get(name="Acme")
    Article.objects.create(title="A fox", body="", team=acme)
    Article.objects.create(title="Z fox", body="fox fox fox", team=acme)
    catalog = declare()
    about = catalog.tools["search_article"]._definition()["inputSchema"]["properties"]["query"]
    ranked = connection.vendor == "postgresql"
    assert about["description"].endswith("The best matches first.") is ranked
    everything = titles(catalog, alice, query="fox")
    assert (everything[0] == "Z fox") is ranked
    assert (everything == sorted(everything)) is not ranked
    ordered = titles(catalog, alice, query="fox", ordering="-title")
    assert ordered == sorted(ordered, reverse=True)


def test_pages_of_ranked_rows_have_each_row_once(declare, alice, articles):
    acme = Company.objects.get(name="Acme")
    for number in range(25):
        Article.objects.create(title=f"T{number}", body="fox " * (number % 5 + 1), team=acme)
    catalog, seen, cursor = declare(), [], {}
    while True:
        found = search(catalog, alice, query="fox", limit=4, **cursor)
        seen += [row["title"] for row in found["results"]]
        if "next_cursor" not in found:
            break
        cursor = {"cursor": found["next_cursor"]}
        with pytest.raises(InvalidArguments, match="cursor"):
            search(catalog, alice, query="foxes", **cursor)
    assert len(seen) == len({*seen}) == 27
    assert seen == titles(catalog, alice, query="fox", limit=100)


def test_object_permission_applies_to_ranked_rows(declare, alice, articles):
    def few(self, request, obj, action):
        return obj.title == "Red foxes"

    catalog = declare(has_object_permission=few, group_fields=[])
    assert titles(catalog, alice, query="fox", limit=1) == ["Red foxes"]


@pytest.mark.parametrize("how", ["distinct", "joined"])
def test_queryset_with_joins_is_searched(declare, alice, articles, how):
    def rows(self, request):
        found = Article.objects.filter(team__members=request.user).select_related("team")
        return found.distinct() if how == "distinct" else found.order_by("team__name")

    catalog = declare(get_queryset=rows)
    assert set(titles(catalog, alice, query="fox")) == {"Red foxes", "Blue whales"}


def test_aggregates_use_the_same_query(declare, alice, articles):
    catalog = declare()
    found = search(catalog, alice, tool="aggregate_article", query="fox")
    assert found == {"groups": [{"count": 2}], "more": False}


OPERATORS = "\"'\\+-*()<>~@:^{}[]|&!%_;,.#$=/?` \t\n"
ODD = st.text(st.sampled_from(OPERATORS + "ab" + "é日\u0301\u202e\ufffe🦊"), max_size=40)
WORDS = st.sampled_from(["fox", "NEAR(", "AND", "OR", "NOT", "title:", "or", "-fox", "fox*", '"'])


@settings(
    max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(query=st.lists(ODD | WORDS, max_size=8).map(" ".join))
def test_no_query_is_a_database_error(articles, query):
    """Only a query that is too long is refused."""
    both = Search(Article, ["title", "body"], full_text=DECLARED)
    try:
        rows = both.apply(Article.objects.all(), {"query": query})
        keyset = both.keyset({"query": query})
    except ValueError as error:
        assert "query: must" in str(error)
        return
    keyset.page(rows, None, 5)
    list(rows)


@pytest.mark.parametrize("query", ["fox OR secret", "fox -lion", "title:fox", "NOT lion", "fo*"])
def test_operators_are_ordinary_text(declare, alice, articles, query):
    assert titles(declare(), alice, query=query) == []


@only_on("sqlite")
def test_plain_search_where_the_database_is_not_declared(declare, alice, articles):
    catalog = declare(full_text_search=mcp.FullTextSearch(config="english"))
    assert titles(catalog, alice, query="ood") == ["Dogs"]


@only_on("sqlite")
def test_table_with_more_columns_does_not_show_them(declare, alice, articles):
    with connection.cursor() as cursor:
        cursor.execute("CREATE VIRTUAL TABLE wider USING fts5(title, body, draft)")
        cursor.execute(
            "INSERT INTO wider(rowid, title, body, draft) "
            "SELECT id, title, body, draft FROM shop_article"
        )
    try:
        catalog = declare(full_text_search=mcp.FullTextSearch(sqlite_table="wider"))
        assert titles(catalog, alice, query="fox") == ["Blue whales", "Red foxes"]
        assert titles(catalog, alice, query="unfinished") == []
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE wider")


# Checks.


@pytest.fixture
def warnings(server, declare):
    def found():
        from django_mcp.declarations.catalog import full_text_warnings

        return [*full_text_warnings(server._catalog, ["default"])]

    return found


def test_missing_index_is_a_warning(declare, warnings, db):
    declare()
    assert [message.id for message in warnings()] == (
        [] if connection.vendor == "postgresql" else ["django_mcp.W243"]
    )


def test_index_of_the_page_is_found(declare, warnings, index):
    declare()
    assert warnings() == []


def test_warnings_are_part_of_check_with_a_database(monkeypatch, server, declare, index, capsys):
    from django_mcp.declarations import server as servers

    declare(full_text_search=mcp.FullTextSearch(config="klingon", sqlite_table="gone"))
    monkeypatch.setattr(servers, "servers", lambda: [server])
    call_command("check", "--database", "default", "--tag", "database")
    told = capsys.readouterr().err
    expected = connection.vendor != "mysql"
    assert ("django_mcp.W243" in told) is expected
    if django.VERSION < (6, 1):  # later versions check all databases by default
        call_command("check", "--tag", "database")
        assert "W243" not in capsys.readouterr().err


@only_on("sqlite")
def test_table_without_triggers_is_a_warning(declare, warnings, index):
    declare()
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        made = dict(cursor.fetchall())
        assert len(made) == 3
        for name in made:
            cursor.execute(f"DROP TRIGGER {name}")
        (message,) = warnings()
        assert "no trigger" in message.msg and message.hint
        for sql in made.values():
            cursor.execute(sql)


@pytest.mark.parametrize(
    "attributes",
    [
        {"fields": ["title", "team__name"], "search_fields": ["title", "team__name"]},
        {"search_fields": [], "filter_fields": ["title"]},
    ],
)
def test_search_fields_elsewhere_are_an_error(server, attributes):
    server.register(Article, type("Rows", (Own,), attributes))
    assert single_problem(server).id == "django_mcp.E240"


@pytest.mark.parametrize("name", ["nonsense", "draft"])
def test_vector_field_of_another_kind_is_an_error(server, name):
    declared = mcp.FullTextSearch(vector_field=name)
    server.register(Article, type("Rows", (Own,), {"full_text_search": declared}))
    assert single_problem(server).id == "django_mcp.E241"


def test_sqlite_table_needs_an_integer_key(server):
    class Lines(mcp.ModelResource):
        fields = ["text"]
        search_fields = ["text"]
        full_text_search = mcp.FullTextSearch(sqlite_table="x")

    server.register(LedgerLine, Lines)
    assert single_problem(server).id == "django_mcp.E242"


def test_wrong_type_of_declaration_is_an_error(server):
    server.register(Article, type("Rows", (Own,), {"full_text_search": True}))
    message = single_problem(server)
    assert message.id == "django_mcp.E060" and "mcp.FullTextSearch()" in message.hint


def vector_model(*names: str) -> Any:
    """Return a model like the one of the page, whose vector contains ``names``."""
    from django.contrib.postgres.search import SearchVector, SearchVectorField

    class Essay(models.Model):
        title = models.CharField(max_length=200)
        body = models.TextField()
        secret = models.TextField(default="hidden")
        words = models.GeneratedField(
            expression=SearchVector(*names, config="english"),
            output_field=SearchVectorField(),
            db_persist=True,
        )

        class Meta:
            app_label = "shop"

        def __str__(self) -> str:
            return self.title

    return Essay


@isolate_apps("tests.shop")
def test_vector_of_a_hidden_column_is_an_error(server):
    attributes = {"full_text_search": mcp.FullTextSearch(vector_field="words"), "group_fields": []}
    server.register(vector_model("title", "secret"), type("Rows", (Own,), attributes))
    message = single_problem(server)
    assert message.id == "django_mcp.E241" and "'secret'" in message.msg


@only_on("postgresql")
@isolate_apps("tests.shop")
def test_vector_field_is_searched(server, alice, transactional_db):
    model = vector_model("title", "body")

    class Essays(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["title", "body"]
        search_fields = ["title", "body"]
        full_text_search = mcp.FullTextSearch(config="english", vector_field="words")

        def get_queryset(self, request):
            return model.objects.all()

    server.register(model, Essays)
    with connection.schema_editor() as editor:
        editor.create_model(model)
    try:
        model.objects.create(title="Houses", body="and gardens")
        model.objects.create(title="Gardens", body="and gardens")
        catalog = valid_catalog(server)
        assert titles(catalog, alice, tool="search_essay", query="garden") == ["Gardens", "Houses"]
        assert titles(catalog, alice, tool="search_essay", query="house") == ["Houses"]
        assert titles(catalog, alice, tool="search_essay", query="hidden") == []
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(model)
