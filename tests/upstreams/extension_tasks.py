"""Tasks of the modern era, which calls become by themselves; only with `--tasks-extension` (SEP-2663).

They live as long as the process, whatever connection they are asked about on. A step of progress becomes the status
message, and each question gets a key that no other one of the task has.
"""

import threading
import uuid
from datetime import UTC, datetime
from typing import Any

from tests.upstreams.definitions import text
from tests.upstreams.eras import CAPABILITIES, INVALID_PARAMS, METHOD_NOT_FOUND, Request, RpcError
from tests.upstreams.instance import Result, Session, Tool
from tests.upstreams.rounds import Arguments, Ask, CannotAsk, Outcomes, Plan, check
from tests.upstreams.tasks import TERMINAL

EXTENSION = "io.modelcontextprotocol/tasks"
MISSING_CAPABILITY = -32021
TTL = 3_600_000


class _Steps:
    """Where the messages of a request go that has become a task: a step is its state now, all else is lost."""

    def __init__(self, task: "Task") -> None:
        self._task = task

    def send(self, message: dict[str, Any], answered: Request | None = None) -> None:
        if message.get("method") == "notifications/progress":
            params = message["params"]
            self._task.say(f"step {params['progress']} of {params.get('total', '?')}")

    def raw(self, data: bytes) -> None:
        """A task has a state and no answer."""


class Task:
    """One tool call that runs on its own; `changed` guards and announces what others read."""

    def __init__(self, session: Session, request: Request, arguments: Arguments) -> None:
        self.id = uuid.uuid4().hex
        self.session = session
        self.arguments = arguments
        meta = {**request.meta, "progressToken": "step"}
        params = {**request.params, "_meta": meta}
        self.request = Request(request.id, request.method, params, _Steps(self), request.era)
        self.status = "working"
        self.message: str | None = None
        self.outcome: dict[str, Any] = {}
        self.asks: dict[str, Ask] = {}
        self.answers: Outcomes = {}
        self.changed = threading.Condition()
        self._rounds = 0
        self._created = self._updated = _now()

    def shown(self) -> dict[str, Any]:
        """The task as every answer has it; a question is there while it is open."""
        with self.changed:
            open_ = {key: ask for key, ask in self.asks.items() if key not in self.answers}
            asked = {key: {"method": ask.method, "params": ask.params or {}} for key, ask in open_.items()}
            return {
                "taskId": self.id,
                "status": self.status,
                **({"statusMessage": self.message} if self.message else {}),
                "createdAt": self._created,
                "lastUpdatedAt": self._updated,
                "ttlMs": TTL,
                "pollIntervalMs": self.session.options.poll_interval,
                **({"inputRequests": asked} if self.status == "input_required" else {}),
                **self.outcome,
            }

    def run(self, plan: Plan) -> None:
        try:
            asks = next(plan)
            while True:
                asks = plan.send(self._ask(asks))
        except StopIteration as done:
            self._turn("completed", {"result": done.value})
        except RpcError as refused:
            self.message = refused.error["message"]
            self._turn("failed", {"error": refused.error})
        except CannotAsk as cannot:
            self._turn("completed", {"result": text(str(cannot))})

    def _ask(self, asks: dict[str, Ask]) -> Outcomes:
        check(self.session, self.request, asks.values(), self.arguments)
        with self.changed:
            self._rounds += 1
            keys = {f"{key}-{self._rounds}": key for key in asks}
            self.asks = {unique: asks[key] for unique, key in keys.items()}
            self.answers = {}
            self._turn("input_required")
            self.changed.wait_for(lambda: self.asks.keys() <= self.answers.keys() or self.status in TERMINAL)
            given = {key: self.answers.get(unique, {}) for unique, key in keys.items()}
        self._turn("working")
        return given

    def say(self, message: str) -> None:
        with self.changed:
            self.message, self._updated = message, _now()

    def answer(self, responses: dict[str, Any]) -> None:
        """Keys that are not open are ignored."""
        with self.changed:
            for key in self.asks.keys() & responses.keys() - self.answers.keys():
                self.answers[key] = {"result": responses[key]}
            self.changed.notify_all()

    def _turn(self, status: str, outcome: dict[str, Any] | None = None) -> None:
        """Take a status, unless the task has ended."""
        with self.changed:
            if self.status not in TERMINAL:
                self.status, self.outcome, self._updated = status, outcome or {}, _now()
                self.changed.notify_all()

    def cancel(self) -> None:
        self._turn("cancelled")
        self.request.cancelled.set()
        self.session.journal.event("cancelled", task=self.id, nonce=self.arguments.get("nonce"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_declared(request: Request) -> bool:
    extensions = request.meta[CAPABILITIES].get("extensions")
    return isinstance(extensions, dict) and EXTENSION in extensions


def _refusal() -> RpcError:
    required: dict[str, object] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    return RpcError(MISSING_CAPABILITY, "Missing required client capability", required)


def became_task(session: Session, request: Request, tool: Tool, arguments: Arguments) -> dict[str, Any] | None:
    """The task that the call has become, if the tool can be one and the client takes it; None: call it plainly.

    Raises: `RpcError` -32021 where the client would have to take it.
    """
    if tool.plan is None:
        return None
    if not _is_declared(request):
        if tool.definition["execution"]["taskSupport"] == "required":
            raise _refusal()
        return None
    task = Task(session, request, arguments)
    session.instance.tasks[task.id] = task
    plan = tool.plan(session, task.request, arguments)
    created = {"resultType": "task", **task.shown()}
    session.start(lambda: task.run(plan))
    return created


def _found(session: Session, request: Request) -> Task:
    if not session.options.tasks_extension:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method}")
    if not _is_declared(request):
        raise _refusal()
    task = session.instance.tasks.get(str(request.params.get("taskId")))
    if not isinstance(task, Task):
        raise RpcError(INVALID_PARAMS, "Task not found")
    return task


def look_up(session: Session, request: Request) -> Result:
    return _found(session, request).shown()


def take_input(session: Session, request: Request) -> Result:
    _found(session, request).answer(request.params["inputResponses"])
    return {}


def cancel(session: Session, request: Request) -> Result:
    _found(session, request).cancel()
    return {}
