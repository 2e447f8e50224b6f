"""Modes that make tasks of calls, in the modern era, and do not keep what that promises."""

from typing import Any

from tests.upstreams.eras import Request, RpcError
from tests.upstreams.fault_base import Fault
from tests.upstreams.instance import Session
from tests.upstreams.wire import Raw

NOW = "2026-01-01T00:00:00Z"


class OddTask(Fault):
    """The struck call becomes this task; `tasks/get` answers with `later`."""

    made: dict[str, Any] = {"taskId": "t", "status": "working", "createdAt": NOW, "ttlMs": 60_000, "pollIntervalMs": 50}
    later: dict[str, Any] = {}

    def strikes(self, session: Session, request: Request) -> bool:
        session.respond(request, {"resultType": "task", **self.made})
        return True

    def requested(self, session: Session, request: Request) -> bool:
        if request.method != "tasks/get":
            return False
        self.looked(session, request)
        return True

    def looked(self, session: Session, request: Request) -> None:
        session.respond(request, {"resultType": "complete", **self.made, **self.later})


class Nameless(OddTask):
    made = {"status": "working"}


class Injected(OddTask):
    """Its id would be two headers; nobody knows it afterwards."""

    made = {**OddTask.made, "taskId": "t\r\nX-Injected: yes"}

    def looked(self, session: Session, request: Request) -> None:
        raise RpcError(-32602, "Unknown task")


class NeverEnds(OddTask):
    later = {"statusMessage": "99 %"}


class OddStatus(OddTask):
    later = {"status": "exploded"}


class OddNumbers(OddTask):
    made = {**OddTask.made, "pollIntervalMs": Raw("1e308"), "ttlMs": -5, "createdAt": "yesterday"}


class NoResult(OddTask):
    later = {"status": "completed"}


class AsksWithout(OddTask):
    """Wants input, and does not say which."""

    later = {"status": "input_required", "inputRequests": 7}


class OtherTask(OddTask):
    later = {"taskId": "another", "status": "completed", "result": {"content": []}}


ODD_TASKS: dict[str, type[Fault]] = {
    "task-nameless": Nameless,
    "task-injected": Injected,
    "task-endless": NeverEnds,
    "task-odd-status": OddStatus,
    "task-odd-numbers": OddNumbers,
    "task-no-result": NoResult,
    "task-asks-nothing": AsksWithout,
    "task-other": OtherTask,
}
