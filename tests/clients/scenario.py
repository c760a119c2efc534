"""
What every client does with the atlas, whatever the client: one function per feature.

A driver beside this file makes the client and hands it over as a ``Client``; what comes back is
told as JSON on stdout. Rule: nothing is judged here (that is the tests' work), and nothing but the
standard library is imported, because the drivers run in environments of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from cable import Cable

JSON = dict[str, Any]
Heard = Callable[[float, float | None, str | None], Awaitable[None]]

MANAGE, SERVER_LOG = sys.argv[1:3]
COMMAND = [os.environ["ATLAS_PYTHON"], MANAGE, "mcp_stdio", "--user", "alice"]
ASKED = os.environ.get("ASKED_REVISION", "")  # what to ask for in the handshake, if not its own
ENDPOINT, TOKEN = os.environ.get("ATLAS_ENDPOINT", ""), os.environ.get("ATLAS_TOKEN", "")
SSE = bool(os.environ.get("ATLAS_SSE"))  # whether to go by HTTP+SSE
SECONDS = 30
PATIENCE = 10
# Seconds in which news of what was changed have come: mcp 1 fails by those that come over stdio
# while it closes the connection, and mcp 2 by those that come over HTTP+SSE.
QUIET = 2

PARIS, LONDON, TOKYO = 2988507, 2643743, 1850147
DATES = {"starts": "2027-05-01", "ends": "2027-05-09"}


def environment() -> dict[str, str]:
    """The server's environment: its database, and its project's settings."""
    return dict(os.environ) | {"DJANGO_SETTINGS_MODULE": "tests.clients.settings"}


@dataclass(frozen=True)
class Door:
    """How to get in: over HTTP where there is an address, as somebody where there is a token."""

    url: str = ""
    token: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


class Client(Protocol):
    """A client as the features use it: results are as they were on the wire."""

    name: str
    revision: str
    can: JSON  # facts about the client itself, for the tests to assert

    async def page(self, kind: str, cursor: str | None) -> JSON: ...
    async def every(self, kind: str) -> list[JSON] | None: ...
    async def call(self, name: str, arguments: JSON, heard: Heard | None = None) -> JSON: ...
    async def cancel(self, name: str, arguments: JSON) -> None: ...
    async def read(self, uri: str) -> JSON: ...
    async def prompt(self, name: str, arguments: dict[str, str]) -> JSON: ...
    async def complete(
        self, ref: JSON, argument: dict[str, str], context: dict[str, str] | None
    ) -> JSON: ...
    async def listen(self, level: str) -> None: ...


Opened = Callable[[Door], AbstractAsyncContextManager[Client]]


class Person:
    """Who answers for the client, and remembers what was asked and said."""

    def __init__(self) -> None:
        self.asked: list[JSON] = []
        self.sampled: list[JSON] = []
        self.logged: list[JSON] = []
        self.declines = False

    def elicited(self, params: JSON) -> JSON:
        self.asked.append({"message": params["message"], "schema": params["requestedSchema"]})
        if self.declines:
            return {"action": "decline"}
        properties = params["requestedSchema"]["properties"]
        content = {name: chosen(name, schema) for name, schema in properties.items()}
        return {"action": "accept", "content": content}

    def sampled_for(self, params: JSON) -> str:
        self.sampled.append(params)
        return "Go by rail, and stay longer."

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when it is so, or at once when a while has passed: the tests will tell."""
        for _ in range(200):
            if condition():
                return
            await asyncio.sleep(0.01)


def chosen(name: str, schema: JSON) -> Any:
    """An answer of the kind that is asked for."""
    if name in DATES:
        return DATES[name]
    if schema["type"] == "boolean":
        return True
    return schema["oneOf"][0]["const"] if "oneOf" in schema else schema["enum"][0]


person = Person()


# The features.


async def lists(client: Client) -> JSON:
    kinds = ("tools", "resources", "resourceTemplates", "prompts")
    return {kind: await pages(client, kind) for kind in kinds}


async def pages(client: Client, kind: str) -> JSON:
    """The names on every page, by cursors and, where the client walks by itself, by its walk."""
    walked, cursor = [], None
    while True:
        page = await client.page(kind, cursor)
        walked.append([named(one) for one in page[kind]])
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    every = await client.every(kind)
    return {"pages": walked, "every": every and [named(one) for one in every]}


