"""Tools that run as tasks, and the methods of 2025-11-25 to follow them; those only with `--tasks-capability`.

A question of a task goes out on the session that waits for the task's result, and waits until there is one; or, where
the arguments say `at_once`, on the session that started the task.
"""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tests.upstreams.definitions import input_schema, text
from tests.upstreams.eras import INVALID_PARAMS, METHOD_NOT_FOUND, Channel, Request, RpcError
from tests.upstreams.instance import Result, Session, Tool
from tests.upstreams.rounds import Arguments, Ask, CannotAsk, Outcomes, Plan, ask_now, check, converse, question

INTERNAL_ERROR = -32603
CAPABILITY: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
RELATED = "io.modelcontextprotocol/related-task"
TERMINAL = ("completed", "failed", "cancelled")

TOOLS: dict[str, Tool] = {}


def has_tasks(session: Session) -> bool:
    """Whether this session may have tasks."""
    return session.options.tasks_capability and (session.version or "") >= "2025-11-25"


# -- tools


def runs_as_task(support: str, description: str, /, **types: str) -> Callable[[Callable[..., Plan]], None]:
    """Register a plan that returns a whole result, with this `execution.taskSupport`."""

    def register(plan: Callable[..., Plan]) -> None:
        def run(session: Session, request: Request, arguments: Arguments) -> Result:
            return converse(session, request, plan(session, request, arguments), arguments, _as_result)

        definition = {
            "name": plan.__name__,
            "description": description,
            "inputSchema": input_schema({**types, "nonce": "string?"}),
            "execution": {"taskSupport": support},
        }
        TOOLS[plan.__name__] = Tool(definition, run, is_slow=True, plan=plan)

    return register


def _as_result(value: Any) -> dict[str, Any]:
    return text(value) if isinstance(value, str) else value


def _work(session: Session, request: Request, arguments: Arguments) -> Plan:
    """Works for `seconds`, with a progress step each tenth, and answers with `result` or what it was given."""
    yield from ()
    for i in range(1, 11):
        if request.cancelled.wait(arguments.get("seconds", 0) / 10):
            break
        session.progress(request, i, total=10)
    return arguments.get("result") or text(arguments, structuredContent=arguments)


@runs_as_task("required", "Works for so long, with progress; result: this object is the result.",
              seconds="number?", result="object?")  # fmt: skip
def task_required(session: Session, request: Request, arguments: Arguments) -> Plan:
    return (yield from _work(session, request, arguments))


@runs_as_task("required", "Asks a form question, or both kinds at once; at_once: before anybody waits for the result.",
              at_once="boolean?", message="string?", force="boolean?", give_up="number?", kinds="array?")  # fmt: skip
def task_asks(session: Session, request: Request, arguments: Arguments) -> Plan:
    kinds = arguments.get("kinds") or ("form",)
    answers = yield {kind: question(session, request, kind, arguments) for kind in kinds}
    value = {"nonce": arguments.get("nonce"), "answers": answers}
    return text(value, structuredContent=value)


@runs_as_task("required", "Fails after so long; how: error (JSON-RPC; default) or tool (isError).",
              seconds="number?", how="string?")  # fmt: skip
def task_fails(session: Session, request: Request, arguments: Arguments) -> Plan:
    yield from ()
    request.cancelled.wait(arguments.get("seconds", 0))
    if arguments.get("how") == "tool":
        return text("it failed", isError=True)
    raise RpcError(4242, "it failed", {"nonce": arguments.get("nonce")})


@runs_as_task("required", "Runs until it is cancelled.")
def task_never(session: Session, request: Request, arguments: Arguments) -> Plan:
    yield from ()
    request.cancelled.wait()
    return text("cancelled")


# -- tasks


class _Related:
    """Everything about a task names it, and goes out on the session that started it."""

    def __init__(self, channel: Channel, task_id: str) -> None:
        self._channel = channel
        self._task_id = task_id

    def send(self, message: dict[str, Any], answered: Request | None = None) -> None:
        self._channel.send({**message, "params": related(message.get("params"), self._task_id)}, answered)

    def raw(self, data: bytes) -> None:
        self._channel.raw(data)


def related(params: dict[str, Any] | None, task_id: str) -> dict[str, Any]:
    """The params, or a result, with the task in `_meta`."""
    found = params or {}
    return {**found, "_meta": {**found.get("_meta", {}), RELATED: {"taskId": task_id}}}


