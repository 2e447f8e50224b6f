"""The steps that every Python driver takes, whatever library is under test; standard library only.

A driver gives `main` a function that opens a session. On stdin comes one line of JSON, the `Task`; on stdout goes one
line per step, `{"step", "ok", "detail", "ms"}`. `{"want": "restart"}` asks for a restart of the hub, and any line on
stdin says that it is done; `{"end": true}` is the last. `steps.mjs` is the same for JavaScript.
"""

import asyncio
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from tests.upstreams.launch import events, received

STEP_SECONDS = 25.0
ANSWER = "Zoë's answer ✓"
"""What this client says to every question: in the form's texts and as the sampled message."""
ROOT = "file:///tmp/a-root-of-the-client"
PROGRESS = 50
LARGE = 5_000_000
ECHOED = {"text": 'naïve 日本 😀 \u2028 \\ "', "big": 2**53 - 1, "float": 0.1, "none": None}
# JSON.parse of JavaScript has none of these
LARGE_INTEGERS = {"bigger": 2**53 + 1, "biggest": 10**30 + 1}

OnProgress = Callable[[float], None]
Names = dict[str, list[str]]
Task = dict[str, Any]


class Refused(Exception):
    """A JSON-RPC error as the library told it; `code` and `data` are None where it tells neither."""

    def __init__(self, code: int | None, message: str, data: Any = None) -> None:
        super().__init__(f"error {code}: {message}")
        self.code, self.message, self.data = code, message, data


@dataclass(frozen=True)
class Answer:
    """A result of `tools/call`."""

    text: str
    structured: Any
    is_error: bool


class Session(Protocol):
    """An open session of the library under test."""

    @property
    def server(self) -> str: ...

    @property
    def version(self) -> str: ...

    async def names(self) -> Names:
        """Every exported name under `tools`, `prompts`, `resources` and `templates`."""
        ...

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> Answer:
        """`tools/call`. Raises: `Refused`."""
        ...


Connect = Callable[[Task, dict[str, Any]], AbstractAsyncContextManager[Session]]
"""Opens a session for a task; the second argument says where: `{"url"}` or `{"command", "args", "env"}`."""


def form(schema: dict[str, Any]) -> dict[str, Any]:
    """An answer that fits the flat schema of a form."""
    by_type = {"integer": 7, "number": 7.5, "boolean": True}
    fields: dict[str, dict[str, Any]] = schema.get("properties", {})
    return {name: field.get("enum", [by_type.get(field.get("type", ""), ANSWER)])[0] for name, field in fields.items()}


def telling(on_progress: OnProgress | None) -> Any:
    """The callback that the Python libraries take for progress."""
    if on_progress is None:
        return None

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        on_progress(progress)

    return tell


class Failed(Exception):
    """A step saw something else than it should."""


def check(is_true: bool, otherwise: str) -> None:
    if not is_true:
        raise Failed(otherwise)


async def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in that time."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            return True
        await asyncio.sleep(0.02)
    return condition()


# -- the steps of one session


async def names(session: Session, task: Task) -> str:
    found = await session.names()
    server, prefix = task["name"], task["prefix"]
    expected = {
        "tools": {prefix + tool for tool in ("echo", "progress", "wait_cancel", "big", "error", "add_tool")},
        "prompts": {f"{prefix}greet", f"{prefix}fixed"},
        "resources": {f"test://{server}/readme", f"test://{server}/blob", "test://shared/info"},
        "templates": {f"test://{server}/item/{{id}}"},
    }
    for kind, wanted in expected.items():
        check(wanted <= set(found[kind]), f"{kind} lack {sorted(wanted - set(found[kind]))}")
        check(len(set(found[kind])) == len(found[kind]), f"{kind} are listed twice: {found[kind]}")
    return ", ".join(f"{len(found[kind])} {kind}" for kind in expected)


async def echo(session: Session, task: Task, arguments: dict[str, Any] | None = None) -> str:
    sent = arguments or {"text": "hi"}
    answer = await session.call(task["prefix"] + "echo", sent)
    check(answer.structured == sent, f"came back as {answer.structured}")
    check(json.loads(answer.text) == sent and not answer.is_error, f"came back as {answer.text}")
    return ""


async def call(session: Session, task: Task) -> str:
    return await echo(session, task, {**ECHOED, **(LARGE_INTEGERS if task["large_integers"] else {})})


