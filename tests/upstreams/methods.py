"""The method table of the fixture server: one function per JSON-RPC method, the same for both eras where they agree."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.upstreams.asking import ask_during_completion, ask_first
from tests.upstreams.eras import (
    HANDSHAKE,
    HANDSHAKE_VERSIONS,
    INVALID_PARAMS,
    LEVELS,
    METHOD_NOT_FOUND,
    SUBSCRIPTION_ID,
    Request,
    RpcError,
    key_of,
    supported,
)
from tests.upstreams.extension_tasks import EXTENSION, became_task, cancel, look_up, take_input
from tests.upstreams.instance import LISTENABLE, Instance, Result, Session, Tool
from tests.upstreams.surface import (
    ASKING,
    asking_uri,
    complete,
    contents,
    get_prompt,
    prompt_message,
    prompts,
    read_resource,
    resources,
    templates,
)
from tests.upstreams.tasks import CAPABILITY, cancel_task, get_task, has_tasks, list_tasks, start_task, task_result
from tests.upstreams.tools import echo
from tests.upstreams.wire import Raw


def capabilities(session: Session, era: str) -> dict[str, Any]:
    tasks: dict[str, Any] = {"tasks": CAPABILITY} if era == HANDSHAKE and has_tasks(session) else {}
    if era != HANDSHAKE and session.options.tasks_extension:
        tasks = {"extensions": {EXTENSION: {}}}
    return {
        "tools": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "prompts": {"listChanged": True},
        "completions": {},
        "logging": {},
        **tasks,
    }


def initialize(session: Session, request: Request) -> Result:
    """The version asked for if we speak it, else our newest (2025-11-25 basic/lifecycle)."""
    asked = request.params.get("protocolVersion")
    session.version = asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
    declared = request.params.get("capabilities")
    session.capabilities = declared if isinstance(declared, dict) else {}
    return {
        "protocolVersion": session.version,
        "capabilities": capabilities(session, request.era),
        "serverInfo": session.instance.info,
        **_instructions(session.instance),
    }


def discover(session: Session, request: Request) -> Result:
    versions = supported(session.options.era)
    return {
        "supportedVersions": versions,
        "capabilities": capabilities(session, request.era),
        **_instructions(session.instance),
    }


def _instructions(instance: Instance) -> dict[str, str]:
    return {} if instance.options.instructions is None else {"instructions": instance.options.instructions}


def ping(session: Session, request: Request) -> Result:
    return {}


def set_level(session: Session, request: Request) -> Result:
    level = request.params.get("level")
    if level not in LEVELS:
        raise RpcError(INVALID_PARAMS, f"Unknown log level: {level!r}")
    session.log_level = level
    return {}


def subscribe(session: Session, request: Request) -> Result:
    session.subscribed.add(request.params["uri"])
    session.journal.event("subscribed", uri=request.params["uri"])
    return {}


def unsubscribe(session: Session, request: Request) -> Result:
    session.subscribed.discard(request.params["uri"])
    session.journal.event("unsubscribed", uri=request.params["uri"])
    return {}


def listen(session: Session, request: Request) -> Result:
    """Acknowledge every type that we know and keep the request open."""
    wanted = {key: value for key, value in request.params["notifications"].items() if key in LISTENABLE}
    meta = {SUBSCRIPTION_ID: request.id}
    acknowledged = {"_meta": meta, "notifications": wanted}
    session.notify("notifications/subscriptions/acknowledged", acknowledged, request.channel)
    session.listening[key_of(request.id)] = (request, wanted)
    session.journal.event("listening", id=request.id, notifications=wanted)
    return None


def page(session: Session, request: Request, key: str, items: list[Any]) -> dict[str, Any]:
    """`--page N` items under `key`. The second page's cursor is "": a real cursor, although it is false in Python."""
    cursor = request.params.get("cursor")
    if session.options.page_loop:
        return {key: items, "nextCursor": "again"}
    size = session.options.page or max(len(items), 1)
    if cursor is not None and cursor != "" and not (isinstance(cursor, str) and cursor.isdecimal()):
        raise RpcError(INVALID_PARAMS, f"Invalid cursor: {cursor!r}")
    start = 0 if cursor is None else size if cursor == "" else int(cursor)
    if start and start >= len(items):
        raise RpcError(INVALID_PARAMS, f"Invalid cursor: {cursor!r}")
    end = start + size
    following = "" if end == size else str(end)
    return {key: items[start:end], **({"nextCursor": following} if end < len(items) else {})}


