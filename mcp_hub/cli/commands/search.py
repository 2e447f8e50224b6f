"""`mcp-hub search`: the answer of `find_tools`, its cost in tokens, and the scores of its hits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click
import msgspec

from mcp_hub.catalog.discovery.definitions import FIND
from mcp_hub.catalog.discovery.finding import MOST_HITS
from mcp_hub.catalog.search.ranker import Hit
from mcp_hub.cli.access.hub import Reach, ReachedHub, Selection, hub_options, run_with_hub
from mcp_hub.cli.commands.tokens import missing
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.results import ShownResult, with_code
from mcp_hub.cli.setup import EXIT_TOOL, EXIT_UNAVAILABLE
from mcp_hub.errors import RpcError
from mcp_hub.events import CallEvent, Completed, Failed
from mcp_hub.masking import visible
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.types import Era, JsonObject

if TYPE_CHECKING:
    from rich.table import Table

    from mcp_hub.hub import HubPort

_HITS: Final = 8
_LONGEST: Final = 1 << 20
"""Characters of a query; the search itself looks at fewer."""
_SEARCHED: Final = 4000
"""Characters of a query that go into a URL."""


class SearchReport(msgspec.Struct, frozen=True):
    """The output of `--json`: the `answer` that a model would read, its estimated `tokens`, and the hits behind it."""

    query: str
    answer: str
    tokens: int
    weak: bool
    hits: tuple[Hit, ...]


@click.command()
@click.argument("query", nargs=-1, required=True, metavar="QUERY...")
@click.option("--server", metavar="NAME", help="Only the tools of this server.")
@click.option(
    "--limit", type=click.IntRange(1, MOST_HITS), default=_HITS, show_default=True, metavar="N",
    help="Maximum number of hits.",
)  # fmt: skip
@click.option(
    "--detail", type=click.Choice(["brief", "full"]), default="brief", show_default=True,
    help="One line per hit, or whole definitions.",
)  # fmt: skip
@click.option("--explain", is_flag=True, help="Show how each score is computed.")
@click.option("--profile", metavar="NAME", help="Search only what this profile exposes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, with scores.")
@hub_options
def search(
    query: Sequence[str],
    server: str | None,
    limit: int,
    detail: str,
    explain: bool,
    profile: str | None,
    as_json: bool,
    reach: Reach,
) -> None:
    """Show the find_tools answer for QUERY.

    Prints the answer on stdout as a model would read it, and its cost in tokens on stderr. Exit code 1 if no tool
    matches, or 3 if no tool matches and a server is not ready. Weak hits, which the answer marks as such, count as
    hits.
    """
    # a client could not send text that is not UTF-8 either
    text = " ".join(query)[:_LONGEST].encode(errors="replace").decode()
    given = {"query": text, "limit": limit, "detail": detail, **({} if server is None else {"server": server})}

    async def searched(hub: ReachedHub) -> int:
        await hub.settle()
        absent = missing(await hub.client.servers(), server)
        try:
            found = await _found(hub, profile, given)
        except RpcError as error:
            say(with_code(error))
            return EXIT_TOOL
        _print(found, as_json, explain)
        tables.print_missing(absent)
        return 0 if found.hits else EXIT_UNAVAILABLE if absent else EXIT_TOOL

    run_with_hub(reach, searched, Selection([] if server is None else [server], profile))


async def _found(hub: ReachedHub, profile: str | None, given: JsonObject) -> SearchReport:
    """The answer of find_tools, and the hits behind it. Raises `RpcError`."""
    from mcp_hub.catalog.costs.tokens import estimate

    answer, query = await _answer(hub, profile, given), given["query"][:_SEARCHED]
    if not query.strip():
        return SearchReport(given["query"], answer, estimate(answer), True, ())
    # find_tools answers the exact name of a tool with that tool alone
    found = await hub.client.lists.search(query, 1)
    if not found.hits or found.hits[0].name != query.strip():
        found = await hub.client.lists.search(query, given["limit"], given.get("server"))
    hits = tuple(Hit(one.name, one.score, tuple(one.also), one.parts) for one in found.hits)
    return SearchReport(given["query"], answer, estimate(answer), found.weak, hits)


async def _answer(hub: ReachedHub, profile: str | None, given: JsonObject) -> str:
    """The result of a client's call of find_tools. Raises `RpcError`."""
    if hub.app is None:
        stream = hub.client.stream(FIND, msgspec.json.encode(given))
        async with stream:
            events: Sequence[CallEvent] = [event async for event in stream]
    else:
        events = await _events(hub.app.hub, profile, given)
    match events[-1]:
        case Completed(result):
            return ShownResult.of(result).text
        case Failed(error):
            raise error
        case _:
            raise RpcError(f"{FIND} was cancelled")


async def _events(hub: "HubPort", profile: str | None, given: JsonObject) -> Sequence[CallEvent]:
    """A call in a hub of our own, which no stream is kept of."""
    from mcp_hub.aio import Bell
    from mcp_hub.ids import new_session_id
    from mcp_hub.protocol import eras
    from mcp_hub.sessions.session import Caller, Session

    session = Session(new_session_id(), Caller(profile=profile), Era.HANDSHAKE, eras.LATEST_HANDSHAKE)
    params = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in (("name", FIND), ("arguments", given))}
    call, bell = hub.call(session, "tools/call", params, RequestMeta(None, None, None, None, None, {})), Bell()
    reader = call.reader(bell.ring)
    while not call.has_ended:
        await bell.wait()
    return reader.take()


def _print(found: SearchReport, as_json: bool, explain: bool) -> None:
    if as_json:
        tables.print_json(found)
        return
    click.echo(visible(found.answer))
    if explain:
        click.echo()
        if found.hits:
            tables.print_table(explanation(found.hits))
        if found.weak:
            click.echo("weak: nothing fits well")
    say(f"{tables.plural(found.tokens, 'token')}, {tables.plural(len(found.hits), 'hit')}")


def explanation(hits: Sequence[Hit]) -> "Table":
    """A row for each hit with the parts that add up to its score (`catalog.search.Hit`)."""
    parts = tuple(hits[0].parts) if hits else ()
    made = tables.table("tool", "score", *parts, "also", right=("score", *parts))
    for hit in hits:
        figures = [f"{value:.2f}" for value in (hit.score, *(hit.parts[part] for part in parts))]
        made.add_row(tables.cell(hit.id), *figures, tables.cell(", ".join(hit.also)))
    return made
