"""`python -m bench.code_beside`: ten scripts by `run_code` and by FastMCP's code mode, then a script that is killed.

Both are over the same server of FastMCP, on the same engine, over stdio. `BENCH_FASTMCP_PYTHON` names a Python that has
`fastmcp[code-mode]`. *Lines* are those that a script's tools wrote. The last script is killed with its hub after its
second line; then the hub is started again, and gets the same script once more, as of a client that tries again.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench import measure
from bench.ledger import RelayFailed
from bench.load import PipeClient
from bench.relays import Unavailable, environment, fastmcp_python, hub_command
from bench.report import machine_lines

SIDES: Final = ("run_code", "FastMCP")
NAMES: Final = '"a", "b", "c", "d", "e", "f", "g", "h"'
SCRIPTS: Final = {
    "a value": "sum([n * n for n in range(10)])",
    "thirty calls in turn": 'rows = []\nfor n in range(30):\n    rows.append(await look(key="none"))\nlen(rows)',
    "eight at once": f"import asyncio\nnames = [{NAMES}]\n"
    "rows = await asyncio.gather(*[look(key=name) for name in names])\nlen(rows)",
    "a write that is read": 'await add(key="seen")\nrow = await look(key="seen")\nrow["count"]',
    "a decision": 'row = await look(key="none")\nif not row["count"]:\n    await add(key="made")\n"done"',
    "a caught error": 'try:\n    await fail(why="full")\nexcept Exception:\n    word = "caught"\nword',
    "an error": 'rows = [1]\nawait add(key="before")\nawait fail(why="full")\nlen(rows)',
    "a wrong argument": 'await add(key="before")\nrow = await look(name="before")\nrow["count"]',
    "a missing await": 'await add(key="before")\nrow = look(key="before")\nrow["count"]',
    "only prints": 'print("hello")',
}
"""The last line of each is its value."""
VALUES: Final = {"a value": 285, "thirty calls in turn": 30, "eight at once": 8, "a write that is read": 1}
KILLED: Final = """\
names = ["0", "1", "2", "3", "4", "5"]
unknown = []
for name in names:
    try:
        await add(key=name, seconds=0.5)
    except Exception:
        unknown.append(name)
unknown"""
_CALL: Final = re.compile(r"\b(add|look|fail)\(([^()]*)\)")
_SHOWN: Final = 150
_PATIENCE: Final = 120.0
"""Seconds for an answer, or for the lines of a script that is killed: other work may slow both down."""


class Side:
    """One of the two in a folder of its own; it can be killed and started again."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.file = folder / "lines"
        self._folder = folder
        (folder / "hub").mkdir(parents=True)
        served = [str(Path(__file__).with_name("fastmcp_code.py")), str(self.file)]
        self._config = folder / "servers.json"
        hub = {"code": "all", "prefix": "never", "store": "sqlite"}
        servers = {"tools": {"command": fastmcp_python(), "args": served}}
        self._config.write_text(json.dumps({"hub": hub, "mcpServers": servers}))
        is_hub = name == SIDES[0]
        self._argv = (
            [hub_command(), "serve", "--config", str(self._config)] if is_hub else [fastmcp_python(), *served, "--code"]
        )
        self._tool = "run_code" if is_hub else "execute"

    @contextmanager
    def running(self) -> Iterator[tuple[PipeClient, subprocess.Popen[bytes]]]:
        with (self._folder / "stderr").open("ab") as errors:
            process = subprocess.Popen(
                self._argv, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                cwd=self._folder, env=environment(self._folder / "hub", self._tool),
            )  # fmt: skip
        try:
            client = PipeClient(process, _PATIENCE)
            client.start()
            yield client, process
        finally:
            process.kill()
            process.wait()

    def call(self, code: str) -> dict[str, object]:
        """The parameters of a call that runs the script."""
        return {"name": self._tool, "arguments": {"code": self._worded(code)}}

    def _worded(self, code: str) -> str:
        if self._tool == "run_code":
            return code
        *lines, last = _CALL.sub(lambda call: f'call_tool("{call[1]}", {{{_members(call[2])}}})', code).split("\n")
        is_value = not last.startswith("print")
        return "\n".join([*lines, f"return {last}" if is_value else last])

    def run(self, client: PipeClient, code: str) -> tuple[bool, str]:
        """Whether it ended well, and the text of the result."""
        try:
            raw = client.ask("tools/call", self.call(code))
        except RelayFailed as failure:
            return False, str(failure)
        result: dict[str, Any] = json.loads(raw)
        return not result.get("isError"), "\n".join(part.get("text", "") for part in result["content"])

    def lines(self) -> Counter[str]:
        return Counter(self.file.read_text().split() if self.file.exists() else ())


def _members(arguments: str) -> str:
    pairs = (argument.partition("=") for argument in arguments.split(", "))
    return ", ".join(f'"{name}": {value}' for name, _, value in pairs)


def plain(side: Side) -> Iterator[str]:
    """A line of the table for each script, and its judgement."""
    with side.running() as (client, _):
        until = time.monotonic() + _PATIENCE
        while not side.run(client, 'await look(key="none")')[0] and time.monotonic() < until:
            time.sleep(0.1)
        for name, code in SCRIPTS.items():
            side.file.unlink(missing_ok=True)
            begun = time.perf_counter()
            is_well, text = side.run(client, code)
            took = (time.perf_counter() - begun) * 1e3
            if (expected := VALUES.get(name)) is not None:
                text = "right" if is_well and json.loads(text) == expected else f"WRONG: {text}"
            text = " ".join(text.replace("|", "/").split())
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            kind = "value" if is_well else "error"
            yield f"| {name} | {side.name} | {kind} | {shown} | {side.lines().total()} | {took:.0f} |"


def killed(side: Side) -> str:
    """What became of a script that was killed with its hub, and was sent again."""
    side.file.unlink(missing_ok=True)
    with side.running() as (client, process):
        client.begin("tools/call", side.call(KILLED))
        until = time.monotonic() + _PATIENCE
        while side.lines().total() < 2 and time.monotonic() < until:
            time.sleep(0.01)
        process.kill()
        process.wait()
    with side.running() as (client, _):
        is_well, text = side.run(client, KILLED)
    times = [side.lines()[str(n)] for n in range(6)]
    return f"{side.name}: written {times} times; {'unknown to the script' if is_well else 'error'}: {text[:_SHOWN]}"


def main() -> int:
    try:
        fastmcp_python()
    except Unavailable as problem:
        print(f"skipped: {problem}")
        return 0
    with TemporaryDirectory(prefix="bench-code-", ignore_cleanup_errors=True) as folder:
        sides = [Side(name, Path(folder) / name) for name in SIDES]
        print("| script | by | ends with | text | lines | ms |\n| --- | --- | --- | --- | --- | --- |")
        for pair in zip(*(list(plain(side)) for side in sides), strict=True):
            print("\n".join(pair))
        print("\nKilled after the second of six lines, started again, the same script once more:")
        for side in sides:
            print(killed(side))
    print("\n" + "\n".join(machine_lines(measure.machine())))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("FASTMCP_LOG_LEVEL", "ERROR")
    sys.exit(main())