def named(one: JSON) -> str:
    return str(one.get("uriTemplate") or one.get("uri") or one["name"])


async def call(client: Client) -> JSON:
    near = {"city": PARIS, "count": 2, "smallest": 1_000_000}
    return {
        "distance": await client.call("distance_between", {"start": PARIS, "end": LONDON}),
        "nearest": await client.call("nearest_cities", near),
        "map": kinds(await client.call("draw_map", {"country": "JP"})),
        "wrong": await client.call("distance_between", {"start": PARIS}),
        "missing": await client.call("distance_between", {"start": PARIS, "end": 1}),
        "unknown": await failing(client.call("no_such_tool", {})),
    }


def kinds(result: JSON) -> JSON:
    return {"kinds": [block["type"] for block in result["content"]]}


async def progress(client: Client) -> JSON:
    heard: list[Any] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        heard.append([done, total, message])

    ride = {"country": "JP", "stops": 3, "seconds": 0.01}
    result = await client.call("ride_slow_train", ride, hear)
    await person.until(lambda: len(heard) >= 3)
    return {"heard": heard, "result": result}


async def log(client: Client) -> JSON:
    """What is logged at "error" and at "info", of a tool that says two things at "info"."""
    return {level: await logged_at(level, client) for level in ("error", "info")}


async def logged_at(level: str, client: Client) -> list[JSON]:
    person.logged.clear()
    await client.listen(level)
    await client.call("ride_slow_train", {"country": "JP", "stops": 2, "seconds": 0})
    await client.call("distance_between", {"start": PARIS, "end": LONDON})  # an answer behind them
    await person.until(lambda: level == "error" or len(person.logged) >= 2)
    return list(person.logged)


async def elicitation(client: Client) -> JSON:
    person.asked.clear()
    planned = await client.call("plan_trip", {"title": "Capitals", "cities": [PARIS, LONDON]})
    trip = (planned.get("structuredContent") or json_of(planned)).get("_uri")
    quiz = await client.call("capital_quiz", {"questions": 2, "continent": "EU"})
    asked = list(person.asked)
    kept = await declined(client, trip or "atlas://trip/1")
    deleted = await client.call("delete_trip", {"trip": trip or "atlas://trip/1"})
    gone = await failing(client.read(trip or "atlas://trip/0"))
    return {
        "planned": planned, "quiz": quiz, "asked": asked,
        "kept": kept, "deleted": deleted, "gone": gone,
    }  # fmt: skip


async def declined(client: Client, trip: str) -> JSON:
    person.declines = True
    try:
        refused = await client.call("delete_trip", {"trip": trip})
    finally:
        person.declines = False
    return {"refused": refused, "read": json.loads(text_of(await client.read(trip)))}


async def sampling(client: Client) -> JSON:
    person.sampled.clear()
    result = await client.call("suggest_itinerary", {"country": "JP", "days": 3})
    return {"result": result, "asked": list(person.sampled)}


async def cancel(client: Client) -> JSON:
    began = asyncio.get_running_loop().time()
    await client.cancel("ride_slow_train", {"country": "JP", "stops": 5, "seconds": 9})
    seconds = asyncio.get_running_loop().time() - began
    after = await client.call("distance_between", {"start": PARIS, "end": TOKYO})
    return {"seconds": seconds, "after": after}


async def read(client: Client) -> JSON:
    return {
        "about": await client.read("atlas://about"),
        "city": await client.read(f"atlas://city/{PARIS}"),
        "map": await client.read("atlas://map/JP"),
        "missing": await failing(client.read("atlas://city/1")),
        "view": await client.read("view://trips/page/1"),
        "posted": await client.call("repeat_trip", {"pk": 1, "starts": "2030-01-01"}),
        "updated": await client.call("update_trip", {"trip": 1, "notes": "By night train."}),
        "refused": await client.call("update_trip", {"trip": 0, "notes": "Nowhere."}),
        "prompt": await client.prompt("visit", {"country": "JP", "city": "Tokyo"}),
    }


async def complete(client: Client) -> JSON:
    prompt, template = {"type": "ref/prompt", "name": "visit"}, "atlas://flag/{country}"

    async def values(ref: JSON, name: str, text: str, context: dict[str, str] | None) -> Any:
        found = await client.complete(ref, {"name": name, "value": text}, context)
        return found["completion"]["values"]

    return {
        "country": await values(prompt, "country", "japa", None),
        "pace": await values(prompt, "pace", "", None),
        "city": await values(prompt, "city", "to", {"country": "JP"}),
        "template": await values({"type": "ref/resource", "uri": template}, "country", "FR", None),
    }


