"""The command line of the fixture server."""

import argparse

from asking import COMMON
from eras import HANDSHAKE, HANDSHAKE_VERSIONS, MODERN
from faults import GARBAGE, MODES, ONLY_STDIO
from http_faults import HTTP_FAULTS
from instance import Tool

__all__ = ["catalogue", "parse_options"]

DESCRIPTION = """\
A complete MCP server for tests: both eras, every kind, questions, tasks, and many ways to fail.
It serves stdin and stdout, or HTTP, until stdin ends."""
ASKING = """\
  Tools that ask also take nonce (comes back in the question and in the result), message, extra (more members for
  the question), force (ask whatever the client declared), delay (seconds before asking), give_up (handshake: seconds
  to wait for an answer) and no_state (modern: no requestState)."""


def parse_options(tools: str) -> argparse.Namespace:
    """The options of this process; `tools` is shown by `--help`."""
    parser = argparse.ArgumentParser(
        prog="server.py",
        description=DESCRIPTION,
        epilog=f"{tools}\n\n{ASKING}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_surface(parser)
    _add_asking(parser.add_argument_group("questions and tasks"))
    _add_http(parser.add_argument_group("HTTP"))
    _add_faults(parser.add_argument_group("misbehaviour"))
    options = parser.parse_args()
    if options.http is not None and options.mode in ONLY_STDIO:
        parser.error(f"--mode {options.mode} is for stdio alone")
    if options.http is None and options.mode in HTTP_FAULTS:
        parser.error(f"--mode {options.mode} is for HTTP alone")
    return options


def _add_surface(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--era", choices=(HANDSHAKE, MODERN, "both"), default="both", help="of the requests that it takes")
    add("--discover", choices=("answer", "exit", "silent"), default="answer", help="what server/discover meets")
    add("--max-version", choices=HANDSHAKE_VERSIONS, default=HANDSHAKE_VERSIONS[-1], help="newest for initialize")
    add("--name", default="fixture", help="server name, also in its URIs")
    add("--instructions", help="of initialize and server/discover")
    add("--journal", help="append every received message to this file, and what happened to it")
    add("--tools-json", help="serve this file's JSON array as the tools")
    add("--tools", type=int, default=0, metavar="N", help="N more tools, tool_00000 and on")
    add("--page", type=int, default=0, metavar="N", help="at most N entries per list page")
    add("--page-loop", action="store_true", help="every list page has the same nextCursor")
    add("--ttl-ms", type=int, default=0, help="ttlMs of modern results")
    add("--cache-scope", choices=("public", "private"), default="public", help="cacheScope of modern results")


def _add_asking(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--ask-roots-at-start", action="store_true", help="ask for roots right after notifications/initialized")
    add("--tasks-capability", action="store_true", help="tasks of 2025-11-25, and tools that run as tasks")
    add(
        "--tasks-extension",
        action="store_true",
        help="the tasks extension of the modern era: the same tools become tasks",
    )
    add("--task-status", action="store_true", help="send notifications/tasks/status at every change")
    add("--poll-interval", type=int, default=20, metavar="MS", help="pollInterval of tasks, or pollIntervalMs")


def _add_http(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    where = "serve HTTP on 127.0.0.1 (0: a free port): the first line of stdout is the URL of Streamable HTTP; "
    add("--http", type=int, metavar="PORT", help=f"{where}HTTP+SSE of 2024-11-05 is at /sse beside it")
    add("--always-sse", action="store_true", help="answer no POST with JSON")
    add("--no-session-id", action="store_true", help="one session for everybody, without an id")
    add("--no-get", action="store_true", help="GET is met with 405, so that nothing can be resumed either")
    cut = "cut the answer to tools/call (of --on TOOL) after N events; "
    resumed = "where the era has event ids, GET with Last-Event-ID goes on from there"
    add("--drop-stream-after", type=int, metavar="N", help=cut + resumed)
    add("--drop-times", type=int, default=1, metavar="N", help="how often one answer is cut, GETs included")
    add("--drop-cleanly", action="store_true", help="cut by ending the body, not by breaking the connection")
    add("--retry", type=int, metavar="MS", help="tell clients how long to wait before they reconnect")


def _add_faults(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--start-delay", type=float, default=0, metavar="SECONDS", help="wait before reading anything")
    add("--mode", choices=MODES, default="normal", help="how it misbehaves")
    add("--count", type=int, default=1, metavar="N", help="the fault strikes from the Nth tools/call on")
    add("--on", metavar="TOOL", help="only calls of this tool count")
    add("--exit-code", type=int, default=1, help="of crash-after")
    add("--bytes", type=int, default=40_000_000, help="of long-line and endless-line")
    add("--n", type=int, help="how often a flood's message is sent")
    add("--canary", default="http://127.0.0.1:9/", help="a URL that nobody may ever fetch")
    add("--garbage", choices=GARBAGE, default="malformed", help="of garbage-answer")


def catalogue(described: dict[str, Tool]) -> str:
    """Every tool with its arguments, optional ones marked, for `--help`."""
    lines = []
    for name, tool in described.items():
        schema = tool.definition["inputSchema"]
        keys = schema["properties"].keys()
        keys = [key for key in keys if not (key in COMMON and COMMON.keys() <= keys)]
        shown = [key if key in schema.get("required", ()) else f"{key}?" for key in keys]
        lines.append(f"  {name}({', '.join(shown)})\n      {tool.definition['description']}")
    return "\n".join(lines)
