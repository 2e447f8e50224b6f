"""`find_tools`, `run_tool` and `read_tool`: a model's way to tools that it is not listed.

The last two are unwrapped before routing. `read_tool` runs read-only tools alone; `check_reading` checks that in the
process that gets the call.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, CallChannel, CallHandler
from mcp_hub.catalog.catalog import searchable
from mcp_hub.catalog.discovery.answers import (
    Detail,
    ServerAbout,
    answer,
    events_found,
    exact,
    in_script,
    is_starting,
    listing,
    overview,
    why_absent,
)
from mcp_hub.catalog.offers.definitions import Definition, parse
from mcp_hub.catalog.offers.rules import ServerRules, find_override, overridden
from mcp_hub.catalog.routes import Route, Unlisted, named
from mcp_hub.catalog.search.ranker import Hit
from mcp_hub.catalog.texts import FIND, RUN, RUN_READING, signature
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.code.tool import RUN_CODE
from mcp_hub.errors import InvalidParams, RpcError, UnknownEntry
from mcp_hub.events import Completed
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import one_line, raw_object
from mcp_hub.schema import look_wrong
from mcp_hub.selection import check_path
from mcp_hub.types import OWN, Kind, RawJson, RawObject, Snapshot, UpstreamStatus

_RUNNERS: Final = {b'"%b"' % name.encode(): name for name in (RUN, RUN_READING)}
_MOST_SPELLED: Final = len('""') + len(RUN_READING) * len(r"\u0072")  # bytes of the longest spelling of a name
_MOST_ARGUMENTS: Final = 1 << 20  # bytes of refused arguments that are still looked at for what is wrong with them
_MOST_TAKES: Final = 16 << 10  # characters of a definition that goes with a refusal: some 4,000 tokens
_INVALID_PARAMS: Final = -32602
_REASON: Final = 200  # characters of what is wrong with arguments, which may repeat some


# -- run_tool and read_tool


class _Run(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    path: str | None = None


_KNOWN: Final = frozenset(_Run.__struct_fields__)


def runner_of(params: RawObject) -> str | None:
    """`run_tool` or `read_tool`, if these params call one, however escaped."""
    name = params.get("name")
    if name is None or len(name) > _MOST_SPELLED:
        return None
    spelled = bytes(name)
    if spelled in _RUNNERS or b"\\" not in spelled:
        return _RUNNERS.get(spelled)
    try:
        written = msgspec.json.decode(spelled, type=str)
    except msgspec.DecodeError:
        return None
    return written if written in (RUN, RUN_READING) else None


def selected(name: str, arguments: RawJson) -> str:
    """The tool that a call runs, unwrapped. Raises `InvalidParams`."""
    is_runner = name in (RUN, RUN_READING)
    return _run({"arguments": msgspec.Raw(bytes(arguments))}, name).name if is_runner else name


def _run(params: RawObject, runner: str) -> _Run:
    try:
        run = msgspec.json.decode(params.get("arguments", b"{}"), type=_Run)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise InvalidParams(
            f"{runner}: wrong arguments: {problem}. Give it `name`, a tool, and `arguments`, an object."
        ) from None
    if run.name in (RUN, RUN_READING):
        raise InvalidParams(f"{runner} cannot run {run.name}. Give it the name of another tool.")
    return run


def _check_members(params: RawObject, runner: str) -> None:
    """Models write a tool's arguments beside its name, where they would be lost."""
    members: RawObject = raw_object(params["arguments"]) or {}
    if unknown := ", ".join(repr(name) for name in members if name not in _KNOWN):
        reason = f"unknown {hide_head(unknown, _REASON)}. Put the arguments of the tool into `arguments`."
        raise InvalidParams(f"{runner}: wrong arguments: {reason}")


def _check_path(run: _Run, runner: str, server: str) -> None:
    try:
        if run.path and server == OWN:
            raise InvalidParams(f"path: {run.name} is a tool of the hub, and its result is not JSON")
        if run.path:
            check_path(run.path)
    except InvalidParams as problem:
        reason = f"{problem}. `path` selects from the result. Put the arguments of the tool into `arguments`."
        raise InvalidParams(f"{runner}: wrong arguments: {reason}") from None


def _unwrapped(params: RawObject, run: _Run, runner: str) -> RawObject:
    call_params: RawObject = {**params, "name": msgspec.Raw(msgspec.json.encode(run.name))}
    call_params.pop("arguments", None)
    arguments = bytes(run.arguments)
    if arguments[:1] == b'"':  # models write objects as text now and then
        arguments = _out_of_text(arguments, runner)
    if arguments != b"null":
        if arguments[:1] != b"{":
            raise InvalidParams(f"{runner}: wrong arguments: `arguments` must be an object.")
        call_params["arguments"] = msgspec.Raw(arguments)
    return call_params


def _out_of_text(arguments: bytes, runner: str) -> bytes:
    try:
        text = msgspec.json.decode(arguments, type=str).strip().encode() or b"null"
        msgspec.json.decode(text, type=dict[str, msgspec.Raw] | None)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise InvalidParams(f"{runner}: wrong arguments: `arguments` must be an object: {problem}") from None
    return one_line(text)  # a break between two tokens would end the message to a server, and begin another


