"""Models made at random from a seed, and their rows in two worlds.

Each row belongs to a tenant, and may be deleted or private to its owner. In one world there are
rows that the user alice may not see. In the other world these rows and all links to them do not
exist, and the hidden columns of her rows have other values.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection, models

from tests.rollback import rolled_back

APP = "leaks"
# Values that only hidden rows and hidden columns have, however they are written.
CANARY = r"kanary-\d+|-?91827\d{3}|-?8172635\d|-?73519\d\d|1907-\d\d|555\d{3}|c0ffee"


@dataclass(frozen=True)
class Kind:
    """A type of column: how to make it, a plain value and a secret value for a number below 100."""

    make: Callable[..., models.Field[Any, Any]]
    plain: Callable[[int], Any]
    secret: Callable[[int], Any]
    other: Callable[[int], Any]  # the secret in the other world, in the opposite order
    is_text: bool = False
    is_number: bool = False
    is_ordered: bool = True


def _moment(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def _day(year: int, number: int) -> date:
    return date(year, 1, 1) + timedelta(days=number)


def _text(make: Callable[..., models.Field[Any, Any]], **options: bool) -> Kind:
    # Rows have the same words with other frequencies, and hidden rows have one of these words. A
    # rank by how rare a word is would order the visible rows by the number of hidden rows.
    return Kind(
        make, lambda n: f"word {n:02} word {'word' if n % 2 else 'other'} other",
        lambda n: f"kanary-{n:02} word", lambda n: f"a kanary-{99 - n}", is_text=True,
        **options,
    )  # fmt: skip


STATES = ["draft", "open", "final"]
KINDS: dict[str, Kind] = {
    "text": _text(lambda **options: models.CharField(max_length=40, **options)),
    # MariaDB orders by the beginning of a long text only.
    "prose": _text(models.TextField, is_ordered=connection.vendor != "mysql"),
    "integer": Kind(
        models.IntegerField, lambda n: 10 * n, lambda n: 91_827_000 + n, lambda n: -91_827_000 - n,
        is_number=True,
    ),
    "decimal": Kind(
        lambda **options: models.DecimalField(max_digits=12, decimal_places=2, **options),
        lambda n: Decimal(n) + Decimal("0.50"), lambda n: Decimal(81_726_350) + n % 10,
        lambda n: -Decimal(81_726_350) - n % 10, is_number=True,
    ),
    "float": Kind(
        models.FloatField, lambda n: n + 0.5, lambda n: 7_351_900.5 + n,
        lambda n: -7_351_900.5 - n, is_number=True,
    ),
    "date": Kind(
        models.DateField, lambda n: _day(2026, n), lambda n: _day(1907, n),
        lambda n: _day(1907, 300 - n),
    ),
    "moment": Kind(
        models.DateTimeField, lambda n: _moment(_day(2026, n)), lambda n: _moment(_day(1907, n)),
        lambda n: _moment(_day(1907, 300 - n)),
    ),
    "duration": Kind(
        models.DurationField, lambda n: timedelta(days=n), lambda n: timedelta(days=555_000 + n),
        lambda n: timedelta(days=555_900 - n),
    ),
    "uuid": Kind(
        models.UUIDField, lambda n: uuid.UUID(int=n + 1),
        lambda n: uuid.UUID(f"c0ffee00-0000-4000-8000-{n:012}"),
        lambda n: uuid.UUID(f"00c0ffee-0000-4000-8000-{99 - n:012}"), is_ordered=False,
    ),
    "flag": Kind(
        models.BooleanField, lambda n: n % 3 == 0, lambda n: n % 2 == 0, lambda n: n % 2 == 1
    ),
    "state": Kind(
        lambda **options: models.CharField(
            max_length=9, choices=[(one, one.title()) for one in STATES], **options
        ),
        lambda n: STATES[n % 2], lambda n: STATES[n % 3], lambda n: STATES[(n + 1) % 3],
    ),
    "json": Kind(
        models.JSONField, lambda n: {"word": n}, lambda n: {"word": f"kanary-{n}"},
        lambda n: {"word": f"a kanary-{99 - n}"}, is_ordered=False,
    ),
}  # fmt: skip
NOUNS = ["Ledger", "Voyage", "Kiln", "Harbor", "Parcel", "Orchard", "Quarry", "Relay"]
ADJECTIVES = [
    "amber",
    "brisk",
    "calm",
    "deep",
    "early",
    "faint",
    "grand",
    "hollow",
    "inner",
    "keen",
]
VISIBLE, FOREIGN, DELETED, PRIVATE = 5, 4, 3, 3  # rows of each model


VECTOR = "vector"  # the column for vector search, if the database has pgvector


def has_pgvector() -> bool:
    """Whether the database server has the extension pgvector."""
    if connection.vendor != "postgresql":
        return False
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")
        return cursor.fetchone() is not None


@dataclass
class Table:
    """One model, and what its columns are for."""

    model: Any
    shown: dict[str, str]  # the kind of each column that clients may see
    hidden: dict[str, str]
    tenant: str
    deleted: str
    owner: str
    parent: str = ""  # a foreign key that clients may see
    hidden_parent: str = ""
    children: str = ""  # the many-to-many relation, or the reverse of ``parent``
    is_many: bool = False
    target: Table | None = None  # of the relations
    by_object: bool = False  # private rows are removed by object permission
    visible_keys: list[int] = field(default_factory=list)
    hidden_keys: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.model._meta.model_name)

    @property
    def text_table(self) -> str:
        """The FTS5 table with all columns of text, also the hidden ones."""
        return f"{self.model._meta.db_table}_text"

    @property
    def texts(self) -> list[str]:
        """All columns of text, also the hidden ones."""
        return [name for name, kind in (self.shown | self.hidden).items() if KINDS[kind].is_text]

    def named(self, test: Callable[[Kind], bool]) -> list[str]:
        return [name for name, kind in self.shown.items() if test(KINDS[kind])]


def text_table_sql(table: Table) -> Iterator[str]:
    """Yield the statements that make the FTS5 table of a model, as the how-to page has them."""
    model, name = table.model._meta.db_table, table.text_table
    columns = ", ".join(table.texts)
    new, old = (", ".join(f"{row}.{one}" for one in ["id", *table.texts]) for row in ("new", "old"))
    add = f"INSERT INTO {name}(rowid, {columns}) VALUES ({new});"
    remove = f"INSERT INTO {name}({name}, rowid, {columns}) VALUES ('delete', {old});"
    yield (
        f"CREATE VIRTUAL TABLE {name} USING fts5({columns}, content='{model}', content_rowid='id')"
    )
    yield f"CREATE TRIGGER {name}_add AFTER INSERT ON {model} BEGIN {add} END"
    yield f"CREATE TRIGGER {name}_del AFTER DELETE ON {model} BEGIN {remove} END"
    yield f"CREATE TRIGGER {name}_set AFTER UPDATE ON {model} BEGIN {remove} {add} END"


class Schema:
    """The models of one seed. Each module of tests makes their tables once."""

    def __init__(self, seed: int) -> None:
        self.seed, self._random = seed, random.Random(seed)
        self.has_vectors = has_pgvector()
        self.app = apps.get_app_config(APP)
        self.tenant = self._model(
            "Tenant", member=models.IntegerField(), title=models.CharField(max_length=40)
        )
        self.tables: list[Table] = []
        for noun in self._random.sample(NOUNS, 3):
            self.tables.append(self._table(noun))
        first, last = self.tables[0], self.tables[-1]
        first.by_object = True
        first.children = f"{last.name}_set" if last.target is first else ""
        apps.clear_cache()

    def _model(self, name: str, **fields: Any) -> Any:
        meta = type("Meta", (), {"app_label": APP})
        text = {"__str__": lambda self: self.text()} if name != "Tenant" else {}
        made = {"__module__": __name__, "Meta": meta, **fields, **text}
        return type(f"{name}{self.seed}", (models.Model,), made)

    def _columns(self, names: Iterator[str], count: int) -> dict[str, str]:
        kinds = ["text", *self._random.sample([one for one in KINDS if one != "text"], count - 1)]
        return {next(names): kind for kind in kinds}

    def _table(self, noun: str) -> Table:
        chance = self._random
        names = iter(chance.sample(ADJECTIVES, len(ADJECTIVES)))
        shown, hidden = self._columns(names, 4), self._columns(names, 4)
        fields = {
            name: KINDS[kind].make(**(
                {"null": True, "blank": True} if kind not in ("text", "prose", "state")
                # New rows have no values of hidden columns.
                and (name in hidden or chance.random() < 0.3) else {}
            ))
            for name, kind in (shown | hidden).items()
        }  # fmt: skip
        tenant = chance.choice(["tenant", "company", "account"])
        owner = chance.choice(["owner", "editor"])
        fields[tenant] = models.ForeignKey(self.tenant, models.CASCADE, related_name="+")
        fields[owner] = models.IntegerField(null=True, blank=True)
        deleted = chance.choice(["deleted_at", "removed"])
        fields[deleted] = (
            models.DateTimeField(null=True, blank=True)
            if deleted == "deleted_at"
            else models.BooleanField(default=False)
        )
        if self.has_vectors:
            from pgvector.django import VectorField

            fields[VECTOR] = VectorField(dimensions=2, null=True, blank=True)
        relations: dict[str, Any] = {}
        if self.tables:
            target = self.tables[0] if len(self.tables) > 1 else chance.choice(self.tables)
            relations = {"parent": "parent", "hidden_parent": "origin", "target": target}
            link = {"null": True, "blank": True, "on_delete": models.SET_NULL}
            fields["parent"] = models.ForeignKey(target.model, **link)
            fields["origin"] = models.ForeignKey(target.model, related_name="+", **link)
        if len(self.tables) == 1:
            fields["links"] = models.ManyToManyField(
                self.tables[0].model, blank=True, related_name="+"
            )
            relations |= {"children": "links", "is_many": True}
        label = next(iter(shown))
        fields["text"] = lambda row: getattr(row, label)
        return Table(
            self._model(noun, **fields), shown, hidden, tenant, deleted, owner, **relations
        )

    # Tables.

    @property
    def models(self) -> list[Any]:
        return [self.tenant, *(table.model for table in self.tables)]

    def create(self) -> None:
        with connection.schema_editor() as editor:
            if self.has_vectors:
                editor.execute("CREATE EXTENSION IF NOT EXISTS vector")
            for model in self.models:
                editor.create_model(model)
            if connection.vendor == "sqlite":
                for statement in (one for table in self.tables for one in text_table_sql(table)):
                    editor.execute(statement, None)  # type: ignore[arg-type]

    def drop(self) -> None:
        with connection.schema_editor() as editor:
            if connection.vendor == "sqlite":
                for table in self.tables:
                    editor.execute(f"DROP TABLE {table.text_table}")
            for model in reversed(self.models):
                editor.delete_model(model)
        apps.all_models[APP].clear()
        apps.clear_cache()
        ContentType.objects.clear_cache()

    # Rows.

    def fill(self) -> User:
        """Create the rows of the world with hidden rows, and the users alice and mallory."""
        ContentType.objects.clear_cache()  # of types that the test before rolled back
        chance = random.Random(self.seed)
        alice = User.objects.create_user("alice", is_staff=True)
        mallory = User.objects.create_user("mallory", is_staff=True)
        types = ContentType.objects.get_for_models(*self.models)
        for table in self.tables:
            for verb in ("view", "add", "change", "delete"):
                granted = Permission.objects.create(
                    codename=f"{verb}_{table.name}", name=verb, content_type=types[table.model]
                )
                alice.user_permissions.add(granted)
                mallory.user_permissions.add(granted)
        ours = self.tenant.objects.create(member=alice.pk, title="Ours")
        theirs = self.tenant.objects.create(member=mallory.pk, title="kanary-00")
        for table in self.tables:
            self._fill(table, chance, ours, theirs, mallory)
        return User.objects.get(pk=alice.pk)

    def _fill(self, table: Table, chance: Any, ours: Any, theirs: Any, mallory: User) -> None:
        keys = list(range(1, 1 + VISIBLE + FOREIGN + DELETED + PRIVATE))
        chance.shuffle(keys)
        table.visible_keys, table.hidden_keys = sorted(keys[:VISIBLE]), sorted(keys[VISIBLE:])
        foreign = keys[VISIBLE : VISIBLE + FOREIGN]
        deleted = keys[VISIBLE + FOREIGN : VISIBLE + FOREIGN + DELETED]
        private = keys[VISIBLE + FOREIGN + DELETED :]
        gone: Any = True if table.deleted == "removed" else _moment(_day(2026, 1))
        for key in sorted(keys):
            is_visible = key in table.visible_keys
            values: dict[str, Any] = {
                name: (KINDS[kind].plain if is_visible else KINDS[kind].secret)(key)
                for name, kind in table.shown.items()
            }
            values |= {name: KINDS[kind].secret(key + 40) for name, kind in table.hidden.items()}
            if self.has_vectors:  # each hidden row is nearer to a text than the visible ones
                values[VECTOR] = [float(key), 9.0 if is_visible else 1.0]
            values[table.tenant] = theirs if key in foreign else ours
            values[table.owner] = mallory.pk if key in private else None
            if key in deleted:
                values[table.deleted] = gone
            if target := table.target:
                seen, unseen = target.visible_keys, target.hidden_keys
                near = seen if is_visible else [*seen, *unseen]
                values["parent_id"] = chance.choice(near)
                values["origin_id"] = chance.choice(unseen)
            row = table.model.objects.create(pk=key, **values)
            if table.is_many and target:
                links = chance.sample(seen, 2), chance.sample(unseen, 2)
                # The first row that alice sees has only links that she does not see: in the other
                # world it has none.
                only_hidden = key == table.visible_keys[0]
                row.links.set(links[1] if only_hidden else links[0] + links[1])

    @contextmanager
    def world(self, *, hidden: bool) -> Iterator[None]:
        """Use the world with or without hidden rows, and roll back what the block changes."""
        with rolled_back():
            if not hidden:
                self._remove_hidden()
            yield

    def _remove_hidden(self) -> None:
        for table in reversed(self.tables):
            if table.is_many:
                link = table.model.links.through.objects
                link.exclude(**{f"{table.target.name}_id__in": table.target.visible_keys}).delete()  # type: ignore[union-attr]
        for table in reversed(self.tables):
            for key in table.visible_keys:
                values = {name: KINDS[kind].other(key + 40) for name, kind in table.hidden.items()}
                if table.target:
                    values["origin_id"] = table.target.visible_keys[0]
                table.model.objects.filter(pk=key).update(**values)
            table.model.objects.filter(pk__in=table.hidden_keys).delete()
        self.tenant.objects.filter(title="kanary-00").delete()
