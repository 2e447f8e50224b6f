"""A complete MCP server over stdio for tests, standard library only: both eras, every kind, and many ways to fail.

Run it as `python tests/upstreams/server.py --help`. This file is the command line and the reading loop;
`eras` decides what a request may do, `methods` and `tools` answer it, `faults` spoil it.
"""

import argparse
import json
import os
import sys
import time
from typing import Any

from eras import (
    HANDSHAKE,
    HANDSHAKE_VERSIONS,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MODERN,
    Request,
    RpcError,
    era_of,
)
from faults import GARBAGE, MODES, Fault
from instance import Instance
from methods import METHODS
from tools import TOOLS, numbered_tools

PARSE_ERROR = -32700
INVALID_REQUEST = -32600


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--era", choices=(HANDSHAKE, MODERN, "both"), default="both")
    add("--discover", choices=("answer", "exit", "silent"), default="answer", help="what server/discover meets")
    add("--max-version", choices=HANDSHAKE_VERSIONS, default=HANDSHAKE_VERSIONS[-1], help="newest for initialize")
    add("--name", default="fixture", help="server name, also in its URIs")
    add("--instructions")
    add("--journal", help="append every received message to this file")
    add("--tools-json", help="serve this file's JSON array as the tools")
    add("--tools", type=int, default=0, metavar="N", help="N more tools, tool_00000 and on")
    add("--page", type=int, default=0, metavar="N", help="at most N entries per list page")
    add("--page-loop", action="store_true", help="every list page has the same nextCursor")
    add("--ttl-ms", type=int, default=0)
    add("--cache-scope", choices=("public", "private"), default="public")
    add("--start-delay", type=float, default=0, metavar="SECONDS", help="wait before reading anything")
    add("--mode", choices=MODES, default="normal")
    add("--count", type=int, default=1, metavar="N", help="the fault strikes from the Nth tools/call on")
    add("--on", metavar="TOOL", help="only calls of this tool count")
    add("--exit-code", type=int, default=1, help="of crash-after")
    add("--bytes", type=int, default=40_000_000, help="of long-line and endless-line")
    add("--garbage", choices=GARBAGE, default="malformed", help="of garbage-answer")
    return parser.parse_args()


class Reader:
    """Takes one line at a time to its answer."""

    def __init__(self, instance: Instance, fault: Fault) -> None:
        self._instance = instance
        self._fault = fault

    def line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as wrong:
            self._instance.journal.received(text, is_json=False)
            self._instance.fail(None, {"code": PARSE_ERROR, "message": f"Parse error: {wrong}"})
            return
        self._instance.journal.received(text, is_json=True)
        self._message(message)

    def _message(self, message: Any) -> None:
        if not isinstance(message, dict):
            self._instance.fail(None, {"code": INVALID_REQUEST, "message": "Invalid request"})
        elif "method" not in message:
            pass  # an answer to one of our pings
        elif "id" not in message:
            self._notification(message["method"], message.get("params"))
        else:
            self._request(message)

    def _notification(self, method: str, params: Any) -> None:
        if method == "notifications/cancelled" and isinstance(params, dict):
            self._instance.cancel(params.get("requestId"))

    def _request(self, message: dict[str, Any]) -> None:
        if self._fault.swallows(message["method"]):
            return
        params = message.get("params", {})
        try:
            if not isinstance(params, dict):
                raise RpcError(INVALID_PARAMS, "Invalid params: not an object")
            self._answer(Request(message["id"], message["method"], params))
        except RpcError as refused:
            self._instance.fail(message["id"], refused.error)
        except (KeyError, TypeError, ValueError) as wrong:
            self._instance.fail(message["id"], {"code": INVALID_PARAMS, "message": f"Invalid params: {wrong!r}"})

    def _answer(self, request: Request) -> None:
        instance = self._instance
        if request.method == "server/discover" and instance.options.discover != "answer":
            self._refuse_discovery()
            return
        request.era = era_of(request, instance.options.era, instance.version is not None)
        if request.method not in METHODS:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method}")
        if request.method == "tools/call" and self._fault.calling(instance, request):
            return
        result = METHODS[request.method](instance, request)
        if result is not None:
            instance.respond(request, result)

    def _refuse_discovery(self) -> None:
        if self._instance.options.discover == "exit":
            print("unexpected request before initialize", file=sys.stderr, flush=True)
            os._exit(1)


def main() -> None:
    sys.set_int_max_str_digits(0)  # integers of any size are echoed
    options = arguments()
    fault = MODES[options.mode](options)
    tools = {**TOOLS, **fault.tools(), **numbered_tools(options.tools)}
    instance = Instance(options, tools, fault.frame)
    fault.starting()
    time.sleep(options.start_delay)
    reader = Reader(instance, fault)
    for line in sys.stdin.buffer:
        if line.strip():
            reader.line(line)
    instance.journal.event("eof")
    fault.ended()
    # threads of slow tools may still be waiting
    os._exit(0)


if __name__ == "__main__":
    main()
