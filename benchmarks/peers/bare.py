"""A floor: ASGI alone. Reads the body, decodes it, adds, answers; checks and knows nothing else."""

import json
from typing import Any

JSON = [(b"content-type", b"application/json")]


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await respond(answer(await read(receive)), send)


async def read(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


async def respond(body: bytes, send: Any) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [*JSON, length]})
    await send({"type": "http.response.body", "body": body})


def answer(body: bytes) -> bytes:
    """The answer of a tool that adds, to a `tools/call`; of an empty one to anything else."""
    message = json.loads(body)
    given = message["params"].get("arguments")
    content = [{"type": "text", "text": str(given["a"] + given["b"])}] if given else []
    result = {"content": content, "isError": False}
    return json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()