def list_tools(session: Session, request: Request) -> Result:
    """The tools, or the definitions of `--tools-json`, read anew each time and byte for byte unless paged."""
    if session.options.tools_json is None:
        tools = [tool for tool in session.instance.tools.values() if _is_offered(session, request, tool)]
        return page(session, request, "tools", [_definition(request, tool) for tool in tools])
    definitions = Path(session.options.tools_json).read_text("utf-8", "surrogateescape")
    if session.options.page or session.options.page_loop:
        return page(session, request, "tools", json.loads(definitions))
    # one line, or it would be several messages
    return {"tools": Raw(" ".join(definitions.split("\n")))}


def _is_offered(session: Session, request: Request, tool: Tool) -> bool:
    """Whether the request's era has this tool: one that can be a task takes the option of that era."""
    options = session.options
    return tool.plan is None or (options.tasks_capability if request.era == HANDSHAKE else options.tasks_extension)


def _definition(request: Request, tool: Tool) -> dict[str, Any]:
    """As the era has it: the modern one says nothing of tasks."""
    return {key: value for key, value in tool.definition.items() if request.era == HANDSHAKE or key != "execution"}


def list_resources(session: Session, request: Request) -> Result:
    return page(session, request, "resources", resources(session.instance))


def list_templates(session: Session, request: Request) -> Result:
    return page(session, request, "resourceTemplates", templates(session.instance.name))


def list_prompts(session: Session, request: Request) -> Result:
    return page(session, request, "prompts", prompts(session.instance))


def read(session: Session, request: Request) -> Result:
    uri = request.params.get("uri")
    if uri != asking_uri(session.instance.name):
        return read_resource(session.instance, request)
    ask_first(session, request, {}, lambda text: contents(uri, mimeType="text/plain", text=text))
    return None


def get(session: Session, request: Request) -> Result:
    if request.params.get("name") != ASKING:
        return get_prompt(session.instance, request)
    arguments = request.params.get("arguments") or {}
    ask_first(session, request, arguments, lambda text: prompt_message("An answer.", text))
    return None


def complete_argument(session: Session, request: Request) -> Result:
    """The values that fit; for the value "ask", a question first."""
    completed = complete(session.instance.name, request)
    if request.params["argument"].get("value") != "ask":
        return completed
    return ask_during_completion(session, request, completed)


def call_tool(session: Session, request: Request) -> Result:
    """Run the tool here, in a thread of its own, or as a task; definitions from `--tools-json` without code echo."""
    name = request.params.get("name")
    arguments = request.params.get("arguments") or {}
    tool = session.instance.tools.get(name) if isinstance(name, str) else None
    is_known = tool is not None or session.options.tools_json is not None
    if not is_known or (tool is not None and not _is_offered(session, request, tool)):
        raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
    tool = tool or Tool({}, echo)
    if request.era == HANDSHAKE and _is_task(session, request, tool):
        return start_task(session, request, tool, arguments)
    if request.era != HANDSHAKE and (task := became_task(session, request, tool, arguments)) is not None:
        return task

    def work() -> Result:
        try:
            return tool.run(session, request, arguments)
        except (KeyError, TypeError, ValueError) as wrong:
            raise RpcError(INVALID_PARAMS, f"Bad arguments for {name}: {wrong!r}") from wrong

    session.serve(request, work, is_slow=tool.is_slow, tool=name, nonce=arguments.get("nonce"))
    return None


def _is_task(session: Session, request: Request, tool: Tool) -> bool:
    """Whether the call is to run as a task. Raises: `RpcError` -32601 when the tool will not have it so."""
    support = tool.definition.get("execution", {}).get("taskSupport", "forbidden")
    is_wanted = has_tasks(session) and "task" in request.params
    if is_wanted and support == "forbidden":
        raise RpcError(METHOD_NOT_FOUND, f"The tool {tool.definition.get('name')} does not run as a task")
    if not is_wanted and support == "required":
        raise RpcError(METHOD_NOT_FOUND, f"The tool {tool.definition.get('name')} runs as a task only")
    return is_wanted


def look_at_task(session: Session, request: Request) -> Result:
    return get_task(session, request) if request.era == HANDSHAKE else look_up(session, request)


def end_task(session: Session, request: Request) -> Result:
    return cancel_task(session, request) if request.era == HANDSHAKE else cancel(session, request)


METHODS: dict[str, Callable[[Session, Request], Result]] = {
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
    "resources/read": read,
    "prompts/list": list_prompts,
    "prompts/get": get,
    "completion/complete": complete_argument,
    "tasks/get": look_at_task,
    "tasks/update": take_input,
    "tasks/result": task_result,
    "tasks/cancel": end_task,
    "tasks/list": lambda session, request: page(session, request, "tasks", list_tasks(session, request)),
}
