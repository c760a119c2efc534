"""News: told to sessions by rows, to who may know of it, on one stream, or kept for the next."""

from __future__ import annotations

import json

import pytest

import django_mcp as mcp
from django_mcp.calls import listing
from django_mcp.changes import broadcaster
from django_mcp.changes.change_set import ChangeSet
from django_mcp.changes.feed import deliver_here
from django_mcp.exceptions import Busy
from django_mcp.models import Event, Session, Stream, Subscription
from django_mcp.protocol.jsonrpc import decode
from django_mcp.storage import sessions, streams
from tests.announcing import Announcement, announce
from tests.shop.models import Company, Invoice

from ..calls.session_client import Desk, text
from ..storage.loops import Reader
from ..unreachable import unreachable

pytestmark = pytest.mark.django_db


@pytest.fixture
def loop(loop):
    loop.do(broadcaster.start)
    return loop


@pytest.fixture
def server(server):
    @server.tool(permission=mcp.PUBLIC)
    def add(request, a: int) -> int:
        """Add."""
        return a

    @server.tool(permission=mcp.PUBLIC)
    def pay(request) -> str:
        """Pay."""
        return str(request.elicit("Pay.", url="https://pay.example/{elicitation_id}"))

    @server.tool(permission=mcp.PUBLIC)
    def pay_first(request) -> str:
        """Nothing, before you have paid."""
        raise mcp.UrlRequired("Pay first.", "https://pay.example/{elicitation_id}")

    @server.resource("note://{name}", permission=mcp.PUBLIC)
    def note(request, name: str) -> str:
        return name

    @server.register(Invoice)
    class Invoices(mcp.ModelResource):
        fields = ["number"]
        permission = mcp.AUTHENTICATED
        uri = "invoice://{number}"

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user.pk)

    return server


@pytest.fixture
def desk(loop, server):
    return Desk(loop, server)


def notified(desk) -> None:
    """Wait until sessions were notified of what was announced."""
    here = desk.loop.do(broadcaster.broadcaster)
    desk.loop.until(lambda: here._local_task is None or here._local_task.done())


def tell(desk, kind, subject) -> None:
    desk.loop.do(announce, Announcement(kind, subject, desk.server.name))
    notified(desk)


def subscribe(desk, uri) -> None:
    (response,) = desk.post(desk.message("resources/subscribe", uri=uri)).responses
    assert response["result"] == {}


def seat(desk) -> Stream:
    """The session's stream of news."""
    session = desk.fresh()
    return streams.open(session, standalone=True, words=broadcaster.encoder_of(session))


def told(stream) -> list[str]:
    found = Event.objects.filter(stream=stream).order_by("seq").values_list("data", flat=True)
    return [_short(decode(data)) for data in found]


def _short(message) -> str:
    name = message["method"].removeprefix("notifications/")
    return " ".join([name, *message.get("params", {}).values()])


# Lists.


def test_every_session_of_the_server_is_told(loop, server, desk):
    other = Desk(loop, server)
    first, second = seat(desk), seat(other)
    reader = Reader(loop, first)
    tell(desk, "list_changed", "tools")
    assert reader.until(1) and told(first) == told(second) == ["tools/list_changed"]


def test_a_session_of_another_server_is_not(desk):
    Session.objects.update(server="elsewhere")
    stream = seat(desk)
    tell(desk, "list_changed", "tools")
    assert told(stream) == []


def test_a_client_that_is_not_ready_is_told_nothing(loop, server):
    desk = Desk(loop, server, initialized=False)
    stream = seat(desk)
    tell(desk, "list_changed", "tools")
    assert told(stream) == []


def test_a_list_that_the_server_has_not_does_not_change(desk):
    stream = seat(desk)
    tell(desk, "list_changed", "prompts")
    assert told(stream) == []


def test_many_changes_of_one_list_are_one(desk):
    stream = seat(desk)

    def changes():
        for _ in range(20):
            announce(Announcement("list_changed", "tools", desk.server.name))

    desk.loop.do(changes)
    notified(desk)
    assert told(stream) == ["tools/list_changed"]


