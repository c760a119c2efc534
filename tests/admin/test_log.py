"""The admin's pages on sessions: read by who may, changed by nobody, ended by who may end them."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from django_mcp.admin.log import MAX_VALUE_LENGTH, as_text
from django_mcp.models import Call, Event, Session, Stream, Switch, Token
from django_mcp.storage import sessions
from django_mcp.storage.databases import rows

from ..test_public_api import modules, project
from .conftest import SECRET

pytestmark = pytest.mark.urls("tests.admin.urls")

LOG = [Session, Stream, Event, Call]
VIEWS = [f"view_{model._meta.model_name}" for model in LOG]


def page(model, name, *args):
    return reverse(f"admin:django_mcp_{model._meta.model_name}_{name}", args=args)


def pages(said):
    """Every list, and the page of every row."""
    made = [said.session, said.stream, said.event, said.call]
    for row in made:
        yield page(type(row), "changelist")
        yield page(type(row), "change", row.pk)


def test_what_is_registered():
    ours = {model for model in admin.site._registry if model._meta.app_label == "django_mcp"}
    assert ours == {Session, Stream, Event, Call, Switch, Token}


def test_everything_is_shown_to_who_may_view_it(said, staff):
    client = staff(*VIEWS)
    for address in pages(said):
        assert client.get(address).status_code == 200, address


def test_who_may_not_view_it_sees_nothing(said, staff):
    client = staff()
    for address in pages(said):
        assert client.get(address).status_code == 403, address


def test_what_was_said_is_for_superusers_alone(said, staff, root):
    client = staff(*VIEWS, "end_session")
    for address in pages(said):
        assert SECRET not in client.get(address).content.decode(), address
    told = [SECRET in root.get(address).content.decode() for address in pages(said)]
    assert told == [False, False, False, False, False, True, False, True]


def test_what_is_private_is_not_even_fetched(said, staff, root, django_assert_max_num_queries):
    client = staff(*VIEWS)
    for model in (Session, Event, Call):
        private = admin.site._registry[model].private.values()
        assert private
        for reader in (client, root):
            (row,) = reader.get(page(model, "changelist")).context["cl"].result_list
            assert row.get_deferred_fields() >= set(private)


def test_ids_are_shown_as_the_beginning_of_their_digest(said, root):
    for address in pages(said):
        html = root.get(address).content.decode()
        assert said.id not in html and said.session.digest not in html
    assert said.session.digest[:12] in root.get(page(Session, "change", said.session.pk)).text


def test_what_a_client_says_of_itself_is_text(said, root):
    html = root.get(page(Session, "changelist")).content.decode()
    assert "Inspector &lt;b&gt; 1" in html and "Inspector <b>" not in html


@pytest.mark.parametrize("info", [["a list"], "a text", None, {"name": {"a": 1}}])
def test_clients_may_say_anything_of_themselves(said, root, info):
    rows(Session).update(client_info=info or {})
    assert root.get(page(Session, "changelist")).status_code == 200
    assert root.get(page(Session, "change", said.session.pk)).status_code == 200


@pytest.mark.parametrize("model", LOG)
def test_nobody_changes_anything(said, root, model):
    row = {Session: said.session, Stream: said.stream, Event: said.event, Call: said.call}[model]
    before = rows(model).values().get()
    assert root.get(page(model, "add")).status_code == 403
    assert root.post(page(model, "add"), {}).status_code == 403
    assert root.post(page(model, "change", row.pk), {"server": "x"}).status_code == 403
    assert root.post(page(model, "delete", row.pk), {"post": "yes"}).status_code == 403
    body = {"action": "delete_selected", "_selected_action": row.pk, "post": "yes"}
    root.post(page(model, "changelist"), body)
    assert rows(model).values().get() == before
    html = root.get(page(model, "change", row.pk)).content.decode()
    assert 'name="_save"' not in html and "deletelink" not in html


def test_rows_are_listed_by_what_they_belong_to(said, root):
    other = sessions.create(
        server="other", owner="", user=None, revision="2025-06-18", client_info={},
        capabilities={},
    )[1]  # fmt: skip
    html = root.get(page(Session, "change", said.session.pk)).content.decode()
    for model, key in ((Stream, "session"), (Call, "session")):
        address = f"{page(model, 'changelist')}?{key}={said.session.pk}"
        assert f'href="{address}"' in html
        assert len(root.get(address).context["cl"].result_list) == 1
        assert (
            not root.get(f"{page(model, 'changelist')}?{key}={other.pk}").context["cl"].result_list
        )
    html = root.get(page(Stream, "change", said.stream.pk)).content.decode()
    assert f"{page(Event, 'changelist')}?stream={said.stream.pk}" in html
    found = root.get(page(Session, "changelist"), {"q": "7"}).context["cl"].result_list
    assert [session.pk for session in found] == [said.session.pk]


def test_a_list_takes_few_queries(said, root, django_assert_max_num_queries):
    for _ in range(20):
        sessions.create(
            server="default", owner="", user=None, revision="2025-11-25", client_info={},
            capabilities={},
        )  # fmt: skip
    for model in LOG:
        with django_assert_max_num_queries(9):
            root.get(page(model, "changelist"))


def test_a_long_value_is_cut():
    assert as_text("a" * MAX_VALUE_LENGTH) == "a" * MAX_VALUE_LENGTH
    assert as_text("a" * (MAX_VALUE_LENGTH + 1)) == "a" * MAX_VALUE_LENGTH + "…"
    assert as_text({"é": [1]}) == '{\n "é": [\n  1\n ]\n}'


# Ending sessions.


def end(client, *sessions):
    chosen = [session.pk for session in sessions]
    body = {"action": "end", "_selected_action": chosen}
    return client.post(page(Session, "changelist"), body, follow=True)


def test_a_session_is_ended_by_who_may(said, staff):
    client = staff("view_session", "end_session")
    answer = end(client, said.session)
    assert "1 session was ended." in answer.content.decode()
    assert sessions.find(said.id) is None
    assert not any(rows(model).exists() for model in LOG)
    entry = LogEntry.objects.get()
    assert entry.is_deletion() and entry.user.username == "sam"
    assert entry.object_repr == str(said.session)


def test_a_session_is_not_ended_by_who_may_only_look(said, staff):
    client = staff("view_session")
    assert "End selected sessions" not in client.get(page(Session, "changelist")).text
    end(client, said.session)
    assert sessions.find(said.id) is not None and not LogEntry.objects.exists()


def test_a_session_is_not_ended_by_who_may_not_look(said, staff):
    assert end(staff("end_session"), said.session).status_code == 403
    assert sessions.find(said.id) is not None


def test_a_session_that_has_ended_meanwhile(said, root, monkeypatch):
    found = sessions.end

    def ended_already(session):
        found(session)
        return found(session)

    monkeypatch.setattr(sessions, "end", ended_already)
    assert "0 sessions were ended." in end(root, said.session).content.decode()
    assert not LogEntry.objects.exists()


def test_a_project_without_the_admin(tmp_path):
    brought = modules(project(tmp_path, '"django_mcp"'))
    assert "django_mcp.models" in brought
    assert not [
        name for name in brought if name.startswith(("django_mcp.admin", "django.contrib.admin."))
    ]


@pytest.mark.parametrize("how", ["__contains", "__startswith", "__regex", "__gt", ""])
@pytest.mark.parametrize("place", [
    (Event, "data"), (Call, "params"), (Call, "known"), (Call, "meta"), (Call, "request_id"),
    (Session, "pending_changes"), (Session, "digest"),
])  # fmt: skip
def test_what_is_private_cannot_be_guessed_by_filters(staff, said, how, place):
    """Attack: a list that is empty for a wrong guess, and is not for a right one."""
    model, column = place
    sam = staff(*VIEWS)
    rows(Session).update(pending_changes=[SECRET])
    stored = str(rows(model).values_list(column, flat=True).get())
    for guess in (stored[:12], stored[5:20], "", "~", "[^~]"):
        answer = sam.get(page(model, "changelist"), {f"{column}{how}": guess})
        assert answer.status_code != 200 or not answer.context["cl"].result_count, guess


def test_lists_are_filtered_by_what_they_show(staff, said):
    """As the links between them do."""
    sam = staff(*VIEWS)
    for model, query in (
        (Event, {"stream": said.stream.pk}),
        (Event, {"final__exact": 0}),
        (Stream, {"session": said.session.pk}),
        (Call, {"session": said.session.pk, "state__exact": "running"}),
        (Session, {"server": "default", "revision": "2025-11-25"}),
    ):
        answer = sam.get(page(model, "changelist"), query)
        assert answer.status_code == 200 and answer.context["cl"].result_count == 1, query
