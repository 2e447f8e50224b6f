"""A complete MCP server for tests over stdio or HTTP, standard library only: both eras, every kind, ways to fail."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.upstreams import asking, changing, tasks, tools, verbatim
from tests.upstreams.dispatch import PARSE_ERROR, Dispatcher, refusal
from tests.upstreams.eras import Request
from tests.upstreams.fault_base import Fault
from tests.upstreams.faults import MODES
from tests.upstreams.instance import Instance, Session, Tool
from tests.upstreams.options import parse_options
from tests.upstreams.wire import Output, encode

TOOLS: dict[str, Tool] = {**tools.TOOLS, **verbatim.TOOLS, **changing.TOOLS, **asking.TOOLS}


class Pipe:
    """Stdout as a channel: one line a message, as the fault has it."""

    def __init__(self, output: Output, frame: Callable[[bytes, Request | None], bytes]) -> None:
        self._output = output
        self._frame = frame

    def send(self, message: dict[str, Any], answered: Request | None = None) -> None:
        self._output.write(self._frame(encode(message), answered))

    def raw(self, data: bytes) -> None:
        self._output.write(data + b"\n")


def serve_stdio(instance: Instance, dispatcher: Dispatcher, fault: Fault) -> None:
    pipe = Pipe(instance.output, fault.frame)
    session = Session(instance, pipe)
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        text = line.decode("utf-8", "replace").strip()
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as wrong:
            instance.journal.received(text, is_json=False)
            pipe.send(refusal(PARSE_ERROR, f"Parse error: {wrong}"))
            continue
        instance.journal.received(text, is_json=True)
        dispatcher.message(session, message, pipe)


def serve_http(instance: Instance, dispatcher: Dispatcher) -> None:
    # most instances serve stdio, and this import is a quarter of their start
    from tests.upstreams.http_server import HttpServer

    server = HttpServer(instance.options.http, instance, dispatcher)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    instance.output.write(f"{server.url}\n".encode())
    for _ in sys.stdin.buffer:
        pass


def main() -> None:
    sys.set_int_max_str_digits(0)  # integers of any size are echoed
    options = parse_options()
    fault = MODES[options.mode](options)
    as_tasks = tasks.TOOLS if options.tasks_capability or options.tasks_extension else {}
    every = {**TOOLS, **as_tasks, **fault.tools(), **tools.numbered_tools(options.tools)}
    instance = Instance(options, every)
    fault.starting()
    time.sleep(options.start_delay)
    if options.http is None:
        serve_stdio(instance, Dispatcher(fault), fault)
    else:
        serve_http(instance, Dispatcher(fault))
    instance.journal.event("eof")
    fault.ended()
    # threads of slow tools may still be waiting
    os._exit(0)
