"""The declarations of the noisy project: tools that print to stdout, read stdin, and hang."""

import atexit
import logging
import os
import subprocess
import sys
import threading
import time

import django_mcp as mcp

NASTY = "one\ntwo\r\nthree\u2028four\u2029five\x85six\x0bseven\x00 ☃ 𝄞"
logger = logging.getLogger("noisy")

print("NOISE of an import")
atexit.register(print, "NOISE of the end")
atexit.register(os.write, 1, b"NOISE of the last moment\n")


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def shout(request: mcp.Request) -> str:
    """Write to stdout in every possible way."""
    print("NOISE printed", flush=True)
    sys.stdout.write('{"jsonrpc": "2.0", "method": "notifications/NOISE"}\n')
    sys.stdout.flush()
    if sys.__stdout__ is not None:
        sys.__stdout__.write("NOISE of the first stdout\n")
        sys.__stdout__.flush()
    os.write(1, b"NOISE of a descriptor\n")
    subprocess.run([sys.executable, "-c", "print('NOISE of a child')"], check=True)
    thread = threading.Thread(target=print, args=("NOISE of a thread",))
    thread.start()
    thread.join()
    return "shouted"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def listen(request: mcp.Request) -> str:
    """Try to read the client's messages from stdin."""
    return repr(sys.stdin.read()) + repr(os.read(0, 10))


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def nasty(request: mcp.Request, text: str = "") -> str:
    """Return characters that some programs treat as line ends."""
    return text or NASTY


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def note(request: mcp.Request, text: str) -> str:
    """Log and print something."""
    logger.warning("logged %s", text)
    print("printed", text)
    return "noted"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def hang(request: mcp.Request) -> str:
    """Sleep for ten minutes."""
    logger.info("hanging")
    time.sleep(600)
    return "woke"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def who(request: mcp.Request) -> str:
    """Return the name of the user."""
    return request.user.username or "nobody"