def unwrapped(view: CatalogView, is_settled: Callable[[], bool], unlisted: Unlisted, params: RawObject) -> Route | None:
    """The route of a call of `run_tool` or `read_tool`, to the tool that it runs; None for others.

    Raises `InvalidParams`.
    """
    runner = runner_of(params)
    return None if runner is None else _unwrapped_route(runner, view.for_model, params, is_settled, unlisted)


def _unwrapped_route(
    runner: str, view: CatalogView, params: RawObject, is_settled: Callable[[], bool], unlisted: Unlisted
) -> Route:
    entry, must_read = None, runner == RUN_READING
    try:
        run = _run(params, runner)
        entry = view.find(Kind.TOOL, run.name)
        if must_read and entry is not None and not entry.is_read_only:
            return _refused(params, not_read_only(run.name).message)
        requested = _unwrapped(params, run, runner)
        to = named(view, Kind.TOOL, "tools/call", requested, unlisted)
        _check_members(params, runner)
        _check_path(run, runner, to.server)
    except UnknownEntry as problem:
        if problem.about_upstream.get("state") == "starting" or not is_settled():
            raise  # its server may be on its way up
        end = "" if problem.message.endswith("?") else "."
        return _refused(params, f"{problem.message}{end} {FIND} says which there are.")
    except InvalidParams as problem:
        return _refused(params, _explained(problem.message, entry))
    entry = entry if to.server != OWN else None
    return replace(to, requested=requested, entry=entry, must_read=must_read, path=run.path or to.path)


def not_read_only(name: str) -> InvalidParams:
    """The refusal of `read_tool`."""
    message = f"{RUN_READING} runs read-only tools, and {name} is not known to be one. Use {RUN} for it."
    return InvalidParams(message, symbol="not_read_only")


def _refused(params: RawObject, message: str) -> Route:
    return Route(OWN, params, refusal=InvalidParams(message))


def _explained(message: str, entry: Entry | None) -> str:
    return message if entry is None else f"{message}\n\n{_takes(entry)}"


def _takes(entry: Entry) -> str:
    text = exact(entry.raw)
    if len(text) <= _MOST_TAKES:
        return text
    return f"{signature(entry.exported, entry.raw)}\n(definition: {FIND} with the query {entry.exported!r})"


def refusing(problem: RpcError) -> CallHandler:
    """Answers an invalid call of `run_tool` or `read_tool`."""

    async def refused(call: Call, channel: CallChannel) -> Completed:
        return text_result(problem.message, is_error=True)

    return refused


def explaining(handler: CallHandler, entry: Entry, arguments: RawJson = b"{}") -> CallHandler:
    """`handler`, whose refusals of wrong arguments include the tool's definition."""

    async def explained(call: Call, channel: CallChannel) -> Completed:
        try:
            completed = await handler(call, channel)
        except RpcError as error:
            if error.symbol == "not_read_only":
                return text_result(error.message, is_error=True)
            if error.code != _INVALID_PARAMS:
                raise
            raise _with_definition(error, entry) from None
        return _with_schema(completed, arguments, entry) if b'"isError"' in bytes(completed.result) else completed

    return explained


def _with_definition(error: RpcError, entry: Entry) -> RpcError:
    message = _explained(error.message, entry)
    raw = None
    if error.raw is not None:
        raw = msgspec.json.encode({**(raw_object(msgspec.Raw(bytes(error.raw))) or {}), "message": message})
    return RpcError(message, code=error.code, data=error.data, raw=raw)


class _Outcome(msgspec.Struct):
    content: list[msgspec.Raw] = []
    isError: bool = False


class _Takes(msgspec.Struct):
    inputSchema: object = None


def _with_schema(completed: Completed, arguments: RawJson, entry: Entry) -> Completed:
    try:
        outcome = msgspec.json.decode(completed.result, type=_Outcome)
        if not outcome.isError or len(arguments) > _MOST_ARGUMENTS:
            return completed
        schema = msgspec.json.decode(entry.raw, type=_Takes).inputSchema
        if not look_wrong(msgspec.json.decode(arguments), schema):
            return completed
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return completed
    block = msgspec.Raw(msgspec.json.encode({"type": "text", "text": _takes(entry)}))
    content = msgspec.Raw(msgspec.json.encode([*outcome.content, block]))
    members = raw_object(msgspec.Raw(bytes(completed.result))) or {}
    return Completed(msgspec.json.encode({**members, "content": content}), completed.era)