def test_what_no_stream_takes_is_told_by_the_next(desk):
    tell(desk, "list_changed", "tools")
    tell(desk, "list_changed", "resources")
    tell(desk, "list_changed", "tools")
    assert sorted(desk.fresh().pending_changes) == ["resources", "tools"]
    assert sorted(told(seat(desk))) == ["resources/list_changed", "tools/list_changed"]
    assert desk.fresh().pending_changes == []


# Resources.


def test_who_subscribed_is_told(loop, server, desk):
    other = Desk(loop, server)
    subscribe(desk, "note://a")
    stream, quiet = seat(desk), seat(other)
    tell(desk, "updated", "note://a")
    tell(desk, "updated", "note://b")
    assert told(stream) == ["resources/updated note://a"] and told(quiet) == []


def test_who_unsubscribed_is_not(desk):
    subscribe(desk, "note://a")
    desk.post(desk.message("resources/unsubscribe", uri="note://a"))
    tell(desk, "updated", "note://a")
    assert told(seat(desk)) == []


def test_what_one_may_not_see_cannot_be_subscribed_to(loop, server, bob, invoice):
    desk = Desk(loop, server, bob)
    (response,) = desk.post(desk.message("resources/subscribe", uri="invoice://A-1")).responses
    assert "error" in response and not Subscription.objects.exists()


def test_a_row_that_leaves_ones_sight_is_told_of_once(loop, server, alice, invoice):
    desk = Desk(loop, server, alice)
    subscribe(desk, "invoice://A-1")
    stream = seat(desk)
    tell(desk, "updated", "invoice://A-1")
    Company.objects.get(name="Acme").members.remove(alice)
    tell(desk, "updated", "invoice://A-1")  # she saw it before
    tell(desk, "updated", "invoice://A-1")  # and knows that she does not
    assert told(stream) == ["resources/updated invoice://A-1"] * 2
    Company.objects.get(name="Acme").members.add(alice)
    tell(desk, "updated", "invoice://A-1")
    assert told(stream) == ["resources/updated invoice://A-1"] * 3


def test_a_user_who_may_no_longer_sign_in_sees_nothing(loop, server, alice, invoice):
    desk = Desk(loop, server, alice)
    subscribe(desk, "invoice://A-1")
    stream = seat(desk)
    alice.is_active = False
    alice.save()
    tell(desk, "updated", "invoice://A-1")
    tell(desk, "updated", "invoice://A-1")
    assert told(stream) == ["resources/updated invoice://A-1"]


def test_one_look_for_all_sessions_of_a_user(loop, server, alice, invoice, monkeypatch):
    looks = []
    visible = broadcaster.visible
    monkeypatch.setattr(broadcaster, "visible", lambda *a: looks.append(1) or visible(*a))
    desks = [Desk(loop, server, alice) for _ in range(3)]
    for desk in desks:
        subscribe(desk, "invoice://A-1")
    found = [seat(desk) for desk in desks]
    tell(desks[0], "updated", "invoice://A-1")
    assert [told(one) for one in found] == [["resources/updated invoice://A-1"]] * 3
    assert len(looks) == 1


def failing(monkeypatch, *errors):
    """The next looks at what is visible raise these."""
    left, surrounded_job = list(errors), broadcaster.surrounded_job

    async def fails(*args):
        if left:
            raise left.pop(0)
        return await surrounded_job(*args)

    monkeypatch.setattr(broadcaster, "surrounded_job", fails)
    monkeypatch.setattr(broadcaster, "BUSY_RETRY_SECONDS", 0.001)


def test_what_cannot_be_looked_at_is_told_by_what_is_seen_at_last(
    loop, server, alice, invoice, monkeypatch, caplog
):
    desk = Desk(loop, server, alice)
    subscribe(desk, "invoice://A-1")
    stream = seat(desk)
    failing(monkeypatch, RuntimeError("a bug in get_queryset"))
    tell(desk, "updated", "invoice://A-1")
    assert told(stream) == [] and "visibility cannot be checked" in caplog.text
    assert Subscription.objects.get().visible
    invoice.delete()
    tell(desk, "updated", "invoice://A-1")
    assert told(stream) == ["resources/updated invoice://A-1"]
    assert not Subscription.objects.get().visible


