"""Announcements: named, told after the commit, to whoever listens."""

from __future__ import annotations

import threading
import weakref

import pytest

from django_mcp.changes import subscriptions
from django_mcp.changes.change_set import ChangeSet
from django_mcp.changes.subscriptions import start_listening, stop_listening
from tests.announcing import Announcement, announce, listening


class Ear:
    def __init__(self) -> None:
        self.heard: list[Announcement] = []

    def hear(self, server: str, news: ChangeSet) -> None:
        self.heard += [Announcement("updated", uri, server) for uri in news.uris]


@pytest.fixture
def ear():
    with listening(Ear()) as made:
        yield made


# Listening.


def test_everybody_who_listens_hears(ear):
    other = Ear()
    start_listening(other)
    start_listening(other)  # once
    news = Announcement("updated", "shop://x", "shop")
    announce(news)
    stop_listening(other)
    stop_listening(other)
    announce(news)
    assert ear.heard == [news, news] and other.heard == [news]


def test_who_is_gone_is_not_kept(ear):
    gone = Ear()
    start_listening(gone)
    assert {gone, ear} <= set(subscriptions._listeners)
    seen = weakref.ref(gone)
    del gone
    assert seen() is None and ear in subscriptions._listeners


def test_one_who_fails_keeps_nobody_from_hearing(ear, caplog):
    class Deaf(Ear):
        def hear(self, server: str, news: ChangeSet) -> None:
            raise RuntimeError("deaf")

    deaf, other = Deaf(), Ear()
    start_listening(deaf)
    start_listening(other)
    announce(Announcement("updated", "shop://x", "shop"))
    assert len(ear.heard) == len(other.heard) == 1 and "did not hear" in caplog.text
    stop_listening(deaf)


def test_listeners_come_and_go_while_others_are_told():
    go, problems = threading.Event(), []

    def come_and_go() -> None:
        try:
            while not go.is_set():
                start_listening(Ear())
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        announce(Announcement("updated", "shop://x", "shop"))
    go.set()
    for thread in threads:
        thread.join()
    assert problems == []
