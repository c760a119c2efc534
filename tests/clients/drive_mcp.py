"""The official client, 2.x, in the mode it is given; its handshake may ask for a revision."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import httpx2
import mcp.client.session as session_module
import mcp_types as types
import scenario
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from scenario import ASKED, COMMAND, JSON, SERVER_LOG, SSE, Door, Heard, dumped, person

MODE = sys.argv[3]


class Driven:
    """The client as the scenario uses it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.revision = client.protocol_version
        self.modern = client.protocol_version not in session_module.HANDSHAKE_PROTOCOL_VERSIONS
        self.can = {
            "instructions": client.instructions,
            "title": client.server_info.title if client.server_info else None,
            "modes": refused_modes(),
        }
        self._level: str | None = None

    async def page(self, kind: str, cursor: str | None) -> JSON:
        listing = {
            "tools": self._client.list_tools,
            "resources": self._client.list_resources,
            "resourceTemplates": self._client.list_resource_templates,
            "prompts": self._client.list_prompts,
        }
        return dumped(await listing[kind](cursor=cursor))

    async def every(self, kind: str) -> None:
        return None  # it leaves the walk to its user

    async def call(self, name: str, arguments: JSON, heard: Heard | None = None) -> JSON:
        meta = {types.LOG_LEVEL_META_KEY: self._level} if self._level else None
        return dumped(
            await self._client.call_tool(name, arguments, progress_callback=heard, meta=meta)
        )

    async def cancel(self, name: str, arguments: JSON) -> None:
        with anyio.CancelScope() as scope:

            async def heard(done: float, total: float | None, message: str | None) -> None:
                scope.cancel()

            await self._client.call_tool(name, arguments, progress_callback=heard)

    async def read(self, uri: str) -> JSON:
        return dumped(await self._client.read_resource(uri))

    async def prompt(self, name: str, arguments: dict[str, str]) -> JSON:
        return dumped(await self._client.get_prompt(name, arguments))

    async def complete(
        self, ref: JSON, argument: dict[str, str], context: dict[str, str] | None
    ) -> JSON:
        kind = types.PromptReference if "name" in ref else types.ResourceTemplateReference
        return dumped(await self._client.complete(kind(**ref), argument, context))

    async def listen(self, level: str) -> None:
        if self.modern:
            self._level = level
        else:
            await self._client.session.set_logging_level(level)


def refused_modes() -> list[str]:
    """The revisions that cannot be asked for by ``mode``."""
    refused = []
    for mode in session_module.KNOWN_PROTOCOL_VERSIONS:
        try:
            Client(StdioServerParameters(command="none"), mode=mode)
        except ValueError:
            refused.append(mode)
    return refused


async def elicited(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(**person.elicited(dumped(params)))


async def sampled(
    context: object, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult:
    text = types.TextContent(type="text", text=person.sampled_for(dumped(params)))
    return types.CreateMessageResult(role="assistant", content=text, model="a-model")


async def logged(params: types.LoggingMessageNotificationParams) -> None:
    person.logged.append(dumped(params))


async def way(door: Door, stack: AsyncExitStack) -> Any:
    """The transport of the client."""
    if not door.url:
        command = StdioServerParameters(
            command=COMMAND[0], args=COMMAND[1:], env=scenario.environment()
        )
        return stdio_client(command, errlog=server_log)
    if SSE:
        return sse_client(door.url, door.headers)
    http = await stack.enter_async_context(httpx2.AsyncClient(headers=door.headers, timeout=30))
    return streamable_http_client(door.url, http_client=http)


@asynccontextmanager
async def opened(door: Door) -> AsyncIterator[Driven]:
    async with (
        AsyncExitStack() as stack,
        Client(
            await way(door, stack),
            mode=MODE,
            elicitation_callback=elicited,
            sampling_callback=sampled,
            logging_callback=logged,
        ) as client,
    ):
        yield Driven(client)


if ASKED:
    session_module.LATEST_HANDSHAKE_VERSION = ASKED
with open(SERVER_LOG, "a") as server_log:
    asyncio.run(scenario.play(opened))
