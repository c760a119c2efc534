"""The FastMCP client, in the mode it is given; its handshake may ask for a revision."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import mcp.client.session as session_module
import mcp_types as types
import scenario
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import (
    ClientTransport,
    SSETransport,
    StdioTransport,
    StreamableHttpTransport,
)
from scenario import ASKED, COMMAND, JSON, SERVER_LOG, SSE, Door, Heard, dumped, person

MODE = sys.argv[3]


class Driven:
    """The client as the scenario uses it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.revision = client.protocol_version
        self.modern = client.protocol_version not in session_module.HANDSHAKE_PROTOCOL_VERSIONS
        info = client.server_info
        self.can = {
            "instructions": client.instructions,
            "title": info.title if info else None,
        }
        self._level: str | None = None

    async def page(self, kind: str, cursor: str | None) -> JSON:
        listing = {
            "tools": self._client.list_tools_mcp,
            "resources": self._client.list_resources_mcp,
            "resourceTemplates": self._client.list_resource_templates_mcp,
            "prompts": self._client.list_prompts_mcp,
        }
        return dumped(await listing[kind](cursor=cursor))

    async def every(self, kind: str) -> list[JSON]:
        """Return all names: FastMCP reads the pages itself."""
        listing = {
            "tools": self._client.list_tools,
            "resources": self._client.list_resources,
            "resourceTemplates": self._client.list_resource_templates,
            "prompts": self._client.list_prompts,
        }
        return [dumped(one) for one in await listing[kind]()]

    async def call(self, name: str, arguments: JSON, heard: Heard | None = None) -> JSON:
        meta = {types.LOG_LEVEL_META_KEY: self._level} if self._level else None
        return dumped(
            await self._client.call_tool_mcp(name, arguments, progress_handler=heard, meta=meta)
        )

    async def cancel(self, name: str, arguments: JSON) -> None:
        """Its ``cancel`` wants an id that no call of its own tells, so the call is abandoned."""
        heard = asyncio.Event()

        async def hear(done: float, total: float | None, message: str | None) -> None:
            heard.set()

        call = asyncio.create_task(self._client.call_tool(name, arguments, progress_handler=hear))
        await heard.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    async def read(self, uri: str) -> JSON:
        return dumped(await self._client.read_resource_mcp(uri))

    async def prompt(self, name: str, arguments: dict[str, str]) -> JSON:
        return dumped(await self._client.get_prompt_mcp(name, arguments))

    async def complete(
        self, ref: JSON, argument: dict[str, str], context: dict[str, str] | None
    ) -> JSON:
        kind = types.PromptReference if "name" in ref else types.ResourceTemplateReference
        return dumped(await self._client.complete_mcp(kind(**ref), argument, context))

    async def listen(self, level: str) -> None:
        """Where the revision has no such request, FastMCP refuses; the calls then say it."""
        try:
            await self._client.set_logging_level(level)
        except RuntimeError as error:
            self.can["set_logging_level"] = str(error)
            self._level = level


async def elicited(
    message: str, kind: type | None, params: types.ElicitRequestParams, context: object
) -> ElicitResult:
    return ElicitResult(**person.elicited(dumped(params)))


async def sampled(
    messages: list[types.SamplingMessage], params: types.CreateMessageRequestParams, context: object
) -> str:
    return person.sampled_for(dumped(params))


async def logged(params: types.LoggingMessageNotificationParams) -> None:
    person.logged.append(dumped(params))


def way(door: Door) -> ClientTransport:
    """The transport of the client."""
    if door.url:
        way = SSETransport if SSE else StreamableHttpTransport
        return way(door.url, auth=door.token or None)
    return StdioTransport(
        COMMAND[0],
        COMMAND[1:],
        env=scenario.environment(),
        keep_alive=False,
        log_file=Path(SERVER_LOG),
    )


@asynccontextmanager
async def opened(door: Door) -> AsyncIterator[Driven]:
    async with Client(
        way(door),
        mode=MODE,
        elicitation_handler=elicited,
        sampling_handler=sampled,
        log_handler=logged,
    ) as client:
        yield Driven(client)


if ASKED:
    session_module.LATEST_HANDSHAKE_VERSION = ASKED
asyncio.run(scenario.play(opened))
