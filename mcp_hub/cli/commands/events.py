"""`mcp-hub events`: types of events, and what happens, at the running hub."""

import random
from typing import TYPE_CHECKING, Final

import anyio
import click
import msgspec

from mcp_hub.cli.access.hub import Reach, run_with_client, url_options
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, put_json, say
from mcp_hub.errors import UpstreamLost, UpstreamUnavailable
from mcp_hub.masking import hide_head, visible
from mcp_hub.types import JsonObject

if TYPE_CHECKING:
    from mcp_hub.client import HubClient
    from mcp_hub.protocol.rest.calls import EventList

_WAIT: Final = 25
"""Seconds of one request."""
_PATIENCE: Final = 60.0
"""Seconds in which a hub that is away has to come back."""
_ABOUT: Final = 200
"""Characters of a description."""


def _object(_: click.Context, __: click.Parameter, text: str) -> str:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise click.BadParameter(f"is not JSON: {problem}") from None
    if not isinstance(value, dict):
        raise click.BadParameter("has to be a JSON object.")
    return text


@click.command()
@click.argument("name", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print events until Ctrl-C, not only the next ones.")
@click.option(
    "--args", "arguments", default="{}", callback=_object, metavar="JSON", help="Arguments of the subscription."
)
@click.option("--after", metavar="CURSOR", help="Begin behind this cursor, not with what happens from now on.")
@click.option("--json", "as_json", is_flag=True, help="Print the types as one JSON document, events as JSON lines.")
@url_options
def events(name: str | None, follow: bool, arguments: str, after: str | None, as_json: bool, reach: Reach) -> None:
    """List the types of events, or wait for events of type NAME.

    With NAME, prints the next events and ends, so that a script can wait for one; --follow prints all that come. The
    cursor at the end continues behind the last one.
    """
    if name is None:
        if follow or after is not None or arguments != "{}":
            raise click.UsageError("--follow, --after and --args are about one type of events. Give its NAME.")
        run_with_client(reach, lambda client: _list(client, as_json))
    follower = _Follower(name, arguments, after, is_json=as_json)
    run_with_client(reach, lambda client: follower.run(client, follow=follow))


async def _list(client: "HubClient", as_json: bool) -> int:
    listed = await client.events.types()
    if as_json:
        tables.print_json({"events": listed.events, "starting": listed.starting})
        return 0
    if listed.events:
        table = tables.table("event", "description", whole=("event",))
        for raw in listed.events:
            event: JsonObject = msgspec.json.decode(raw)
            description = hide_head(" ".join(visible(str(event.get("description") or "")).split()), _ABOUT, "…")
            table.add_row(tables.cell(str(event.get("name"))), tables.short_cell(description))
        tables.print_table(table)
    elif not listed.starting:
        put("No server has events.")
    if listed.starting:
        say(f"still starting: {', '.join(listed.starting)}")
    return 0


class _Follower:
    """Prints the events of one subscription."""

    def __init__(self, name: str, arguments: str, cursor: str | None, *, is_json: bool) -> None:
        self._name = name
        self._arguments = arguments
        self._cursor = cursor
        self._is_json = is_json

    async def run(self, client: "HubClient", *, follow: bool) -> int:
        try:
            has_printed = False
            while follow or not has_printed:
                # the first request only brings a cursor, behind which nothing is missed if the connection is lost
                page = await self._page(client, 0 if self._cursor is None else _WAIT)
                has_printed = self._print(page) or has_printed
        finally:
            if self._cursor is not None:
                say(f"cursor: {self._cursor}")
        return 0

    async def _page(self, client: "HubClient", wait: int) -> "EventList":
        from mcp_hub.client.stream_reader import Patience

        patience = Patience(_PATIENCE, random.random)
        while True:
            try:
                return await client.events.page(self._name, self._arguments, self._cursor, wait)
            except (UpstreamLost, UpstreamUnavailable):
                pause = None if self._cursor is None else patience.pause(anyio.current_time())
                if pause is None:
                    raise
            await anyio.sleep(pause)

    def _print(self, page: "EventList") -> bool:
        if page.truncated:
            say("Events may be missing here.")
        for raw in page.events:
            self._show(bytes(raw))
        self._cursor = page.cursor or self._cursor
        return bool(page.events)

    def _show(self, raw: bytes) -> None:
        if self._is_json:
            put_json(raw)
            return
        event: JsonObject = msgspec.json.decode(raw)
        data = msgspec.json.encode(event.get("data")).decode(errors="replace")
        put(f"{event.get('timestamp')} {data}")
