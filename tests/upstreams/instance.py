"""One running fixture server: its options, its state, and the four things it can send.

Threads: the reader thread runs fast requests itself and starts a thread for each slow tool; `Output` serialises writes.
"""

import argparse
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from eras import HANDSHAKE, LEVELS, LOG_LEVEL, SUBSCRIPTION_ID, Request, key_of, shaped
from wire import Journal, Output, Raw, encode

__all__ = ["LISTENABLE", "Framer", "Instance", "Tool"]

Framer = Callable[[bytes, Request | None], bytes]
"""Turns one encoded message into what goes out; the request is None for a notification."""

FILTERS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}
LISTENABLE = {*FILTERS.values(), "resourceSubscriptions"}


class Runs(Protocol):
    def __call__(
        self, instance: "Instance", request: Request, arguments: dict[str, Any]
    ) -> dict[str, Any] | Raw | None: ...


@dataclass(frozen=True)
class Tool:
    """A definition and what it does; `is_slow` ones get a thread of their own."""

    definition: dict[str, Any]
    run: Runs
    is_slow: bool = False


class Instance:
    """State of this process, and its voice."""

    def __init__(self, options: argparse.Namespace, tools: dict[str, Tool], frame: Framer) -> None:
        self.options = options
        self.name: str = options.name
        self.tools = tools
        self.output = Output()
        self.journal = Journal(options.journal)
        self.version: str | None = None
        self.log_level: str | None = None
        self.subscribed: set[str] = set()
        self.listening: dict[str, tuple[Any, dict[str, Any]]] = {}
        self.running: dict[str, Request] = {}
        self._frame = frame

    @property
    def info(self) -> dict[str, Any]:
        return {"name": self.name, "version": "1.0.0"}

    # -- answers

    def respond(self, request: Request, result: dict[str, Any] | Raw) -> None:
        """Answer, unless the request was cancelled meanwhile (cancelled requests get no answer)."""
        if request.cancelled.is_set():
            return
        if not isinstance(result, Raw):
            hint = (self.options.ttl_ms, self.options.cache_scope)
            result = shaped(request, result, self.info, hint)
        self.send({"jsonrpc": "2.0", "id": request.id, "result": result}, request)

    def fail(self, request_id: Any, error: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "id": request_id, "error": error})

    def send(self, message: dict[str, Any], request: Request | None = None) -> None:
        self.output.write(self._frame(encode(message), request))

    def cancel(self, request_id: Any) -> None:
        """Stop a running request or end a subscription; unknown ids are ignored, as the specification asks."""
        if self.listening.pop(key_of(request_id), None) is not None:
            self.journal.event("unlistened", id=request_id)
        elif request := self.running.get(key_of(request_id)):
            request.cancelled.set()

    # -- notifications

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        body = {} if params is None else {"params": params}
        self.send({"jsonrpc": "2.0", "method": method, **body})

    def progress(self, request: Request, value: Any, **fields: Any) -> None:
        """Progress for the token of this request; nothing if it carries none."""
        if (token := request.meta.get("progressToken")) is not None:
            self.notify("notifications/progress", {"progressToken": token, "progress": value, **fields})

    def log(self, request: Request, level: str, data: Any, logger: str | None = None) -> None:
        """A log message if the session (handshake; all until it asks) or the request (modern; none) wants it."""
        wanted = self.log_level or "debug" if request.era == HANDSHAKE else request.meta.get(LOG_LEVEL)
        # an unknown level is sent whenever anything is: a fixture may be odd on purpose
        if wanted is not None and (level not in LEVELS or LEVELS.index(level) >= LEVELS.index(wanted)):
            names = {} if logger is None else {"logger": logger}
            self.notify("notifications/message", {"level": level, **names, "data": data})

    def list_changed(self, kind: str) -> None:
        """Say that `tools`, `prompts` or `resources` changed: to the session, and to every listener that asked."""
        method = f"notifications/{kind}/list_changed"
        if self.version is not None:
            self.notify(method)
        for listen_id, wanted in list(self.listening.values()):
            if wanted.get(FILTERS[kind]) is True:
                self.notify(method, {"_meta": {SUBSCRIPTION_ID: listen_id}})

    def updated(self, uri: str) -> None:
        """Say that a resource changed, to whoever subscribed to it."""
        method = "notifications/resources/updated"
        if uri in self.subscribed:
            self.notify(method, {"uri": uri})
        for listen_id, wanted in list(self.listening.values()):
            if uri in wanted.get("resourceSubscriptions", ()):
                self.notify(method, {"_meta": {SUBSCRIPTION_ID: listen_id}, "uri": uri})

    # -- work

    def start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()
