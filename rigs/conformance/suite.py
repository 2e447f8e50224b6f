"""Runs of the official suite, and what they found.

`--suite all --spec-version V` selects what every server of that version has to pass: 27, 33 and 40 scenarios
(`SERVER_SCENARIOS`); the scenarios that the suite itself calls pending are among them. Extensions are off that
timeline: the ten scenarios of tasks (`TASK_SCENARIOS`) and the three of skills (`SKILL_SCENARIOS`) are run one by one.
`pytest -s rigs/conformance -k direct`
shows the tables of our own server, `-k stdio` and `-k http-20` those of the hub in front of it.
"""

import json
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigs.clients.install import node, node_package
from tests.upstreams.child import Child

SERVER_SCENARIOS = {"2025-06-18": 27, "2025-11-25": 33, "2026-07-28": 40}
"""How many scenarios a server of each version has."""

TASK_SCENARIOS = (
    *("lifecycle", "capability-negotiation", "wire-fields", "request-state-removal", "mrtr-input", "request-headers"),
    *("dispatch-and-envelope", "status-notifications", "required-task-error", "mrtr-composition"),
)
"""Those of the tasks extension, without `tasks-`."""

SKILL_SCENARIOS = ("enumeration", "manifest", "directory")
"""Those of the skills extension, without `sep-2640-skills-`."""

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds of one run of all scenarios; three to ten when all goes well."""
SCENARIO_PATIENCE = "10000"
TASK_PATIENCE = "60000"
"""Milliseconds of one server scenario, and of one whose tasks run for seconds."""

FOLDER = re.compile(r"(?:server-)?(?P<scenario>.+)-(?P<time>\d{4}-\d\d-\d\dT[\d-]+Z)")


@dataclass(frozen=True)
class Verdict:
    """One scenario with its checks as the suite wrote them down; none when it broke off."""

    scenario: str
    checks: list[dict[str, Any]]

    def count(self, status: str) -> int:
        return sum(check["status"] == status for check in self.checks)

    @property
    def is_passed(self) -> bool:
        """Warnings count: a server that has none of them direct must have none behind the hub."""
        return bool(self.checks) and not self.count("FAILURE") and not self.count("WARNING")

    @property
    def complaints(self) -> list[str]:
        """One line for each bad check, with the suite's message and the start of its details."""
        lines = [] if self.checks else [f"{self.scenario}: broke off"]
        for check in self.checks:
            if check["status"] in ("FAILURE", "WARNING"):
                details = json.dumps(check.get("details", {}), ensure_ascii=False)[:1000]
                lines.append(f"{self.scenario}: {check['id']} ({check['name']}): {check.get('errorMessage')} {details}")
        return lines


@dataclass(frozen=True)
class Run:
    """One process of the suite; `exit_code` is None when it had to be ended, `noise` what it said on stderr."""

    verdicts: list[Verdict]
    exit_code: int | None
    noise: str

    def __str__(self) -> str:
        """A table, one line a scenario, with its checks by status."""
        lines = [f"{sum(each.is_passed for each in self.verdicts)}/{len(self.verdicts)} scenarios"]
        for each in self.verdicts:
            counts = (f"{each.count(status):3} {status.lower()}" for status in ("SUCCESS", "FAILURE", "WARNING"))
            lines.append(f"  {'ok  ' if each.is_passed else 'FAIL'} {' '.join(counts)}  {each.scenario}")
        return "\n".join(lines)

    @property
    def complaints(self) -> list[str]:
        """Everything that is wrong with it."""
        lines = [line for each in self.verdicts for line in each.complaints]
        if self.exit_code is None or (self.exit_code and not lines):
            lines.append(f"exit code {self.exit_code}:\n{self.noise[-4000:]}")
        return lines


def suite_command() -> list[str]:
    """The command line of the suite. Raises: `NotInstalled`."""
    return [str(node()), str(node_package(SUITE) / "dist" / "index.js")]


async def run_server_scenarios(suite: Sequence[str], url: str, version: str) -> Run:
    """All scenarios of a version against the server at `url`, in one process, one after the other."""
    options = ["--suite", "all", "--spec-version", version, "--timeout", SCENARIO_PATIENCE]
    return await _run([*suite, "server", "--url", url, *options])


async def run_server_scenario(suite: Sequence[str], url: str, name: str, version: str) -> Run:
    """One scenario of a version against the server at `url`."""
    options = ["--scenario", name, "--spec-version", version, "--timeout", SCENARIO_PATIENCE]
    return await _run([*suite, "server", "--url", url, *options])


async def run_task_scenario(suite: Sequence[str], url: str, name: str) -> Run:
    """One of `TASK_SCENARIOS` against the server at `url`."""
    options = ["--scenario", f"tasks-{name}", "--timeout", TASK_PATIENCE]
    return await _run([*suite, "server", "--url", url, *options])


async def run_skill_scenario(suite: Sequence[str], url: str, name: str) -> Run:
    """One of `SKILL_SCENARIOS` against the server at `url`."""
    return await _run([*suite, "server", "--url", url, "--scenario", f"sep-2640-skills-{name}"])


async def run_client_scenario(suite: Sequence[str], command: str, scenario: str, version: str | None) -> Run:
    """One scenario with `command` as the client, to which the URL is appended; those of extensions have no version."""
    options = ["--scenario", scenario, *_version(version), "--timeout", "20000"]
    return await _run([*suite, "client", "--command", command, *options])


async def run_client_suite(suite: Sequence[str], command: str, name: str, version: str) -> Run:
    """Those of one of the suite's own suites that apply to a version, all at once."""
    options = ["--suite", name, *_version(version), "--timeout", "20000"]
    return await _run([*suite, "client", "--command", command, *options])


def _version(version: str | None) -> list[str]:
    return [] if version is None else ["--spec-version", version]


async def _run(argv: list[str]) -> Run:
    exit_code = None
    with tempfile.TemporaryDirectory() as folder:
        async with Child([*argv, "--output-dir", folder], cwd=ROOT) as child:
            with suppress(TimeoutError):
                exit_code = await child.wait(PATIENCE)
        return Run(_verdicts(Path(folder)), exit_code, child.stderr)


def _verdicts(folder: Path) -> list[Verdict]:
    found = [  # the name of a scenario may hold a slash, which makes a folder
        (match["time"], match["scenario"], path)
        for path in folder.rglob("*")
        if path.is_dir() and (match := FOLDER.fullmatch(path.relative_to(folder).as_posix()))
    ]
    return [Verdict(scenario, _checks(path / "checks.json")) for _, scenario, path in sorted(found)]


def _checks(file: Path) -> list[dict[str, Any]]:
    checks: list[dict[str, Any]] = json.loads(file.read_text("utf-8")) if file.exists() else []
    return checks
