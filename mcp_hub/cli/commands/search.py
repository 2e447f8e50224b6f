"""`mcp-hub search`: the answer of `find_tools`, its cost in tokens, and the scores of its hits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click
import msgspec

from mcp_hub.catalog.discovery.meta_tools import FIND, MOST_HITS
from mcp_hub.cli.access import waiting
from mcp_hub.cli.commands.tokens import missing
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.results import ShownResult, with_code
from mcp_hub.cli.setup import (
    EXIT_TOOL,
    EXIT_UNAVAILABLE,
    check_profile,
    check_servers,
    config_option,
    load_config,
    quiet_logs,
    run_with_app,
    verbose_option,
    wait_option,
)
from mcp_hub.config.load.load import Loaded
from mcp_hub.errors import RpcError
from mcp_hub.events import Completed, Failed
from mcp_hub.masking import visible
from mcp_hub.types import Era, Kind

if TYPE_CHECKING:
    from rich.table import Table

    from mcp_hub.catalog.search.ranker import Hit, SearchAnswer
    from mcp_hub.hub import HubPort
    from mcp_hub.sessions.session import Session

_HITS: Final = 8
_LONGEST: Final = 1 << 20
"""Characters of a query; the search itself looks at fewer."""


class _Wanted(msgspec.Struct, frozen=True):
    query: str
    server: str | None
    limit: int
    detail: str
    profile: str | None


class SearchReport(msgspec.Struct, frozen=True):
    """The output of `--json`: the `answer` that a model would read, its estimated `tokens`, and the hits behind it."""

    query: str
    answer: str
    tokens: int
    weak: bool
    hits: tuple["Hit", ...]


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
@wait_option
@verbose_option
@config_option
def search(
    query: Sequence[str],
    server: str | None,
    limit: int,
    detail: str,
    explain: bool,
    profile: str | None,
    as_json: bool,
    wait: float,
    verbose: int,
    config: str | None,
) -> None:
    """Show the find_tools answer for QUERY.

    Prints the answer on stdout as a model would read it, and its cost in tokens on stderr. Exit code 1 if no tool
    matches, or 3 if no tool matches and a server is not ready. Weak hits, which the answer marks as such, count as
    hits.
    """
    loaded = load_config(config)
    check_servers(loaded, [server] if server is not None else [])
    check_profile(loaded, profile)
    quiet_logs(verbose)
    # a client could not send text that is not UTF-8 either
    text = " ".join(query)[:_LONGEST].encode(errors="replace").decode()
    wanted = _Wanted(text, server, limit, detail, profile)
    run_with_app(loaded, lambda app: _search(app.hub, loaded, wanted, wait, explain=explain, as_json=as_json))


async def _search(hub: "HubPort", loaded: Loaded, wanted: _Wanted, wait: float, *, explain: bool, as_json: bool) -> int:
    from mcp_hub.catalog.costs.tokens import estimate

    await waiting.settle(hub, wait)
    absent = missing(hub, wanted.profile, wanted.server)
    try:
        text = await _told(hub, wanted)
    except RpcError as error:
        say(with_code(error))
        return EXIT_TOOL
    answer = await _answer(hub, wanted)
    cost = estimate(text)
    if as_json:
        found = SearchReport(wanted.query, text, cost, answer.is_weak, answer.hits)
        tables.print_json(found)
    else:
        click.echo(visible(text))
        if explain:
            _explain(answer)
        say(f"{tables.plural(cost, 'token')}, {tables.plural(len(answer.hits), 'hit')}")
    tables.print_missing(absent)
    return 0 if answer.hits else EXIT_UNAVAILABLE if absent else EXIT_TOOL


async def _answer(hub: "HubPort", wanted: _Wanted) -> "SearchAnswer":
    """The hits behind the answer. find_tools answers the exact name of a tool with that tool alone."""
    catalog, profile, query = hub.catalog, wanted.profile, wanted.query
    if catalog.view(profile).find(Kind.TOOL, query.strip()) is not None:
        return await catalog.search(profile, query, 1)
    return await catalog.search(profile, query, wanted.limit, wanted.server)


async def _told(hub: "HubPort", wanted: _Wanted) -> str:
    """The result of a client's call of find_tools. Raises `RpcError`."""
    from mcp_hub.ids import new_session_id
    from mcp_hub.protocol import eras
    from mcp_hub.sessions.session import Caller, Session

    session = Session(new_session_id(), Caller(profile=wanted.profile), Era.HANDSHAKE, eras.LATEST_HANDSHAKE)
    arguments = {"query": wanted.query, "limit": wanted.limit, "detail": wanted.detail}
    if wanted.server is not None:
        arguments["server"] = wanted.server
    return ShownResult.of((await _called(hub, session, FIND, arguments)).result).text


async def _called(hub: "HubPort", session: "Session", name: str, arguments: dict[str, object]) -> Completed:
    from mcp_hub.aio import Bell
    from mcp_hub.protocol.meta import RequestMeta

    params = {"name": _raw(name), "arguments": _raw(arguments)}
    call, bell = hub.call(session, "tools/call", params, RequestMeta(None, None, None, None, None, {})), Bell()
    reader = call.reader(bell.ring)
    while not call.has_ended:
        await bell.wait()
    match reader.take()[-1]:
        case Completed() as done:
            return done
        case Failed(error):
            raise error
        case _:
            raise RpcError(f"{name} was cancelled")


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _explain(answer: "SearchAnswer") -> None:
    click.echo()
    if answer.hits:
        tables.print_table(explanation(answer))
    if answer.is_weak:
        click.echo("weak: nothing fits well")


def explanation(answer: "SearchAnswer") -> "Table":
    """A row for each hit with the parts that add up to its score (`catalog.search.Hit`)."""
    from rich.text import Text

    parts = tuple(answer.hits[0].parts) if answer.hits else ()
    made = tables.table("tool", "score", *parts, "also", right=("score", *parts))
    for hit in answer.hits:
        figures = [f"{value:.2f}" for value in (hit.score, *(hit.parts[part] for part in parts))]
        made.add_row(Text(visible(hit.id)), *figures, Text(visible(", ".join(hit.also))))
    return made
