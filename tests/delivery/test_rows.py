"""The way to the rows: who is chosen to give way begins again."""

from __future__ import annotations

import threading

import pytest
from django.db import OperationalError, connections

from django_mcp.delivery import processes
from django_mcp.delivery.rows import ATTEMPTS, digest_of, erase, one_transaction, rows
from django_mcp.models import Process

from .rows import together


class DriversError(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__()
        self.sqlstate = sqlstate


def collision(*args: object, sqlstate: str | None = None) -> OperationalError:
    error = OperationalError(*args)
    error.__cause__ = DriversError(sqlstate) if sqlstate else None
    return error


COLLISIONS = [
    {"args": (1213, "Deadlock found")}, {"args": (1020, "Record has changed")},
    {"args": ("deadlock detected",), "sqlstate": "40P01"}, {"args": (), "sqlstate": "40001"},
]  # fmt: skip


def raised(args: tuple[object, ...], sqlstate: str | None = None) -> OperationalError:
    return collision(*args, sqlstate=sqlstate)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", COLLISIONS)
def test_who_gives_way_begins_again(how):
    attempts = []

    @one_transaction
    def work(id: str) -> str:
        attempts.append(id)
        processes.begin(id)
        if len(attempts) < 3:
            raise raised(**how)
        return id

    assert work("a") == "a" and attempts == ["a"] * 3 and processes.beats() == {"a": 0}


@pytest.mark.django_db(transaction=True)
def test_not_for_ever():
    attempts = []

    @one_transaction
    def work() -> None:
        attempts.append(1)
        raise collision(1213, "Deadlock found")

    with pytest.raises(OperationalError):
        work()
    assert len(attempts) == ATTEMPTS


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "error",
    [collision("server closed the connection"), collision(2013, "Lost"), collision(), KeyError()],
)
def test_what_is_no_collision_is_not_repeated(error):
    attempts = []

    @one_transaction
    def work() -> None:
        attempts.append(1)
        processes.begin("a")
        raise error

    with pytest.raises(type(error)):
        work()
    assert len(attempts) == 1 and processes.beats() == {}


@pytest.mark.django_db
def test_within_another_transaction_the_outer_one_decides():
    attempts = []

    @one_transaction
    def inner() -> None:
        attempts.append(1)
        raise collision(1213, "Deadlock found")

    with pytest.raises(OperationalError):
        one_transaction(inner)()
    assert len(attempts) == 1


@pytest.mark.django_db(transaction=True)
def test_two_who_wait_for_each_other_both_come_through():
    for id in "ab":
        processes.begin(id)
    held = threading.Barrier(2)  # each holds one lock, and then wants the other's
    attempts = []

    @one_transaction
    def beat(one: str, two: str) -> None:
        attempts.append(one)
        processes.beat(one)
        if len(attempts) <= 2 and locks_are_of_rows():
            held.wait(10)
        processes.beat(two)

    together(lambda: beat("a", "b"), lambda: beat("b", "a"))
    assert processes.beats() == {"a": 2, "b": 2}
    assert 2 <= len(attempts) - locks_are_of_rows() <= ATTEMPTS


def locks_are_of_rows() -> bool:
    return bool(connections[rows(Process).db].vendor != "sqlite")


@pytest.mark.django_db
def test_rows_are_erased_without_being_fetched():
    for id in "abc":
        processes.begin(id)
    assert erase(rows(Process).exclude(pk="b")) == 2 and erase(rows(Process).filter(pk="z")) == 0


def test_every_text_has_a_digest_of_its_own():
    texts = ["a", "A", "a ", "", "\0", "\ud800", "é", "e\u0301"]
    assert len({digest_of(text) for text in texts}) == len(texts)
    assert all(len(digest_of(text)) == 64 for text in texts)
