"""`make clients`: records what real applications send the hub, and compares it with the transcripts of the tests.

Claude Code, Codex and Gemini CLI run without a login, in a home of their own. Exit code 1 if one of them cannot use the
hub, or is not installed. The report says which one sends other messages than before: `python -m rigs.clients.record
--write` replaces the transcripts.
"""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mcp_hub.types import JsonObject
from rigs import report
from rigs.clients import transcripts
from rigs.clients.apps import APPS, Fault, Home, connected, expect
from rigs.clients.caller import TOOL, one_call
from rigs.clients.install import NotInstalled, node_version
from rigs.clients.tee import http_tee, recorded
from rigs.clients.transcripts import Transcript

Entry = Mapping[str, object]
"""How an application reaches the hub: `command` and `args`, or `url`."""
_URL: Final = re.compile(r"http://127\.0\.0\.1:\d+/mcp")


def claude_list(home: Home, entry: Entry) -> None:
    """`claude mcp list` starts the server and lists its tools."""
    _claude_entry(home, entry)
    connected(home.run("claude", "mcp", "list"))


def claude_session(home: Home, entry: Entry) -> None:
    """A session lists all that the server has, and its model calls a tool."""
    _claude_entry(home, entry)
    with one_call() as env:
        said = home.run("claude", "-p", "hello", "--allowedTools", TOOL, env=env)
    expect(said.stdout.strip() == "done", "the session failed", said.stdout + said.stderr)


def _claude_entry(home: Home, entry: Entry) -> None:
    kind = "http" if "url" in entry else "stdio"
    home.write(".claude.json", json.dumps({"mcpServers": {"mcp-hub": {"type": kind, **entry}}}))


def gemini_list(home: Home, entry: Entry) -> None:
    """`gemini mcp list` starts the server and pings it."""
    settings = {"security": {"folderTrust": {"enabled": False}}, "mcpServers": {"mcp-hub": entry}}
    home.write(".gemini/settings.json", json.dumps(settings))
    connected(home.run("gemini", "mcp", "list"))


def codex_status(home: Home, entry: Entry) -> None:
    """Its app server lists the tools of its MCP servers; `codex mcp list` starts none."""
    _codex_status(home, entry)


def codex_modern(home: Home, entry: Entry) -> None:
    """The same with the flag of the modern era, which counts over HTTP only (openai/codex#33952)."""
    _codex_status(home, entry, "--enable", "mcp_2026_07_28")


def _codex_status(home: Home, entry: Entry, *flags: str) -> None:
    table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in entry.items())
    env = "".join(f"{key} = {json.dumps(value)}\n" for key, value in home.env.items() if key != "PATH")
    environment = "" if "url" in entry else f"[mcp_servers.mcp-hub.env]\n{env}"  # it hands on hardly any variable
    home.write(".codex/config.toml", f"[mcp_servers.mcp-hub]\n{table}{environment}")
    about = {"clientInfo": {"name": "rig", "title": "Rig", "version": "1"}}
    with home.started("codex", "app-server", *flags) as app:
        _ask(app, 1, "initialize", about)
        listed = _ask(app, 2, "mcpServerStatus/list", {})
    servers = listed.get("result", {}).get("data", [])
    expect(bool(servers) and "jobs_wait" in servers[0]["tools"], "no tools", listed)


def _ask(app: "subprocess.Popen[str]", id: int, method: str, params: Mapping[str, object]) -> JsonObject:
    """The answer of Codex's own protocol."""
    assert app.stdin and app.stdout
    app.stdin.write(json.dumps({"id": id, "method": method, "params": params}) + "\n")
    app.stdin.flush()
    for line in app.stdout:
        message: JsonObject = json.loads(line)
        if message.get("id") == id:
            return message
    raise Fault(f"codex app-server ended before it answered {method}")


_UNDECLARED: Final = "the hub does not declare it."
"""Applications ask for lists that they were not promised; 2026-07-28 wants an error then, which they have to bear."""


