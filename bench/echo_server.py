"""A minimal, fast stdio MCP server of both eras: the upstream of every measurement.

One thread, one `select` loop, the standard library only (it must start in a few milliseconds, because the
start-up case spawns ten at once). Answers are spliced together from bytes, so the server costs far less than
any relay in front of it. It is no model of a well-behaved server: input is trusted.
"""

import argparse
import heapq
import json
import os
import select
import time
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as quote

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
MODERN_KEY = b'"io.modelcontextprotocol/protocolVersion"'
READ_SIZE = 1 << 20

INFO = {"name": "bench-echo", "version": "1"}
CAPABILITIES: dict[str, object] = {"tools": {}}


def tool(name: str, description: str, properties: dict[str, object]) -> dict[str, object]:
    """One tool definition; every property is required."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "inputSchema": schema}


def padding_tool(number: int) -> dict[str, object]:
    """A realistic definition of about 300 bytes of schema."""
    properties: dict[str, object] = {
        "path": {"type": "string", "description": "Path of the file, relative to the root."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 500, "description": "At most this many."},
        "mode": {"type": "string", "enum": ["fast", "exact", "none"], "default": "fast"},
    }
    return tool(f"pad_{number}", f"Padding tool {number}: looks something up and answers.", properties)


def definitions(count: int) -> list[dict[str, object]]:
    """The working tools first, then padding up to `count`."""
    integer = {"type": "integer", "minimum": 0}
    working = [
        tool("echo", "Answers with the given text.", {"text": {"type": "string"}}),
        tool("big", "Answers with a text of that many bytes.", {"bytes": integer}),
        tool("progress", "Sends n progress notifications, then answers.", {"n": integer}),
        tool("slow", "Answers after that many milliseconds.", {"ms": integer}),
        tool(
            "tick",
            "Sends n progress notifications, so many a second; each says when it was sent, in that many bytes.",
            {"n": integer, "per_second": integer, "bytes": integer},
        ),
    ]
    return [*working, *(padding_tool(number) for number in range(count - len(working)))]


class EchoServer:
    """Turns request lines into answer bytes; `due` holds what waits for its time, and is made then."""

    def __init__(self, tools: int) -> None:
        listing = {"tools": definitions(tools)}
        self.tools = json.dumps(listing, separators=(",", ":")).encode()[1:-1]
        self.due: list[tuple[float, int, Callable[[], bytes]]] = []
        self._big: tuple[int, bytes] = (0, b"")
        self._order = 0

    def answer(self, line: bytes) -> bytes:
        """The bytes to write for one input line; empty for notifications."""
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            return b""
        request_id = json.dumps(message["id"]).encode()
        modern = MODERN_KEY in line
        method = message["method"]
        if method == "tools/call":
            return self._call(request_id, message["params"], modern)
        return self._other(request_id, method, message.get("params") or {}, modern)

    def _call(self, request_id: bytes, params: dict[str, object], modern: bool) -> bytes:
        arguments = params.get("arguments")
        name = params["name"]
        if not isinstance(arguments, dict):
            return fault(request_id, -32602, b"arguments are missing")
        if name == "echo":
            return content(request_id, quote(arguments["text"]).encode(), modern)
        if name == "big":
            return content(request_id, self._text_of(int(arguments["bytes"])), modern)
        if name == "progress":
            return self._progress(request_id, params, int(arguments["n"]), modern)
        if name == "slow":
            self._later(time.monotonic() + arguments["ms"] / 1000, lambda: content(request_id, b'"slow"', modern))
            return b""
        if name == "tick":
            self._tick(request_id, params, arguments, modern)
            return b""
        return content(request_id, b'"padding"', modern)

    def _later(self, when: float, make: Callable[[], bytes]) -> None:
        self._order += 1
        heapq.heappush(self.due, (when, self._order, make))

    def _tick(self, request_id: bytes, params: dict[str, object], arguments: dict[str, int], modern: bool) -> None:
        """Each message is the monotonic clock at its sending, a space, and padding."""
        meta = params["_meta"]
        assert isinstance(meta, dict)
        count, begun = arguments["n"], time.monotonic()
        head = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":'
        head += json.dumps(meta["progressToken"])
        padding = "x" * arguments["bytes"]

        def make(number: int) -> bytes:
            if number > count:
                return content(request_id, b'"%d"' % count, modern)
            self._later(begun + number / arguments["per_second"], lambda: make(number + 1))
            message = f"{time.monotonic():.6f} {padding}"
            return f'{head},"progress":{number},"total":{count},"message":"{message}"}}}}\n'.encode()

        self._later(begun, lambda: make(1))

    def _text_of(self, size: int) -> bytes:
        if self._big[0] != size:
            self._big = (size, b'"' + b"x" * size + b'"')
        return self._big[1]

    @staticmethod
    def _progress(request_id: bytes, params: dict[str, object], count: int, modern: bool) -> bytes:
        meta = params.get("_meta")
        lines = []
        if isinstance(meta, dict) and "progressToken" in meta:
            token = json.dumps(meta["progressToken"])
            head = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":' + token
            lines = [f'{head},"progress":{n},"total":{count}}}}}\n' for n in range(1, count + 1)]
        return "".join(lines).encode() + content(request_id, b'"%d"' % count, modern)

    def _other(self, request_id: bytes, method: str, params: dict[str, object], modern: bool) -> bytes:
        if method == "tools/list":
            return result(request_id, self.tools, modern, cacheable=True)
        if method == "initialize":
            asked = params.get("protocolVersion")
            version = asked if asked in VERSIONS else VERSIONS[-1]
            body = {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": INFO}
            return result(request_id, json.dumps(body).encode()[1:-1], modern=False)
        if method == "server/discover":
            found = {"supportedVersions": [MODERN], "capabilities": CAPABILITIES, "serverInfo": INFO}
            return result(request_id, json.dumps(found).encode()[1:-1], modern=True, cacheable=True)
        if method == "ping":
            return result(request_id, b"", modern)
        return fault(request_id, -32601, b"method not found")


def result(request_id: bytes, body: bytes, modern: bool, cacheable: bool = False) -> bytes:
    """One answer line around the members of a result object."""
    extra = b""
    if modern:
        extra = b'"resultType":"complete"'
        if cacheable:
            extra += b',"ttlMs":60000,"cacheScope":"public"'
        if body:
            extra = b"," + extra
    return b'{"jsonrpc":"2.0","id":%b,"result":{%b%b}}\n' % (request_id, body, extra)


def content(request_id: bytes, text: bytes, modern: bool) -> bytes:
    """A tool result with one text block; `text` is already quoted."""
    return result(request_id, b'"content":[{"type":"text","text":%b}]' % text, modern)


def fault(request_id: bytes, code: int, message: bytes) -> bytes:
    """One error line."""
    form = b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":"%b"}}\n'
    return form % (request_id, code, message)


def write_all(data: bytes) -> None:
    """Blocks until all is written: back-pressure reaches this server's reader."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def flush_due(server: EchoServer) -> float | None:
    """Writes what has come to its time; returns the seconds until the next one."""
    now = time.monotonic()
    while server.due and server.due[0][0] <= now:
        write_all(heapq.heappop(server.due)[2]())
    return server.due[0][0] - now if server.due else None


def serve(server: EchoServer) -> None:
    """Reads lines until end of input; the answers to what came in one read go out in one write."""
    rest: list[bytes] = []
    while True:
        wait = flush_due(server)
        if wait is not None and not select.select([0], [], [], wait)[0]:
            continue
        data = os.read(0, READ_SIZE)
        if not data:
            return
        *lines, tail = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*rest, lines[0]])
            rest = []
            write_all(b"".join([server.answer(line) for line in lines if line]))
        rest.append(tail)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=5, help="number of tools, padding included")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before anything is answered")
    parser.add_argument("--stamps", help="folder for a file that says when this server was up")
    options = parser.parse_args()
    server = EchoServer(options.tools)
    time.sleep(options.delay)
    if options.stamps:
        with open(f"{options.stamps}/{os.getpid()}", "w") as stamp:
            stamp.write(str(time.monotonic()))
    serve(server)


if __name__ == "__main__":
    main()
