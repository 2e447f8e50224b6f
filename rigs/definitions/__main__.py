"""`make clients`: mutated definitions of tools, prompts, resources and templates, against the clients themselves.

Each definition is listed to each client by itself, without the hub: what all of them take has to pass the hub
unchanged. Then the hub lists all of them together: no client may refuse a list. Exit code 1 for a fault, or a client
that is not installed.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from mcp_hub.catalog.offers.definitions import parse
from mcp_hub.protocol.capabilities import KINDS
from mcp_hub.types import Kind
from rigs import report
from rigs.clients.clients import fastmcp_python, own_python
from rigs.clients.install import ROOT, NotInstalled, node, node_package, python_with
from rigs.clients.rig import state
from rigs.definitions.mutations import mutated
from tests.upstreams.launch import patient

_HERE = Path(__file__).parent
_SECONDS = 600
_SAID = 200  # characters of a refusal that are shown
Verdicts = dict[str, list[str | None]]


@dataclass(frozen=True)
class Judge:
    """One library in one mode, and the command line that runs it."""

    name: str
    argv: Callable[[], list[str]]

    def verdicts(self, command: list[str], counts: Mapping[str, int | None], root: Path) -> Verdicts:
        """What it says of each list. Raises: NotInstalled, RuntimeError."""
        task = json.dumps({"command": command, "counts": counts})
        env = {**_environment(root), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            self.argv(), input=task, capture_output=True, text=True, timeout=_SECONDS, env=env, cwd=root
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}: {done.stderr.strip()[-600:]}")
        verdicts: Verdicts = json.loads(done.stdout)
        return verdicts


def _python(python: Callable[[], Path], library: str, mode: str = "legacy") -> Callable[[], list[str]]:
    return lambda: [str(python()), str(_HERE / "drivers" / "judge.py"), library, mode]


def _node(requirement: str, library: str, mode: str = "legacy") -> Callable[[], list[str]]:
    return lambda: [str(node()), str(_HERE / "drivers" / "judge.mjs"), str(node_package(requirement)), library, mode]


_CLIENT_2 = "@modelcontextprotocol/client@2"
JUDGES = (
    Judge("python-mcp-1", _python(lambda: python_with("mcp>=1,<2", "mcp-1"), "mcp_1")),
    Judge("python-mcp-2-legacy", _python(own_python, "mcp_2")),
    Judge("python-mcp-2-auto", _python(own_python, "mcp_2", "auto")),
    Judge("fastmcp-auto", _python(fastmcp_python, "fastmcp", "auto")),
    Judge("typescript-sdk-1", _node("@modelcontextprotocol/sdk@1", "sdk_1")),
    Judge("typescript-client-2-legacy", _node(_CLIENT_2, "client_2")),
    Judge("typescript-client-2-auto", _node(_CLIENT_2, "client_2", "auto")),
    Judge("ai-sdk", _node("@ai-sdk/mcp@1", "ai_sdk")),
)


def _environment(root: Path) -> dict[str, str]:
    return {"HOME": str(root), "PATH": "/usr/bin:/bin", **state(root), "MCP_HUB_ATTACH": "never"}


def _judged(judge: Judge, root: Path, direct: list[str], hub: list[str], counts: Mapping[str, int]) -> "_Row":
    begun = time.perf_counter()
    try:
        alone = judge.verdicts(direct, counts, root)
        together = judge.verdicts(hub, dict.fromkeys(counts), root)
    except (NotInstalled, RuntimeError, subprocess.TimeoutExpired, ValueError) as problem:
        return _Row(judge.name, {}, {}, str(problem))
    report.say(f"{judge.name}: {time.perf_counter() - begun:.0f} s")
    return _Row(judge.name, alone, together)


@dataclass(frozen=True)
class _Row:
    name: str
    alone: Verdicts
    together: Verdicts
    problem: str = ""

    @property
    def markdown(self) -> str:
        refused = [sum(own is not None for own in verdicts) for verdicts in self.alone.values()]
        return f"| {self.name} | {' | '.join(map(str, refused))} | {sum(map(any, self.together.values()))} |"

    def faults(self) -> list[str]:
        if self.problem:
            return [f"{self.name}: {self.problem}"]
        return [
            f"{self.name}, {key} through the hub: {(own or '')[:_SAID]}"
            for key, verdicts in self.together.items()
            for own in verdicts
            if own is not None
        ]


def changes(definitions: Mapping[Kind, list[str]], rows: list[_Row]) -> tuple[list[str], list[str]]:
    """What the hub does with the definitions, a line a kind; and faults: those that all clients take and it changes."""
    lines, faults = [], []
    for kind, texts in definitions.items():
        key, counts = KINDS[kind].result_key, {"passed": 0, "repaired": 0, "in part": 0, "left out": 0}
        for number, text in enumerate(texts):
            usable, unfit = parse(kind, [text.encode()], "s")
            if not usable:
                outcome = "left out"
            elif unfit:
                outcome = "in part"
            else:
                outcome = "passed" if usable[0].sent is None else "repaired"
            counts[outcome] += 1
            refusals = [row.alone[key][number] for row in rows if row.alone]
            if outcome != "passed" and not any(refusals):
                reason = unfit[0].reason if unfit else ""
                faults.append(f"{kind} {number}, which all clients take, is {outcome}: {reason} {text[:_SAID]}")
        lines.append(f"{key}: {len(texts)}, of them {', '.join(f'{count} {name}' for name, count in counts.items())}")
    return lines, faults


def main() -> int:
    parser = report.arguments("definitions", __doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="judges, by the start of their names"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one definition of N")
    chosen = parser.parse_args()
    judges = [judge for judge in JUDGES if not chosen.only or judge.name.startswith(tuple(chosen.only))]
    definitions = {kind: texts[:: chosen.every] for kind, texts in mutated().items()}
    with TemporaryDirectory(prefix="definitions-") as folder:
        root = Path(folder)
        lists = root / "lists.json"
        lists.write_text(json.dumps({KINDS[kind].result_key: texts for kind, texts in definitions.items()}))
        direct = [sys.executable, str(_HERE / "listing_server.py"), str(lists)]
        entry = {"command": direct[0], "args": direct[1:]}
        config = root / "servers.yaml"
        settings = patient({"hub": {"expose": "full", "page_size": 10_000}, "servers": {"s": entry}})
        config.write_text(json.dumps(settings))
        hub = [sys.executable, "-m", "mcp_hub", "serve", "--config", str(config)]
        counts = {KINDS[kind].result_key: len(texts) for kind, texts in definitions.items()}
        judged = partial(_judged, root=root, direct=direct, hub=hub, counts=counts)
        with ThreadPoolExecutor(2) as pool:
            rows = list(pool.map(judged, judges))
    lines, faults = changes(definitions, rows)
    if chosen.only:  # others may refuse what these take
        faults = []
    faults = [*(fault for row in rows for fault in row.faults()), *faults]
    head = ["| client | " + " | ".join(f"{key} refused" for key in counts) + " | lists refused through the hub |"]
    head.append("| --- " * (len(counts) + 2) + "|")
    return report.reported([*lines, "", *head, *(row.markdown for row in rows)], faults)


if __name__ == "__main__":
    sys.exit(main())