def of_server(values: Sequence[float], task: Task) -> list[float]:
    """The progress that the server sent. Raises `Failed` if values do not increase.

    A client that shares its servers with others also gets messages of the hub about the call that waits for its turn,
    whose values lie a hair above the last one (docs/questions.md).
    """
    if not task["shares"]:
        return list(values)
    check(all(value < following for value, following in pairwise(values)), f"out of order: {values}")
    return [value for value in values if value >= 1 and value == int(value)]


async def progress(session: Session, task: Task) -> str:
    seen: list[float] = []
    await session.call(task["prefix"] + "progress", {"n": PROGRESS, "nonce": "p"}, seen.append)
    in_time = len(of_server(seen, task))
    check(await until(lambda: len(of_server(seen, task)) >= PROGRESS, 2), f"of {PROGRESS} arrived {seen}")
    check(of_server(seen, task) == list(range(1, PROGRESS + 1)), f"out of order: {seen}")
    check(in_time == PROGRESS, f"{PROGRESS - in_time} of {PROGRESS} were told after the result")
    return ""


async def refused(session: Session, task: Task) -> str:
    """A JSON-RPC error of the server, with code and data where the library tells them."""
    detail = ""
    for code in (4242, -32603):
        message, data = f"no {code} ✓", {"deep": [1, None]}
        try:
            answer = await session.call(task["prefix"] + "error", {"code": code, "message": message, "data": data})
        except Refused as refusal:
            check(refusal.message.endswith(message), f"message {refusal.message!r}")
            check(refusal.code in (code, None), f"code {refusal.code} instead of {code}")
            check(refusal.data == (data if refusal.code else None), f"data {refusal.data}")
            detail = "" if refusal.code else "message only"
        else:
            raise Failed(f"a result instead of an error: {answer}")
    return detail


async def failed(session: Session, task: Task) -> str:
    """A result with `isError`."""
    answer = await session.call(task["prefix"] + "tool_error", {"text": "no ✓"})
    check(answer.is_error and answer.text == "no ✓", f"isError came as {answer}")
    return ""


async def error(session: Session, task: Task) -> str:
    detail = await refused(session, task)
    await failed(session, task)
    return detail


async def large(session: Session, task: Task) -> str:
    answer = await session.call(task["prefix"] + "big", {"bytes": LARGE})
    check(answer.text == "x" * LARGE, f"{len(answer.text)} characters arrived")
    return ""


async def ask(session: Session, task: Task, tool: str, arguments: dict[str, Any], expected: str) -> str:
    answer = await session.call(task["prefix"] + tool, arguments)
    check(not answer.is_error and expected in answer.text, f"the server was told {answer.text[:300]!r}")
    return ""


async def elicit(session: Session, task: Task) -> str:
    return await ask(session, task, "ask_form", {}, ANSWER)


async def sample(session: Session, task: Task) -> str:
    return await ask(session, task, "ask_sampling", {}, ANSWER)


async def roots(session: Session, task: Task) -> str:
    return await ask(session, task, "ask_roots", {}, ROOT)


async def cancel(session: Session, task: Task) -> str:
    nonce, journal = f"cancel-{os.getpid()}", Path(task["journal"])

    def arrived() -> bool:
        return any(m["params"].get("arguments", {}).get("nonce") == nonce for m in received(journal, "tools/call"))

    def cancelled() -> bool:
        return any(event["nonce"] == nonce for event in events(journal, "cancelled"))

    calling = asyncio.create_task(session.call(task["prefix"] + "wait_cancel", {"nonce": nonce}))
    check(await until(arrived, 10), "the call did not arrive")
    calling.cancel()
    with suppress(asyncio.CancelledError):
        raise Failed(f"a cancelled call was answered: {await calling}")
    check(await until(cancelled, 5), "the server was not told")
    return await echo(session, task)


# -- steps with sessions of their own


async def again(connect: Connect, task: Task) -> str:
    """The second session comes after the first was closed."""
    for _ in range(2):
        async with connect(task, task["target"]) as session:
            await echo(session, task)
    return ""


async def restart(connect: Connect, task: Task) -> str:
    """The hub is restarted under an open session; a new one must work."""
    is_restarted = False
    with suppress(Exception):  # what the library makes of the old one is not judged, as long as it ends
        async with connect(task, task["target"]) as session:
            await echo(session, task)
            say(want="restart")
            is_restarted = bool(await asyncio.to_thread(sys.stdin.readline))
    check(is_restarted, "it did not come to a restart")
    async with connect(task, task["target"]) as session:
        return await echo(session, task)


