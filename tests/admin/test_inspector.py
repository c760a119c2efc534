"""The inspector: real calls in every revision, questions, permissions, and hostile results."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings
from django.utils.html import escape

import django_mcp as mcp
from django_mcp.models import AuditEntry, Step, Switch
from django_mcp.protocol.revisions import LATEST, REVISIONS
from django_mcp.signals import call_finished, call_started
from django_mcp.storage.databases import rows
from tests.oracle import message_conforms
from tests.shop.models import Company, Customer, Invoice

pytestmark = pytest.mark.urls("tests.admin.urls")

URL = "/admin/django_mcp/inspector/"
EVERY_REVISION = pytest.mark.parametrize("revision", REVISIONS)
ASKING = [name for name, one in REVISIONS.items() if "elicitation/create" in one.asks]
STREAMED = {"HTTP_ACCEPT": "application/x-ndjson"}


def address(kind="", name="", **client):
    query = {"server": "default", "caller": "self", "revision": LATEST.name} | client
    return f"{URL}?{urlencode(query | ({'kind': kind, 'name': name} if kind else {}), doseq=True)}"


def filled(**arguments):
    return {f"argument-{name}": value for name, value in arguments.items()}


def call(client, name, arguments=None, kind="tool", **options):
    answer = client.post(address(kind, name, **options), filled(**(arguments or {})))
    assert answer.status_code == 200 and not answer.context["client_form"].errors
    return answer


def answered(client, asked, name, answers, kind="tool", **options):
    """Post the answers to the questions on a page. An answer is a dict for each question."""
    data = {"state": asked if isinstance(asked, str) else asked.context["state"]}
    for number, given in enumerate(answers):
        for field, value in given.items():
            group = "action" if field == "action" else "question"
            data[f"{group}-{number}-{field}"] = value
    return client.post(address(kind, name, **options), data)


def bodies(answer, sender=None):
    """The messages that were sent, in order."""
    shown = answer.context["wire_messages"]
    return [one.body for one in shown if sender in (None, one.sender)]


def methods(answer):
    return [(one.sender, one.name) for one in answer.context["wire_messages"]]


def result(answer):
    """The result in the latest response."""
    return bodies(answer)[-1]["result"]


def logged():
    return [entry.change_message for entry in LogEntry.objects.order_by("pk")]


@pytest.fixture
def inspecting(alice):
    """Alice, signed in, with the permission to use the inspector."""
    permission = Permission.objects.get(codename="use_inspector")
    alice.user_permissions.add(permission)
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    client = Client()
    client.force_login(alice)
    return client


# Calls.


@EVERY_REVISION
def test_tool_is_called_and_the_messages_are_those_of_the_revision(inspecting, revision):
    answer = call(inspecting, "slow_add", {"a": "1", "b": "2", "steps": "1"}, revision=revision)
    assert result(answer)["content"][0]["text"] == "3"
    sent = methods(answer)
    handshake = [
        ("client", "initialize"), ("server", "result"), ("client", "notifications/initialized"),
        ("client", "logging/setLevel"), ("server", "result"),
    ]  # fmt: skip
    assert sent == [
        *(handshake if REVISIONS[revision].handshake else []),
        ("client", "tools/call"), ("server", "notifications/progress"),
        ("server", "notifications/message"), ("server", "result"),
    ]  # fmt: skip
    requests = {one["id"]: one["method"] for one in bodies(answer, "client") if "id" in one}
    for message in bodies(answer):
        if message.get("method") == "tools/call" and REVISIONS[revision].handshake:
            # These schemas declare it for requests in general, and not for this one.
            assert message["params"].pop("_meta") == {"progressToken": message["id"]}
        assert message_conforms(revision, message, requests.get(message.get("id")))
    assert "The call has succeeded." in answer.text


def test_arguments_are_sent_with_the_types_of_the_schema(inspecting, invoice):
    answer = call(inspecting, "refund", {"invoice": "A-1", "reason": "x", "amount": "2.50"})
    (sent,) = bodies(answer, "client")
    assert sent["params"]["arguments"] == {"invoice": "A-1", "reason": "x", "amount": 2.5}
    assert Invoice.objects.get().status == Invoice.Status.DRAFT


def test_arguments_as_json_are_sent_unchanged(inspecting):
    """Also those that the server rejects: that is what the inspector is for."""
    given = {"arguments-json": '{"a": "one", "c": [null]}'} | filled(a="7")
    answer = inspecting.post(address("tool", "add"), given)
    assert bodies(answer, "client")[0]["params"]["arguments"] == {"a": "one", "c": [None]}
    assert result(answer)["isError"] and "The tool reported an error." in answer.text


@pytest.mark.parametrize("given, words", [
    (filled(b="2"), "This field is required."),
    (filled(a="one"), "Enter a whole number."),
    ({"arguments-json": "{"}, "This is not JSON"),
    ({"arguments-json": "[1]"}, "Enter a JSON object"),
])  # fmt: skip
def test_what_cannot_be_sent_is_reported_in_place_and_not_called(inspecting, given, words):
    answer = inspecting.post(address("tool", "add"), given)
    assert words in answer.text and "Please correct the errors below." in answer.text
    assert not answer.context["wire_messages"] and not logged()


@EVERY_REVISION
def test_resources_templates_and_prompts(inspecting, invoice, revision):
    hours = call(inspecting, "shop://opening-hours", kind="resource", revision=revision)
    assert json.loads(result(hours)["contents"][0]["text"]) == {"monday": "9-17"}
    policy = call(
        inspecting, "policy://{name}", {"name": "returns"}, kind="template", revision=revision
    )
    assert "# returns" in policy.text
    given = {"customer": str(invoice.customer_id), "tone": "firm"}
    prompt = call(inspecting, "reminder", given, kind="prompt", revision=revision)
    assert "Write a firm reminder to Carla." in prompt.text


def streets(request, text, context):
    return [f"{context['city']} {text}<br>", "Elm Street"]


@EVERY_REVISION
def test_arguments_of_prompts_and_templates_have_suggestions(inspecting, server, invoice, revision):
    @server.prompt
    def visit(
        request, city: Literal["Bath", "Batley", "York"], way: Annotated[str, mcp.Complete(streets)]
    ) -> str:
        """Plan a visit."""
        return f"Visit {way} in {city}."

    page = address("prompt", "visit", server=server.name, revision=revision)
    assert 'name="suggest"' in inspecting.get(page).text
    answer = inspecting.post(page, filled(city="bat", way="x") | {"suggest": "1"})
    city, way = answer.context["form"]
    assert city.field.suggestions == ["Bath", "Batley"] and city.value() == "bat"
    assert way.field.suggestions == ["bat x<br>", "Elm Street"] and way.value() == "x"
    assert 'list="id_argument-way_suggestions"' in str(way)
    assert "Suggestions: Bath, Batley" in answer.text and 'class="errorlist"' not in answer.text
    assert '<option value="bat x&lt;br&gt;">' in answer.text and "x<br>" not in answer.text
    assert "result" not in answer.context and not logged()
    template = address("template", "invoice://{number}", revision=revision)
    answer = inspecting.post(template, filled(number="a-") | {"suggest": "1"})
    (number,) = answer.context["form"]
    assert number.field.suggestions == ["A-1"]


def test_suggestions_are_those_of_the_chosen_user_and_logged(staff, alice, bob, invoice):
    client = staff("use_inspector", "impersonate_in_inspector")
    for user, expected in ((alice, ["A-1"]), (bob, [])):
        page = address("template", "invoice://{number}", caller="user", user=user.get_username())
        answer = client.post(page, filled(number="") | {"suggest": "1"})
        (number,) = answer.context["form"]
        assert number.field.suggestions == expected
        assert logged()[-1].startswith("Viewed the lists of the server default as " + str(user))
    assert len(logged()) == 2


def test_error_of_a_completion_is_shown(inspecting, settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"THROTTLES": {"completions": "1/month"}}
    page = address("prompt", "reminder")
    answer = inspecting.post(page, filled(customer="", tone="f") | {"suggest": "1"})
    assert "Too many" in answer.context["error"] and answer.context["error"] in answer.text


def test_tools_have_no_suggestions(inspecting):
    page = address("tool", "add")
    assert 'name="suggest"' not in inspecting.get(page).text
    answer = inspecting.post(page, filled(a="1") | {"suggest": "1"})
    assert result(answer)["content"][0]["text"] == "2"


def test_query_string_fills_in_no_argument_and_calls_nothing(inspecting):
    """Attack: a link to the inspector, made by somebody else."""
    link = address("tool", "add") + "&argument-a=7&state=x&a=7"
    answer = inspecting.get(link)
    assert "7" not in [field.value() for field in answer.context["form"]] and not logged()
    assert answer.context["wire_messages"] == []


def test_forms_have_csrf_protection(inspecting, alice):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(alice)
    assert strict.post(address("tool", "add"), filled(a="1")).status_code == 403
    assert 'name="csrfmiddlewaretoken"' in strict.get(address("tool", "add")).text


# Questions.


@pytest.mark.parametrize("revision", ASKING)
def test_question_is_answered_and_the_call_goes_on(inspecting, invoice, revision):
    options = {"revision": revision}
    asked = call(inspecting, "refund", {"invoice": "A-1", "reason": "x"}, **options)
    assert "Refund the whole 12.50?" in asked.text
    assert Invoice.objects.get().status == Invoice.Status.OPEN
    done = answered(
        inspecting, asked, "refund", [{"action": "accept", "answer": "true"}], **options
    )
    assert result(done)["structuredContent"]["amount"] == "12.50"
    assert Invoice.objects.get().status == Invoice.Status.DRAFT
    # The messages of both parts, as one client saw them.
    asks = [("server", "elicitation/create"), ("client", "result"), ("server", "result")]
    retry = [("server", "result"), ("client", "tools/call"), ("server", "result")]
    assert methods(done)[-3:] == (retry if REVISIONS[revision].input_required else asks)
    for message in bodies(done, "server"):
        if "method" in message:
            assert message_conforms(revision, message)
    ids = [one["id"] for one in bodies(done, "client") if "method" in one and "id" in one]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("revision", ASKING)
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_question_is_declined(inspecting, invoice, revision, action):
    given = {"invoice": "A-1", "reason": "x"}
    asked = call(inspecting, "refund", given, revision=revision)
    done = answered(inspecting, asked, "refund", [{"action": action}], revision=revision)
    assert result(done)["isError"] and Invoice.objects.get().status == Invoice.Status.OPEN


@pytest.mark.parametrize("revision", set(REVISIONS) - set(ASKING))
def test_revision_without_elicitation_has_the_error_of_the_tool(inspecting, invoice, revision):
    done = call(inspecting, "refund", {"invoice": "A-1", "reason": "x"}, revision=revision)
    assert result(done)["isError"] and "state" not in done.context


@pytest.mark.parametrize("revision", ASKING)
def test_several_questions_of_all_kinds(inspecting, revision):
    asked = call(inspecting, "everything", revision=revision)
    given = {
        "elicitation/create": {"action": "accept", "answer": "true"},
        "sampling/createMessage": {"text": "yes"},
        "roots/list": {"roots": "file:///a\nfile:///b"},
    }
    kinds = [question.method for question in asked.context["questions"]]
    assert sorted(kinds) == sorted(given)
    wrong = answered(inspecting, asked, "everything", [{}] * 3, revision=revision)
    assert wrong.context["questions"] and "This field is required." in wrong.text
    done = answered(
        inspecting, wrong, "everything", [given[kind] for kind in kinds], revision=revision
    )
    text = json.loads(result(done)["content"][0]["text"])
    assert text == {"sure": True, "word": "yes", "places": ["file:///a", "file:///b"]}


@pytest.mark.parametrize("revision", ASKING)
def test_questions_one_after_another_and_a_wrong_answer(inspecting, revision):
    asked = call(inspecting, "introduce", revision=revision)
    again = answered(
        inspecting, asked, "introduce", [{"action": "accept", "name": "Ann", "age": "-3"}],
        revision=revision,
    )  # fmt: skip
    assert "Who are you?" in again.text
    asked = answered(
        inspecting, again, "introduce", [{"action": "accept", "name": "Ann", "age": "30"}],
        revision=revision,
    )  # fmt: skip
    assert "Greet Ann, who is 30." in asked.text
    done = answered(inspecting, asked, "introduce", [{"text": "Hi!"}], revision=revision)
    assert result(done)["content"][0]["text"] == "Hi!"


@pytest.mark.parametrize("revision", ASKING)
def test_step_is_done_once_however_often_questions_are_answered(inspecting, server, revision):
    done = []

    @server.tool
    def order(request: mcp.Request) -> str:
        number = request.once("number", lambda: done.append(1) or len(done))
        sure = request.elicit("Sure?", bool)
        return f"{number} {sure} {request.elicit('Really?', bool)}"

    options = {"revision": revision, "server": server.name}
    answer = call(inspecting, "order", **options)
    for _ in range(2):
        given = [{"action": "accept", "answer": "true"}]
        answer = answered(inspecting, answer, "order", given, **options)
    assert result(answer)["content"][0]["text"] == "1 True True" and done == [1]
    if REVISIONS[revision].handshake:
        assert not rows(Step).exists()


@pytest.mark.parametrize("revision", ASKING)
def test_state_continues_only_the_same_call_of_the_same_people(inspecting, root, invoice, revision):
    """Attack: use the state of a call for another one, another caller, or after its time."""
    asked = call(inspecting, "refund", {"invoice": "A-1", "reason": "x"}, revision=revision)
    answer = [{"action": "accept", "answer": "true"}]
    expired = "These questions cannot be answered any more."
    others = [
        answered(root, asked, "refund", answer, revision=revision),
        answered(inspecting, asked, "introduce", answer, revision=revision),
        answered(inspecting, asked, "refund", answer, revision="2024-11-05"),
        answered(inspecting, asked, "refund", answer, revision=revision, scopes=["mcp"]),
    ]
    with override_settings(DJANGO_MCP=settings.DJANGO_MCP | {"STATE_LIFETIME": -1}):
        others.append(answered(inspecting, asked, "refund", answer, revision=revision))
    forged = asked.context["state"] + "x"
    others.append(answered(inspecting, forged, "refund", answer, revision=revision))
    for other in others:
        assert expired in other.text
    assert Invoice.objects.get().status == Invoice.Status.OPEN


# Who may call as whom.


def test_inspector_needs_its_permission(staff, root):
    assert staff().get(URL).status_code == 403
    permitted = staff("use_inspector", name="sue")
    assert permitted.get(URL).status_code == 200
    assert 'href="/admin/django_mcp/inspector/"' in permitted.get("/admin/").text
    assert Client().get(URL).status_code == 302


def test_lists_and_calls_are_those_of_the_chosen_user(staff, alice, invoice):
    client = staff("use_inspector", "impersonate_in_inspector")
    own = client.get(address()).text
    theirs = client.get(address(caller="user", user="alice")).text
    assert ">refund</a>" in theirs and ">refund</a>" not in own
    anonymous = client.get(address(caller="anonymous")).text
    assert ">add</a>" in anonymous and ">open_invoices</a>" not in anonymous
    found = call(client, "open_invoices", caller="user", user="alice")
    assert "A-1" in found.text
    hidden = client.get(address("tool", "refund"))
    assert "This client cannot use it, or it does not exist." in hidden.text
    assert client.post(address("tool", "refund"), filled(reason="x")).context["is_missing"]


def test_every_call_is_logged_without_arguments(staff, alice, invoice):
    client = staff("use_inspector", "impersonate_in_inspector")
    other = {"caller": "user", "user": "alice"}
    asked = call(client, "refund", {"invoice": "A-1", "reason": "confidential"}, **other)
    answered(client, asked, "refund", [{"action": "accept", "answer": "true"}], **other)
    call(client, "invoice://{number}", {"number": "A-1"}, kind="template", **other)
    call(client, "invoice://A-1", kind="resource", **other)
    client.get(address(**other))
    end = f"of the server default as alice, in revision {LATEST.name}."
    assert logged() == [
        f"Called the tool refund {end}",
        f"Answered questions of the tool refund {end}",
        f"Called the template invoice://{{number}} {end}",
        f"Called the resource invoice://{{number}} {end}",
        f"Viewed the lists {end}",
    ]
    assert {entry.user.username for entry in LogEntry.objects.all()} == {"sam"}
    everything = str(list(LogEntry.objects.values()))
    assert "A-1" not in everything and "confidential" not in everything


def test_audit_entry_and_log_name_who_acts_as_another_user(staff, alice, caplog, monkeypatch):
    monkeypatch.setattr(mcp.server, "audit", True)
    caplog.set_level("INFO", logger="django_mcp.calls")
    client = staff("use_inspector", "impersonate_in_inspector")
    call(client, "open_invoices", caller="user", user="alice")
    call(client, "open_invoices")
    sam = User.objects.get(username="sam").pk
    entries = AuditEntry.objects.order_by("pk").values_list("username", "client", "client_name")
    assert list(entries) == [
        ("alice", f"impersonator:{sam}", "Inspector of sam"), ("sam", "", "Inspector of sam"),
    ]  # fmt: skip
    assert f"client='impersonator:{sam}'" in caplog.text


def test_every_look_at_what_another_user_sees_is_logged(staff, alice):
    """Attack: name a tool in the query string, and so read its definition without the lists."""
    client = staff("use_inspector", "impersonate_in_inspector")
    link = address("tool", "refund", caller="user", user="alice")
    viewed = f"Viewed the lists of the server default as alice, in revision {LATEST.name}."
    for answer in (
        client.get(link), client.post(link, {"arguments-json": "{"}),
        client.post(link, {"state": "forged"}),
    ):  # fmt: skip
        assert "Refund" in answer.text
    assert logged() == [viewed] * 3
    missing = address("tool", "unknown", caller="user", user="alice")
    assert client.get(missing).context["is_missing"] and client.post(missing).context["is_missing"]
    assert logged() == [viewed] * 5


def test_another_user_needs_the_permission_to_impersonate(staff, alice):
    client = staff("use_inspector")
    answer = client.post(address("tool", "add", caller="user", user="alice"), filled(a="1"))
    assert answer.context["client_form"].errors["caller"] and not logged()


def test_only_superusers_act_as_superusers_and_nobody_as_an_inactive_user(staff, root, alice):
    User.objects.create_superuser("boss", password="x")
    User.objects.create_user("gone", is_active=False)
    client = staff("use_inspector", "impersonate_in_inspector")
    for inspector, name in ((client, "boss"), (client, "gone"), (client, "none"), (root, "gone")):
        link = address("tool", "add", caller="user", user=name)
        answer = inspector.post(link, filled(a="1"))
        assert answer.context["client_form"].errors["user"], name
    assert not logged()
    assert "As boss," in root.get(address("tool", "add", caller="user", user="boss")).text


def test_permission_lost_between_question_and_answer_ends_the_call(staff, alice, invoice):
    client = staff("use_inspector", "impersonate_in_inspector")
    other = {"caller": "user", "user": "alice"}
    asked = call(client, "refund", {"invoice": "A-1", "reason": "x"}, **other)
    User.objects.get(username="sam").user_permissions.remove(
        Permission.objects.get(codename="impersonate_in_inspector")
    )
    done = answered(client, asked, "refund", [{"action": "accept", "answer": "true"}], **other)
    assert done.context["client_form"].errors
    assert Invoice.objects.get().status == Invoice.Status.OPEN


def test_scopes_narrow_what_the_client_can_use(inspecting, server):
    @server.tool(scope="read")
    def scoped(request: mcp.Request) -> str:
        return str(sorted(request.auth.scopes))

    scopes = {"read": mcp.Scope("Read"), "write": mcp.Scope("Write")}
    with override_settings(DJANGO_MCP=settings.DJANGO_MCP | {"SCOPES": scopes}):
        done = call(inspecting, "scoped", server=server.name, scopes=["read"])
        assert result(done)["content"][0]["text"] == "['read']"
        refused = call(inspecting, "scoped", server=server.name, scopes=["write"])
        assert refused.context["is_missing"]


def test_kill_switches_apply(inspecting):
    Switch.objects.create(server="default", thing="tool:add")
    assert ">add</a>" not in inspecting.get(address()).text


def test_call_is_recorded_as_one_of_the_inspector(inspecting, invoice):
    started, finished = [], []
    note_start = lambda record, **_: started.append(record.name)  # noqa: E731
    note_end = lambda record, **_: finished.append(record)  # noqa: E731
    call_started.connect(note_start)
    call_finished.connect(note_end)
    try:
        options = {"revision": "2025-11-25"}
        asked = call(inspecting, "refund", {"invoice": "A-1", "reason": "x"}, **options)
        answered(inspecting, asked, "refund", [{"action": "accept", "answer": "true"}], **options)
    finally:
        call_started.disconnect(note_start)
        call_finished.disconnect(note_end)
    assert started == ["refund"]
    assert [(one.outcome, one.transport) for one in finished] == [
        ("input_required", "inspector"), ("ok", "inspector"),
    ]  # fmt: skip
    assert finished[0].client_info["name"] == "Inspector of alice"


def test_audit_entry_names_who_acted_as_another_user(staff, alice, server):
    @server.tool(read_only=True)
    def look(request: mcp.Request) -> str:
        raise mcp.ToolError("There is nothing.")

    server.audit = True
    client = staff("use_inspector", "impersonate_in_inspector")
    call(client, "look", server=server.name, caller="user", user="alice")
    entry = AuditEntry.objects.get()
    assert (entry.username, entry.client_name) == ("alice", "Inspector of sam")
    assert (entry.transport, entry.outcome) == ("inspector", "error")


# Hostile results.

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def test_results_are_escaped_and_nothing_of_them_is_loaded(inspecting, server):
    """Attack: a tool returns scripts, links and images that would run or load something."""

    @server.tool(description=HOSTILE, title=HOSTILE)
    def attack(request: mcp.Request, text: str = HOSTILE) -> list[Any]:
        request.progress(1, message=HOSTILE)
        request.elicit(HOSTILE, default=None)
        return [
            mcp.Text(HOSTILE),
            mcp.Image(HOSTILE.encode(), mime_type="image/svg+xml"),
            mcp.Image(b"png", mime_type="image/png"),
            mcp.ResourceLink("javascript:alert(3)", HOSTILE),
            mcp.EmbeddedResource("https://evil.example/x", HOSTILE, "text/html"),
        ]

    options = {"server": server.name}
    pages = [
        inspecting.get(address(**options)),
        inspecting.get(address("tool", "attack", **options)),
    ]
    asked = call(inspecting, "attack", **options)
    done = answered(inspecting, asked, "attack", [{"action": "decline"}], **options)
    assert "isError" not in result(done) or not result(done)["isError"], result(done)
    lines = inspecting.post(address("tool", "attack", **options), **STREAMED).getvalue().decode()
    updates = [json.loads(line) for line in lines.splitlines()]
    html = "".join(one.get("message", "") + one.get("result", "") for one in updates)
    for page in [*(one.text for one in (*pages, asked, done)), html]:
        assert "<script>alert" not in page and "<img src=x" not in page
        assert not re.search(r"(href|src|action)=[\"']?\s*(javascript:|https?://evil)", page)
    assert escape(HOSTILE) in done.text
    assert re.findall(r'<img [^>]*src="([^"]*)', done.text) == ["data:image/png;base64,cG5n"]


def test_web_page_of_a_question_is_a_link_only_if_it_is_http(inspecting, server):
    @server.tool
    def pay(request: mcp.Request) -> str:
        return str(request.elicit("Pay here", url="https://pay.example/{elicitation_id}"))

    options = {"server": server.name, "revision": "2025-11-25"}
    asked = call(inspecting, "pay", **options)
    link = re.search(r'<a href="(https://pay.example/[0-9a-f]+)" [^>]*rel="noopener', asked.text)
    assert link
    done = answered(inspecting, asked, "pay", [{"action": "accept"}], **options)
    assert result(done)["content"][0]["text"] == "True"


# With the script.


@EVERY_REVISION
def test_stream_has_each_message_and_then_the_result(inspecting, revision):
    link = address("tool", "chatty", revision=revision)
    response = inspecting.post(link, filled(steps="2"), **STREAMED)
    assert response["Content-Type"] == "application/x-ndjson"
    updates = [json.loads(line) for line in response.getvalue().decode().splitlines()]
    assert [one["progress"] for one in updates if "progress" in one] == [1, 2]
    assert ["result" in one for one in updates] == [False] * (len(updates) - 1) + [True]
    assert "The call has succeeded." in updates[-1]["result"]


def test_message_arrives_while_the_call_runs_and_closing_the_stream_cancels_it(inspecting):
    response = inspecting.post(address("tool", "wait"), filled(seconds="3600"), **STREAMED)
    for line in response.streaming_content:
        if "progress" in json.loads(line):
            break
    response.close()  # returns only when the tool has ended


def test_error_in_the_fields_is_a_page_and_not_a_stream(inspecting):
    response = inspecting.post(address("tool", "add"), filled(a="x"), **STREAMED)
    assert response["Content-Type"].startswith("text/html")


# Databases.


@pytest.mark.parametrize("headers", [{}, STREAMED])
def test_tool_writes_in_its_own_transaction(shared_db, monkeypatch, headers):
    """With ``ATOMIC_REQUESTS`` the entry of the admin's log does not lock the tool out."""
    from django.db import connections

    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    root = User.objects.create_superuser("root", password="x")
    Company.objects.create(name="Acme").members.add(root)
    acme = Company.objects.get()
    customer = Customer.objects.create(company=acme, name="Carla")
    Invoice.objects.create(
        company=acme, customer=customer, number="A-1", total="12.50", issued="2026-01-02"
    )
    client = Client()
    client.force_login(root)
    given = filled(invoice="A-1", reason="x", amount="1")
    response = client.post(address("tool", "refund"), given, **headers)
    response.getvalue() if headers else None
    assert Invoice.objects.get().status == Invoice.Status.DRAFT and len(logged()) == 1
