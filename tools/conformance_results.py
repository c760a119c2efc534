"""Required scenarios of the official conformance suite, and their results.

Results are read from the suite's `checks.json` files, not from its output. A scenario passes if it
ran, at least one of its own checks succeeded, and no check failed, warned or was skipped. There is
no list of expected failures.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What a revision requires: the suite froze these lists when the revision was released.
FROZEN = {
    "2025-11-25": """
        server-initialize logging-set-level ping completion-complete
        tools-list tools-call-simple-text tools-call-image tools-call-audio
        tools-call-embedded-resource tools-call-mixed-content tools-call-with-logging
        tools-call-error tools-call-with-progress tools-call-sampling tools-call-elicitation
        elicitation-sep1034-defaults elicitation-sep1330-enums server-sse-multiple-streams
        resources-list resources-read-text resources-read-binary resources-templates-read
        resources-subscribe resources-unsubscribe
        prompts-list prompts-get-simple prompts-get-with-args prompts-get-embedded-resource
        prompts-get-with-image dns-rebinding-protection
    """,
    "2026-07-28": """
        server-stateless completion-complete
        tools-list tools-call-simple-text tools-call-image tools-call-audio
        tools-call-embedded-resource tools-call-mixed-content tools-call-error
        tools-call-with-progress server-sse-multiple-streams
        resources-list resources-read-text resources-read-binary resources-templates-read
        sep-2164-resource-not-found
        prompts-list prompts-get-simple prompts-get-with-args prompts-get-embedded-resource
        prompts-get-with-image dns-rebinding-protection caching
        input-required-result-basic-elicitation input-required-result-basic-sampling
        input-required-result-basic-list-roots input-required-result-request-state
        input-required-result-multiple-input-requests input-required-result-multi-round
        input-required-result-missing-input-response input-required-result-non-tool-request
        input-required-result-result-type input-required-result-unsupported-methods
        input-required-result-tampered-state input-required-result-capability-check
        input-required-result-ignore-extra-params input-required-result-validate-input
    """,
}
# What the suite runs beside those and does not score, and we require all the same.
UNSCORED = {
    "2025-11-25": "server-session-lifecycle server-sse-polling json-schema-2020-12",
    "2026-07-28": """
        json-schema-2020-12 http-header-validation http-custom-header-server-validation
    """,
}
# What it asks of an authorization server: no revision requires one, and all of it is required here.
AUTHORIZATION = "authorization"
REQUIRED = {
    revision: [*frozen.split(), *UNSCORED[revision].split()] for revision, frozen in FROZEN.items()
} | {AUTHORIZATION: ["authorization-server-metadata-endpoint", "authorization-code-grant"]}

# Checks that only inform where the server lacks what they look at: here they must succeed.
SUCCEEDING = {
    "server-initialize": {"server-session-id-visible-ascii"},
    "server-session-lifecycle": {
        "server-session-initialized-accepted",
        "server-session-delete-accepted",
        "server-session-terminated-returns-404",
    },
    "server-sse-polling": {
        "server-sse-priming-event",
        "server-sse-retry-field",
        "server-sse-disconnect-resume",
    },
    "authorization-server-metadata-endpoint": {
        "authorization-server-metadata",
        "authorization-server-metadata-cimd",
    },
}
# Nearly every scenario has this check. It succeeds even if the server sent nothing.
NOBODYS_OWN = "wire-schema-valid"

STATUSES = {
    "SUCCESS": "passed", "FAILURE": "failed", "WARNING": "warnings", "SKIPPED": "skipped",
}  # fmt: skip
FOLDER = re.compile(r"(?:authorization-)?server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


@dataclass(frozen=True)
class Scenario:
    """The result of a scenario. Without checks, it did not run to its end."""

    name: str
    checks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        return Counter(STATUSES.get(str(check["status"]), "told") for check in self.checks)

    @property
    def problems(self) -> list[str]:
        """Why it did not pass, each beginning with `scenario:check`; none if it did."""
        return [f"{self.name}:{problem}" for problem in self._problems()]

    def _problems(self) -> Iterator[str]:
        if not self.checks:
            yield "did not run to its end"
            return
        for check in self.checks:
            if check["status"] in ("FAILURE", "WARNING", "SKIPPED"):
                yield f"{check['id']} {check['status']} {why(check)}".rstrip()
        for missing in sorted(SUCCEEDING.get(self.name, set()) - self.succeeded):
            yield f"{missing} did not succeed"
        if not self.succeeded - {NOBODYS_OWN}:
            yield "nothing of its own succeeded"

    @property
    def succeeded(self) -> set[str]:
        return {check["id"] for check in self.checks if check["status"] == "SUCCESS"}


def why(check: dict[str, Any]) -> str:
    """The suite's words about a check, on one line."""
    details = check.get("details") or {}
    text = check.get("errorMessage") or details.get("message") or details.get("note") or ""
    return " ".join(str(text).split())[:500]


@dataclass(frozen=True)
class SetResult:
    """The result of a set of scenarios: of a revision, or of the authorization server."""

    name: str
    ran: dict[str, Scenario]
    seconds: float = 0.0

    @property
    def required(self) -> list[Scenario]:
        return [self.scenario(name) for name in REQUIRED[self.name]]

    @property
    def others(self) -> list[Scenario]:
        """What ran and is not required, such as the scenarios of extensions."""
        return [one for name, one in self.ran.items() if name not in REQUIRED[self.name]]

    @property
    def problems(self) -> list[str]:
        return [problem for scenario in self.required for problem in scenario.problems]

    def scenario(self, name: str) -> Scenario:
        return self.ran.get(name) or Scenario(name)

    def lines(self) -> Iterator[str]:
        """The verdict for people: a line of counts, and one for each problem."""
        yield f"{self.name:<13} {counted(self.required)}  {self.seconds:5.1f} s"
        if self.others:
            yield f"{'':<13} {counted(self.others)}  not required"
        yield from (f"  {problem}" for problem in self.problems)


def counted(scenarios: list[Scenario]) -> str:
    counts = sum((scenario.counts for scenario in scenarios), Counter[str]())
    totals = ", ".join(f"{counts[status]} {status}" for status in STATUSES.values())
    green = sum(not scenario.problems for scenario in scenarios)
    return f"{green} of {len(scenarios)} scenarios, checks: {totals}"


def read(name: str, folder: Path, seconds: float = 0.0) -> SetResult:
    """The verdict on what the suite wrote to `folder`."""
    found = {}
    for path in sorted(folder.iterdir()):
        if named := FOLDER.fullmatch(path.name):
            checks = path / "checks.json"  # not there if the scenario threw
            ended = json.loads(checks.read_text("utf-8")) if checks.exists() else []
            found[named[1]] = Scenario(named[1], ended)
    return SetResult(name, found, seconds)