def text_result(text: str, *, is_error: bool = False) -> Completed:
    return Completed(msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": is_error}))


def check_reading(
    rules: Callable[[str], ServerRules], is_confirmed: Callable[[str, Definition], bool], call: Call, snapshot: Snapshot
) -> None:
    """Raises `not_read_only` unless this list shows the tool as read-only, by rules and a person's approval."""
    tool = msgspec.json.decode(call.params["name"], type=str)
    usable, _ = parse(Kind.TOOL, snapshot.lists.get(Kind.TOOL, ()), call.upstream)
    for definition in usable:
        if definition.key != tool:
            continue
        of_server, is_approved = rules(call.upstream), is_confirmed(call.upstream, definition)
        override = find_override(of_server.overrides, tool)
        effective = overridden(definition, override, of_server.hints, is_approved=is_approved)
        if not effective.traits.hints.read_only:
            raise not_read_only(
                tool if call.exported_name is msgspec.UNSET else msgspec.json.decode(call.exported_name, type=str)
            )


MOST_HITS: Final = 50
_HITS: Final = 8


class _Find(msgspec.Struct, forbid_unknown_fields=True):
    query: str | None = None
    server: str | None = None
    limit: int | str | None = None
    detail: str | None = None


class ToolFinder(msgspec.Struct, frozen=True):
    """One caller's scope: the view without the hub's own tools, and `search(query, limit, server)`.

    `budget` is in tokens; `absent`: servers without lists.
    """

    view: CatalogView
    search: Callable[[str, int, str | None], Awaitable[Sequence[Hit]]]
    budget: int
    servers: Sequence[ServerAbout]
    absent: Sequence[UpstreamStatus]


def finding(finder: Callable[[], Awaitable[ToolFinder]]) -> CallHandler:
    """Runs one call of `find_tools`."""

    async def answered(call: Call, channel: CallChannel) -> Completed:
        try:
            return text_result(await _answer(_arguments(call), await finder()))
        except InvalidParams as problem:
            return text_result(f"{FIND}: {problem}", is_error=True)

    return answered


def _arguments(call: Call) -> _Find:
    try:
        request = msgspec.json.decode(call.params.get("arguments", b"{}"), type=_Find, strict=False)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        names = ", ".join(_Find.__struct_fields__)
        raise InvalidParams(f"wrong arguments: {hide_head(str(problem), _REASON)}. Known arguments: {names}.") from None
    if request.detail not in (None, "", "brief", "full"):
        raise InvalidParams(f'wrong arguments: `detail` is "brief" or "full", not {hide_head(request.detail, 50)!r}.')
    return request


def _limit(limit: int | str | None) -> int:
    """0: no limit. Models may write numbers as text."""
    if not limit:
        return 0
    text = str(limit)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidParams(f"wrong arguments: `limit` is a number from 1 to {MOST_HITS}, not {hide_head(text, 50)!r}.")
    return min(max(int(text), 1), MOST_HITS)


async def _answer(request: _Find, finder: ToolFinder) -> str:
    limit, detail, budget = _limit(request.limit), _detail(request), finder.budget
    query, server = (request.query or "").strip(), request.server or None
    tools = finder.view.entries(Kind.TOOL)
    down = {status.server for status in finder.absent}
    servers = Counter(entry.server for entry in tools)
    if server is not None and server not in servers:
        raise InvalidParams(_no_server(server, finder))
    callables = {} if finder.view.find(Kind.TOOL, RUN_CODE) is None else finder.view.callables
    if entry := finder.view.find(Kind.TOOL, query) or callables.get(query):
        name = next((name for name, of in callables.items() if of is entry), "")
        script = in_script(entry.exported, name, entry.raw)
        text = partial(exact, entry.raw, is_read_only=entry.is_read_only, script=script)
        return await anyio.to_thread.run_sync(text)
    names = {entry.exported: name for name, entry in callables.items()}
    raws = {entry.exported: entry.raw for entry in tools if server in (None, entry.server)}
    reads = {entry.exported for entry in tools if entry.is_read_only}
    if query:
        results = await finder.search(query, limit or _HITS, server)
        up = {name: count for name, count in servers.items() if name not in down}
        text = partial(
            answer,
            results,
            raws,
            up,
            detail=detail,
            limit=limit or _HITS,
            budget_tokens=budget,
            reads=reads,
            query=query,
            names=names,
        )
    elif server is not None:
        text = partial(listing, raws, detail=detail, limit=limit, budget_tokens=budget, reads=reads, names=names)
    else:
        text = partial(overview, finder.servers, budget)
    # a stranger's schema may take long to be compacted
    body = await anyio.to_thread.run_sync(text) if detail == "full" else text()
    types = [searchable(entry) for entry in finder.view.entries(Kind.EVENT) if server in (None, entry.server)]
    return "\n".join([body, *events_found(types, query), *why_absent(finder.absent)])


def _detail(request: _Find) -> Detail:
    return "full" if request.detail == "full" else "brief"


def _no_server(name: str, finder: ToolFinder) -> str:
    for status in finder.absent:
        if status.server == name:
            if is_starting(status):
                return f'Server "{name}" is starting, so its tools are not known yet. Search again in a few seconds.'
            code = f" ({status.code})" if status.code else ""
            return f'Server "{name}" has failed{code}, so its tools are not known. Use another server.'
    names = ", ".join(server.name for server in finder.servers if server.tools) or "none"
    return "\n".join([f"There is no server {hide_head(name, 100)!r}. Servers: {names}.", *why_absent(finder.absent)])
