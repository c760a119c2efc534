"""Demonstrate the example project with the official MCP client over stdio, as alice.

    python -m tools.demo_stdio [--interactive]

Each step checks its result. The first wrong result ends the run with exit code 1. A script answers
the server's questions; with --interactive, a person does.
"""

import argparse
import asyncio
import base64
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters

from tools import ROOT
from tools.console import Console, open_console, shortened

JSON = dict[str, Any]
PICTURE = ROOT / "build" / "atlas.png"
USER = "alice"
SCRIPT: Mapping[str, Any] = {"starts": "2027-04-01", "ends": "2027-04-12"}
POEM = (
    "Begin with nothing planned. Take the slowest train to the next city on the list, "
    "eat where the locals queue, and stay a night longer than you meant to."
)


class ClientAnswers:
    """Answers to elicitation and sampling requests: from a script, or typed by a person."""

    def __init__(self, console: Console, ask: Callable[[str], str] | None = None) -> None:
        self._console, self._ask = console, ask
        self.forms = self.samples = 0

    @property
    def are_typed(self) -> bool:
        """Whether a person answers, who may decline."""
        return self._ask is not None

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Fill in a form, field by field. Fields that a person skips get the scripted value."""
        if not isinstance(params, types.ElicitRequestFormParams):
            return types.ElicitResult(action="decline")
        self.forms += 1
        self._console.say(f"❓ The server asks: {params.message}")
        fields: JSON = params.requested_schema["properties"]
        content = {name: await self._field(name, field) for name, field in fields.items()}
        return types.ElicitResult(action="accept", content=content)

    async def _field(self, name: str, field: JSON) -> Any:
        label, choices = field.get("title", name), choices_of(field)
        scripted = scripted_answer(name, field)
        for value, title in choices.items():
            self._console.aside(f"  {value}: {title}")
        given = await self._typed(f"   {label} [{scripted}]: ")
        if not self.are_typed:
            self._console.aside(f"{label}: {choices.get(scripted, scripted)}")
        return converted(given, field) if given else scripted

    async def _typed(self, prompt: str) -> str:
        return (await asyncio.to_thread(self._ask, prompt)).strip() if self._ask else ""

    async def sample(
        self, context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        """Return the text that a language model would write."""
        self.samples += 1
        for message in params.messages:
            if isinstance(message.content, types.TextContent):
                self._console.say(f"🤖 The server asks your model: {message.content.text}")
        written = await self._typed("   Your model says (Enter for a poem): ") or POEM
        content = types.TextContent(type="text", text=written)
        return types.CreateMessageResult(role="assistant", content=content, model="a-poet")


def choices_of(field: JSON) -> dict[str, str]:
    """Return the choices of a field: titles by value."""
    titled = {one["const"]: one["title"] for one in field.get("oneOf", ())}
    return titled or {value: value for value in field.get("enum", ())}


def scripted_answer(name: str, field: JSON) -> Any:
    if field["type"] == "boolean":
        return True
    return SCRIPT.get(name) or next(iter(choices_of(field)), "")


def converted(given: str, field: JSON) -> Any:
    """Convert typed text to the type of the field."""
    if field["type"] == "boolean":
        return given.lower() in ("y", "yes", "true", "1")
    return given


class Unexpected(Exception):
    """The example project sent a wrong result."""


class StdioDemo:
    """The steps of the demonstration. Their docstrings are the headings."""

    def __init__(self, client: Client, console: Console, answers: ClientAnswers) -> None:
        self.client, self.console, self.answers = client, console, answers
        self.logged = 0
        self.trip = ""
        self.cities: list[JSON] = []  # the five largest of one country, or fewer

    @property
    def country(self) -> str:
        """The code of the country whose cities the steps use."""
        return str(self.cities[0]["country"])

    # What there is.

    async def greet(self) -> None:
        """A client starts the server and they agree on a revision"""
        self.console.aside(f"manage.py mcp_stdio --user {USER}")
        info = self.client.server_info
        title = info.title or info.name if info else "a server"
        self.console.say(f"“{title}”, speaking MCP {self.client.protocol_version}")
        self.console.aside(self.client.instructions or "")

    async def look_around(self) -> None:
        """What a model may do here"""
        tools = await self.client.list_tools()
        self.console.table([(tool.name, first_line(tool.description)) for tool in tools.tools])
        prompts, templates = (
            (await self.client.list_prompts()).prompts,
            (await self.client.list_resource_templates()).resource_templates,
        )
        self.console.say(f"Prompts: {', '.join(prompt.name for prompt in prompts)}")
        self.console.say(f"To read: {', '.join(one.uri_template for one in templates)}")
        expect(len(tools.tools) > 10 and prompts and templates, "the lists are too short")

    async def see_own_trips(self) -> None:
        """What Alice sees: her own trips, and nobody else's"""
        listed = (await self.client.list_resources()).resources
        trips = {str(one.uri): one.name for one in listed if "/trip/" in str(one.uri)}
        self.console.table(list(trips.items()))
        strangers = (f"atlas://trip/{number}" for number in range(1, len(trips) + 2))
        foreign = next(uri for uri in strangers if uri not in trips)
        self.console.say(f"{foreign}: {await self.refused(foreign)}")

    async def refused(self, uri: str) -> str:
        try:
            await self.client.read_resource(uri)
        except MCPError as error:
            return error.error.message
        raise Unexpected(f"{uri} is not Alice's to read")

    # Finding.

    async def search(self) -> None:
        """Search the cities, page by page"""
        together = await self.call("search_city", query="santiago", limit=8)
        asked = {"query": "santiago", "limit": 4}
        page = await self.call("search_city", **asked)
        cities = page["results"]
        if len(together["results"]) > len(cities):
            page = await self.call("search_city", **asked, cursor=page["next_cursor"])
            cities += page["results"]
        rows = [(c["name"], c["country__name"], f"{c['population']:,}") for c in cities]
        self.console.table(rows)
        expect(cities == together["results"], "two pages of four are not one page of eight")

    async def choose(self) -> None:
        """Search with a filter: the largest cities of one country"""
        japan = {"country": "JP", "limit": 5}
        self.cities = (await self.call("search_city", **japan))["results"]
        if not self.cities:  # few cities are loaded: see --largest
            largest = (await self.call("search_city", limit=1))["results"][0]
            elsewhere = japan | {"country": largest["country"]}
            self.cities = (await self.call("search_city", **elsewhere))["results"]
        self.console.table([(c["name"], c["country__name"]) for c in self.cities])

    async def read(self) -> None:
        """Read a resource"""
        country = await self.client.read_resource("atlas://country/JP")
        values = json.loads(text_of(country.contents[0]))
        self.console.table([(name, str(value)) for name, value in values.items() if name[0] != "_"])
        expect(values["capital"] == "Tokyo", "Japan's capital is Tokyo")

    async def complete(self) -> None:
        """Complete what a person types: first the country, then one of its cities"""
        meant = self.cities[0]
        country = await self.completed("country", meant["country__name"].lower()[:4])
        city = await self.completed("city", meant["plain_name"][:3], country=country)
        prompt = await self.client.get_prompt("visit", {"country": country, "city": city})
        self.console.say(f"The prompt begins: {text_of(prompt.messages[0].content)}")
        expect(country == self.country and city == meant["name"], f"{meant['name']} was meant")

    async def completed(self, name: str, typed: str, **before: str) -> str:
        prompt = types.PromptReference(name="visit")
        found = await self.client.complete(prompt, {"name": name, "value": typed}, before)
        values = found.completion.values
        self.console.aside(f"{name}: {typed}▮ → {', '.join(values[:8])}")
        return values[0]

    async def draw(self) -> None:
        """Call a tool that draws"""
        result = await self.client.call_tool("draw_map", {})
        pictures = [one for one in result.content if isinstance(one, types.ImageContent)]
        expect(len(pictures) == 1, "there is no picture")
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_bytes(base64.b64decode(pictures[0].data))
        self.console.say(f"The world by the lights of its cities: {PICTURE}")

    # Working.

    async def ride(self) -> None:
        """A tool that takes its time says how far it is"""
        ride = {"country": self.country, "stops": 5, "seconds": 0.2}
        await self.call("ride_slow_train", self.show_progress, **ride)
        expect(self.logged >= len(self.cities), "not every stop was logged")

    async def get_off(self) -> None:
        """Cancel a call"""
        with anyio.CancelScope() as scope:

            async def first_stop(done: float, total: float | None, message: str | None) -> None:
                await self.show_progress(done, total, message)
                scope.cancel()

            ride = {"country": self.country, "stops": 50, "seconds": 10}
            await self.call("ride_slow_train", first_stop, **ride)
        expect(scope.cancelled_caught, "the train went on")
        self.console.say("Cancelled at the first stop.")

    async def show_progress(self, done: float, total: float | None, message: str | None) -> None:
        self.console.aside(f"{'█' * round(done):░<{round(total or 1)}} {message}")

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logged += 1

    # Asking back.

    async def plan(self) -> None:
        """A tool that lacks something asks you, and acts when it knows"""
        cities = [int(city["_uri"].rpartition("/")[2]) for city in self.cities[:3]]
        trip = await self.call(
            "plan_trip", self.show_progress, title="A slow spring", cities=cities
        )
        self.trip = trip["_uri"]
        expect(self.answers.forms >= 1, "it should have asked for dates")
        itinerary = await self.call("itinerary", trip=self.trip)
        self.console.table(
            [(f"{way['start']} → {way['end']}", km(way)) for way in itinerary["legs"]]
        )

    async def borrow_a_model(self) -> None:
        """A tool may borrow your model"""
        text = await self.call("suggest_itinerary", country=self.country, days=5, interests="tea")
        self.console.say(f"🗒  {text}")
        expect(self.answers.samples == 1, "it should have asked the model")

    async def play(self) -> None:
        """A game of three questions"""
        score = await self.call("capital_quiz", questions=3, continent="EU")
        self.console.say(f"{score['right']} of {score['of']}")
        self.console.table([(answer,) for answer in score["answers"]])

    async def tidy(self) -> None:
        """What cannot be undone is asked first"""
        result = await self.client.call_tool("delete_trip", {"trip": self.trip})
        self.console.say(text_of(result.content[0]))
        expect(not result.is_error or self.answers.are_typed, "the trip should be gone")
        if not result.is_error:
            await self.refused(self.trip)

    # Speaking.

    async def call(self, tool: str, on_progress: Any = None, **arguments: Any) -> Any:
        """A tool's result: its data, or its text where it has none."""
        given = (f"{name}={shortened(repr(value), 30)}" for name, value in arguments.items())
        self.console.aside(f"▶ {tool}({', '.join(given)})")
        result = await self.client.call_tool(tool, arguments, progress_callback=on_progress)
        text = text_of(result.content[0]) if result.content else ""
        expect(not result.is_error, f"{tool}: {text}")
        return text if result.structured_content is None else result.structured_content


