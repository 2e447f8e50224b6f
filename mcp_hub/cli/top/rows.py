"""The texts of `mcp-hub top`: cells of tables, and a line for each event. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from shlex import quote
from typing import Final

from rich.text import Text

from mcp_hub.cli.render import results, tables
from mcp_hub.cli.render.tables import plural
from mcp_hub.errors import RpcError
from mcp_hub.events import CallEvent, Cancelled, Completed, Delta, Failed, InputReceived, InputRequired, Log, Progressed
from mcp_hub.masking import hide_head, visible
from mcp_hub.protocol.rest.overview import CallSummary
from mcp_hub.protocol.rest.servers import ServerInfo

_STYLES: Final = {
    **dict.fromkeys(("ready", "completed"), "green"),
    **dict.fromkeys(("starting", "draining", "working"), "blue"),
    **dict.fromkeys(("backing_off", "input_required"), "yellow"),
    **dict.fromkeys(("failed", "incompatible", "tool_error"), "red"),
}
_SHOWN: Final = {"input_required": "asks", "working": "running", "completed": "done"}
_TEXT: Final = 160
"""Characters of a cell."""
_LINE: Final = 2000
"""Characters of an event."""

SERVER_COLUMNS: Final = ("server", "state", "tools", "restarts", "why")
CALL_COLUMNS: Final = ("started", "state", "took", "call", "message", "server", "client")
"""The first five fit into 80 columns, if the name of the call is not very long."""


def server_row(own: ServerInfo) -> list[Text]:
    """One server."""
    state = "sleeps" if own.rests else own.state
    tools = (own.offered or {}).get("tool", 0)
    refused = plural(own.sandbox.refused, "attempt") if own.sandbox and own.sandbox.refused else ""
    why = own.reason or (f"its sandbox refused {refused}: mcp-hub sandbox {quote(own.server)}" if refused else "")
    return [_cell(own.server), _state(state), _cell(tools or ""), _cell(own.restarts or ""), _cell(why)]


def call_row(call: CallSummary, now: float) -> list[Text]:
    """One call; `now` in Unix seconds by the clock of the hub."""
    message = call.message
    if call.waits_for:
        message = f"waits for {call.waits_for}, {tables.age(call.waits_since, now)}"
    elif call.total and not call.took:
        message = f"{100 * (call.progress or 0) / call.total:.0f} % {message}"
    return [
        _cell(f"{datetime.fromtimestamp(call.at):%H:%M:%S}"),
        _state(call.status),
        _cell(duration(call.took or max(now - call.at, 0))),
        _cell(call.name),
        _cell(message),
        _cell(call.server or "hub"),
        _cell(call.client),
    ]


def needs(servers: Sequence[ServerInfo], live: Sequence[CallSummary]) -> Iterator[Text]:
    """A line for each thing that a person has to do."""
    for call in live:
        if call.questions:
            about = f': "{call.question}"' if call.question else f" {plural(call.questions, 'question')}"
            said = f"{call.name} asks{about}. Answer: mcp-hub resume {call.id}"
            yield Text(visible(said), "yellow")
    for own in servers:
        if own.state in ("failed", "incompatible", "backing_off"):
            yield Text(visible(f"{own.server}: {own.reason or own.state}"), "red")
        if own.unapproved:
            said = (
                f"{own.server}: {plural(len(own.unapproved), 'tool')} not approved: mcp-hub approve {quote(own.server)}"
            )
            yield Text(visible(said), "yellow")


def event_text(event: CallEvent | None) -> Text | None:
    """An event of a call; None for one that has nothing to show."""
    match event:
        case Progressed():
            done = f"{event.progress:g}{'' if event.total is None else f' of {event.total:g}'}"
            return _line("progress", f"{done} {results.message_of(event)}", "blue")
        case Delta(content=content):
            return _line("", results.content_text(content).rstrip("\n"))
        case Log():
            return _line("log", results.log_text(event), "dim")
        case InputRequired(method=method):
            return _line("asks", f"{method}. Answer it with mcp-hub resume, or on the dashboard.", "yellow")
        case InputReceived():
            return _line("answered", "", "yellow")
        case Completed():
            shown = results.ShownResult.of(event.result, "tools/call")
            return _line("done", shown.text, "red" if shown.is_error else "green")
        case Failed(error):
            return _line("failed", results.with_code(error) if isinstance(error, RpcError) else str(error), "red")
        case Cancelled(reason):
            return _line("cancelled", reason or "", "red")
    return None


def duration(seconds: float) -> str:
    """For people: `12 ms`, `3.4 s`, `5 min 2 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.{1 if seconds < 0.01 else 0}f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def _cell(value: object) -> Text:
    return Text(visible(hide_head(" ".join(str(value).split()), _TEXT))[:_TEXT], no_wrap=True)


def _state(state: str) -> Text:
    return Text(visible(_SHOWN.get(state, state.replace("_", " "))), _STYLES.get(state, "dim"))


def _line(head: str, text: str, style: str = "") -> Text:
    said = "\n".join(visible(line) for line in hide_head(text, _LINE).splitlines())
    return Text(visible(f"{head}: {said}" if head and said else head or said), style)
