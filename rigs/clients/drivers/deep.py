"""The deep checks of the Python drivers, beside the steps that every driver takes; standard library only.

They need the reference server (`rigs.clients.reference`) and a `DeepSession`. Importing this adds them to the steps
of `main`; `steps.mjs` has the same for JavaScript.
"""

import asyncio
import itertools
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from rigs.clients.drivers.steps import (
    SESSION_STEPS,
    Refused,
    Session,
    Task,
    check,
    echo,
    failed,
    refused,
    until,
)

WATCHED = "test://watched-resource"
LOGGED = ["first", "second ✓", "third"]
TOGETHER = 20
TOOLS_CHANGED = "tools changed"
NEWS_SECONDS = 5.0
"""How long a notification may take."""
QUIET_SECONDS = 0.3
"""How long is waited for a notification that must not come."""

_numbers = itertools.count(1)


class DeepSession(Session, Protocol):
    """A session that does more than lists and calls. A library leaves out what it has no way to do."""

    news: list[str]
    """What arrived by itself: `log TEXT`, `updated URI`, and `TOOLS_CHANGED`."""

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        """The text of its first message."""
        ...

    async def read(self, uri: str) -> str: ...

    async def complete(self, prompt: str, argument: str, typed: str) -> list[str]: ...

    async def ping(self) -> None: ...

    async def set_level(self, level: str) -> None:
        """Asks for log messages of this level, from now on."""
        ...

    def watch(self, *uris: str) -> AbstractAsyncContextManager[Any]:
        """Subscribes to these resources and, where that needs a subscription, to changes of the tools."""
        ...


async def lists(session: Session, task: Task) -> str:
    listed, prefix = await session.names(), task["prefix"]
    expected = {
        "tools": {prefix + tool for tool in ("echo", "progress", "big", "ask_form", "test_simple_text")},
        "prompts": {prefix + prompt for prompt in ("test_simple_prompt", "test_prompt_with_arguments")},
        "resources": {"test://static-text", WATCHED},
        "templates": {"test://template/{id}/data"},
    }
    for kind, names in expected.items():
        check(names <= set(listed[kind]), f"{kind} lack {sorted(names - set(listed[kind]))}")
        check(len(set(listed[kind])) == len(listed[kind]), f"{kind} are listed twice: {listed[kind]}")
    return ", ".join(f"{len(listed[kind])} {kind}" for kind in expected)


async def prompt(session: DeepSession, task: Task) -> str:
    name, arguments = task["prefix"] + "test_prompt_with_arguments", {"arg1": "å", "arg2": "b"}
    text = await session.prompt(name, arguments)
    check(text == "Prompt with arguments: arg1='å', arg2='b'", f"it says {text!r}")
    return ""


async def read(session: DeepSession, task: Task) -> str:
    for uri, part in (("test://static-text", "static text"), ("test://template/7/data", "Data for ID: 7")):
        text = await session.read(uri)
        check(part in text, f"{uri} says {text[:200]!r}")
    return ""


async def complete(session: DeepSession, task: Task) -> str:
    values = await session.complete(task["prefix"] + "test_prompt_with_arguments", "arg1", "par")
    check(values == ["paris", "park", "party"], f"it proposes {values}")
    return ""


async def log(session: DeepSession, task: Task) -> str:
    await session.set_level("info")
    session.news.clear()
    await session.call(task["prefix"] + "log", {})
    expected = [f"log {text}" for text in LOGGED]
    await until(lambda: len(_logged(session)) >= len(expected), NEWS_SECONDS)
    check(_logged(session) == expected, f"it heard {session.news}")
    return ""


def _logged(session: DeepSession) -> list[str]:
    return [text for text in session.news if text.startswith("log ")]


async def changed(session: DeepSession, task: Task) -> str:
    name = f"grown_{next(_numbers)}"
    async with session.watch():
        session.news.clear()
        before = (await session.names())["tools"]
        check(task["prefix"] + name not in before, "it was listed before")
        await session.call(task["prefix"] + "grow", {"name": name})
        check(await until(lambda: TOOLS_CHANGED in session.news, NEWS_SECONDS), f"it heard {session.news}")
        after = (await session.names())["tools"]
        check(task["prefix"] + name in after, f"the new tool is not listed: {len(before)} before, {len(after)} after")
        answer = await session.call(task["prefix"] + name, {"a": 1})
        check(not answer.is_error, f"the new tool answers {answer}")
    return ""


async def updates(session: DeepSession, task: Task) -> str:
    """Subscribe, change by a call, hear of it, read what was written, and hear nothing after the end of it."""
    update = f"updated {WATCHED}"
    async with session.watch(WATCHED):
        for _ in range(2):
            session.news.clear()
            await _touch(session, task)
            check(await until(lambda: update in session.news, NEWS_SECONDS), f"it heard {session.news}")
        heard = session.news.count(update)
        check(heard == 1, f"one change was announced {heard} times")
    session.news.clear()
    await _touch(session, task)
    check(not await until(lambda: update in session.news, QUIET_SECONDS), "an update came after it unsubscribed")
    return ""


async def written(session: DeepSession, task: Task) -> str:
    for _ in range(3):
        await _touch(session, task)
    return ""


async def _touch(session: DeepSession, task: Task) -> None:
    """Changes the resource, and reads what was written."""
    count = (await session.call(task["prefix"] + "touch", {})).text
    text = await session.read(WATCHED)
    check(text == f"touched {count} times", f"a read after the {count}th change says {text!r}")


async def unknown(session: Session, task: Task) -> str:
    try:
        answer = await session.call(task["prefix"] + "no_such_tool", {})
    except Refused as refusal:
        check(refusal.code in (-32602, None), f"code {refusal.code}")
        check("no_such_tool" in refusal.message, f"message {refusal.message!r}")
        return ""
    check(answer.is_error and "no_such_tool" in answer.text, f"a call of it brings {answer}")
    return ""


async def ping(session: DeepSession, task: Task) -> str:
    for _ in range(3):
        await session.ping()
    return ""


async def together(session: Session, task: Task) -> str:
    """Calls at once, of which the first takes longest: each gets its own answer."""
    sent = [{"number": i, "delay": (TOGETHER - i) / 100} for i in range(TOGETHER)]
    calls = (echo(session, task, arguments) for arguments in sent)
    await asyncio.gather(*calls)
    return ""


SESSION_STEPS.update(
    {
        "lists": lists,
        "prompt": prompt,
        "read": read,
        "complete": complete,
        "log": log,
        "changed": changed,
        "updates": updates,
        "written": written,
        "refused": refused,
        "failed": failed,
        "unknown": unknown,
        "ping": ping,
        "together": together,
    }
)
