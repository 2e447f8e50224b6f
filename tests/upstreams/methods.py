"""The method table of the fixture server: one function per JSON-RPC method, the same for both eras where they agree."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eras import HANDSHAKE_VERSIONS, INVALID_PARAMS, LEVELS, SUBSCRIPTION_ID, Request, RpcError, key_of, supported
from instance import LISTENABLE, Instance
from surface import PROMPTS, complete, get_prompt, read_resource, resources, templates
from tools import echo
from wire import Raw

__all__ = ["METHODS"]

Answer = dict[str, Any] | Raw | None


def capabilities() -> dict[str, Any]:
    return {
        "tools": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "prompts": {"listChanged": True},
        "completions": {},
        "logging": {},
    }


def initialize(instance: Instance, request: Request) -> Answer:
    """The version asked for if we speak it, else our newest (2025-11-25 basic/lifecycle)."""
    spoken = [version for version in HANDSHAKE_VERSIONS if version <= instance.options.max_version]
    asked = request.params.get("protocolVersion")
    instance.version = asked if asked in spoken else spoken[-1]
    return {
        "protocolVersion": instance.version,
        "capabilities": capabilities(),
        "serverInfo": instance.info,
        **_instructions(instance),
    }


def discover(instance: Instance, request: Request) -> Answer:
    versions = supported(instance.options.era)
    return {"supportedVersions": versions, "capabilities": capabilities(), **_instructions(instance)}


def _instructions(instance: Instance) -> dict[str, str]:
    return {} if instance.options.instructions is None else {"instructions": instance.options.instructions}


def ping(instance: Instance, request: Request) -> Answer:
    return {}


def set_level(instance: Instance, request: Request) -> Answer:
    level = request.params.get("level")
    if level not in LEVELS:
        raise RpcError(INVALID_PARAMS, f"Unknown log level: {level!r}")
    instance.log_level = level
    return {}


def subscribe(instance: Instance, request: Request) -> Answer:
    instance.subscribed.add(request.params["uri"])
    return {}


def unsubscribe(instance: Instance, request: Request) -> Answer:
    instance.subscribed.discard(request.params["uri"])
    return {}


def listen(instance: Instance, request: Request) -> Answer:
    """Acknowledge every type that we know and keep the request open."""
    wanted = {key: value for key, value in request.params["notifications"].items() if key in LISTENABLE}
    meta = {SUBSCRIPTION_ID: request.id}
    instance.notify("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": wanted})
    instance.listening[key_of(request.id)] = (request.id, wanted)
    return None


def page(instance: Instance, request: Request, key: str, items: list[Any]) -> dict[str, Any]:
    """`--page N` items under `key`. The second page's cursor is "": a real cursor, although it is false in Python."""
    cursor = request.params.get("cursor")
    if instance.options.page_loop:
        return {key: items, "nextCursor": "again"}
    size = instance.options.page or max(len(items), 1)
    if cursor is not None and cursor != "" and not (isinstance(cursor, str) and cursor.isdecimal()):
        raise RpcError(INVALID_PARAMS, f"Invalid cursor: {cursor!r}")
    start = 0 if cursor is None else size if cursor == "" else int(cursor)
    if start and start >= len(items):
        raise RpcError(INVALID_PARAMS, f"Invalid cursor: {cursor!r}")
    end = start + size
    following = "" if end == size else str(end)
    return {key: items[start:end], **({"nextCursor": following} if end < len(items) else {})}


def list_tools(instance: Instance, request: Request) -> Answer:
    """The tools, or the definitions of `--tools-json`, read anew each time and byte for byte unless paged."""
    if instance.options.tools_json is None:
        return page(instance, request, "tools", [tool.definition for tool in instance.tools.values()])
    definitions = Path(instance.options.tools_json).read_text("utf-8", "surrogateescape")
    if instance.options.page or instance.options.page_loop:
        return page(instance, request, "tools", json.loads(definitions))
    # one line, or it would be several messages
    return {"tools": Raw(" ".join(definitions.split("\n")))}


def list_resources(instance: Instance, request: Request) -> Answer:
    return page(instance, request, "resources", resources(instance.name))


def list_templates(instance: Instance, request: Request) -> Answer:
    return page(instance, request, "resourceTemplates", templates(instance.name))


def list_prompts(instance: Instance, request: Request) -> Answer:
    return page(instance, request, "prompts", PROMPTS)


def call_tool(instance: Instance, request: Request) -> Answer:
    """Run the tool here, or in a thread of its own; definitions from `--tools-json` without code echo."""
    name = request.params.get("name")
    arguments = request.params.get("arguments") or {}
    tool = instance.tools.get(name) if isinstance(name, str) else None
    if tool is None and instance.options.tools_json is None:
        raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
    run = echo if tool is None else tool.run

    instance.running[key_of(request.id)] = request

    def work() -> None:
        try:
            result = run(instance, request, arguments)
        except RpcError as refused:
            instance.fail(request.id, refused.error)
            return
        except (KeyError, TypeError, ValueError) as wrong:
            instance.fail(request.id, {"code": INVALID_PARAMS, "message": f"Bad arguments for {name}: {wrong!r}"})
            return
        finally:
            instance.running.pop(key_of(request.id), None)
        if request.cancelled.is_set():
            instance.journal.event("cancelled", id=request.id, tool=name, nonce=arguments.get("nonce"))
        if result is not None:
            instance.respond(request, result)

    if tool is not None and tool.is_slow:
        instance.start(work)
    else:
        work()
    return None


METHODS: dict[str, Callable[[Instance, Request], Answer]] = {
    "initialize": initialize,
    "server/discover": discover,
    "ping": ping,
    "logging/setLevel": set_level,
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
    "subscriptions/listen": listen,
    "tools/list": list_tools,
    "tools/call": call_tool,
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": lambda instance, request: read_resource(instance.name, request),
    "prompts/list": list_prompts,
    "prompts/get": lambda instance, request: get_prompt(instance.name, request),
    "completion/complete": lambda instance, request: complete(instance.name, request),
}
