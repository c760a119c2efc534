"""Saying: progress for a token and upwards, log lines at the level asked for, no failure."""

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
from django_mcp.calls.output import MASK, CallOutput
from django_mcp.protocol.connection import ClientCall
from django_mcp.protocol.revisions import LOG_LEVELS, REVISIONS
from tests.shop.models import Tag

OWNER = ("alice", "shop")


def made(revision="2026-07-28", token="t", level="debug", high_water=None):
    """A voice, and what it says."""
    call = ClientCall(1, "tools/call", {}, REVISIONS[revision], progress_token=token)
    said: list[Any] = []
    return CallOutput(call, OWNER, said.append, lambda: level, high_water), said


def steps(said):
    return [message["params"]["progress"] for message in said]


def data(said):
    return [message["params"]["data"] for message in said]


# Progress.


def test_progress_rises(revision):
    voice, said = made(revision)
    for done in (1, 1, 0.5, 2, -1, 2.0, 2.5, 10**30):
        voice.progress(done, None, None)
    assert steps(said) == [1, 2, 2.5, 10**30]


def test_progress_goes_on_where_an_earlier_run_was():
    voice, said = made(high_water=5)
    for done in (4, 5, 6):
        voice.progress(done, 10, "words")
    assert steps(said) == [6] and voice.high_water == 6


@pytest.mark.parametrize("token", ["", 0, "t", 7])
def test_any_token_is_a_token(token):
    voice, said = made(token=token)
    voice.progress(1, None, None)
    assert said[0]["params"] == {"progressToken": token, "progress": 1}


def test_without_a_token_nothing_is_said():
    voice, said = made(token=None)
    voice.progress(1, None, None)
    voice.progress("nonsense", None, None)  # type: ignore[arg-type]
    assert said == [] and voice.high_water is None


