"""Transactions on the session database: repetition after deadlocks, deletion and digests of ids."""

from __future__ import annotations

import threading

import pytest
from django.db import OperationalError, connections

from django_mcp.models import Process
from django_mcp.storage import leases
from django_mcp.storage.databases import MAX_ATTEMPTS, digest_of, erase, one_transaction, rows

from .rows import together


class DriverError(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__()
        self.sqlstate = sqlstate


def db_error(*args: object, sqlstate: str | None = None) -> OperationalError:
    error = OperationalError(*args)
    error.__cause__ = DriverError(sqlstate) if sqlstate else None
    return error


COLLISIONS = [
    {"args": (1213, "Deadlock found")}, {"args": (1020, "Record has changed")},
    {"args": ("deadlock detected",), "sqlstate": "40P01"}, {"args": (), "sqlstate": "40001"},
]  # fmt: skip


def raised(args: tuple[object, ...], sqlstate: str | None = None) -> OperationalError:
    return db_error(*args, sqlstate=sqlstate)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", COLLISIONS)
def test_transaction_is_repeated_after_a_deadlock(how):
    attempts = []

    @one_transaction
    def work(id: str) -> str:
        attempts.append(id)
        leases.begin(id)
        if len(attempts) < 3:
            raise raised(**how)
        return id

    assert work("a") == "a" and attempts == ["a"] * 3 and leases.beats() == {"a": 0}


@pytest.mark.django_db(transaction=True)
def test_deadlocked_transaction_is_repeated_a_limited_number_of_times():
    attempts = []

    @one_transaction
    def work() -> None:
        attempts.append(1)
        raise db_error(1213, "Deadlock found")

    with pytest.raises(OperationalError):
        work()
    assert len(attempts) == MAX_ATTEMPTS


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "error",
    [db_error("server closed the connection"), db_error(2013, "Lost"), db_error(), KeyError()],
)
def test_transaction_is_not_repeated_after_other_errors(error):
    attempts = []

    @one_transaction
    def work() -> None:
        attempts.append(1)
        leases.begin("a")
        raise error

    with pytest.raises(type(error)):
        work()
    assert len(attempts) == 1 and leases.beats() == {}


@pytest.mark.django_db
def test_inner_transaction_is_not_repeated():
    attempts = []

    @one_transaction
    def inner() -> None:
        attempts.append(1)
        raise db_error(1213, "Deadlock found")

    with pytest.raises(OperationalError):
        one_transaction(inner)()
    assert len(attempts) == 1


@pytest.mark.django_db(transaction=True)
def test_deadlocked_transactions_both_succeed():
    for id in "ab":
        leases.begin(id)
    held = threading.Barrier(2)  # each holds one lock, and then requests the other's
    attempts = []

    @one_transaction
    def beat(one: str, two: str) -> None:
        attempts.append(one)
        leases.beat(one)
        if len(attempts) <= 2 and locks_are_of_rows():
            held.wait(10)
        leases.beat(two)

    together(lambda: beat("a", "b"), lambda: beat("b", "a"))
    assert leases.beats() == {"a": 2, "b": 2}
    assert 2 <= len(attempts) - locks_are_of_rows() <= MAX_ATTEMPTS


def locks_are_of_rows() -> bool:
    return bool(connections[rows(Process).db].vendor != "sqlite")


@pytest.mark.django_db
def test_rows_are_erased_without_being_fetched():
    for id in "abc":
        leases.begin(id)
    assert erase(rows(Process).exclude(pk="b")) == 2 and erase(rows(Process).filter(pk="z")) == 0


def test_different_texts_have_different_digests():
    texts = ["a", "A", "a ", "", "\0", "\ud800", "é", "e\u0301"]
    assert len({digest_of(text) for text in texts}) == len(texts)
    assert all(len(digest_of(text)) == 64 for text in texts)
