"""The measurements of the providers' formats: exports of tools, and calls in each format beside plain calls over REST.

An export is measured in this process, without HTTP: made the first time, and taken from what is kept. The tools are the
captured ones of $MCP_HUB_EVAL_DATA; without them those of the echo server. Formats that take fewer tools at once get
them in several requests.
"""

import gc
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio

from bench import measure
from bench.cases import LIST_TOOLS, TEXT, Figures, Result, Run, merged, share
from bench.echo_server import definitions
from bench.ledger import RelayFailed, percentile
from bench.load import SILENCE
from bench.load_http import READ_SIZE, Response
from bench.relays import Setup, Side
from mcp_hub.cli.lean import COLLECTOR
from mcp_hub.cli.serving import calm_collector
from mcp_hub.formats.calls import write_calls
from mcp_hub.formats.providers import PROVIDERS, Format
from mcp_hub.formats.records import ModelCall
from mcp_hub.fronts.rest.formats.tools import ToolSelection, _ChosenTools, _ExportOptions, exported, kept_exports

EXPORT, CALLS = "formats-export", "formats-calls"
CASES = (EXPORT, CALLS)
PLAIN = "plain REST"
ONE_BY_ONE = "1 in flight, over HTTP"
KEPT = 1000
"""Exports that are taken from what is kept, in each round."""


class _View:
    """Stands for the view whose tools are exported."""


def listed() -> tuple[str, list[bytes]]:
    """What the tools are, and their definitions, with names that no two have."""
    folder = Path(os.environ.get("MCP_HUB_EVAL_DATA") or "nowhere") / "tool-lists"
    captured = [tool for file in sorted(folder.glob("*.json")) for tool in json.loads(file.read_bytes())["tools"]]
    tools = [{**tool, "name": f"t{number}_{tool['name']}"[:48]} for number, tool in enumerate(captured)]
    kind = f"{len(tools)} captured tools" if tools else f"{LIST_TOOLS} tools of the echo server"
    return kind, [json.dumps(tool).encode() for tool in tools or definitions(LIST_TOOLS)]


def exports(run: Run) -> None:
    """First and kept exports in every format, plain and strict, by turns."""
    kind, tools = listed()
    run.say(f"  {EXPORT}: {kind}")
    sides = {
        f"{into}{', strict' if is_strict else ''}": (into, is_strict)
        for into in PROVIDERS
        for is_strict in (False, True)
        if PROVIDERS[into].strict is not None or not is_strict
    }
    samples: dict[str, list[Figures]] = {name: [] for name in sides}
    with _collector_of_a_hub():
        for _ in range(run.options.rounds):
            for name, (into, is_strict) in sides.items():
                samples[name].append(anyio.run(_exported, tools, into, is_strict))
    run.results += [Result(EXPORT, kind, name, merged(found)) for name, found in samples.items()]


@contextmanager
def _collector_of_a_hub() -> Iterator[None]:
    """Collects as a hub that serves does, not as a process that holds every module of this benchmark."""
    usual = gc.get_threshold()
    gc.set_threshold(*COLLECTOR)
    calm_collector()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)


async def _exported(tools: list[bytes], into: Format, is_strict: bool) -> Figures:
    """CPU ms of all tools, the first time and from what is kept, and the bytes of the answers."""
    kept, most = kept_exports(), PROVIDERS[into].most_tools or len(tools)
    options = _ExportOptions(into, is_strict, False, False, False, ToolSelection())
    requests = [
        (_View(), partial(exported, _ChosenTools(tools[start : start + most], b"{}", {}, frozenset()), options))
        for start in range(0, len(tools), most)
    ]
    begun = time.process_time()
    size = sum([len(await kept(view, options, made)) for view, made in requests])
    first, begun = time.process_time() - begun, time.process_time()
    for _ in range(KEPT):
        for view, made in requests:
            await kept(view, options, made)
    again = (time.process_time() - begun) / KEPT
    return {"export_ms": first * 1e3, "kept_ms": again * 1e3, "bytes": size}


def calls(run: Run, sides: list[Side]) -> None:
    """The same echo call, plain and in each format, by turns on one hub; ratios are to the plain call of the round."""
    (side,) = sides
    tool, arguments = side.tool("echo"), {"text": TEXT}
    posts = {PLAIN: _post(f"/v1/tools/{tool}/call", json.dumps({"arguments": arguments}).encode())}
    for into in Format:
        body = json.dumps(write_calls([ModelCall("call_1", tool, arguments)], into)).encode()
        posts[into] = _post(f"/v1/tools/call?format={into}", body)
    run.say(f"  {CALLS}: {ONE_BY_ONE}")
    order, rounds = list(posts), []
    try:
        for _ in range(run.options.rounds * 3 + 1):
            rounds.append({name: _timed(side, posts[name], run.options.seconds / 3) for name in order})
            order.append(order.pop(0))  # the hub still works for the one before
    except (RelayFailed, OSError) as error:
        run.results.append(Result(CALLS, ONE_BY_ONE, PLAIN, failed=1, note=f"failed: {error}"))
        return
    for name in posts:
        found = [one[name] | {"ratio": one[name]["cpu_us"] / one[PLAIN]["cpu_us"]} for one in rounds[1:]]
        run.results.append(Result(CALLS, ONE_BY_ONE, name, merged(found)))


def _post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json"
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _timed(side: Side, request: bytes, seconds: float) -> Figures:
    """Calls one after the other on one connection, each answer checked. Raises `RelayFailed`."""
    took: list[float] = []
    with socket.create_connection(("127.0.0.1", side.port), timeout=SILENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        cpu, begun = measure.cpu_seconds(side.pid), time.perf_counter()
        while (now := time.perf_counter()) - begun < seconds:
            connection.sendall(request)
            response = Response()
            while not response.done:
                if not (data := connection.recv(READ_SIZE)):
                    raise RelayFailed("the hub closed the connection")
                response.feed(data)
            if response.status != 200 or TEXT.encode() not in response.body:
                raise RelayFailed(f"HTTP {response.status} {bytes(response.body[:200])!r}")
            took.append(time.perf_counter() - now)
        cpu = measure.cpu_seconds(side.pid) - cpu
    return {"cpu_us": cpu / len(took) * 1e6, "rate": len(took) / sum(took), "p50_ms": percentile(took, 0.5) * 1e3}


def measure_formats(run: Run) -> None:
    """Every wanted case of the formats, if the hub is to be measured at all."""
    if "hub" not in run.options.relays:
        return
    if run.wants(EXPORT):
        exports(run)
    share(run, Setup("http"), {CALLS: lambda sides: calls(run, sides)}, ["hub"])
