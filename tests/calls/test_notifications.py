"""Progress and log notifications that a call sends never fail the call."""

from __future__ import annotations

import enum
import threading
from collections import UserDict, deque
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from django.utils.functional import SimpleLazyObject, lazy
from django.utils.translation import gettext_lazy
from pydantic import BaseModel, Field

import django_mcp as mcp
from django_mcp.calls import output
from django_mcp.calls.call_state import ActiveCall
from django_mcp.calls.output import MASK, ClientNotifier
from django_mcp.protocol.connection import ClientCall
from django_mcp.protocol.revisions import LOG_LEVELS, REVISIONS
from django_mcp.transports.pipe import PipeOutput
from tests.shop.models import Tag

OWNER = ("alice", "shop")


def notifier(call, sent, level, high_water=None):
    """Return the notifier of a call whose messages are appended to ``sent``."""
    return ClientNotifier(ActiveCall(call, PipeOutput(sent.append)), OWNER, level, high_water)


def made(revision="2026-07-28", token="t", level="debug", high_water=None):
    """Return a notifier and the list of what it sends."""
    call = ClientCall(1, "tools/call", {}, REVISIONS[revision], progress_token=token)
    sent: list[Any] = []
    return notifier(call, sent, lambda: level, high_water), sent


def steps(sent):
    return [message["params"]["progress"] for message in sent]


def data(sent):
    return [message["params"]["data"] for message in sent]


# Progress.


def test_only_increasing_progress_is_sent(revision):
    call_notifier, sent = made(revision)
    for done in (1, 1, 0.5, 2, -1, 2.0, 2.5, 10**30):
        call_notifier.progress(done, None, None)
    assert steps(sent) == [1, 2, 2.5, 10**30]


def test_progress_continues_after_an_earlier_run():
    call_notifier, sent = made(high_water=5)
    for done in (4, 5, 6):
        call_notifier.progress(done, 10, "words")
    assert steps(sent) == [6] and call_notifier.high_water == 6


@pytest.mark.parametrize("token", ["", 0, "t", 7])
def test_every_json_value_is_a_progress_token(token):
    call_notifier, sent = made(token=token)
    call_notifier.progress(1, None, None)
    assert sent[0]["params"] == {"progressToken": token, "progress": 1}


def test_no_progress_is_sent_without_a_token():
    call_notifier, sent = made(token=None)
    call_notifier.progress(1, None, None)
    call_notifier.progress("nonsense", None, None)  # type: ignore[arg-type]
    assert sent == [] and call_notifier.high_water is None


@pytest.mark.parametrize(
    "done",
    [float("nan"), float("inf"), True, None, "1", Decimal(1), 1j, 10**400, [1]],
    ids=lambda value: type(value).__name__,
)
def test_progress_that_is_not_a_number_is_dropped(done, caplog):
    call_notifier, sent = made()
    call_notifier.progress(done, None, None)
    call_notifier.progress(1, done, None)
    assert [message["params"] for message in sent] == [{"progressToken": "t", "progress": 1}]
    assert "Progress dropped, it is not a finite number" in caplog.text


def test_progress_total_and_message_depend_on_the_revision(revision):
    call_notifier, sent = made(revision)
    call_notifier.progress(1, 2.5, "words")
    params = sent[0]["params"]
    assert params["total"] == 2.5
    assert params.get("message") == (None if revision == "2024-11-05" else "words")


def test_progress_message_is_text_of_limited_length():
    call_notifier, sent = made()
    call_notifier.progress(1, None, Decimal("1.5"))  # type: ignore[arg-type]
    call_notifier.progress(2, None, "x" * 1_000_000)
    assert sent[0]["params"]["message"] == "1.5"
    assert len(sent[1]["params"]["message"]) == output.MAX_MESSAGE_LENGTH


