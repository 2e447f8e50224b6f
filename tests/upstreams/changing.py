"""Tools that change what the server has, or say so: lists, resources, subscriptions.

Specification: 2025-11-25 server/{tools,prompts,resources}; 2026-07-28 basic/patterns/subscriptions.
"""

import os
from typing import Any

from tests.upstreams.definitions import registering, text
from tests.upstreams.eras import INVALID_PARAMS, Request, RpcError
from tests.upstreams.instance import Result, Session, Tool
from tests.upstreams.surface import SHARED_URI
from tests.upstreams.tools import custom_tool

TOOLS: dict[str, Tool] = {}
tool = registering(TOOLS)

Arguments = dict[str, Any]


def _changed(session: Session, kind: str, arguments: Arguments) -> None:
    if not arguments.get("quiet"):
        session.instance.list_changed(kind)


def _removed(there: dict[str, Any], what: str, key: str) -> None:
    if there.pop(key, None) is None:
        raise RpcError(INVALID_PARAMS, f"Unknown {what}: {key}")


@tool(
    "Adds or replaces a tool (it echoes); quiet: without list_changed.",
    name="string",
    description="string?",
    inputSchema="object?",
    quiet="boolean?",
)
def add_tool(session: Session, request: Request, arguments: Arguments) -> Result:
    definition = {key: value for key, value in arguments.items() if key != "quiet"}
    session.instance.tools[arguments["name"]] = custom_tool(definition)
    _changed(session, "tools", arguments)
    return text("added")


@tool("Removes a tool.", name="string", quiet="boolean?")
def remove_tool(session: Session, request: Request, arguments: Arguments) -> Result:
    _removed(session.instance.tools, "tool", arguments["name"])
    _changed(session, "tools", arguments)
    return text("removed")


@tool("Adds or replaces a prompt with this text.", name="string", text="string?", quiet="boolean?")
def add_prompt(session: Session, request: Request, arguments: Arguments) -> Result:
    name = arguments["name"]
    session.instance.prompts[name] = {"name": name, "text": arguments.get("text", "")}
    _changed(session, "prompts", arguments)
    return text("added")


@tool("Says that a resource was updated, to whoever subscribed to it.", uri="string")
def touch(session: Session, request: Request, arguments: Arguments) -> Result:
    session.instance.updated(arguments["uri"])
    return text("touched")


@tool("Says that a resource was updated, to every session and listener, subscribed or not.", uri="string")
def touch_unsubscribed(session: Session, request: Request, arguments: Arguments) -> Result:
    session.instance.updated(arguments["uri"], is_unasked=True)
    return text("touched")


@tool(
    "Sends n of: pings, tools|prompts|resources (list_changed), stderr (lines).",
    is_slow=True,
    what="string",
    n="integer",
)
def flood(session: Session, request: Request, arguments: Arguments) -> Result:
    what = arguments["what"]
    for i in range(arguments["n"]):
        if what == "pings":
            request.channel.send({"jsonrpc": "2.0", "id": f"ping-{i}", "method": "ping"})
        elif what == "stderr":
            os.write(2, b"%s %d\n" % (b"stderr " * 20, i))
        else:
            session.instance.list_changed(what)
    return text("flooded")


@tool("Sends so many list_changed as fast as it can; kind is tools, prompts or resources.", is_slow=True,
      count="integer", kind="string?")  # fmt: skip
def flood_changes(session: Session, request: Request, arguments: Arguments) -> Result:
    for _ in range(arguments["count"]):
        session.instance.list_changed(arguments.get("kind", "tools"))
    return text("flooded")


@tool("Sends so many resources/updated as fast as it can, to whoever subscribed.", is_slow=True,
      count="integer", uri="string?")  # fmt: skip
def flood_updates(session: Session, request: Request, arguments: Arguments) -> Result:
    for _ in range(arguments["count"]):
        session.instance.updated(arguments.get("uri", SHARED_URI))
    return text("flooded")