def test_a_list_that_changed_by_itself_is_told_whoever_sees_what(desk, monkeypatch, caplog):
    subscribe(desk, "note://a")
    stream = seat(desk)
    failing(monkeypatch, RuntimeError("a bug in get_queryset"))
    news_ = ChangeSet(uris={"note://a": None}, lists={"tools": None}, listed={"note://a": "a.note"})
    desk.loop.do(deliver_here, desk.server.name, news_)
    notified(desk)
    assert told(stream) == ["tools/list_changed"] and "visibility cannot be checked" in caplog.text


def test_a_database_that_is_away_is_waited_for(desk, monkeypatch, caplog):
    subscribe(desk, "note://a")
    Subscription.objects.update(visible=False)
    stream = seat(desk)
    failing(monkeypatch, unreachable(), unreachable())
    tell(desk, "updated", "note://a")
    assert told(stream) == ["resources/updated note://a"]
    assert caplog.text.count("cannot be reached") == 1


def test_a_busy_moment_is_waited_for(desk, monkeypatch):
    subscribe(desk, "note://a")
    stream = seat(desk)
    failing(monkeypatch, Busy(), Busy())
    tell(desk, "updated", "note://a")
    assert told(stream) == ["resources/updated note://a"]


def test_a_failure_is_logged_and_the_next_is_told(desk, monkeypatch, caplog):
    stream, owners = seat(desk), sessions.initialized_sessions
    monkeypatch.setattr(sessions, "initialized_sessions", lambda name: 1 / 0)
    tell(desk, "list_changed", "tools")
    monkeypatch.setattr(sessions, "initialized_sessions", owners)
    tell(desk, "list_changed", "resources")
    assert told(stream) == ["resources/list_changed"] and "were not notified" in caplog.text


# Pages.


def test_the_end_of_a_page_is_told_to_who_was_sent_there(loop, server, desk):
    other = Desk(loop, server)
    reading = desk.streamed(desk.call("pay"))
    (asked,) = reading.until(1)
    stream, quiet = seat(desk), seat(other)
    desk.answer(asked, {"action": "accept"})
    assert text(reading.all()[-1]) == "True"
    id = asked["params"]["elicitationId"]
    tell(desk, "elicitation_complete", id)
    tell(desk, "elicitation_complete", id)
    assert told(stream) == [f"elicitation/complete {id}"] and told(quiet) == []
    assert not Subscription.objects.exists() and desk.fresh().subscriptions == 0


def test_a_page_that_an_error_names(loop, server, desk):
    (response,) = desk.post(desk.call("pay_first")).responses
    (page,) = response["error"]["data"]["elicitations"]
    stream = seat(desk)
    tell(desk, "elicitation_complete", page["elicitationId"])
    assert told(stream) == [f"elicitation/complete {page['elicitationId']}"]


def test_pages_are_no_resources(desk, monkeypatch):
    listing.expect(desk.session, ["x"])
    assert listing.is_page(*sessions.subscribed_uris(desk.session))
    assert broadcaster.all_notifications(desk.server, desk.fresh()) == [
        json.dumps(
            {"jsonrpc": "2.0", "method": f"notifications/{name}/list_changed"},
            separators=(",", ":"),
        )
        for name in ("tools", "resources")
    ]


def test_too_many_pages_disturb_nothing(desk, monkeypatch, caplog):
    monkeypatch.setattr(sessions, "MAX_SUBSCRIPTIONS_PER_SESSION", 1)
    listing.expect(desk.session, ["x", "y"])
    assert Subscription.objects.count() == 1 and "waits for too many" in caplog.text
    sessions.end(desk.session)
    listing.expect(desk.session, ["z"])