class Task:
    """One tool call that runs on its own; `changed` guards and announces what others read."""

    def __init__(self, session: Session, request: Request, arguments: Arguments) -> None:
        self.id = uuid.uuid4().hex
        self.session = session
        self.request = replace(request, channel=_Related(session.channel, self.id))
        self.arguments = arguments
        self.ttl: float | None = (request.params["task"] or {}).get("ttl")
        self.status = "working"
        self.outcome: dict[str, Any] = {}
        self.asks: dict[str, Ask] = {}
        """The questions that wait for somebody to take them to the client."""
        self.answers: Outcomes | None = None
        self.changed = threading.Condition()
        self._born = time.monotonic()
        self._created = self._updated = _now()

    @property
    def is_ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def is_expired(self) -> bool:
        return self.ttl is not None and time.monotonic() > self._born + self.ttl / 1000

    def shown(self) -> dict[str, Any]:
        """The task as `tasks/get` has it."""
        error = self.outcome.get("error")
        return {
            "taskId": self.id,
            "status": self.status,
            **({"statusMessage": error["message"]} if error else {}),
            "createdAt": self._created,
            "lastUpdatedAt": self._updated,
            "ttl": self.ttl,
            "pollInterval": self.session.options.poll_interval,
        }

    def run(self, plan: Plan) -> None:
        try:
            asks = next(plan)
            while True:
                asks = plan.send(self._ask(asks))
        except StopIteration as done:
            self._end("failed" if done.value.get("isError") else "completed", {"result": done.value})
        except RpcError as refused:
            self._end("failed", {"error": refused.error})
        except CannotAsk as cannot:
            self._end("completed", {"result": text(str(cannot))})

    def _ask(self, asks: dict[str, Ask]) -> Outcomes:
        check(self.session, self.request, asks.values(), self.arguments)
        if self.arguments.get("at_once"):
            self._turn("input_required")
            answers = ask_now(self.session, asks, self.arguments, self.request)
        else:
            with self.changed:
                self.asks = {key: replace(ask, params=related(ask.params, self.id)) for key, ask in asks.items()}
                self.answers = None
                self._turn("input_required")
                self.changed.wait_for(lambda: self.answers is not None or self.is_ended)
                answers = self.answers or {}
        self._turn("working")
        return answers

    def _end(self, status: str, outcome: dict[str, Any]) -> None:
        with self.changed:
            if not self.is_ended:
                self.outcome = outcome
                self._turn(status)

    def _turn(self, status: str) -> None:
        """Take a status, unless the task has ended."""
        with self.changed:
            if self.is_ended:
                return
            self.status, self._updated = status, _now()
            self.changed.notify_all()

    def cancel(self) -> None:
        """Raises: `RpcError` when it has ended."""
        with self.changed:
            if self.is_ended:
                raise RpcError(INVALID_PARAMS, f"Cannot cancel task: it is {self.status}")
            self._end("cancelled", {"error": {"code": INTERNAL_ERROR, "message": "The task was cancelled"}})
        self.session.withdraw(self.request)
        self.session.journal.event("cancelled", task=self.id, nonce=self.arguments.get("nonce"))

    def wait(self, session: Session, request: Request) -> dict[str, Any]:
        """The outcome, once there is one; what the task asks meanwhile is asked here, and again if nobody answers."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.asks or self.is_ended or request.cancelled.is_set(), timeout=0.1)
                asks, self.asks = self.asks, {}
                if self.is_ended or request.cancelled.is_set():
                    self.asks = asks
                    return self.outcome
            if asks:
                answers = ask_now(session, asks, {**self.arguments, "force": True}, request)
                with self.changed:
                    if any("cancelled" in answer for answer in answers.values()):
                        self.asks = asks
                    else:
                        self.answers = answers
                    self.changed.notify_all()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- methods


def start_task(session: Session, request: Request, tool: Tool, arguments: Arguments) -> dict[str, Any]:
    """Run the tool on its own; the task is the result."""
    assert tool.plan is not None
    task = Task(session, request, arguments)
    session.instance.tasks[task.id] = task
    plan = tool.plan(session, task.request, arguments)
    created = {"task": task.shown()}
    session.start(lambda: task.run(plan))
    return created


def _found(session: Session, request: Request) -> Task:
    _supported(session, request)
    task: Task | None = session.instance.tasks.get(str(request.params.get("taskId")))
    if task is None or task.is_expired:
        raise RpcError(INVALID_PARAMS, "Task not found" if task is None else "Task has expired")
    return task


def _supported(session: Session, request: Request) -> None:
    if not has_tasks(session):
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method}")


def get_task(session: Session, request: Request) -> Result:
    return _found(session, request).shown()


def task_result(session: Session, request: Request) -> Result:
    """Wait in a thread of its own."""
    task = _found(session, request)

    def work() -> Result:
        outcome = task.wait(session, request)
        if "error" in outcome:
            raise RpcError(**outcome["error"])
        return related(outcome["result"], task.id) if outcome else None

    session.serve(request, work, is_slow=True)
    return None


def cancel_task(session: Session, request: Request) -> Result:
    task = _found(session, request)
    task.cancel()
    return task.shown()


def list_tasks(session: Session, request: Request) -> list[dict[str, Any]]:
    _supported(session, request)
    tasks: list[Task] = list(session.instance.tasks.values())
    return [task.shown() for task in tasks if not task.is_expired]
