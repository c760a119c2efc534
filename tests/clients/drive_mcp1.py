"""The official client, 1.x, in an environment of its own; it may ask for a revision."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import mcp.types as types
import scenario
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.version import SUPPORTED_PROTOCOL_VERSIONS
from pydantic import AnyUrl
from scenario import ASKED, COMMAND, JSON, SERVER_LOG, SSE, Door, Heard, dumped, person


class Driven:
    """The client as the scenario uses it."""

    def __init__(self, session: ClientSession, opened: types.InitializeResult) -> None:
        self._session = session
        self.revision = opened.protocolVersion
        self.can = {
            "instructions": opened.instructions,
            "title": opened.serverInfo.title,
            "supported": SUPPORTED_PROTOCOL_VERSIONS,
            "cancel": hasattr(session, "cancel") or hasattr(session, "cancel_request"),
        }

    async def page(self, kind: str, cursor: str | None) -> JSON:
        listing = {
            "tools": self._session.list_tools,
            "resources": self._session.list_resources,
            "resourceTemplates": self._session.list_resource_templates,
            "prompts": self._session.list_prompts,
        }
        params = types.PaginatedRequestParams(cursor=cursor)
        return dumped(await listing[kind](params=params))

    async def every(self, kind: str) -> None:
        return None  # it leaves the walk to its user

    async def call(self, name: str, arguments: JSON, heard: Heard | None = None) -> JSON:
        return dumped(await self._session.call_tool(name, arguments, progress_callback=heard))

    async def cancel(self, name: str, arguments: JSON) -> None:
        """Send the cancellation notification directly, because the client has no method for it."""
        heard, id = asyncio.Event(), self._session._request_id

        async def hear(done: float, total: float | None, message: str | None) -> None:
            heard.set()

        call = asyncio.create_task(self._session.call_tool(name, arguments, progress_callback=hear))
        await heard.wait()
        params = types.CancelledNotificationParams(requestId=id, reason="by hand")
        notice = types.CancelledNotification(params=params)
        await self._session.send_notification(types.ClientNotification(notice))
        call.cancel()

    async def read(self, uri: str) -> JSON:
        return dumped(await self._session.read_resource(AnyUrl(uri)))

    async def prompt(self, name: str, arguments: dict[str, str]) -> JSON:
        return dumped(await self._session.get_prompt(name, arguments))

    async def complete(
        self, ref: JSON, argument: dict[str, str], context: dict[str, str] | None
    ) -> JSON:
        kind = types.PromptReference if "name" in ref else types.ResourceTemplateReference
        return dumped(await self._session.complete(kind(**ref), argument, context))

    async def listen(self, level: str) -> None:
        await self._session.set_logging_level(level)


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
    """The two ends of the client's transport."""
    if not door.url:
        command = StdioServerParameters(
            command=COMMAND[0], args=COMMAND[1:], env=scenario.environment()
        )
        return await stack.enter_async_context(stdio_client(command, errlog=server_log))
    if SSE:
        return await stack.enter_async_context(sse_client(door.url, door.headers))
    http = await stack.enter_async_context(httpx.AsyncClient(headers=door.headers, timeout=30))
    client = streamable_http_client(door.url, http_client=http)
    return (await stack.enter_async_context(client))[:2]


@asynccontextmanager
async def opened(door: Door) -> AsyncIterator[Driven]:
    callbacks = {
        "elicitation_callback": elicited,
        "sampling_callback": sampled,
        "logging_callback": logged,
    }
    async with (
        AsyncExitStack() as stack,
        ClientSession(*await way(door, stack), **callbacks) as session,
    ):
        yield Driven(session, await session.initialize())


if ASKED:
    types.LATEST_PROTOCOL_VERSION = ASKED
with open(SERVER_LOG, "a") as server_log:
    asyncio.run(scenario.play(opened))
