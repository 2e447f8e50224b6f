"""One running fixture server: what all its connections share, and what each of them has of its own.

Whoever reads a connection runs fast requests itself and starts a thread for each slow one.
"""

import argparse
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.upstreams.eras import (
    HANDSHAKE,
    LEVELS,
    LOG_LEVEL,
    SUBSCRIPTION_ID,
    Channel,
    Request,
    RpcError,
    key_of,
    shaped,
)
from tests.upstreams.wire import Journal, Output, Raw

FILTERS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}
LISTENABLE = {*FILTERS.values(), "resourceSubscriptions"}
UPDATED = "notifications/resources/updated"

Result = dict[str, Any] | Raw | None


Runs = Callable[["Session", Request, dict[str, Any]], Result]
"""What a tool does; None when it has answered by itself."""


@dataclass(frozen=True)
class Tool:
    """A definition and what it does; `is_slow` ones get a thread of their own."""

    definition: dict[str, Any]
    run: Runs
    is_slow: bool = False
    plan: Callable[..., Any] | None = None
    """Of a tool that can run as a task."""


class Instance:
    """What the connections of this process share."""

    def __init__(self, options: argparse.Namespace, tools: dict[str, Tool]) -> None:
        self.options = options
        self.name: str = options.name
        self.tools = tools
        self.prompts: dict[str, dict[str, Any]] = {}
        """Prompts that `add_prompt` added, by name; the text is in the member `text`."""
        self.refused: dict[str, int] = {}
        """How often `url_required` has refused the calls of a nonce."""
        self.tasks: dict[str, Any] = {}
        """Tasks by id, whichever session started them."""
        self.output = Output()
        self.journal = Journal(options.journal)
        self.sessions: list[Session] = []

    @property
    def info(self) -> dict[str, Any]:
        return {"name": self.name, "version": "1.0.0"}

    def list_changed(self, kind: str) -> None:
        """Say that `tools`, `prompts` or `resources` changed: to every session, and to every listener that asked."""
        for session in list(self.sessions):
            session.list_changed(kind)

    def updated(self, uri: str, *, is_unasked: bool = False) -> None:
        """Say that a resource changed: to whoever subscribed to it, or to everybody."""
        for session in list(self.sessions):
            session.updated(uri, is_unasked)


@dataclass(eq=False)
class Question:
    """A request of ours that awaits its answer; `outcome` is the `result` or the `error` as it came, once it came."""

    id: int
    channel: Channel
    request: Request | None
    outcome: dict[str, Any] | None = None
    settled: threading.Event = field(default_factory=threading.Event)


