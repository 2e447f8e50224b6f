"""`make audited`: calls of a hub with an audit, which is killed again and again; then the chain is verified.

Every answer that came must have its line, or be among the lost ones that a line counts. Bytes that are changed
afterwards must be found.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mcp_hub.stores.audit import AuditReport, generations, unwritten, verify

_WINDOW: Final = 64
"""Requests that wait for their answer."""
_CHANGES: Final = 50
"""Bytes that are changed, one after the other."""
_PATIENCE: Final = 120.0


def _settings(folder: Path) -> Path:
    path = folder / "servers.yaml"
    audit = {"path": str(folder / "audit.jsonl"), "arguments": "full", "size": "4MiB", "files": 1000}
    servers = {"mine": {"local": "mcp_hub.examples.tools"}}
    path.write_text(
        json.dumps({"hub": {"audit": audit, "watch": False, "log": {"level": "error"}}, "servers": servers})
    )
    return path


class _Hub:
    """A hub over stdio."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "mcp_hub", "serve", "--config", str(folder / "servers.yaml")]
        env = {**os.environ, "MCP_HUB_STATE_DIR": str(folder / "state"), "MCP_HUB_ATTACH": "never"}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "rig", "version": "1"}}
        self._send({"id": "hello", "method": "initialize", "params": client})
        self._stdout.readline()
        self._send({"method": "notifications/initialized"})

    def _send(self, *messages: object) -> None:
        self._stdin.write(b"".join(json.dumps({"jsonrpc": "2.0", **m}).encode() + b"\n" for m in messages))  # type: ignore[dict-item]
        self._stdin.flush()

    def calls(self, count: int) -> int:
        """Makes so many calls; the number of good answers."""
        good = sent = 0
        while good < count:
            batch = min(_WINDOW, count - sent)
            arguments = [{"a": number, "b": 1} for number in range(sent, sent + batch)]
            self._send(*(
                {"id": sent + n, "method": "tools/call", "params": {"name": "mine_add", "arguments": each}}
                for n, each in enumerate(arguments)
            ))  # fmt: skip
            sent += batch
            for _ in range(batch):
                answer = json.loads(self._stdout.readline())
                if "result" not in answer or answer["result"].get("isError"):
                    raise SystemExit(f"a call failed: {answer}")
                good += 1
        return good

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(_PATIENCE)
        self._stdin.close()
        self._stdout.close()

    def end(self) -> None:
        self._stdin.close()
        self._process.wait(_PATIENCE)
        self._stdout.close()


def run(folder: Path, calls: int, kills: int) -> AuditReport:
    """Makes the calls, with so many kills between them; the report on their lines. Ends with what is wrong."""
    _settings(folder)
    answered, began = 0, time.perf_counter()
    for life in range(kills + 1):
        hub = _Hub(folder)
        answered += hub.calls(calls // (kills + 1) if life < kills else calls - answered)
        if life < kills:
            hub.kill()
        else:
            hub.end()
    seconds = time.perf_counter() - began
    files = generations(folder / "audit.jsonl")
    report = verify(files, set())
    lines = sum(file.read_bytes().count(b'"event":"call"') for file in files)
    print(f"{answered} calls answered in {seconds:.0f} s, {kills} kills: {lines} lines of calls, {report.losses} lost")
    if not report.is_whole or unwritten(report, files[-1], folder / "state") or report.kills > kills:
        raise SystemExit(f"the chain does not hold: {report}")
    if lines + report.losses < answered:
        raise SystemExit(f"{answered - lines - report.losses} answered calls have no line, and are not counted")
    _change(files, report)
    return report


def _change(files: Sequence[Path], report: AuditReport) -> None:
    """Changes single bytes, each of which must be found."""
    for _ in range(_CHANGES):
        file = random.choice(files)
        whole = file.read_bytes()
        position = random.randrange(len(whole) - 1)
        changed = bytes([whole[position] ^ (1 << random.randrange(8))])
        file.write_bytes(whole[:position] + changed + whole[position + 1 :])
        found = verify(files, set())
        number = whole.count(b"\n", 0, position) + 1
        if found.is_whole or not found.problems[0].startswith((f"{file}:{number}: ", f"{file}:{number + 1}: ")):
            raise SystemExit(f"a changed byte in {file}:{number} was not found: {found}")
        file.write_bytes(whole)
    print(f"{_CHANGES} changed bytes were found, each in its line; the chain of {report.lines} lines holds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), options.calls, options.kills)


if __name__ == "__main__":
    main()