@dataclass(frozen=True)
class Case:
    """An application, what is run of it, and over which transport."""

    app: str
    run: Callable[[Home, Entry], None]
    title: str
    over_http: bool = False


CASES: Mapping[str, Case] = {
    "claude-list": Case("claude", claude_list, "claude mcp list"),
    "claude-list-http": Case("claude", claude_list, "claude mcp list, over HTTP", over_http=True),
    "claude-session": Case("claude", claude_session, "claude -p, with a model that calls a tool"),
    "codex-status": Case("codex", codex_status, "codex app-server: mcpServerStatus/list"),
    "codex-modern-http": Case("codex", codex_modern, "codex app-server --enable mcp_2026_07_28, over HTTP", True),
    "gemini-list": Case("gemini", gemini_list, "gemini mcp list"),
}


def record(case: Case) -> Transcript:
    """What is sent now. Raises `NotInstalled` and `Fault`."""
    package = APPS[case.app].installed()
    programs = next(one for one in package.parents if one.name == "node_modules") / ".bin"
    with TemporaryDirectory() as folder:
        home, file = Home(Path(folder), programs, "never"), Path(folder) / "sent.jsonl"
        with _entry(home, file, over_http=case.over_http) as entry:
            case.run(home, entry)
        sent = transcripts.steady(recorded(file), Path(folder))
    expect(bool(sent), "the hub was not asked anything")
    failed = [answer for answer in transcripts.errors(sent) if not answer["error"]["message"].endswith(_UNDECLARED)]
    expect(not failed, "the hub answered with an error", failed)
    return Transcript(node_version(package).replace(" ", "@"), case.title, sent)


@contextmanager
def _entry(home: Home, file: Path, *, over_http: bool) -> Iterator[Entry]:
    hub = [sys.executable, "-m", "mcp_hub", "serve", "--config", str(home.folder / "servers.yaml")]
    if not over_http:
        yield {"command": sys.executable, "args": ["-m", "rigs.clients.tee", str(file), *hub]}
        return
    with home.started(*hub, "--http", "--port", "0") as started:
        assert started.stderr
        url = next((found[0] for line in started.stderr if (found := _URL.search(line))), None)
        if url is None:
            raise Fault("the hub did not start")
        threading.Thread(target=started.stderr.read, daemon=True).start()  # it would stand still with a full pipe
        with http_tee(url, file) as tee:
            yield {"url": tee}


def difference(name: str, now: Transcript) -> str:
    """How what was recorded differs from the transcript of the tests; empty if it does not."""
    path = transcripts.FOLDER / f"{name}.jsonl"
    if not path.exists():
        return "there is no transcript yet"
    before = transcripts.read(path)
    if transcripts.asked(before.sent) != transcripts.asked(now.sent):
        return f"it sends {transcripts.asked(now.sent)}, {before.client} sent {transcripts.asked(before.sent)}"
    if transcripts.shapes(before.sent) != transcripts.shapes(now.sent):
        return "the hub answers it in another way"
    return ""


def main() -> int:
    parser = report.arguments("clients.record", __doc__)
    parser.add_argument("--only", action="append", choices=list(CASES), help="only this one")
    parser.add_argument("--write", action="store_true", help="replace the transcripts of the tests")
    given = parser.parse_args()
    lines: list[str] = []
    skipped: list[str] = []
    faults: list[str] = []
    for name in given.only or CASES:
        report.say(f"{name} …")
        try:
            now = record(CASES[name])
        except NotInstalled as problem:
            skipped.append(f"{name}: skipped, not installed: {problem}")
        except (Fault, subprocess.TimeoutExpired) as problem:
            faults.append(f"{name}: {problem}")
        else:
            found = difference(name, now)
            lines.append(f"{now.client}, {now.run}: {found or 'as in the transcript'}")
            if given.write:
                transcripts.write(transcripts.FOLDER / f"{name}.jsonl", now)
    return report.reported([*lines, *skipped], faults, is_complete=not skipped)


if __name__ == "__main__":
    sys.exit(main())
