"""The fixture server over Streamable HTTP of both eras, at `/mcp`.

Specification: 2025-11-25 basic/transports; 2026-07-28 basic/transports/streamable-http.
"""

import base64
import json
import socket
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.upstreams.dispatch import INVALID_REQUEST, PARSE_ERROR, Dispatcher, refusal
from tests.upstreams.eras import (
    HANDSHAKE_VERSIONS,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MODERN,
    UNSUPPORTED_VERSION,
    VERSION,
)
from tests.upstreams.instance import Instance, Session
from tests.upstreams.streams import HttpSession, Sessions, Stream, frame

BAD_SESSION = -32000
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
STATUS = {METHOD_NOT_FOUND: 404} | dict.fromkeys(
    (PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION), 400
)
"""Status of a modern error answer; any other is 200."""
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
NAMED_BY |= dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")
START, END = "=?base64?", "?="
LOOK = 0.02
"""Seconds between two looks at a connection that may have been closed."""


class Gone(Exception):
    """The client has closed the connection."""


class HttpServer(ThreadingHTTPServer):
    """Serves in threads of its own from `serve_forever` on."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, instance: Instance, dispatcher: Dispatcher) -> None:
        self.instance = instance
        self.options = instance.options
        self.dispatcher = dispatcher
        self.sessions = Sessions(instance)
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/mcp"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is no error; anything else is one of ours."""
        if not isinstance(sys.exception(), (Gone, OSError)):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: HttpServer

    def log_message(self, format: str, *args: Any) -> None:
        """Stderr is for what tests want to see there."""

    def do_POST(self) -> None:
        self._note()
        path = urlsplit(self.path).path
        text = self.rfile.read(int(self.headers.get("content-length", 0))).decode("utf-8", "replace")
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as wrong:
            self.server.instance.journal.received(text, is_json=False)
            self._json(400, refusal(PARSE_ERROR, f"Parse error: {wrong}"))
            return
        self.server.instance.journal.received(" ".join(text.splitlines()), is_json=True)
        if not isinstance(message, dict):
            self._json(400, refusal(INVALID_REQUEST, "Invalid request"))
        elif path == "/mcp" and self.server.dispatcher.fault.posted(self, message):
            return
        elif path == "/mcp" and self._is_acceptable("application/json", "text/event-stream"):
            self._mcp(message)
        elif path != "/mcp":
            self._json(404)

    def do_GET(self) -> None:
        self._note()
        if self.path != "/mcp":
            self._json(404)
        elif self.server.options.era == MODERN:
            self._json(405, headers={"allow": "POST"})
        elif self._is_acceptable("text/event-stream") and (session := self._session()):
            self._listen(session, self.headers.get("last-event-id"))

    def do_DELETE(self) -> None:
        self._note()
        if self.path != "/mcp" or self.server.options.era == MODERN:
            self._json(405 if self.path == "/mcp" else 404, headers={"allow": "POST"})
        elif session := self._session():
            self.server.sessions.close(session)
            self._json(200)

    def _is_acceptable(self, *types: str) -> bool:
        """Whether the client takes all of these; it has been refused if not."""
        accepted = self.headers.get("accept", "")
        lacking = [one for one in types if one not in accepted]
        if lacking:
            self._json(406, refusal(BAD_SESSION, f"Not Acceptable: Client must accept {', '.join(lacking)}"))
        return not lacking

    def _note(self) -> None:
        if "x-injected" in self.headers:  # what some faults hope for
            print("a header was injected", file=sys.stderr, flush=True)
        self.server.instance.journal.event("http", verb=self.command, path=self.path, headers=self._headers)

    @property
    def _headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    # -- Streamable HTTP

    def _mcp(self, message: dict[str, Any]) -> None:
        options = self.server.options
        version = self.headers.get("mcp-protocol-version")
        if options.era == MODERN or (options.era == "both" and version not in (None, *HANDSHAKE_VERSIONS)):
            self._modern(message)
        elif version not in (None, *HANDSHAKE_VERSIONS):
            self._json(400, refusal(BAD_SESSION, f"Bad Request: Unsupported protocol version: {version}"))
        else:
            self._handshake(message)

    def _modern(self, message: dict[str, Any]) -> None:
        """The stream is the request: it is cancelled when the connection goes."""
        if "method" not in message:
            self._json(400, refusal(INVALID_REQUEST, "Clients send requests and notifications only"))
            return
        if "id" not in message:
            self._json(202)
            return
        if wrong := _mismatch(self._headers, message, self._schema(message)):
            self._json(400, refusal(HEADER_MISMATCH, f"Header mismatch: {wrong}", message["id"]))
            return
        stream = Stream(ends=True)
        session = Session(self.server.instance, stream)
        try:
            self._dispatch(session, message, stream)
            self._answer(stream, is_modern=True)
        finally:
            session.close()

    def _handshake(self, message: dict[str, Any]) -> None:
        is_first = message.get("method") == "initialize"
        session = self.server.sessions.open() if is_first else self._session()
        if session is None:
            return
        if "method" not in message or "id" not in message:
            self._dispatch(session, message, session.channel)
            self._json(202)
            return
        stream = session.stream()
        self._dispatch(session, message, stream)
        shown = self.server.dispatcher.fault.session_id(session.id)
        self._answer(stream, session, {"mcp-session-id": shown} if is_first else {})

    def _dispatch(self, session: Session, message: dict[str, Any], stream: Any) -> None:
        self.server.dispatcher.message(session, message, stream, self._headers)

    def _session(self) -> HttpSession | None:
        """The session of this request; None when it has been refused."""
        session_id = self.headers.get("mcp-session-id")
        session = self.server.sessions.find(session_id)
        if session is None:
            status, what = (400, "No session id") if session_id is None else (404, "Session not found")
            self._json(status, refusal(BAD_SESSION, what))
        return session

    def _schema(self, message: dict[str, Any]) -> Any:
        """The input schema of the tool that is called."""
        name = _name(message)
        if self.server.options.tools_json is None:
            tool = self.server.instance.tools.get(str(name))
            return {} if tool is None else tool.definition.get("inputSchema")
        listed = json.loads(Path(self.server.options.tools_json).read_text("utf-8"))
        return next((one.get("inputSchema") for one in listed if isinstance(one, dict) and one.get("name") == name), {})

    def _listen(self, session: HttpSession, last_event_id: str | None) -> None:
        """The stream of the session, or whichever is resumed."""
        stream, number = session.own, session.own.delivered
        if last_event_id is not None:
            stream_id, _, seen = last_event_id.rpartition(":")
            if stream_id not in session.streams or not seen.isdecimal():
                self._json(400, refusal(BAD_SESSION, f"Unknown event id: {last_event_id}"))
                return
            stream, number = session.streams[stream_id], int(seen)
        self._start_sse({})
        try:
            self._follow(stream, number, is_numbered=True)
        except (Gone, OSError):
            self.close_connection = True

    # -- answers

    def _answer(self, stream: Stream, session: HttpSession | None = None, headers: dict[str, str] | None = None,
                *, is_modern: bool = False) -> None:  # fmt: skip
        """The stream, as JSON if it is nothing but the response."""
        options = self.server.options
        try:
            events = self._wait(stream)
            if len(events) == 1 and stream.is_complete:
                stream.delivered = 1
                self._send(_status(events[0][1]) if is_modern else 200, events[0][1], headers)
                return
            self._start_sse(headers)
            if session is not None:
                prime = f"{stream.id}:0" if (session.version or "") >= "2025-11-25" else None
                if prime or options.retry is not None:
                    self._chunk(frame(b"", id=prime, retry=options.retry))
            self._follow(stream, 0, is_numbered=session is not None)
        except (Gone, OSError):
            self.close_connection = True

    def _wait(self, stream: Stream) -> list[tuple[int, bytes]]:
        """The first events. Raises: `Gone`."""
        follower = stream.follow()
        while not (events := stream.after(0, follower, LOOK) or []):
            self._look()
        return events

    def _follow(self, stream: Stream, number: int, *, is_numbered: bool) -> None:
        """Write what comes after this event, to the end. Raises: `Gone`, `OSError`."""
        follower = stream.follow()
        while (events := stream.after(number, follower, LOOK)) is not None:
            self._look()
            for number, data in events:
                self._chunk(frame(data, id=f"{stream.id}:{number}" if is_numbered else None, event="message"))
                stream.delivered = number
        self.wfile.write(b"0\r\n\r\n")

    def _look(self) -> None:
        """Raises: `Gone`."""
        try:
            if self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                raise Gone
        except BlockingIOError:
            pass

    def _start_sse(self, headers: dict[str, str] | None) -> None:
        self.send_response(200)
        sse = {"content-type": "text/event-stream", "cache-control": "no-cache", "transfer-encoding": "chunked"}
        for name, value in {**sse, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _json(self, status: int, message: dict[str, Any] | None = None, headers: dict[str, str] | None = None) -> None:
        self._send(status, b"" if message is None else json.dumps(message).encode(), headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None) -> None:
        self.send_response(status)
        kind = {"content-type": "application/json"} if body else {}
        for name, value in {**kind, "content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _status(answer: bytes) -> int:
    """That of a modern answer; 200 for what is none."""
    try:
        return STATUS.get(json.loads(answer)["error"]["code"], 200)
    except (ValueError, RecursionError, TypeError, KeyError):
        return 200


def _name(message: dict[str, Any]) -> Any:
    """What the params name."""
    params = message.get("params")
    return params.get("name") if isinstance(params, dict) else None


def _mismatch(headers: Mapping[str, str], message: Mapping[str, Any], schema: Any) -> str | None:
    """What is wrong with the headers that mirror a modern request's body, if anything; `schema` is that of the tool."""
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    expected = {
        "mcp-protocol-version": meta.get(VERSION) if isinstance(meta, dict) else None,
        "mcp-method": message["method"],
    }
    if message["method"] in NAMED_BY:
        expected["mcp-name"] = params.get(NAMED_BY[message["method"]])
    for name, value in expected.items():
        if not isinstance(value, str) or _decoded(headers.get(name)) != value:
            return f"{name} is {headers.get(name)!r}, the body says {value!r}"
    if message["method"] == "tools/call":
        for name, value in _mirrored(schema, params.get("arguments")):
            if _decoded(headers.get(name)) != value:
                return f"{name} is {headers.get(name)!r}, the body says {value!r}"
    return None


def _decoded(value: str | None) -> str | None:
    if value is None or not (value.startswith(START) and value.endswith(END)):
        return value
    try:
        return base64.b64decode(value[len(START) : -len(END)], validate=True).decode()
    except ValueError:
        return None


def _mirrored(schema: Any, arguments: Any) -> Iterator[tuple[str, str | None]]:
    """The header of each property that has one, and the value it must have: None where it must be absent."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for key, inner in (properties if isinstance(properties, dict) else {}).items():
        value = arguments.get(key) if isinstance(arguments, dict) else None
        if isinstance(inner, dict) and "x-mcp-header" in inner:
            spelled = str(value).lower() if isinstance(value, bool) else str(value)
            yield f"mcp-param-{inner['x-mcp-header'].lower()}", None if value is None else spelled
        yield from _mirrored(inner, value)
