"""`mcp-hub search`: the answer of `find_tools`, its tokens and scores."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click
import msgspec

from mcp_hub.catalog.discovery.answers import FAILED, WEAK
from mcp_hub.catalog.discovery.meta_tools import MOST_HITS
from mcp_hub.catalog.search.ranker import Hit
from mcp_hub.catalog.texts import FIND
from mcp_hub.cli import completion
from mcp_hub.cli.access.hub import Reach, ReachedHub, hub_options, run_with_hub
from mcp_hub.cli.commands.tools import missing
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, put_json, say
from mcp_hub.cli.render.results import ShownResult, with_code
from mcp_hub.cli.setup import EXIT_TOOL, EXIT_UNAVAILABLE
from mcp_hub.errors import RpcError
from mcp_hub.events import CallEvent, Completed, Failed
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.types import Era, Format, JsonObject

if TYPE_CHECKING:
    from rich.table import Table

    from mcp_hub.hub import HubPort

_HITS: Final = 8
_LONGEST: Final = 1 << 20
"""Characters of a query; the search itself looks at fewer."""
_LEFT_OUT: Final = ("  ", FAILED)
_SEARCHED: Final = 4000
"""Characters of a query that go into a URL."""


class _SearchReport(msgspec.Struct, frozen=True):
    query: str
    answer: str
    tokens: int
    weak: bool
    hits: tuple[Hit, ...]


@click.command()
@click.argument("query", nargs=-1, required=True, metavar="QUERY...")
@click.option("--server", metavar="NAME", shell_complete=completion.servers, help="Only the tools of this server.")
@click.option(
    "--limit", type=click.IntRange(1, MOST_HITS), default=_HITS, show_default=True, metavar="N",
    help="Maximum number of hits.",
)  # fmt: skip
@click.option(
    "--detail", type=click.Choice(["brief", "full"]),
    help="Print the answer as a model reads it, with the lines or the whole definitions of the hits.",
)  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice([item.value for item in Format]), metavar="FORMAT",
    help=f"Print the answer to a provider's own tool search: {', '.join(Format)}.",
)  # fmt: skip
@click.option("--full", is_flag=True, help="Show whole descriptions, and the parameters.")
@click.option("--explain", is_flag=True, help="Show how each score is computed.")
@click.option(
    "--profile", metavar="NAME", shell_complete=completion.profiles, help="Search only what this profile exposes."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, with scores.")
@hub_options
def search(
    query: Sequence[str],
    server: str | None,
    limit: int,
    detail: str | None,
    form: str | None,
    full: bool,
    explain: bool,
    profile: str | None,
    as_json: bool,
    reach: Reach,
) -> None:
    """Search the tools as find_tools does, one hit on a line.

    The cost of the answer in tokens goes to stderr. Exit code 1 if no tool matches, or 3 if a server is not ready, too.
    Weak hits, marked as such, count as hits.
    """
    arguments = _tool_arguments(query, server, limit, detail)

    async def searched(hub: ReachedHub) -> int:
        await hub.settle()
        absent = missing(await hub.client.servers(), server)
        try:
            report = await _report(hub, profile, arguments)
        except RpcError as error:
            say(with_code(error))
            return EXIT_TOOL
        if form is not None:
            await _print_answer(hub, form, arguments)
        elif as_json:
            tables.print_json(report)
        else:
            await _print(hub, report, full=full, is_whole=detail is not None)
            _print_costs(report, explain)
        tables.print_missing(absent, ends=hub.app is not None, has_output=False)
        return 0 if report.hits else EXIT_UNAVAILABLE if absent else EXIT_TOOL

    run_with_hub(reach, searched, servers=[] if server is None else [server], profile=profile, lists_servers=True)


def _tool_arguments(query: Sequence[str], server: str | None, limit: int, detail: str | None) -> JsonObject:
    # a client could not send text that is not UTF-8 either
    text = " ".join(query)[:_LONGEST].encode(errors="replace").decode()
    only = {} if server is None else {"server": server}
    return {"query": text, "limit": limit, "detail": detail or "brief", **only}


async def _print_answer(hub: ReachedHub, form: str, arguments: JsonObject) -> None:
    only = {name: str(arguments[name]) for name in ("limit", "server") if name in arguments}
    put_json(bytes(await hub.client.lists.exported_search(q=arguments["query"][:_SEARCHED], format=form, **only)))


async def _report(hub: ReachedHub, profile: str | None, arguments: JsonObject) -> _SearchReport:
    from mcp_hub.catalog.tokens import estimate

    answer, query = await _answer(hub, profile, arguments), arguments["query"][:_SEARCHED]
    if not query.strip():
        return _SearchReport(query=arguments["query"], answer=answer, tokens=estimate(answer), weak=True, hits=())
    # find_tools answers the exact name of a tool with that tool alone
    results = await hub.client.lists.search(query, 1)
    if not results.hits or results.hits[0].name != query.strip():
        results = await hub.client.lists.search(query, arguments["limit"], arguments.get("server"))
    hits = tuple(Hit(hit.name, hit.score, tuple(hit.also), hit.parts) for hit in results.hits)
    return _SearchReport(query=arguments["query"], answer=answer, tokens=estimate(answer), weak=results.weak, hits=hits)


async def _answer(hub: ReachedHub, profile: str | None, arguments: JsonObject) -> str:
    if hub.app is None:
        stream = hub.client.stream(FIND, msgspec.json.encode(arguments))
        async with stream:
            events: Sequence[CallEvent] = [event async for event in stream]
    else:
        events = await _events(hub.app.hub, profile, arguments)
    match events[-1]:
        case Completed(result):
            return ShownResult.of(result).text
        case Failed(error):
            raise error
        case _:
            raise RpcError(f"{FIND} was cancelled")


async def _events(hub: "HubPort", profile: str | None, arguments: JsonObject) -> Sequence[CallEvent]:
    from mcp_hub.aio import Bell
    from mcp_hub.ids import new_session_id
    from mcp_hub.protocol import eras
    from mcp_hub.sessions.session import Caller, Session

    session = Session(new_session_id(), Caller(profile=profile), Era.HANDSHAKE, eras.LATEST_HANDSHAKE)
    params = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in (("name", FIND), ("arguments", arguments))}
    call, bell = (
        hub.call(
            session,
            "tools/call",
            params,
            RequestMeta(token=None, version=None, client_info=None, capabilities=None, log_level=None, rest={}),
        ),
        Bell(),
    )
    reader = call.reader(bell.ring)
    while not call.has_ended:
        await bell.wait()
    return reader.take()


async def _print(hub: ReachedHub, report: _SearchReport, *, full: bool, is_whole: bool) -> None:
    """The `full` definitions, or the answer; notes only if `is_whole`."""
    if full and report.hits:
        await _print_pages(hub, report)
    elif is_whole:
        put(report.answer)
    else:
        tables.print_short((line for line in report.answer.splitlines() if not line.startswith(_LEFT_OUT)), WEAK)


async def _print_pages(hub: ReachedHub, report: _SearchReport) -> None:
    definitions = {name: raw for raw in await hub.client.tools() if (name := _name(raw))}
    owners = await hub.client.lists.owners()
    for hit in report.hits:
        if (raw := definitions.get(hit.id)) is not None:
            tables.print_page(hit.id, owners.get(hit.id, ""), bytes(raw))


def _name(raw: msgspec.Raw) -> str:
    return str(msgspec.json.decode(raw, type=JsonObject).get("name", ""))


def _print_costs(report: _SearchReport, explain: bool) -> None:
    if explain:
        put()
        if report.hits:
            tables.print_table(explanation(report.hits))
        if report.weak:
            put("weak: nothing fits well")
    say(f"{tables.plural(report.tokens, 'token')}, {tables.plural(len(report.hits), 'hit')}")


def explanation(hits: Sequence[Hit]) -> "Table":
    """A row for each hit, with the parts of its score."""
    parts = tuple(hits[0].parts) if hits else ()
    table = tables.table("tool", "score", *parts, "also", right=("score", *parts))
    for hit in hits:
        figures = [f"{value:.2f}" for value in (hit.score, *(hit.parts[part] for part in parts))]
        table.add_row(tables.cell(hit.id), *figures, tables.cell(", ".join(hit.also)))
    return table
