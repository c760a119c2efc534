"""
`python -m tools compare [NAME ...]`: expose one project with several packages, and compare them.

Each package is installed from PyPI in an environment of its own, and serves the project of
`benchmarks.bridges`. This asks each server over HTTP what it exposes, and makes the same calls as
the same user. The results are written to `benchmarks/bridges/results.json` and into the tables of
`docs/explanation/same-project.md`. NAME is a module of `benchmarks.bridges.packages`. With names,
only these are asked, and the results are printed.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.environments import NotInstallable, interpreter, version
from benchmarks.servers import RunningServer, running
from tools import ROOT
from tools.ports import free_port

JSON = dict[str, Any]
RESULTS = ROOT / "benchmarks/bridges/results.json"
PAGE = ROOT / "docs/explanation/same-project.md"
PROJECT = (
    "Django==5.2.*",
    "djangorestframework==3.18.*",
    "django-filter==26.*",
    "django-ninja==1.7.*",
)
OURS = ("-e", ".[drf,ninja]")
SERVER = (
    "-m uvicorn --no-access-log --log-level warning --port {port}"
    " benchmarks.bridges.server:application"
)
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
CLIENT = {"name": "compare", "version": "1"}
TIMEOUT_SECONDS = 30
NUMBER = re.compile(r"\b[AB]-\d\b")  # an invoice of the user, or of another tenant
HIDDEN = ("margin", "471147")  # the name of the hidden field, and its value
MOUNT = re.compile(r"^mount\(\) fails: (.+)$", re.M)
FIELDS = ("number", "status", "amount")
INVALID = {"number": "", "status": "lost", "amount": -1}
VALID = {"number": "A-4", "status": "open", "amount": 7}
Call = tuple[str, JSON | str]


@dataclass(frozen=True)
class Package:
    """A package to compare, and which of its tools do what is compared.

    The default calls are those that most packages use.
    """

    title: str
    module: str  # in benchmarks.bridges.packages
    distribution: str
    bridge: str
    wanted: tuple[str, ...]
    # list the paid invoices
    paid: Call = ("list_invoices", {"status": "paid"})
    # get the invoice of the key 1; "{key}" is replaced by it
    detail: Call = ("get_invoice", {"pk": "{key}"})
    # "{invoice}" is replaced by VALID or INVALID
    create: Call = ("create_invoice", "{invoice}")
    # mark the invoice of the key 1 as paid
    pay: Call | None = ("pay_invoice", {"pk": "{key}"})
    # list by the hidden field, with a value that no row has
    by_margin: Call = ("list_invoices", {"margin": 5})
    scheme: str = "Bearer"
    path: str = "/mcp"


PACKAGES = (
    Package(
        "django_mcp",
        "django_mcp_rest",
        "django-modelcontext",
        "rest",
        OURS,
        paid=("list_invoice", {"status": "paid"}),
        detail=("retrieve_invoice", {"pk": "{key}"}),
        by_margin=("list_invoice", {"margin": 5}),
    ),
    Package(
        "django-mcp-server",
        "django_mcp_server",
        "django-mcp-server",
        "rest",
        ("django-mcp-server==0.5.7", "mcp<2"),
        paid=(
            "query_data_collections",
            {"collection": "invoice", "search_pipeline": [{"$match": {"status": "paid"}}]},
        ),
        detail=(
            "query_data_collections",
            {"collection": "invoice", "search_pipeline": [{"$match": {"id": "{key}"}}]},
        ),
        create=("InvoiceViewSet_CreateTool", {"body": "{invoice}"}),
        pay=None,
        by_margin=(
            "query_data_collections",
            {"collection": "invoice", "search_pipeline": [{"$match": {"margin": 5}}]},
        ),
        scheme="Token",
    ),
    Package(
        "djangorestframework-mcp-server",
        "djangorestframework_mcp_server",
        "djangorestframework-mcp-server",
        "rest",
        ("djangorestframework-mcp-server[filter]==0.54.0",),
        scheme="Token",
        path="/mcp/",
    ),
    Package(
        "django-rest-framework-mcp",
        "django_rest_framework_mcp",
        "django-rest-framework-mcp",
        "rest",
        ("django-rest-framework-mcp==0.1.0a4",),
        detail=("retrieve_invoices", {"kwargs": {"pk": "{key}"}}),
        create=("create_invoices", {"body": "{invoice}"}),
        pay=("pay_invoices", {"kwargs": {"pk": "{key}"}}),
        scheme="Token",
        path="/mcp/",
    ),
    Package(
        "django_mcp",
        "django_mcp_ninja",
        "django-modelcontext",
        "ninja",
        OURS,
    ),
    Package(
        "django-ninja-mcp",
        "django_ninja_mcp",
        "django-ninja-mcp",
        "ninja",
        ("django-ninja-mcp==0.0.1a2", "mcp<2", "httpx"),
    ),
    Package(
        "django_mcp",
        "django_mcp_admin",
        "django-modelcontext",
        "admin",
        OURS,
        paid=("search_invoice", {"status": "paid"}),
        detail=("read_invoice", {"_key": "{key}"}),
        pay=("mark_paid_invoice", {"_keys": ["{key}"]}),
        by_margin=("search_invoice", {"margin": 5}),
    ),
    Package(
        "django-admin-mcp",
        "django_admin_mcp",
        "django-admin-mcp",
        "admin",
        ("django-admin-mcp==0.11.1",),
        paid=("list_invoice", {"filters": {"status": "paid"}}),
        detail=("get_invoice", {"id": "{key}"}),
        create=("create_invoice", {"data": "{invoice}"}),
        pay=("action_invoice", {"action": "mark_paid", "ids": ["{key}"]}),
        by_margin=("list_invoice", {"filters": {"margin": 5}}),
        path="/mcp/",
    ),
)


@dataclass
class Reply:
    """What a server answered to one request."""

    status: int
    message: JSON
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def result(self) -> JSON:
        return self.message.get("result") or {}

    @property
    def is_error(self) -> bool:
        failed = "error" in self.message or self.result.get("isError")
        return bool(self.status >= 400 or failed or "result" not in self.message)

    @property
    def text(self) -> str:
        """The texts of the result, or the error."""
        texts = [part.get("text", "") for part in self.result.get("content", ())]
        data = self.result.get("structuredContent")
        if not texts and not data:
            return json.dumps(self.message.get("error") or self.message)
        return "\n".join([*texts, *([json.dumps(data)] if data else [])])


class Client:
    """An MCP client of one server, in a revision with or without the handshake."""

    def __init__(self, base: str, path: str) -> None:
        self.base, self.path = base, path
        self.ids = count(1)
        self.headers: dict[str, str] = {}
        self.revision = ""

    def request(self, method: str, params: JSON | None = None, **headers: str) -> Reply:
        body: JSON = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if not method.startswith("notifications/"):
            body["id"] = next(self.ids)
        return self.send(self.path, body, self.headers | headers)

    def send(self, path: str, body: JSON | None, headers: dict[str, str]) -> Reply:
        accepted = {"Accept": "application/json, text/event-stream"}
        made = urllib.request.Request(
            self.base + path,
            None if body is None else json.dumps(body).encode(),
            accepted | {"Content-Type": "application/json"} | headers,
        )
        try:
            with urllib.request.urlopen(made, timeout=TIMEOUT_SECONDS) as answer:
                return Reply(answer.status, parsed(answer.read().decode()), dict(answer.headers))
        except urllib.error.HTTPError as error:
            return Reply(error.code, parsed(error.read().decode()), dict(error.headers))

    def initialize(self, revision: str) -> bool:
        """Begin in a revision with a handshake. Return whether the server answered in it."""
        self.headers.pop("Mcp-Session-Id", None)
        self.headers.pop("MCP-Protocol-Version", None)
        reply = self.request("initialize", initialization(revision))
        if reply.result.get("protocolVersion") != revision:
            return False
        self.revision = revision
        self.headers["MCP-Protocol-Version"] = revision
        session = {key.lower(): value for key, value in reply.headers.items()}.get("mcp-session-id")
        if session:
            self.headers["Mcp-Session-Id"] = session
        self.request("notifications/initialized")
        return True

    def discovers(self) -> bool:
        """Return whether the server answers in the revision without a handshake."""
        meta = {
            f"{PREFIX}protocolVersion": STATELESS,
            f"{PREFIX}clientCapabilities": {},
            f"{PREFIX}clientInfo": CLIENT,
        }
        headers = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "server/discover"}
        reply = self.request("server/discover", {"_meta": meta}, **headers)
        return STATELESS in reply.result.get("supportedVersions", ())

    def call(self, call: Call, key: int = 1, invoice: JSON = VALID) -> Reply:
        name, arguments = call
        text = json.dumps(arguments).replace('"{key}"', str(key))
        filled = json.loads(text.replace('"{invoice}"', json.dumps(invoice)))
        return self.request("tools/call", {"name": name, "arguments": filled})


def parsed(text: str) -> JSON:
    """Return the message of a body that is JSON, or a stream of events that ends with it."""
    found = re.findall(r"^data: ?(\{.*)$", text, re.M)
    try:
        message = json.loads(found[-1] if found else text)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def measure(package: Package) -> JSON:
    """Serve the project with this package, and return what a client finds."""
    port = free_port()
    environ = {"COMPARED": package.module, "COMPARED_PORT": str(port)}
    try:
        python = interpreter(f"bridges-{package.distribution}", (*package.wanted, *PROJECT))
        with running([str(python), *SERVER.format(port=port).split()], port, environ) as server:
            found = ask(package, server)
            unmounted = MOUNT.search(server.log_tail())
    except (NotInstallable, RuntimeError) as error:
        return {"skipped": str(error).strip().splitlines()[-1]}
    mounted = {"mount_error": unmounted[1]} if unmounted else {}
    return {"version": version(python, package.distribution), **mounted, **found}


def ask(package: Package, server: RunningServer) -> JSON:
    base = f"http://127.0.0.1:{server.address[1]}"
    token = (Path(server.environ["BENCHMARK_FOLDER"]) / "token").read_text()
    client = Client(base, package.path)
    anonymous = client.request("initialize", initialization())
    client.headers["Authorization"] = f"{package.scheme} {token}"
    revisions = [revision for revision in HANDSHAKE if client.initialize(revision)]
    if client.discovers():
        revisions.append(STATELESS)
    tools = client.request("tools/list").result.get("tools", [])
    calls = {
        "paid": client.call(package.paid),
        "detail": client.call(package.detail),
        "other": client.call(package.detail, key=4),
        "by_margin": client.call(package.by_margin),
        "invalid": client.call(package.create, invoice=INVALID),
        "create": client.call(package.create, invoice=VALID),
        "pay": client.call(package.pay) if package.pay else None,
    }
    rest = {"Authorization": "Token the-token-of-ada"}
    ninja = {"Authorization": "Bearer the-token-of-ada"}
    after = client.send("/ninja/invoices/1", None, ninja).message
    endpoint = client.send("/api/invoices/", None, rest)
    client.headers.pop("Authorization")
    replies = [reply.text for reply in calls.values() if reply]
    listed = client.call(package.paid)
    return {
        "revisions": revisions,
        "tools": [
            {
                "name": tool["name"],
                "arguments": names(tool["inputSchema"]),
                "has_output_schema": bool(tool.get("outputSchema")),
            }
            for tool in tools
        ],
        "list_bytes": len(json.dumps(tools)),
        "anonymous_initialize": anonymous.status,
        "anonymous_call": outcome(listed),
        "shows_hidden_name": HIDDEN[0] in json.dumps(tools),
        "shows_hidden_value": any(HIDDEN[1] in text for text in replies),
        "status_after_action": after.get("status"),
        "rest_endpoint_after": endpoint.status,
        **{f"call_{name}": outcome(reply) for name, reply in calls.items()},
        **offered(client, f"{package.scheme} {token}"),
    }


def offered(client: Client, token: str) -> JSON:
    client.headers["Authorization"] = token
    client.initialize(client.revision)
    lists = {
        "resources": ("resources/list", "resources"),
        "templates": ("resources/templates/list", "resourceTemplates"),
        "prompts": ("prompts/list", "prompts"),
    }
    return {
        name: len(client.request(method).result.get(key, ()))
        for name, (method, key) in lists.items()
    }


def initialization(revision: str = HANDSHAKE[-1]) -> JSON:
    return {"protocolVersion": revision, "capabilities": {}, "clientInfo": CLIENT}


def names(schema: JSON) -> list[str]:
    """Return the arguments of a schema. Those of an object are written as `body.status`."""
    found = []
    for name, one in schema.get("properties", {}).items():
        inner = names(one)
        found += [f"{name}.{part}" for part in inner] or [name]
    return found


def outcome(reply: Reply | None) -> JSON | None:
    if reply is None:
        return None
    text = reply.text
    without_types = re.sub(r"of type '\w+'", "", text)  # "number" is a type too
    return {
        "http": reply.status,
        "is_error": reply.is_error,
        "rows": sorted(set(NUMBER.findall(text))),
        "fields": [name for name in FIELDS if name in without_types] if reply.is_error else [],
        "text": " ".join(text.split())[:300],
    }


# The tables of the page.

TITLES = {"rest": "Django REST framework", "ninja": "django-ninja", "admin": "Django's admin"}
BEGIN = "<!-- RESULTS of `python -m tools compare`: {} -->\n"
END = "<!-- END OF RESULTS -->"


def with_tables(page: str, results: JSON) -> str:
    """Return the page with the tables of these results, between their marks."""
    for bridge in TITLES:
        before, begin, rest = page.partition(BEGIN.format(bridge))
        _, end, after = rest.partition(END)
        if not (begin and end):
            raise LookupError(f"{PAGE.name} has no place for the table of {bridge!r}.")
        page = before + begin + "\n" + table(bridge, results) + "\n" + end + after
    return page


def table(bridge: str, results: JSON) -> str:
    found = [(one, results[one.module]) for one in PACKAGES if one.bridge == bridge]
    run = [(one, data) for one, data in found if "skipped" not in data]
    heads = [f"{one.title} {data['version']}" for one, data in run]
    rows = [["", *heads], ["---"] * (len(heads) + 1)]
    rows += [[name, *(cell(one, data) for one, data in run)] for name, cell in ROWS.items()]
    if bridge == "rest":
        rows.append(["the endpoint of REST framework afterwards", *map(endpoint, run)])
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]
    lines += [
        f"\n{one.title} did not run: {data['skipped']}" for one, data in found if "skipped" in data
    ]
    return "\n".join(lines) + "\n"


def revisions(package: Package, data: JSON) -> str:
    return NOT_COMPARED if "mount_error" in data else ", ".join(data["revisions"])


def tool_names(package: Package, data: JSON) -> str:
    return ", ".join(f"`{tool['name']}`" for tool in data["tools"])


def list_arguments(package: Package, data: JSON) -> str:
    tool = next(tool for tool in data["tools"] if tool["name"] == package.paid[0])
    return ", ".join(f"`{name}`" for name in tool["arguments"]) or "none"


def output_schemas(package: Package, data: JSON) -> str:
    number = sum(tool["has_output_schema"] for tool in data["tools"])
    return f"{number} of {len(data['tools'])} tools"


def size(package: Package, data: JSON) -> str:
    return f"{data['list_bytes'] / 1000:.1f} KB"


def others(package: Package, data: JSON) -> str:
    return ", ".join(str(data[name]) for name in ("resources", "templates", "prompts"))


def rows_of(name: str) -> Callable[[Package, JSON], str]:
    def cell(package: Package, data: JSON) -> str:
        call = data[f"call_{name}"]
        if call is None:
            return "no tool"
        return "error" if call["is_error"] else ", ".join(call["rows"]) or "no rows"

    return cell


def invalid(package: Package, data: JSON) -> str:
    call = data["call_invalid"]
    if not call["is_error"]:
        return "no error"
    return f"an error about {', '.join(call['fields']) or 'no field'}"


def created(package: Package, data: JSON) -> str:
    return "error" if data["call_create"]["is_error"] else "created"


def hidden_filter(package: Package, data: JSON) -> str:
    call = data["call_by_margin"]
    if call["is_error"]:
        return "rejected"
    return "ignored: all rows" if call["rows"] else "used: no rows"


def hidden_value(package: Package, data: JSON) -> str:
    return "shown" if data["shows_hidden_value"] else "not shown"


def paid(package: Package, data: JSON) -> str:
    if data["call_pay"] is None:
        return "no tool"
    return "done" if data["status_after_action"] == "paid" else "not done"


def anonymous(package: Package, data: JSON) -> str:
    if "mount_error" in data:
        return NOT_COMPARED
    call = data["anonymous_call"]
    status = "an error" if call["is_error"] else f"shows {', '.join(call['rows'])}"
    return f"{status}, HTTP {call['http']}"


def endpoint(pair: tuple[Package, JSON]) -> str:
    status = pair[1]["rest_endpoint_after"]
    return "works" if status == 200 else f"fails, HTTP {status}"


NOT_COMPARED = "not compared: `mount()` fails"
ROWS: dict[str, Callable[[Package, JSON], str]] = {
    "protocol revisions": revisions,
    "tools": tool_names,
    "arguments of the list": list_arguments,
    "output schemas": output_schemas,
    "size of all tools": size,
    "resources, templates, prompts": others,
    "the paid invoices: A-2, A-3": rows_of("paid"),
    "an invoice: A-1": rows_of("detail"),
    "an invoice of another tenant: B-1": rows_of("other"),
    "create an invoice": created,
    "create one with three invalid fields": invalid,
    "a filter by the hidden field": hidden_filter,
    "the value of the hidden field": hidden_value,
    "mark an invoice as paid": paid,
    "a call without a token": anonymous,
}


def main(arguments: list[str]) -> int:
    wanted = [one for one in PACKAGES if one.module in arguments or not arguments]
    results = {one.module: measure(one) for one in wanted}
    if arguments:
        print(json.dumps(results, indent=1))
        return 0
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(with_tables(PAGE.read_text(), results))
    print(f"Wrote {RESULTS.relative_to(ROOT)}.", file=sys.stderr)
    return 0