@pytest.mark.parametrize(
    "done",
    [float("nan"), float("inf"), True, None, "1", Decimal(1), 1j, 10**400, [1]],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_number_is_left_out_and_fails_nothing(done, caplog):
    voice, said = made()
    voice.progress(done, None, None)
    voice.progress(1, done, None)
    assert [message["params"] for message in said] == [{"progressToken": "t", "progress": 1}]
    assert "does not increase" in caplog.text


def test_total_and_message_are_said_where_a_revision_has_them(revision):
    voice, said = made(revision)
    voice.progress(1, 2.5, "words")
    params = said[0]["params"]
    assert params["total"] == 2.5
    assert params.get("message") == (None if revision == "2024-11-05" else "words")


def test_a_message_is_text_and_bounded():
    voice, said = made()
    voice.progress(1, None, Decimal("1.5"))  # type: ignore[arg-type]
    voice.progress(2, None, "x" * 1_000_000)
    assert said[0]["params"]["message"] == "1.5"
    assert len(said[1]["params"]["message"]) == output.MAX_MESSAGE_LENGTH


def test_the_threads_of_a_call_speak_in_turn():
    voice, said = made()
    together = threading.Barrier(8)

    def speak() -> None:
        together.wait(60)
        for done in range(500):
            voice.progress(done, None, None)

    threads = [threading.Thread(target=speak) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps(said) == list(range(500))


# Log lines.


@pytest.mark.parametrize("least", LOG_LEVELS)
def test_what_is_less_severe_than_asked_for_is_left_out(least):
    voice, said = made(level=least)
    for level in LOG_LEVELS:
        voice.log(level, level, None)
    assert data(said) == list(LOG_LEVELS[LOG_LEVELS.index(least) :])


def test_where_no_level_was_asked_for_nothing_is_said():
    voice, said = made(level=None)
    voice.log("emergency", "x", None)
    assert said == []


def test_the_level_is_asked_for_each_time():
    level = ["error"]
    call = ClientCall(1, "tools/call", {}, REVISIONS["2025-11-25"])
    said: list[Any] = []
    voice = CallOutput(call, OWNER, said.append, lambda: level[0])
    voice.log("info", 1, None)
    level[0] = "debug"
    voice.log("info", 2, None)
    assert data(said) == [2]


def test_a_level_there_is_not_is_told_to_the_programmer():
    voice, said = made(level=None)
    with pytest.raises(ValueError, match="There is no level 'warn'; there are: debug, info"):
        voice.log("warn", "x", None)


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError


class Shy:
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
        (Shy(), "shy"),
        ({"a": Shy()}, {"a": "shy"}),
        ({(1, 2): 3}, {"(1, 2)": 3}),
        ([float("nan"), float("inf"), 1], [None, None, 1]),
        (CIRCLE, ["..."]),
        ({"a", "b"} - {"b"}, ["a"]),
        (Unspeakable(), "<Unspeakable>"),
        (b"x", "eA=="),
        (10**5000, "<int>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_is_logged_is_json(given, expected):
    voice, said = made()
    voice.log("info", given, None)
    assert data(said) == [expected]


def test_what_is_nested_beyond_measure_fails_nothing():
    voice, said = made()
    voice.log("info", DEEP, None)
    assert len(said) == 1


def test_what_is_too_long_is_cut():
    voice, said = made()
    voice.log("info", ["x" * 1_000_000], None)
    assert len(data(said)[0]) == output.MAX_MESSAGE_LENGTH + 1 and data(said)[0].endswith("…")


def test_who_speaks_is_named():
    voice, said = made()
    voice.log("info", 1, "shop.orders")
    voice.log("info", 2, 7)  # type: ignore[arg-type]
    voice.log("info", 3, None)
    assert [message["params"].get("logger") for message in said] == ["shop.orders", "7", None]


def test_a_revision_without_the_notification_hears_nothing():
    silent = replace(REVISIONS["2026-07-28"], sends=frozenset())
    said: list[Any] = []
    voice = CallOutput(ClientCall(1, "tools/call", {}, silent), OWNER, said.append, lambda: "debug")
    voice.log("error", "x", None)
    assert said == []


# Too much.


def test_too_much_is_left_out_and_fails_nothing(settings, caplog):
    caplog.set_level("DEBUG", "django_mcp")
    settings.DJANGO_MCP = {"RATES": {"progress": "2/1000", "log": "1/1000"}}
    voice, said = made()
    for done in range(5):
        voice.progress(done, None, None)
        voice.log("info", done, None)
    assert [message["method"].split("/")[1] for message in said] == [
        "progress", "message", "progress",
    ]  # fmt: skip
    assert "Too many log" in caplog.text and "Too many progress" in caplog.text


# Runs that come where an earlier one has been.


@pytest.mark.parametrize("tool", ["sync", "asynchronous"])
def test_what_was_said_before_an_answer_is_not_said_again(connect, server, db, revision, tool):
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
    said = [note["params"].get("data", note["params"].get("progress")) for note in client.notes]
    assert said == ["one", 1, "two", 2, "three", 3]


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
        ([{"password": "hunter2"}, Unspeakable()], [{"password": MASK}, "<Unspeakable>"]),
        ({"a" * 300 + "_password": "hunter2"}, {"a" * 300 + "_password": MASK}),
        (
            {"bad": "\ud800", "password": "hunter2", "n": 10**5000},
            {"bad": "\ud800", "password": MASK, "n": "<int>"},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_log_masks_secrets_of_whatever_is_logged(given, expected):
    voice, said = made()
    voice.log("info", given, None)
    assert data(said) == [expected]


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
    voice, said = made()
    voice.log("info", given, None)
    assert data(said) == [expected]


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
    voice, said = made()
    for secret in ("hunter2", 4711, ["hunter2"], {"inner": "hunter2"}):
        voice.log("info", {"step": 1, "list": [{"deep": {name: secret}}]}, None)
    assert data(said) == [{"step": 1, "list": [{"deep": {name: MASK}}]}] * 4


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
    voice, said = made()
    voice.log("info", kept, None)
    assert data(said) == [kept]


@pytest.mark.parametrize(
    "given",
    [
        [("user", "al"), ("password", "hunter2")],
        [["user", "al"], ["x-api-key", "hunter2"]],
        (("user", "al"), ("recovery_code", ["hunter2"])),
    ],
)
def test_log_masks_secrets_in_pairs(given):
    voice, said = made()
    voice.log("info", given, None)
    assert data(said) == [[["user", "al"], [given[1][0], MASK]]]


def test_log_masks_secrets_before_a_long_message_is_cut():
    voice, said = made()
    voice.log("info", {"password": "hunter2", "long": "x" * output.MAX_MESSAGE_LENGTH}, None)
    assert "hunter2" not in data(said)[0] and MASK in data(said)[0]


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
def test_row_is_named_by_its_model_where_it_is_logged(wrapped, expected):
    voice, said = made()
    voice.log("info", wrapped(Tag(pk=1, label="hidden")), None)
    assert data(said) == [expected]


@pytest.mark.parametrize("wrapped", [lambda row: row, lambda row: {row}])
def test_row_is_no_message_of_progress_and_no_name_of_a_logger(wrapped):
    voice, said = made()
    row = Tag(pk=1, label="hidden")
    voice.progress(1, None, wrapped(row))
    voice.log("info", "x", wrapped(row))
    assert len(said) == 2 and "hidden" not in str(said) and str(said).count("<Tag>") == 2
