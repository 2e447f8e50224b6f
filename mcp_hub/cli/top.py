"""The screen of `mcp-hub top`, drawn at most twice a second."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from shlex import quote
from typing import ClassVar, Final, cast

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import ContentSwitcher, DataTable, Footer, Header, RichLog, Static

from mcp_hub.cli.render import results, tables
from mcp_hub.cli.render.tables import plural
from mcp_hub.client.hub_client import HubClient, HubFeed
from mcp_hub.clock import wall_time
from mcp_hub.errors import ConfigError, HubError, RpcError
from mcp_hub.events import CallEvent, Cancelled, Completed, Delta, Failed, InputReceived, InputRequired, Log, Progressed
from mcp_hub.masking import hide_head, visible
from mcp_hub.protocol.rest.overview import CallSummary
from mcp_hub.protocol.rest.servers import ServerInfo

_DRAW: Final = 0.5
"""Seconds between two looks at the feed."""
_ROWS: Final = 300
"""Calls in the table."""
_LINES: Final = 5000
"""Lines of one stream."""

_Cells = Sequence[Text]
_STYLES: Final = {
    **dict.fromkeys(("ready", "completed"), "green"),
    **dict.fromkeys(("starting", "draining", "working"), "blue"),
    **dict.fromkeys(("backing_off", "input_required"), "yellow"),
    **dict.fromkeys(("failed", "incompatible", "tool_error", "timed_out"), "red"),
}
_SHOWN: Final = {"input_required": "asks", "working": "running", "completed": "done"}
_TEXT: Final = 160
"""Characters of a cell."""
_LINE: Final = 2000
"""Characters of an event."""
SERVER_COLUMNS: Final = ("server", "state", "tools", "restarts", "why")
_LISTS: Final = {"overview": "servers", "calls": "calls", "stream": "events"}
"""The list of each view."""
CALL_COLUMNS: Final = ("started", "state", "took", "call", "message", "server", "client")
"""The first five fit into 80 columns, if the name of the call is not very long."""


class _Views(ContentSwitcher):
    def show(self, view: str) -> None:
        self.current = view
        self.query_one(f"#{_LISTS[view]}").focus()


class TopApp(App[ConfigError | None]):
    """Shows the hub of `feed`; returns the reason if the hub refuses."""

    TITLE = "mcp-hub top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #needs { padding: 0 1; height: auto; max-height: 12; }
    #call { padding: 0 1; height: auto; }
    DataTable, RichLog { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "show('overview')", "Overview"),
        Binding("c", "show('calls')", "Calls"),
        Binding("j", "move(1)", "Down", show=False),
        Binding("k", "move(-1)", "Up", show=False),
        Binding("x", "cancel", "Cancel the call"),
        Binding("escape", "back", "Back", show=False),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, feed: HubFeed, client: HubClient) -> None:
        super().__init__()
        self._feed = feed
        self._client = client
        self._is_due = True
        self._stream = ""
        self._confirming = ""

    def compose(self) -> ComposeResult:
        """The widgets of all views."""
        yield Header(show_clock=True)
        with _Views(initial="overview"):
            with Vertical(id="overview"):
                yield Static("connecting", id="needs")
                yield DataTable[Text](id="servers", cursor_type="row")
            yield DataTable[Text](id="calls", cursor_type="row")
            with Vertical(id="stream"):
                yield Static("", id="call")
                yield RichLog(id="events", max_lines=_LINES, wrap=True)
        yield Footer()

    def on_mount(self) -> None:
        """Begins to follow the hub."""
        self._table("servers").add_columns(*SERVER_COLUMNS)
        self._table("calls").add_columns(*CALL_COLUMNS)
        self._table("servers").focus()
        self._follow_hub()
        self.set_interval(_DRAW, self._draw)

    @work(exclusive=True, group="feed")
    async def _follow_hub(self) -> None:
        try:
            await self._feed.run(self._changed)
        except ConfigError as refused:
            self.exit(refused)

    def _changed(self) -> None:
        self._is_due = True

    def _draw(self) -> None:
        feed, state = self._feed, self._feed.state
        if not self._is_due and not feed.live:
            return
        self._is_due = False
        self.sub_title = visible(feed.problem) if feed.problem or state is None else f"{state.name} {state.version}"
        if state is None:
            return
        now = state.now if feed.problem else wall_time()
        lines = [*needs(feed.servers, feed.live)] or [Text("Nothing needs you.", "dim")]
        self.query_one("#needs", Static).update(Text("\n").join(lines))
        running = {call.id for call in feed.live}
        calls = [*reversed(feed.live), *(call for call in feed.calls if call.id not in running)][:_ROWS]
        _fill(self._table("servers"), ((server.server, server_row(server)) for server in feed.servers))
        _fill(self._table("calls"), ((call.id, call_row(call, now)) for call in calls))
        if self._stream:
            self._draw_call(now)

    def _draw_call(self, now: float) -> None:
        call = self._summary(self._stream)
        head = Text("  ").join([*call_row(call, now)]) if call is not None else Text()
        advice = Text(visible(f"mcp-hub resume {self._stream}"), "dim")
        self.query_one("#call", Static).update(Text("\n").join([head, advice]))

    def _summary(self, id_: str) -> CallSummary | None:
        return next((call for call in (*self._feed.live, *self._feed.calls) if call.id == id_), None)

    def _table(self, id_: str) -> DataTable[Text]:
        return cast(DataTable[Text], self.query_one(f"#{id_}", DataTable))

    # -- keys ---------------------------------------------------------------------------------------------------------

    def action_show(self, view: str) -> None:
        """Changes the view."""
        self.query_one(_Views).show(view)
        self._stream = ""

    async def action_back(self) -> None:
        self.action_show("calls" if self._stream else "overview")

    def action_move(self, step: int) -> None:
        if isinstance(table := self.focused, DataTable):
            table.move_cursor(row=table.cursor_row + step)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if event.data_table.id == "calls" and event.row_key.value is not None:
            self._stream = event.row_key.value
            self.query_one(_Views).show("stream")
            events = self.query_one(RichLog)
            events.clear()
            self._changed()
            self._draw()
            self._follow_call(self._stream)

    @work(exclusive=True, group="call")
    async def _follow_call(self, id_: str) -> None:
        events, call = self.query_one(RichLog), self._summary(id_)
        if call is not None and not call.stream and call.took:
            events.write(Text("This call was quick and quiet: its arguments and its result are not kept.", "dim"))
            return
        try:
            async with self._client.resume(id_) as stream:
                async for event in stream:
                    if (line := event_text(event)) is not None:
                        events.write(line)
        except HubError as error:
            events.write(Text(visible(str(error)), "red"))

    async def action_cancel(self) -> None:
        """Cancels the open call on the second key press."""
        if not self._stream:
            self.notify("Open a call first.")
        elif self._confirming != self._stream:
            self._confirming = self._stream
            self.notify("Press x again to cancel this call.")
        else:
            self._confirming = ""
            try:
                await self._client.cancel(self._stream)
            except HubError as error:
                self.notify(visible(str(error)), severity="error")


def _fill(table: DataTable[Text], rows: Iterable[tuple[str, _Cells]]) -> None:
    new_rows = dict(rows)
    keys = [key.value for key in table.rows]
    if keys == list(new_rows):
        for row, cells in enumerate(new_rows.values()):
            for column, cell in enumerate(cells):
                if table.get_cell_at((row, column)) != cell:  # type: ignore[arg-type]  # a coordinate is a pair
                    table.update_cell_at((row, column), cell, update_width=True)  # type: ignore[arg-type]
        return
    at = table.cursor_row
    chosen = keys[at] if 0 <= at < len(keys) else None
    table.clear()
    for key, cells in new_rows.items():
        table.add_row(*cells, key=key)
    if chosen in new_rows and at > 0:
        table.move_cursor(row=table.get_row_index(chosen), animate=False)


def server_row(server: ServerInfo) -> list[Text]:
    """One server."""
    state = "sleeps" if server.rests else server.state
    tools = (server.offered or {}).get("tool", 0)
    refused = plural(server.sandbox.refused, "attempt") if server.sandbox and server.sandbox.refused else ""
    why = server.reason or (f"its sandbox refused {refused}: mcp-hub sandbox {quote(server.server)}" if refused else "")
    return [_cell(server.server), _state(state), _cell(tools or ""), _cell(server.restarts or ""), _cell(why)]


def call_row(call: CallSummary, now: float) -> list[Text]:
    """One call; `now` in Unix seconds of the hub."""
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
    """A line for each thing to do."""
    for call in live:
        if call.questions:
            question = f': "{call.question}"' if call.question else f" {plural(call.questions, 'question')}"
            message = f"{call.name} asks{question}. Answer: mcp-hub resume {call.id}"
            yield Text(visible(message), "yellow")
    for server in servers:
        if server.state in ("failed", "incompatible", "backing_off"):
            yield Text(visible(f"{server.server}: {server.reason or server.state}"), "red")
        if server.unapproved:
            message = f"{server.server}: {plural(len(server.unapproved), 'tool')} not approved"
            yield Text(visible(f"{message}: mcp-hub approve {quote(server.server)}"), "yellow")


def event_text(event: CallEvent | None) -> Text | None:
    """An event, or None if it is not shown."""
    match event:
        case Progressed():
            progress = f"{event.progress:g}{'' if event.total is None else f' of {event.total:g}'}"
            return _line("progress", f"{progress} {results.message_of(event)}", "blue")
        case Delta(content=content):
            return _line("", results.content_text(content).rstrip("\n"))
        case Log():
            return _line("log", results.log_text(event), "dim")
        case InputRequired(method=method):
            return _line("asks", f"{method}. Answer it with mcp-hub resume, or on the dashboard.", "yellow")
        case InputReceived():
            return _line("answered", "", "yellow")
        case Completed():
            text = results.ShownResult.of(event.result, "tools/call")
            return _line("done", text.text, "red" if text.is_error else "green")
        case Failed(error):
            return _line("failed", results.with_code(error) if isinstance(error, RpcError) else str(error), "red")
        case Cancelled(reason):
            return _line("cancelled", reason or "", "red")
    return None


def duration(seconds: float) -> str:
    """`12 ms`, `3.4 s`, `5 min 2 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.{1 if seconds < 0.01 else 0}f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def _cell(value: object) -> Text:
    return Text(visible(hide_head(" ".join(str(value).split()), _TEXT))[:_TEXT], no_wrap=True)


def _state(state: str) -> Text:
    return Text(visible(_SHOWN.get(state, state.replace("_", " "))), _STYLES.get(state, "dim"))


def _line(head: str, text: str, style: str = "") -> Text:
    message = "\n".join(visible(line) for line in hide_head(text, _LINE).splitlines())
    return Text(visible(f"{head}: {message}" if head and message else head or message), style)