async def page(client: Client) -> JSON:
    """Three pages of a search, by its own cursor."""
    found, search = [], {"country": "IN", "limit": 5}
    for _ in range(3):
        result = await client.call("search_city", search)
        told = result.get("structuredContent") or json_of(result)
        found.append([[row["name"], row["population"]] for row in told["results"]])
        search = search | {"cursor": told["next_cursor"]}
    return {"pages": found}


FEATURES = {
    "list": lists, "call": call, "progress": progress, "log": log, "elicitation": elicitation,
    "sampling": sampling, "cancel": cancel, "read": read, "complete": complete, "page": page,
}  # fmt: skip


# Over HTTP alone.


async def resume(client: Client, cable: Cable) -> JSON:
    """The connection is cut while a call is under way; and then there is another call."""
    heard: list[float] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        heard.append(done)
        if len(heard) == 1:
            cable.cut()

    ride = {"country": "JP", "stops": 4, "seconds": 0.5}
    outcome = await ended(client.call("ride_slow_train", ride, hear))
    after = await client.call("distance_between", {"start": PARIS, "end": TOKYO})
    return {"heard": heard, "outcome": outcome, "after": after, "requests": list(cable.requests)}


async def public(opened: Opened, url: str) -> JSON:
    """What a client sees that shows no token, and what it makes of a refusal."""
    async with opened(Door(url)) as client:
        told = {
            "revision": client.revision,
            "tools": (await pages(client, "tools"))["pages"],
            "called": await client.call("greet", {"name": "stranger"}),
            "read": await client.read("greeting://door"),
        }
    told["wrong"] = await ended(ask_for_more(opened, Door(url, "mcp_wrong")))
    if not SSE:  # there the clients wait for ever for an answer to what was refused
        told["refused"] = await ended(ask_for_more(opened, Door(url)))
    return told


async def ask_for_more(opened: Opened, door: Door) -> JSON:
    async with opened(door) as client:
        return await client.call("itinerary", {"trip": "atlas://trip/1"})


# Telling.


def text_of(result: JSON) -> str:
    blocks = result.get("contents") or result.get("content") or [{}]
    return str(blocks[0].get("text", "{}"))


def json_of(result: JSON) -> JSON:
    try:
        found = json.loads(text_of(result))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def failing(work: Awaitable[Any]) -> JSON:
    """The error that comes of it."""
    try:
        return {"unexpected": await work}
    except Exception as error:
        told = getattr(error, "error", None)
        return {
            "kind": type(error).__name__,
            "code": getattr(told, "code", None),
            "message": getattr(told, "message", str(error)),
        }


async def observed(feature: Awaitable[JSON]) -> JSON:
    try:
        async with asyncio.timeout(SECONDS):
            return await feature
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


async def ended(work: Awaitable[Any]) -> JSON:
    """Its result; or its error, which may be one of several, or that there is no end to it."""
    try:
        async with asyncio.timeout(PATIENCE):
            return {"result": await work}
    except Exception as error:
        leaf: BaseException = error
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
        return {"error": f"{type(leaf).__name__}: {leaf}"}


async def everything(client: Client) -> JSON:
    told: JSON = {"revision": client.revision, "can": client.can}
    for name, feature in FEATURES.items():
        told[name] = await observed(feature(client))
    return told


async def play(opened: Opened) -> None:
    """Do everything, and tell it."""
    if not ENDPOINT:
        async with opened(Door()) as client:
            told = await everything(client)
            await asyncio.sleep(QUIET)
    else:
        async with Cable(ENDPOINT) as cable:
            async with opened(Door(cable.url, TOKEN)) as client:
                told = await everything(client)
                if SSE:  # no client here goes on with such a stream
                    await asyncio.sleep(QUIET)
                else:
                    told["resume"] = await observed(resume(client, cable))
            told["public"] = await observed(public(opened, cable.url))
    print(json.dumps(told))


def dumped(result: Any) -> JSON:
    """A result of a client of the SDK, as it was on the wire."""
    found: JSON = result.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return found