class Session:
    """One connection, its client, and what is under way on it. `channel` is for what belongs to no request."""

    def __init__(self, instance: Instance, channel: Channel) -> None:
        self.instance = instance
        self.options = instance.options
        self.journal = instance.journal
        self.channel = channel
        self.version: str | None = None
        self.capabilities: dict[str, Any] = {}
        self.log_level: str | None = None
        self.subscribed: set[str] = set()
        self.listening: dict[str, tuple[Request, dict[str, Any]]] = {}
        self.running: dict[str, Request] = {}
        self._questions: dict[str, Question] = {}
        self._last_question = 0
        self._lock = threading.Lock()
        instance.sessions.append(self)

    def close(self) -> None:
        """The connection is gone: what ran for it is cancelled, what it was asked stays unanswered."""
        with suppress(ValueError):
            self.instance.sessions.remove(self)
        for request in [*self.running.values(), *(request for request, _ in list(self.listening.values()))]:
            self.cancel(request.id)
        for question in list(self._questions.values()):
            question.settled.set()

    # -- answers

    def respond(self, request: Request, result: dict[str, Any] | Raw) -> None:
        """Answer, unless the request was cancelled meanwhile (cancelled requests get no answer)."""
        if request.cancelled.is_set():
            return
        if not isinstance(result, Raw):
            hint = (self.options.ttl_ms, "public")
            result = shaped(request, result, self.instance.info, hint)
        request.channel.send({"jsonrpc": "2.0", "id": request.id, "result": result}, request)

    def fail(self, request: Request, error: dict[str, Any] | Raw) -> None:
        request.channel.send({"jsonrpc": "2.0", "id": request.id, "error": error})

    def cancel(self, request_id: Any) -> None:
        """Stop a running request or end a subscription; unknown ids are ignored, as the specification asks."""
        if self.listening.pop(key_of(request_id), None) is not None:
            self.journal.event("unlistened", id=request_id)
        elif request := self.running.get(key_of(request_id)):
            self.withdraw(request)

    def withdraw(self, request: Request) -> None:
        """Stop what runs for the request, and the wait for an answer to what it asked."""
        request.cancelled.set()
        for question in list(self._questions.values()):
            if question.request is request:
                question.settled.set()

    def serve(self, request: Request, work: Callable[[], Result], *, is_slow: bool = False, **noted: Any) -> None:
        """Do the work here, or in a thread of its own, and answer; a cancelled one is noted in the journal."""
        self.running[key_of(request.id)] = request

        def answer() -> None:
            try:
                result = work()
            except RpcError as refused:
                self.fail(request, refused.error)
                return
            finally:
                self.running.pop(key_of(request.id), None)
            if request.cancelled.is_set():
                self.journal.event("cancelled", id=request.id, **noted)
            if result is not None:
                self.respond(request, result)

        if is_slow:
            self.start(answer)
        else:
            answer()

    def start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()

    # -- questions

    def ask(self, method: str, params: dict[str, Any] | None, request: Request | None = None) -> Question:
        """Send a request to the client, about one of its own or about none; ids are 1, 2, 3…, as clients' are."""
        channel = self.channel if request is None else request.channel
        with self._lock:
            self._last_question += 1
            question = Question(self._last_question, channel, request)
            self._questions[key_of(question.id)] = question
        body = {} if params is None else {"params": params}
        channel.send({"jsonrpc": "2.0", "id": question.id, "method": method, **body})
        return question

    def outcome(self, question: Question, seconds: float | None = None) -> dict[str, Any]:
        """Wait for the answer: `{"result": …}` or `{"error": …}` as it came.

        `{"cancelled": true}` when the request was cancelled or `seconds` are over; the client is then told to forget
        the question.
        """
        question.settled.wait(seconds)
        with self._lock:
            self._questions.pop(key_of(question.id), None)
        if question.outcome is not None:
            return question.outcome
        self.notify("notifications/cancelled", {"requestId": question.id}, question.channel)
        return {"cancelled": True}

    def answered(self, message: dict[str, Any]) -> None:
        """An answer arrived; one that nobody waits for is noted as `stray` (those to pings of `flood` are not)."""
        question_id = message.get("id")
        with self._lock:
            question = self._questions.pop(key_of(question_id), None)
            if question is not None:
                question.outcome = {key: message[key] for key in ("result", "error") if key in message}
                question.settled.set()
        if question is None and not str(question_id).startswith("ping-"):
            self.journal.event("stray", id=question_id)

    # -- notifications

    def notify(self, method: str, params: dict[str, Any] | Raw | None = None, channel: Channel | None = None) -> None:
        """Send a notification; without `channel` it belongs to no request."""
        body = {} if params is None else {"params": params}
        (channel or self.channel).send({"jsonrpc": "2.0", "method": method, **body})

    def progress(self, request: Request, value: Any, **fields: Any) -> None:
        """Progress for the token of this request; nothing if it carries none."""
        if (token := request.meta.get("progressToken")) is not None:
            params = {"progressToken": token, "progress": value, **fields}
            self.notify("notifications/progress", params, request.channel)

    def log(self, request: Request, level: str, data: Any, logger: str | None = None) -> None:
        """A log message if the session (handshake; all until it asks) or the request (modern; none) wants it."""
        wanted = self.log_level or "debug" if request.era == HANDSHAKE else request.meta.get(LOG_LEVEL)
        # an unknown level is sent whenever anything is: a fixture may be odd on purpose
        if wanted is not None and (level not in LEVELS or LEVELS.index(level) >= LEVELS.index(wanted)):
            names = {} if logger is None else {"logger": logger}
            self.notify("notifications/message", {"level": level, **names, "data": data}, request.channel)

    def list_changed(self, kind: str) -> None:
        method = f"notifications/{kind}/list_changed"
        if self.version is not None:
            self.notify(method)
        for request, wanted in list(self.listening.values()):
            if wanted.get(FILTERS[kind]) is True:
                self.notify(method, {"_meta": {SUBSCRIPTION_ID: request.id}}, request.channel)

    def updated(self, uri: str, is_unasked: bool) -> None:
        if uri in self.subscribed or (is_unasked and self.version is not None):
            self.notify(UPDATED, {"uri": uri})
        for request, wanted in list(self.listening.values()):
            if is_unasked or uri in wanted.get("resourceSubscriptions", ()):
                self.notify(UPDATED, {"_meta": {SUBSCRIPTION_ID: request.id}, "uri": uri}, request.channel)
