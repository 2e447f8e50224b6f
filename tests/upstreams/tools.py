"""The tools of the fixture server; each does one thing that a test wants to see cross the hub."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from eras import INVALID_PARAMS, Request, RpcError
from instance import Instance, Runs, Tool
from wire import Raw

__all__ = ["TOOLS", "custom_tool", "numbered_tools", "text"]

TOOLS: dict[str, Tool] = {}

Arguments = dict[str, Any]
Result = dict[str, Any] | Raw | None


def tool(description: str, /, *, is_slow: bool = False, **types: str) -> Callable[[Runs], Runs]:
    """Register a tool under its function's name; a type that ends in `?` marks an optional argument."""

    def register(run: Runs) -> Runs:
        name = run.__name__
        properties = {
            key: {"type": kind.rstrip("?")} if kind.rstrip("?") != "any" else {} for key, kind in types.items()
        }
        required = [key for key, kind in types.items() if not kind.endswith("?")]
        schema = {"type": "object", "properties": properties, "required": required}
        TOOLS[name] = Tool({"name": name, "description": description, "inputSchema": schema}, run, is_slow)
        return run

    return register


def text(value: Any, **fields: Any) -> dict[str, Any]:
    """A result with one text: the string, or the value as JSON."""
    body = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {"content": [{"type": "text", "text": body}], **fields}


@tool("Answers with its arguments.", text="string", nonce="string?")
def echo(instance: Instance, request: Request, arguments: Arguments) -> Result:
    return text(arguments, structuredContent=arguments)


TOOLS["echo"].definition.update(
    title="Echo",
    outputSchema={"type": "object"},
    annotations={"readOnlyHint": True, "idempotentHint": True},
    _meta={"example.org/fixture": True},
)


@tool(
    "Sends n progress notifications, then answers.",
    is_slow=True,
    n="integer",
    nonce="string?",
    total="number?",
    delay="number?",
)
def progress(instance: Instance, request: Request, arguments: Arguments) -> Result:
    n, nonce = arguments["n"], arguments.get("nonce", "")
    for i in range(1, n + 1):
        if request.cancelled.wait(arguments.get("delay", 0)):
            return None
        instance.progress(request, i, total=arguments.get("total", n), message=f"{nonce} {i}".strip())
    return text({"n": n, "nonce": nonce})


@tool(
    "Sends these progress values as they are: a string is JSON text ('1e400', '\"12\"', 'NaN').",
    values="array",
    after="array?",
)
def progress_odd(instance: Instance, request: Request, arguments: Arguments) -> Result:
    for value in arguments["values"]:
        instance.progress(request, Raw(value) if isinstance(value, str) else value)
    instance.respond(request, text("odd"))
    for value in arguments.get("after", ()):
        instance.progress(request, Raw(value) if isinstance(value, str) else value)
    return None


@tool("Waits, then answers; can be cancelled.", is_slow=True, seconds="number", nonce="string?")
def slow(instance: Instance, request: Request, arguments: Arguments) -> Result:
    request.cancelled.wait(arguments["seconds"])
    return text({"slept": arguments["seconds"], "nonce": arguments.get("nonce")})


@tool("Waits until it is cancelled.", is_slow=True, nonce="string")
def wait_cancel(instance: Instance, request: Request, arguments: Arguments) -> Result:
    request.cancelled.wait()
    return None


@tool("Sends n log messages, then answers.", is_slow=True, level="string", data="any", n="integer?", logger="string?")
def log(instance: Instance, request: Request, arguments: Arguments) -> Result:
    for _ in range(arguments.get("n", 1)):
        instance.log(request, arguments["level"], arguments["data"], arguments.get("logger"))
    return text("logged")


@tool("Answers with this JSON-RPC error.", code="integer", message="string", data="any?")
def error(instance: Instance, request: Request, arguments: Arguments) -> Result:
    instance.fail(request.id, {key: arguments[key] for key in ("code", "message", "data") if key in arguments})
    return None


@tool("Answers with isError.", text="string")
def tool_error(instance: Instance, request: Request, arguments: Arguments) -> Result:
    return text(arguments["text"], isError=True)


@tool("Answers with exactly this text as the result.", json="string")
def raw(instance: Instance, request: Request, arguments: Arguments) -> Result:
    return Raw(arguments["json"])


@tool("Answers with a text of so many bytes.", is_slow=True, bytes="integer")
def big(instance: Instance, request: Request, arguments: Arguments) -> Result:
    return text("x" * arguments["bytes"])


@tool("Exits at once.", code="integer?")
def crash(instance: Instance, request: Request, arguments: Arguments) -> Result:
    os._exit(arguments.get("code", 1))


@tool("Answers with its environment.")
def env(instance: Instance, request: Request, arguments: Arguments) -> Result:
    return text(dict(os.environ))


@tool("Answers with the _meta of the request.")
def meta(instance: Instance, request: Request, arguments: Arguments) -> Result:
    return text(request.meta)


@tool("Starts a process that sleeps; answers with its pid.", new_session="boolean?", keeps_stdout="boolean?")
def spawn(instance: Instance, request: Request, arguments: Arguments) -> Result:
    """In our process group unless `new_session`; with `keeps_stdout` it also holds our output pipe open."""
    quiet = subprocess.DEVNULL
    out = instance.output.fileno() if arguments.get("keeps_stdout") else quiet
    child = subprocess.Popen(
        ["sleep", "1000"],
        stdin=quiet,
        stdout=out,
        stderr=quiet,
        start_new_session=arguments.get("new_session", False),
    )
    return text({"pid": child.pid})


@tool("Writes a line to stderr.", text="string")
def stderr(instance: Instance, request: Request, arguments: Arguments) -> Result:
    print(arguments["text"], file=sys.stderr, flush=True)
    return text("written")


@tool("Adds or replaces a tool (it echoes).", name="string", description="string?", inputSchema="object?")
def add_tool(instance: Instance, request: Request, arguments: Arguments) -> Result:
    instance.tools[arguments["name"]] = custom_tool(arguments)
    instance.list_changed("tools")
    return text("added")


@tool("Removes a tool.", name="string")
def remove_tool(instance: Instance, request: Request, arguments: Arguments) -> Result:
    if instance.tools.pop(arguments["name"], None) is None:
        raise RpcError(INVALID_PARAMS, f"Unknown tool: {arguments['name']}")
    instance.list_changed("tools")
    return text("removed")


@tool("Says that a resource was updated.", uri="string")
def touch(instance: Instance, request: Request, arguments: Arguments) -> Result:
    instance.updated(arguments["uri"])
    return text("touched")


@tool(
    "Sends n of: pings, tools|prompts|resources (list_changed), stderr (lines).",
    is_slow=True,
    what="string",
    n="integer",
)
def flood(instance: Instance, request: Request, arguments: Arguments) -> Result:
    what = arguments["what"]
    for i in range(arguments["n"]):
        if what == "pings":
            instance.send({"jsonrpc": "2.0", "id": f"ping-{i}", "method": "ping"})
        elif what == "stderr":
            os.write(2, b"%s %d\n" % (b"stderr " * 20, i))
        else:
            instance.list_changed(what)
    return text("flooded")


def custom_tool(definition: dict[str, Any]) -> Tool:
    """A tool of any definition that answers like `echo`."""
    return Tool({"description": "", "inputSchema": {"type": "object"}, **definition}, echo)


def numbered_tools(count: int) -> dict[str, Tool]:
    names = [f"tool_{i:05}" for i in range(count)]
    return {name: custom_tool({"name": name, "description": f"Does {name}."}) for name in names}