STEPS: tuple[Callable[[StdioDemo], Awaitable[None]], ...] = (
    StdioDemo.greet,
    StdioDemo.look_around,
    StdioDemo.see_own_trips,
    StdioDemo.search,
    StdioDemo.choose,
    StdioDemo.read,
    StdioDemo.complete,
    StdioDemo.draw,
    StdioDemo.ride,
    StdioDemo.get_off,
    StdioDemo.plan,
    StdioDemo.borrow_a_model,
    StdioDemo.play,
    StdioDemo.tidy,
)


def expect(condition: object, otherwise: str) -> None:
    if not condition:
        raise Unexpected(otherwise)


def first_line(text: str | None) -> str:
    return shortened((text or "").partition("\n")[0], 76)


def text_of(content: object) -> str:
    return str(getattr(content, "text", ""))


def km(way: JSON) -> str:
    nights = f", {way['nights']} nights before" if way["nights"] else ""
    return f"{way['km']:,} km {way['direction']}{nights}"


async def converse(console: Console, answers: ClientAnswers) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=[str(ROOT / "manage.py"), "mcp_stdio", "--user", USER],
        cwd=ROOT,
        env=dict(os.environ),
    )
    started: list[StdioDemo] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        for conversation in started:
            await conversation.log(params)

    async with Client(
        server,
        elicitation_callback=answers.elicit,
        sampling_callback=answers.sample,
        logging_callback=log,
        log_level="info",
    ) as client:
        started.append(StdioDemo(client, console, answers))
        for number, step in enumerate(STEPS, start=1):
            console.heading(f"{number}. {step.__doc__}")
            await step(started[0])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.demo_stdio")
    parser.add_argument("--interactive", action="store_true", help="answer the questions yourself")
    options = parser.parse_args(arguments)
    console = open_console()
    asks = options.interactive and sys.stdin.isatty()
    failures: list[BaseException] = []
    try:
        asyncio.run(converse(console, ClientAnswers(console, input if asks else None)))
    except* (Unexpected, MCPError, OSError) as failed:
        failures = list(leaves(failed))
    for failure in failures:
        console.say(f"✗ {type(failure).__name__}: {failure}")
    console.heading("The demonstration failed." if failures else "That was all.")
    if not (asks or failures):
        console.aside("To give the answers yourself: make demo ARGS=--interactive")
    return int(bool(failures))


def leaves(group: BaseExceptionGroup) -> Iterator[BaseException]:
    """The exceptions in a group, and in the groups that it holds."""
    for error in group.exceptions:
        yield from leaves(error) if isinstance(error, BaseExceptionGroup) else (error,)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
