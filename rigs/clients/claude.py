"""Claude Code in a terminal: at a model on this machine, with the hub as its only server."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from mcp_hub.types import JsonObject
from rigs.attach.place import processes_of
from rigs.clients.apps import APPS, Home
from rigs.clients.install import ROOT
from rigs.clients.tee import Recorder, http_tee, recorded
from rigs.clients.terminal import Terminal, until
from rigs.clients.transcripts import Sent, messages
from tests.e2e.client import Silent, threaded
from tests.e2e.scripted_models import Answer, Anthropic, Call, ScriptedModel, Turn, serving
from tests.upstreams.launch import free_port

WAYS: Final = ("stdio", "http")
SERVER: Final = ROOT / "rigs" / "clients" / "slow_server.py"
TOOLS: Final = tuple(f"mcp__mcp-hub__slow_{tool}" for tool in ("build", "deploy", "check", "crash"))
HERE: Final = "Yes, I am here."
BACKGROUND: Final = "It runs in the background. What else?"
_WISH: Final = re.compile(r"please (build|deploy|check|crash) (\w+)")
_MOST_SEARCHES: Final = 30
_KEY: Final = "sk-ant-of-nobody-0123456789"


class Worker(ScriptedModel):
    """Calls the tool that the person wished last, unless it has done so; then it says what it has heard of it."""

    def __init__(self) -> None:
        super().__init__(Anthropic(), ())

    def respond(self, path: str, raw: bytes) -> Answer:
        body = json.loads(raw)
        self.requests.append(body)
        turn = self._turn(body) if body.get("tools") else ["a title"]
        return Anthropic().answer(turn, len(self.requests), {**body, "tools": [], "messages": []})

    def _turn(self, body: JsonObject) -> Turn:
        blocks = list(_blocks(body))
        wishes = [wish for block in blocks for wish in _WISH.findall(block.get("text", ""))]
        if not wishes:
            return [HERE]
        tool, target = f"mcp__mcp-hub__slow_{wishes[-1][0]}", wishes[-1][1]
        called = [block["input"] for block in blocks if block["type"] == "tool_use" and block["name"] == tool]
        if {"target": target} not in called:
            tries = len(_searches(blocks, tool))
            assert tries < _MOST_SEARCHES, f"Claude Code does not find {tool}"
            time.sleep(min(tries, 1))  # its servers may not be there yet
            is_shown = any(offered.get("name") == tool for offered in body["tools"])
            return [Call(tool, {"target": target}) if is_shown else Call("ToolSearch", {"query": f"select:{tool}"})]
        last = list(_blocks({"messages": body["messages"][-1:]}))
        news = [block for block in last if "<task-notification>" in str(block)]
        runs = any("server-side task" in str(block) for block in last)
        return [_said(str(news[0]["text"])) if news else BACKGROUND if runs else HERE]

    def was_asked(self, words: str) -> bool:
        """Whether a person said this to it."""
        return any(words in str(block.get("text", "")) for body in self.requests for block in _blocks(body))

    @property
    def heard(self) -> list[str]:
        """What it was sent of ended tasks, once each."""
        texts = [str(block.get("text", "")) for body in self.requests for block in _blocks(body)]
        return list(dict.fromkeys(text for text in texts if "<task-notification>" in text))

    @property
    def results(self) -> list[str]:
        """What it was answered by tools, once each."""
        blocks = [block for body in self.requests for block in _blocks(body) if block["type"] == "tool_result"]
        return list(dict.fromkeys(json.dumps(block["content"]) for block in blocks))


def _blocks(body: JsonObject) -> Iterator[JsonObject]:
    for message in body["messages"]:
        content = message["content"]
        yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def _searches(blocks: Sequence[JsonObject], tool: str) -> list[JsonObject]:
    return [b for b in blocks if b["type"] == "tool_use" and b["input"].get("query") == f"select:{tool}"]


def _said(news: str) -> str:
    """The words of the model about an ended task."""
    parts = dict(re.findall(r"<(\w+)>\s*(.*?)\s*</\1>", news.partition("<task-notification>")[2], re.DOTALL))
    said = next((parts[name] for name in ("result", "error", "summary") if name in parts), news)
    with suppress(ValueError, TypeError, KeyError):
        said = json.loads(said)["result"]
    return f"The task has ended: {said}."


class ClaudeHome(Home):
    """A home in which Claude Code has the hub, and the hub has one slow server. Nothing in it reaches another machine.

    `outside` has the addresses that were asked for all the same; nobody was connected to them.
    """

    def __init__(self, folder: Path, way: str) -> None:
        self.package = APPS["claude"].installed()
        super().__init__(folder, next(p for p in self.package.parents if p.name == "node_modules") / ".bin", "always")
        self.way, self.outside, self.model = way, set[str](), Worker()
        self.gates = folder / "gates"
        self.gates.mkdir()
        self.log = folder / "hub.log"
        slow = {"command": sys.executable, "args": [str(SERVER), str(self.gates)], "era": "handshake"}
        self.write("servers.yaml", json.dumps({"hub": {"attach": "always"}, "servers": {"slow": slow}}))
        self._hub: subprocess.Popen[bytes] | None = None
        self._port = free_port()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        proxy = self._stack.enter_context(threaded(self._refusing()))
        model = self._stack.enter_context(serving(self.model))
        quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING")
        self.env |= {**model, **dict.fromkeys((*quiet, "DISABLE_AUTOUPDATER"), "1"), "ANTHROPIC_API_KEY": _KEY}
        self.env |= {"HTTPS_PROXY": proxy, "HTTP_PROXY": proxy, "NO_PROXY": "127.0.0.1,localhost"}
        self.env |= {"TERM": "xterm-256color", "MCP_HUB_ATTACH": "always"}
        del self.env["NO_COLOR"]
        self.write(".claude.json", json.dumps({"hasCompletedOnboarding": True}))
        if self.way == "http":
            self.start_hub()
        return self

    def __exit__(self, *error: object) -> None:
        """Ends every process of this home."""
        super().__exit__()
        for sent in (signal.SIGTERM, signal.SIGKILL):
            for pid in processes_of(self.folder):
                with suppress(ProcessLookupError):
                    os.kill(pid, sent)
            with suppress(Exception):
                until(lambda: not processes_of(self.folder), "the end of all processes", seconds=10)
        if self._hub is not None:
            self._hub.wait()
        self._stack.close()

    def _refusing(self) -> type[Silent]:
        outside = self.outside

        class Proxy(Silent):
            def do_CONNECT(self) -> None:
                outside.add(self.path)
                self.answer(403)

            do_GET = do_POST = do_HEAD = do_CONNECT

        return Proxy

    # the hub

    def start_hub(self) -> None:
        """Starts the hub over HTTP, on the port that it keeps, and waits until it listens."""
        line = [sys.executable, "-m", "mcp_hub", "serve", "--http", "--config", str(self.folder / "servers.yaml")]
        with self.log.open("ab") as log:
            begin = log.tell()
            self._hub = subprocess.Popen(
                [*line, "--port", str(self._port)], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stderr=log
            )
        until(lambda: f":{self._port}/mcp".encode() in self.log.read_bytes()[begin:], "the hub listens")

    @property
    def hub_pid(self) -> int:
        """The process of the hub."""
        if self._hub is not None:
            return self._hub.pid
        (record,) = self.folder.glob("mcp-hub/*/hub.json")
        return int(json.loads(record.read_text())["pid"])

    def kill_hub(self) -> None:
        """Ends the hub by `SIGKILL`; over HTTP another one takes its port, as a service manager has it."""
        os.kill(self.hub_pid, signal.SIGKILL)
        self._after_the_end()

    def end_hub(self) -> None:
        """Ends the hub as `mcp-hub stop` or a service manager does; then as `kill_hub`."""
        os.kill(self.hub_pid, signal.SIGTERM)
        self._after_the_end()

    def _after_the_end(self) -> None:
        if self._hub is not None:
            self._hub.wait()
            self.start_hub()

    @property
    def calls(self) -> list[str]:
        """What began and ended in the server."""
        file = self.gates / "calls"
        return file.read_text().splitlines() if file.exists() else []


class Project:
    """A folder in which Claude Code is run, time after time. What it sends the hub is recorded in `file`."""

    def __init__(self, home: ClaudeHome, name: str) -> None:
        self.home, self.file = home, home.folder / f"{name}.jsonl"
        self.folder = home.folder / name
        self.folder.mkdir()
        self._recorder = Recorder(self.file)

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """The entry of the hub is in the file of Claude Code while the block lasts."""
        with ExitStack() as stack:
            hub = ["-m", "mcp_hub", "serve", "--config", str(self.home.folder / "servers.yaml")]
            line = ["-m", "rigs.clients.tee", str(self.file), sys.executable, *hub, "--attach", "always"]
            entry: JsonObject = {"type": "stdio", "command": sys.executable, "args": [*line, "--client", "claude-code"]}
            if self.home.way == "http":
                url = stack.enter_context(http_tee(f"http://127.0.0.1:{self.home._port}/mcp", self.file))
                entry = {"type": "http", "url": url}
            path = self.home.folder / ".claude.json"
            settings = json.loads(path.read_text())
            project = {"hasTrustDialogAccepted": True, "mcpServers": {"mcp-hub": entry}}
            settings.setdefault("projects", {})[str(self.folder)] = project
            path.write_text(json.dumps(settings))
            yield self

    def note(self, line: str) -> None:
        """Writes into the recording what the person or the rig does."""
        self._recorder.add(Sent("rig", line=line))

    def release(self, target: str) -> None:
        """Lets the call end that waits for this."""
        self.note(f"release {target}")
        (self.home.gates / target).touch()

    def kill_hub(self) -> None:
        """Ends the hub by `SIGKILL`."""
        self.note("kill the hub")
        self.home.kill_hub()

    def end_hub(self) -> None:
        """Ends the hub by `SIGTERM`."""
        self.note("end the hub")
        self.home.end_hub()

    @contextmanager
    def claude(self, *args: str) -> Iterator["Session"]:
        """Claude Code in this folder, ready for words. At the end it is killed if it still runs."""
        self.note(" ".join(("claude", *args)))
        options = ["--permission-mode", "default", "--allowedTools", ",".join(TOOLS)]
        session = Session(self, ["claude", *args, *options])
        try:
            session.ready()
            yield session
        finally:
            session.kill()

    @property
    def sent(self) -> list[Sent]:
        """All that was recorded."""
        return recorded(self.file)

    def said(self, side: str, method: str = "") -> list[JsonObject]:
        """The messages of one side; those of this method, or all."""
        every = [message for one in self.sent if one.side == side for message in messages(one.line)]
        return [message for message in every if not method or message.get("method") == method]

    @property
    def statuses(self) -> list[str]:
        """The statuses of the task, as the hub said them, each once in a row."""
        results = [message.get("result", {}) for message in self.said("hub")]
        found = [str(result["status"]) for result in results if "taskId" in result]
        return [status for at, status in enumerate(found) if found[:at][-1:] != [status]]

    @property
    def tasks(self) -> set[str]:
        """The tasks that the hub spoke of."""
        return {str(m["result"]["taskId"]) for m in self.said("hub") if "taskId" in m.get("result", {})}


class Session(Terminal):
    """Claude Code from its start to its end."""

    def __init__(self, project: Project, argv: Sequence[str]) -> None:
        self.project = project
        self._lists_before = self._lists
        super().__init__(argv, project.home.env, project.folder)

    def ready(self) -> None:
        """Confirms the key if it is asked for, which happens once in a home, and waits until it takes words."""
        dialog = "usethisAPIkey?"
        until(lambda: dialog in self.text or "foragents" in self.text, "a start", lambda: self.text[-400:])
        if dialog in self.text:
            self.until("(recommended)")
            self.type("\x1b[A\r")
        self.until("for agents")
        until(lambda: self._lists > self._lists_before, "a list of tools", lambda: self.text[-400:])

    @property
    def _lists(self) -> int:
        return sum("tools" in message.get("result", {}) for message in self.project.said("hub"))

    def ask(self, words: str) -> None:
        """Types words, and sends them."""
        self.type(f"{words}\r")

    def polled(self, count: int) -> None:
        """Waits until it has asked for its task so many times more."""
        enough = len(self.project.said("client", "tasks/get")) + count
        until(lambda: len(self.project.said("client", "tasks/get")) >= enough, f"{count} times tasks/get", self._seen)

    def has(self, status: str) -> None:
        """Waits until the hub has said this of the task last."""
        until(lambda: self.project.statuses[-1:] == [status], f"a task that is {status}", self._seen)

    def _seen(self) -> str:
        return f"statuses {self.project.statuses}; {self.text[-400:]}"

    def quit(self) -> None:
        """Ctrl-D twice, and *Exit and stop tasks* where it asks, which is what Enter chooses."""
        self.type("\x04\x04")
        asked = "Backgroundworkisrunning"
        until(lambda: asked in self.text or self.process.poll() is not None, "a question, or the end")
        if self.process.poll() is None:
            self.until("to confirm")
            self.type("\r")
        self.ended()
        self.project.note("quit")

    def hang_up(self) -> None:
        """Closes its terminal, as a person closes a window."""
        os.kill(self.process.pid, signal.SIGHUP)
        self.ended()
        self.project.note("close the terminal")

    def kill(self) -> None:
        """Ends it by `SIGKILL` if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.close()
