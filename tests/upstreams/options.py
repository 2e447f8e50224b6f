"""The command line of the fixture server."""

import argparse

from tests.upstreams.eras import HANDSHAKE, MODERN
from tests.upstreams.faults import GARBAGE, MODES, ONLY_STDIO
from tests.upstreams.http_faults import HTTP_FAULTS

DESCRIPTION = """\
A complete MCP server for tests: both eras, every kind, questions, tasks, and many ways to fail.
It serves stdin and stdout, or HTTP, until stdin ends."""
ASKING = """\
  Tools that ask also take nonce (comes back in the question and in the result), message, extra (more members for
  the question), force (ask whatever the client declared), delay (seconds before asking), give_up (handshake: seconds
  to wait for an answer) and no_state (modern: no requestState)."""


def parse_options() -> argparse.Namespace:
    """The options of this process."""
    parser = argparse.ArgumentParser(
        prog="main.py", description=DESCRIPTION, epilog=ASKING, formatter_class=argparse.RawDescriptionHelpFormatter
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
    add("--name", default="fixture", help="server name, also in its URIs")
    add("--instructions", help="of initialize and server/discover")
    add("--journal", help="append every received message to this file, and what happened to it")
    add("--tools-json", help="serve this file's JSON array as the tools")
    add("--tools", type=int, default=0, metavar="N", help="N more tools, tool_00000 and on")
    add("--page", type=int, default=0, metavar="N", help="at most N entries per list page")
    add("--page-loop", action="store_true", help="every list page has the same nextCursor")
    add("--ttl-ms", type=int, default=0, help="ttlMs of modern results")


def _add_asking(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--tasks-capability", action="store_true", help="tasks of 2025-11-25, and tools that run as tasks")
    add(
        "--tasks-extension",
        action="store_true",
        help="the tasks extension of the modern era: the same tools become tasks",
    )
    add("--poll-interval", type=int, default=20, metavar="MS", help="pollInterval of tasks, or pollIntervalMs")


def _add_http(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    where = "serve HTTP on 127.0.0.1 (0: a free port): the first line of stdout is the URL"
    add("--http", type=int, metavar="PORT", help=where)
    add("--retry", type=int, metavar="MS", help="tell clients how long to wait before they reconnect")


def _add_faults(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--start-delay", type=float, default=0, metavar="SECONDS", help="wait before reading anything")
    add("--mode", choices=MODES, default="normal", help="how it misbehaves")
    add("--count", type=int, default=1, metavar="N", help="the fault strikes from the Nth tools/call on")
    add("--on", metavar="TOOL", help="only calls of this tool count")
    add("--once", metavar="FILE", help="the fault strikes once, in all processes with this file")
    add("--retry-after", type=int, default=86400, metavar="SECONDS", help="of unavailable and rate-limited")
    add("--exit-code", type=int, default=1, help="of crash-after")
    add("--bytes", type=int, default=40_000_000, help="of long-line and endless-line")
    add("--n", type=int, help="how often a flood's message is sent")
    add("--canary", default="http://127.0.0.1:9/", help="a URL that nobody may ever fetch")
    add("--garbage", choices=GARBAGE, default="malformed", help="of garbage-answer")