def test_progress_of_several_threads_increases():
    call_notifier, sent = made()
    together = threading.Barrier(8)

    def report() -> None:
        together.wait(60)
        for done in range(500):
            call_notifier.progress(done, None, None)

    threads = [threading.Thread(target=report) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps(sent) == list(range(500))


# Log lines.


@pytest.mark.parametrize("least", LOG_LEVELS)
def test_log_messages_below_the_level_are_dropped(least):
    call_notifier, sent = made(level=least)
    for level in LOG_LEVELS:
        call_notifier.log(level, level, None)
    assert data(sent) == list(LOG_LEVELS[LOG_LEVELS.index(least) :])


def test_no_log_message_is_sent_without_a_level():
    call_notifier, sent = made(level=None)
    call_notifier.log("emergency", "x", None)
    assert sent == []


def test_log_level_is_read_for_each_message():
    level = ["error"]
    call = ClientCall(1, "tools/call", {}, REVISIONS["2025-11-25"])
    sent: list[Any] = []
    call_notifier = notifier(call, sent, lambda: level[0])
    call_notifier.log("info", 1, None)
    level[0] = "debug"
    call_notifier.log("info", 2, None)
    assert data(sent) == [2]


def test_unknown_log_level_raises_value_error():
    call_notifier, sent = made(level=None)
    with pytest.raises(ValueError, match="There is no level 'warn'; there are: debug, info"):
        call_notifier.log("warn", "x", None)


class WithoutText:
    def __str__(self) -> str:
        raise RuntimeError


class WithoutRepr:
    def __str__(self) -> str:
        return "shy"


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
DEEP: Any = "bottom"
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "given, expected",
    [
        ("text", "text"),
        (None, None),
        ({"a": [1, 1.5, True, None]}, {"a": [1, 1.5, True, None]}),
        ({1: 2, None: 3}, {"1": 2, "null": 3}),
        (Decimal("1.5"), "1.5"),
        ({True: 1, 1.5: 2}, {"true": 1, "1.5": 2}),
        (WithoutRepr(), "shy"),
        ({"a": WithoutRepr()}, {"a": "shy"}),
        ({(1, 2): 3}, {"(1, 2)": 3}),
        ([float("nan"), float("inf"), 1], [None, None, 1]),
        (CIRCLE, ["..."]),
        ({"a", "b"} - {"b"}, ["a"]),
        (WithoutText(), "<WithoutText>"),
        (b"x", "eA=="),
        (10**5000, "<int>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_logged_values_are_converted_to_json(given, expected):
    call_notifier, sent = made()
    call_notifier.log("info", given, None)
    assert data(sent) == [expected]


def test_deeply_nested_log_value_is_sent():
    call_notifier, sent = made()
    call_notifier.log("info", DEEP, None)
    assert len(sent) == 1


def test_long_log_message_is_truncated():
    call_notifier, sent = made()
    call_notifier.log("info", ["x" * 1_000_000], None)
    assert len(data(sent)[0]) == output.MAX_MESSAGE_LENGTH + 1 and data(sent)[0].endswith("…")


def test_log_message_contains_the_logger_name():
    call_notifier, sent = made()
    call_notifier.log("info", 1, "shop.orders")
    call_notifier.log("info", 2, 7)  # type: ignore[arg-type]
    call_notifier.log("info", 3, None)
    assert [message["params"].get("logger") for message in sent] == ["shop.orders", "7", None]


def test_revision_without_log_notifications_gets_none():
    silent = replace(REVISIONS["2026-07-28"], sends=frozenset())
    sent: list[Any] = []
    call_notifier = notifier(ClientCall(1, "tools/call", {}, silent), sent, lambda: "debug")
    call_notifier.log("error", "x", None)
    assert sent == []


# Too much.


def test_notifications_over_the_rate_limit_are_dropped(settings, caplog):
    caplog.set_level("DEBUG", "django_mcp")
    settings.DJANGO_MCP = {"THROTTLES": {"progress": "2/month", "log": "1/month"}}
    call_notifier, sent = made()
    for done in range(5):
        call_notifier.progress(done, None, None)
        call_notifier.log("info", done, None)
    assert [message["method"].split("/")[1] for message in sent] == [
        "progress", "message", "progress",
    ]  # fmt: skip
    assert "too many: kind=log" in caplog.text and "too many: kind=progress" in caplog.text


# Runs that come where an earlier one has been.


@pytest.mark.parametrize("tool", ["sync", "asynchronous"])
def test_notifications_before_a_question_are_not_repeated(connect, server, db, revision, tool):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def sync(request: mcp.Request) -> str:
        request.log("error", "one")
        request.progress(1)
        request.once("step", lambda: 1)
        request.log("error", "two")
        request.progress(2)
        request.roots()
        request.log("error", "three")
        request.progress(3)
        return "done"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def asynchronous(request: mcp.Request) -> str:
        await request.alog("error", "one")
        await request.aprogress(1)
        await request.aonce("step", lambda: 1)
        await request.alog("error", "two")
        await request.aprogress(2)
        await request.aroots()
        await request.alog("error", "three")
        await request.aprogress(3)
        return "done"

    client = connect(
        server=server, revision=revision, answers={"roots/list": lambda params: {"roots": []}}
    )
    client.log_level = "error"
    client.request("tools/call", name=tool, _meta={"progressToken": "p"})
    sent = [note["params"].get("data", note["params"].get("progress")) for note in client.notes]
    assert sent == ["one", 1, "two", 2, "three", 3]


# Secrets.


class Colour(enum.Enum):
    RED = "hunter2"
    PASSWORD = 1


@dataclass
class Account:
    user: str
    password: str
    note: str = field(default="hunter2", repr=False)


class Login(BaseModel):
    user: str
    password: str
    note: str = Field(default="hunter2", repr=False)


class Pair(NamedTuple):
    user: str
    password: str


class Printed:
    """A class whose text is that of its attributes."""

    def __init__(self) -> None:
        self.password = "hunter2"

    def __repr__(self) -> str:
        return f"Printed({vars(self)})"

    __str__ = __repr__


def in_circle() -> Any:
    made: dict[str, Any] = {"user": "al", "password": "hunter2"}
    made["self"] = made
    return made


MASKED = {"user": "al", "password": MASK}


@pytest.mark.parametrize(
    "given, expected",
    [
        ({(1, 2): 3, "password": "hunter2"}, {"(1, 2)": 3, "password": MASK}),
        ({Colour.RED: 3, "password": "hunter2"}, {"RED": 3, "password": MASK}),
        ({Colour.PASSWORD: "hunter2"}, {"PASSWORD": MASK}),
        ({("db", "password"): "hunter2"}, {"(db, password)": MASK}),
        ({b"password": "hunter2"}, {"b'password'": MASK}),
        (in_circle(), {**MASKED, "self": "..."}),
        (Account("al", "hunter2"), MASKED),
        ([Account("al", "hunter2")], [MASKED]),
        (Login(user="al", password="hunter2"), MASKED),
        (SimpleLazyObject(lambda: Account("al", "hunter2")), MASKED),
        (Pair("al", "hunter2"), MASKED),
        (UserDict(user="al", password="hunter2"), MASKED),
        ({"user": "al", "password": "hunter2"}.items(), MASKED),
        (
            {1: Printed(), Printed(): [{Printed()}]},
            {"1": "<Printed>", "<Printed>": [["<Printed>"]]},
        ),
        (SimpleNamespace(password="hunter2"), "<SimpleNamespace>"),
        (Colour.RED, "Colour.RED"),
        ([{"password": "hunter2"}, WithoutText()], [{"password": MASK}, "<WithoutText>"]),
        ({"a" * 300 + "_password": "hunter2"}, {"a" * 300 + "_password": MASK}),
        (
            {"bad": "\ud800", "password": "hunter2", "n": 10**5000},
            {"bad": "\ud800", "password": MASK, "n": "<int>"},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_log_masks_secrets_of_whatever_is_logged(given, expected):
    call_notifier, sent = made()
    call_notifier.log("info", given, None)
    assert data(sent) == [expected]


@pytest.mark.parametrize(
    "given, expected",
    [
        ("postgres://user:hunter2@host/db", f"postgres://user:{MASK}@host/db"),
        ("redis://:hunter2@host:6379/0", f"redis://:{MASK}@host:6379/0"),
        ("to https://a:hun@ter2@b, c://d:hunter2@e",
         f"to https://a:{MASK}@b, c://d:{MASK}@e"),
        (["https://host:8080/@user", "al:pw@host"], ["https://host:8080/@user", "al:pw@host"]),
        ({"amqp://a:hunter2@b": 1}, {f"amqp://a:{MASK}@b": 1}),
        (ValueError("no https://a:hunter2@b"), f"no https://a:{MASK}@b"),
        ("Authorization: Bearer abcdefghijk", f"Authorization: Bearer {MASK}"),
        ("sent Basic dXNlcjpwdw== to it", f"sent Basic {MASK} to it"),
        (["bearer a.b-c_d~e+f/g=="], [f"bearer {MASK}"]),
        ("Basic information about the bearer", "Basic information about the bearer"),
    ],
)  # fmt: skip
def test_log_masks_passwords_of_urls(given, expected):
    call_notifier, sent = made()
    call_notifier.log("info", given, None)
    assert data(sent) == [expected]


@pytest.mark.parametrize(
    "name",
    [
        "password", "DB_PASSWORD", "apiKey", "api-key", "Authorization", "access_token", "secret",
        "privateKey", "Set-Cookie", "session_id", "credentials", "pin", "signature", "csrftoken",
        "pass", "DB_PASS", "PGPASSWORD", "userpassword", "auth", "authtoken", "accesstoken",
        "secretkey", "ssh_key", "encryption_key", "csrf", "totp", "otp", "dsn", "DATABASE_URL",
        "REDIS_URL", "sessionid", "set-cookie", "authorization", "x-api-key", "PHPSESSID", "jwt",
        "HTTP_COOKIE", "author_password", "primary_key_secret", "iban", "cvv", "cardNumber",
        "recovery_code", "backupCodes", "secret_key_id",
    ],
)  # fmt: skip
def test_log_masks_values_of_keys_that_name_secrets(name):
    call_notifier, sent = made()
    for secret in ("hunter2", 4711, ["hunter2"], {"inner": "hunter2"}):
        call_notifier.log("info", {"step": 1, "list": [{"deep": {name: secret}}]}, None)
    assert data(sent) == [{"step": 1, "list": [{"deep": {name: MASK}}]}] * 4


@pytest.mark.parametrize(
    "kept",
    [
        {"password": None, "has_password": True, "password_changed": False},
        {"input_tokens": 12, "max tokens": 4096, "tokens": 1.5},
        {"author": "x", "keyboard": "x", "passage": "x", "key": "x", "shipping": "x"},
        {"next_page_token": "x", "spinner": 1},
        {"key_id": "x", "keyIds": ["x"], "pass_rate": "97 %", "max_tokens": "4096"},
        {"token_count": "12", "max_output_tokens": "x", "author": "x"},
        [["name", "x"], ["reset the password", "today"], ["password", None]],
        {"primary_key": "x", "keyword": "x", "monkey": "x", "passenger": "x", "compass": "x"},
        {"author_id": "x", "tokens_used": 3, "max_tokens": 9, "progressToken": "x"},
        {"top_assets": "x", "token_count": 3, "secretary": "x", "cacheKey": "x", "tokenizer": "x"},
        {"url": "https://shop.example", "tests_passed": 3, "co-authors": ["x"], "keys": ["x"]},
    ],
)
def test_log_keeps_values_that_are_no_secrets(kept):
    call_notifier, sent = made()
    call_notifier.log("info", kept, None)
    assert data(sent) == [kept]


@pytest.mark.parametrize(
    "given",
    [
        [("user", "al"), ("password", "hunter2")],
        [["user", "al"], ["x-api-key", "hunter2"]],
        (("user", "al"), ("recovery_code", ["hunter2"])),
    ],
)
def test_log_masks_secrets_in_pairs(given):
    call_notifier, sent = made()
    call_notifier.log("info", given, None)
    assert data(sent) == [[["user", "al"], [given[1][0], MASK]]]


def test_log_masks_secrets_before_a_long_message_is_cut():
    call_notifier, sent = made()
    call_notifier.log(
        "info", {"password": "hunter2", "long": "x" * output.MAX_MESSAGE_LENGTH}, None
    )
    assert "hunter2" not in data(sent)[0] and MASK in data(sent)[0]


# Rows.


@dataclass
class Card:
    row: Any


@pytest.mark.parametrize(
    ("wrapped", "expected"),
    [
        (lambda row: row, "<Tag>"),
        (lambda row: {row}, ["<Tag>"]),
        (lambda row: [{"a": {row}}], [{"a": ["<Tag>"]}]),
        (lambda row: {row: 1}, {"<Tag>": 1}),
        (lambda row: {"a": row}.values(), "<dict_values>"),
        (lambda row: Card(row), {"row": "<Tag>"}),
        (lambda row: SimpleNamespace(row=row), "<SimpleNamespace>"),
        (lambda row: deque([row]), ["<Tag>"]),
        (lambda row: SimpleLazyObject(lambda: row), "<Tag>"),
        (lambda row: lazy(lambda: row, Tag)(), "<Tag>"),
        (lambda row: gettext_lazy("Yes"), "Yes"),
    ],
)
def test_logged_row_is_replaced_by_its_model_name(wrapped, expected):
    call_notifier, sent = made()
    call_notifier.log("info", wrapped(Tag(pk=1, label="hidden")), None)
    assert data(sent) == [expected]


@pytest.mark.parametrize("wrapped", [lambda row: row, lambda row: {row}])
def test_row_as_progress_message_or_logger_is_replaced_by_its_model_name(wrapped):
    call_notifier, sent = made()
    row = Tag(pk=1, label="hidden")
    call_notifier.progress(1, None, wrapped(row))
    call_notifier.log("info", "x", wrapped(row))
    assert len(sent) == 2 and "hidden" not in str(sent) and str(sent).count("<Tag>") == 2