async def resume(connect: Connect, task: Task) -> str:
    """Something on the way breaks the connection after the tenth notification; nothing is lost or comes twice."""
    seen: list[float] = []
    async with connect(task, task["resume"]["target"]) as session:
        arguments = {"n": PROGRESS, "nonce": task["resume"]["marker"], "delay": task["resume"]["delay"]}
        answer = await session.call(task["prefix"] + "progress", arguments, seen.append)
        check(json.loads(answer.text)["n"] == PROGRESS, f"answered {answer.text[:300]}")
        await until(lambda: len(seen) >= PROGRESS, 2)
    check(seen == list(range(1, PROGRESS + 1)), f"progress: {seen}")
    return ""


async def moved(connect: Connect, task: Task) -> str:
    """Whatever happens on the way meanwhile, the call brings its result; the rig sees to what happens."""
    call = task["moved"]
    async with connect(task, task["target"]) as session:
        answer = await session.call(call["tool"], call["arguments"])
    check(json.loads(answer.text) == call["arguments"] and not answer.is_error, f"answered {answer.text[:300]}")
    return ""


SESSION_STEPS: dict[str, Callable[[Any, Task], Awaitable[str]]] = {
    "list": names,
    "call": call,
    "progress": progress,
    "error": error,
    "large": large,
    "elicit": elicit,
    "sample": sample,
    "roots": roots,
    "cancel": cancel,
}
OWN_STEPS: dict[str, Callable[[Connect, Task], Awaitable[str]]] = {
    "reconnect": again,
    "restart": restart,
    "resume": resume,
    "moved": moved,
}


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def reason(wrong: BaseException) -> str:
    """One line that says what went wrong, the first of a group."""
    while isinstance(wrong, BaseExceptionGroup):
        wrong = wrong.exceptions[0]
    if isinstance(wrong, Failed | Refused):
        return str(wrong)
    traceback.print_exception(wrong)
    return f"{type(wrong).__name__}: {wrong}"


async def report(rest: list[str], work: Awaitable[str]) -> bool:
    """Do the first step of `rest`, say how it went and take it off; whether it went well."""
    begun = time.perf_counter()
    try:
        async with asyncio.timeout(STEP_SECONDS):
            ok, detail = True, await work
    except TimeoutError:
        ok, detail = False, f"not done in {STEP_SECONDS:.0f} s"
    except Exception as wrong:
        ok, detail = False, reason(wrong)
    say(step=rest.pop(0), ok=ok, detail=detail, ms=round((time.perf_counter() - begun) * 1000))
    return ok


async def identity(session: Session, task: Task) -> str:
    expected = task["expect"]
    # some libraries do not tell the version; who adopts one without asking is not told who is there
    check(session.version in (expected["version"], ""), f"it speaks {session.version}")
    check(session.server in (expected["server"], ""), f"it is {session.server}")
    return session.version


async def one_session(connect: Connect, task: Task, rest: list[str]) -> None:
    """Take steps off `rest` on one session until one fails; all of them if no session can be had."""
    stage = "opening"
    try:
        async with asyncio.timeout(STEP_SECONDS) as limit, connect(task, task["target"]) as session:
            limit.reschedule(None)
            stage = "taking steps"
            ok = rest[0] != "connect" or await report(rest, identity(session, task))
            while ok and rest:
                ok = await report(rest, SESSION_STEPS[rest[0]](session, task))
            stage = "closing"
            limit.reschedule(asyncio.get_running_loop().time() + STEP_SECONDS)
    except (Exception, asyncio.CancelledError) as wrong:  # libraries cancel the task that uses them
        detail = f"{stage}: {reason(wrong)}"
        lost = {"opening": len(rest), "taking steps": 1, "closing": 0}[stage]
        for step in rest[:lost]:
            say(step=step, ok=False, detail=detail, ms=0)
        del rest[:lost]


async def all_steps(connect: Connect, task: Task) -> None:
    rest = [step for step in task["steps"] if step not in OWN_STEPS]
    while rest:
        await asyncio.create_task(one_session(connect, task, rest))
    own = [step for step in task["steps"] if step in OWN_STEPS]
    while own:
        await asyncio.create_task(report(own, OWN_STEPS[own[0]](connect, task)))
    say(end=True)


def main(connect: Connect) -> None:
    """Read the task, take its steps, say how each went."""
    asyncio.run(all_steps(connect, json.loads(sys.stdin.readline())))
