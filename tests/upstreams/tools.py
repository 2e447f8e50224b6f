"""The tools of the fixture server; each does one thing that a test wants to see cross the hub."""

import os
import subprocess
import sys
import threading
from typing import Any

from tests.upstreams.definitions import registering, text
from tests.upstreams.eras import Request
from tests.upstreams.instance import Result, Session, Tool
from tests.upstreams.wire import Raw

_PATIENCE = 60.0
_MEETINGS: dict[str, threading.Barrier] = {}

TOOLS: dict[str, Tool] = {}
tool = registering(TOOLS)

Arguments = dict[str, Any]


@tool("Answers with its arguments.", text="string", nonce="string?")
def echo(session: Session, request: Request, arguments: Arguments) -> Result:
    return text(arguments, structuredContent=arguments)


TOOLS["echo"].definition.update(
    title="Echo",
    outputSchema={"type": "object"},
    annotations={"readOnlyHint": True, "idempotentHint": True},
    _meta={"example.org/fixture": True},
)


@tool(
    "Sends n progress notifications, then answers; before the last one it waits for the file `gate`.",
    is_slow=True,
    n="integer",
    nonce="string?",
    total="number?",
    delay="number?",
    gate="string?",
)
def progress(session: Session, request: Request, arguments: Arguments) -> Result:
    n, nonce = arguments["n"], arguments.get("nonce", "")
    for i in range(1, n + 1):
        is_open = i < n or "gate" not in arguments
        if request.cancelled.wait(arguments.get("delay", 0)):
            return None
        while not (is_open or os.path.exists(arguments["gate"])):
            if request.cancelled.wait(0.5):
                return None
        session.progress(request, i, total=arguments.get("total", n), message=f"{nonce} {i}".strip())
    return text({"n": n, "nonce": nonce})


@tool(
    "Sends these progress values as they are: a string is JSON text ('1e400', '\"12\"', 'NaN').",
    values="array",
    after="array?",
)
def progress_odd(session: Session, request: Request, arguments: Arguments) -> Result:
    for value in arguments["values"]:
        session.progress(request, Raw(value) if isinstance(value, str) else value)
    session.respond(request, text("odd"))
    for value in arguments.get("after", ()):
        session.progress(request, Raw(value) if isinstance(value, str) else value)
    return None


@tool("Waits, then answers; can be cancelled.", is_slow=True, seconds="number", nonce="string?")
def slow(session: Session, request: Request, arguments: Arguments) -> Result:
    request.cancelled.wait(arguments["seconds"])
    return text({"slept": arguments["seconds"], "nonce": arguments.get("nonce")})


@tool("Waits until it is cancelled.", is_slow=True, nonce="string")
def wait_cancel(session: Session, request: Request, arguments: Arguments) -> Result:
    request.cancelled.wait()
    return None


@tool(
    "Sends n log messages, then answers.",
    is_slow=True,
    level="string",
    data="any",
    n="integer?",
    logger="string?",
    delay="number?",
)
def log(session: Session, request: Request, arguments: Arguments) -> Result:
    for _ in range(arguments.get("n", 1)):
        session.log(request, arguments["level"], arguments["data"], arguments.get("logger"))
        if request.cancelled.wait(arguments.get("delay", 0)):
            return None
    return text("logged")


@tool(
    "Waits for the other call of this meeting, sends n log messages, and answers when the other one has, too.",
    is_slow=True,
    meeting="string",
    level="string",
    data="any",
    n="integer",
)
def log_together(session: Session, request: Request, arguments: Arguments) -> Result:
    meeting = _MEETINGS.setdefault(arguments["meeting"], threading.Barrier(2))
    meeting.wait(_PATIENCE)
    for _ in range(arguments["n"]):
        session.log(request, arguments["level"], arguments["data"])
    meeting.wait(_PATIENCE)
    return text("logged")


@tool("Answers with this JSON-RPC error.", code="integer", message="string", data="any?")
def error(session: Session, request: Request, arguments: Arguments) -> Result:
    session.fail(request, {key: arguments[key] for key in ("code", "message", "data") if key in arguments})
    return None


@tool("Answers with isError.", text="string")
def tool_error(session: Session, request: Request, arguments: Arguments) -> Result:
    return text(arguments["text"], isError=True)


@tool("Answers with exactly this text as the result.", json="string")
def raw(session: Session, request: Request, arguments: Arguments) -> Result:
    return Raw(arguments["json"])


@tool("Answers with a text of so many bytes.", is_slow=True, bytes="integer")
def big(session: Session, request: Request, arguments: Arguments) -> Result:
    return text("x" * arguments["bytes"])


@tool("Exits at once.", code="integer?")
def crash(session: Session, request: Request, arguments: Arguments) -> Result:
    os._exit(arguments.get("code", 1))


@tool("Answers with its environment.")
def env(session: Session, request: Request, arguments: Arguments) -> Result:
    return text(dict(os.environ))


@tool("Answers with the _meta of the request.")
def meta(session: Session, request: Request, arguments: Arguments) -> Result:
    return text(request.meta)


@tool("Answers with the HTTP headers of the request, by lower-case name.")
def headers(session: Session, request: Request, arguments: Arguments) -> Result:
    return text(request.headers)


@tool("Echoes; a modern HTTP request must have region, n and flag in Mcp-Param headers, too.",
      region="string?", n="integer?", flag="boolean?", nonce="string?")  # fmt: skip
def region(session: Session, request: Request, arguments: Arguments) -> Result:
    return text(arguments, structuredContent=arguments)


for _name, _header in (("region", "Region"), ("n", "N"), ("flag", "Flag")):
    TOOLS["region"].definition["inputSchema"]["properties"][_name]["x-mcp-header"] = _header


@tool("Starts a process that sleeps; answers with its pid.", new_session="boolean?", keeps_stdout="boolean?")
def spawn(session: Session, request: Request, arguments: Arguments) -> Result:
    """In our process group unless `new_session`; with `keeps_stdout` it also holds our output pipe open."""
    quiet = subprocess.DEVNULL
    out = session.instance.output.fileno() if arguments.get("keeps_stdout") else quiet
    child = subprocess.Popen(
        ["sleep", "1000"], stdin=quiet, stdout=out, stderr=quiet, start_new_session=arguments.get("new_session", False)
    )
    return text({"pid": child.pid})


@tool("Writes a line to stderr.", text="string")
def stderr(session: Session, request: Request, arguments: Arguments) -> Result:
    print(arguments["text"], file=sys.stderr, flush=True)
    return text("written")


def custom_tool(definition: dict[str, Any]) -> Tool:
    """A tool of any definition that answers like `echo`."""
    return Tool({"description": "", "inputSchema": {"type": "object"}, **definition}, echo)


def numbered_tools(count: int) -> dict[str, Tool]:
    names = [f"tool_{i:05}" for i in range(count)]
    return {name: custom_tool({"name": name, "description": f"Does {name}."}) for name in names}
