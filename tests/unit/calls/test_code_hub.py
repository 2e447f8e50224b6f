"""`run_code` in a whole hub: the real engine, a real file of streams, and the next hub on it."""

import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.aio import Bell
from mcp_hub.app.build import App, open_app
from mcp_hub.calls.handle import CallHandle
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import UnknownStream
from mcp_hub.events import Completed, Delta, Ending, InputRequired, ToolCall
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.protocol.rest.history import HistoryQuery
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.history.reading import CallFilter, newest
from mcp_hub.stores.sqlite import store
from mcp_hub.types import Era, JsonObject
from mcp_hub.upstreams.functions.registry import Registry

pytest.importorskip("pydantic_monty")
pytestmark = pytest.mark.anyio

META = RequestMeta(None, None, None, None, None, {})
WAIT = 120


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Books:
    """A server with a reading and two writing tools, which counts its calls."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.counts: Counter[str] = Counter()
        self.go = anyio.Event()
        self.registry.tool(annotations={"readOnlyHint": True})(self.find)
        self.registry.tool()(self.add)
        self.registry.tool(annotations={"readOnlyHint": True})(self.hold)

    async def find(self, word: str) -> list[dict[str, Any]]:
        self.counts[f"find {word}"] += 1
        return [{"title": f"{word} {number}", "pages": number} for number in range(5)]

    async def add(self, title: str, pages: int | None = None) -> str:
        self.counts[f"add {title}"] += 1
        return f"added {title}"

    async def hold(self) -> str:
        self.counts["hold"] += 1
        await self.go.wait()
        return "held"


@asynccontextmanager
async def a_hub(root: Path, code: str = "all", **hub: Any) -> AsyncIterator[tuple[App, Books]]:
    module = sys.modules[__name__]
    books = module.current = Books()  # type: ignore[attr-defined]  # what `local:` below finds
    settings = Settings.model_validate(
        {
            "servers": {"books": {"local": f"{__name__}:current.registry"}},
            "profiles": {"narrow": {"tools": {"deny": ["add"]}}, "careful": {"code": "reads"}},
            "hub": {"prefix": "never", "code": code, **hub},
        }
    )
    loaded = Loaded(settings, root / "servers.yaml", frozenset())
    with anyio.fail_after(WAIT):
        async with open_app(loaded, {"MCP_HUB_STATE_DIR": str(root)}, has_executors=True) as app:
            await app.hub.catalog.settled()
            yield app, books


def a_session(profile: str | None = None, **capabilities: Any) -> Session:
    return Session("s", Caller(profile=profile, is_operator=True), Era.HANDSHAKE, "2025-11-25", capabilities)


def run(app: App, code: str, session: Session | None = None, **arguments: Any) -> CallHandle:
    raw = msgspec.Raw(msgspec.json.encode({"code": code, **arguments}))
    params = {"name": msgspec.Raw(b'"run_code"'), "arguments": raw}
    return app.hub.call(session or a_session(), "tools/call", params, META)


async def ended(call: CallHandle, answers: tuple[Any, ...] = ()) -> tuple[Ending, list[Any]]:
    """The ending of a call, and its events. Questions get the answers, one after the other."""
    bell, events, waiting = Bell(), [], list(answers)
    reader = call.reader(bell.ring)
    try:
        while True:
            for event in reader.take():
                events.append(event)
                if isinstance(event, InputRequired):
                    call.answer(event.key, msgspec.json.encode(waiting.pop(0)))
                if isinstance(event, Ending):
                    return event, events
            await bell.wait()
    finally:
        reader.close()


def text(ending: Ending) -> str:
    assert isinstance(ending, Completed), ending
    result = msgspec.json.decode(ending.result)
    return "\n".join(block["text"] for block in result["content"])


LOOP = """
books = (await find(word="sea")) + (await find(word="sky"))
long = [book for book in books if book["pages"] > 2]
for book in long:
    print(book["title"])
    await add(title=book["title"])
len(long)
"""


async def test_script_chains_loops_and_filters(tmp_path: Path) -> None:
    async with a_hub(tmp_path) as (app, books):
        ending, events = await ended(run(app, LOOP))
        assert text(ending) == "sea 3\nsea 4\nsky 3\nsky 4\n\n4"
        assert books.counts == Counter(["find sea", "find sky", "add sea 3", "add sea 4", "add sky 3", "add sky 4"])
        assert [event.name for event in events if isinstance(event, ToolCall)] == ["find"] * 2 + ["add"] * 4
        printed = "".join(event.text for event in events if isinstance(event, Delta))
        assert printed.split("\n")[:2] == ["sea 3", "sea 4"]


async def test_mistake_is_a_result_and_nothing_is_called(tmp_path: Path) -> None:
    async with a_hub(tmp_path) as (app, books):
        for code in ("await find(wort='x')", "await find(", "await ad(title='x')"):
            ending, _ = await ended(run(app, code))
            assert isinstance(ending, Completed) and b'"isError":true' in bytes(ending.result), code
            assert text(ending).endswith("\nNothing was called.")
        assert not books.counts


async def test_mistake_has_the_signatures_of_its_tools(tmp_path: Path) -> None:
    async with a_hub(tmp_path) as (app, _):
        for code in ("await find(wort='x')", "await fin(word='x')"):
            ending, _ = await ended(run(app, code))
            assert "\nasync def find(*, word: str" in text(ending), text(ending)


async def test_error_says_which_of_its_calls_have_no_result(tmp_path: Path) -> None:
    async with a_hub(tmp_path) as (app, _):
        ending, _ = await ended(run(app, "await find(word='x')\n1 / 0"))
        assert text(ending).startswith("line 2: ZeroDivisionError: ")
        assert text(ending).endswith("\nBefore that it made 1 call.")


async def test_profile_and_mode_hold_inside_a_script(tmp_path: Path) -> None:
    code = """
try:
    await add(title="x")
except PermissionError as error:
    print(error)
"""
    async with a_hub(tmp_path) as (app, books):
        ending, events = await ended(run(app, code, a_session("careful")))
        assert "hub.code is `reads`" in str([event.text for event in events if isinstance(event, Delta)])
        ending, _ = await ended(run(app, "await add(title='x')", a_session("narrow")))
        assert isinstance(ending, Completed) and b'"isError":true' in bytes(ending.result)
        assert not books.counts
        ending, _ = await ended(run(app, "await run_code(code='1')"))
        assert isinstance(ending, Completed) and b'"isError":true' in bytes(ending.result)


async def test_first_write_asks_the_client(tmp_path: Path) -> None:
    async with a_hub(tmp_path, "ask") as (app, books):
        answer = {"action": "accept", "content": {"answer": "run"}}
        ending, events = await ended(run(app, LOOP, a_session(elicitation={})), (answer,))
        assert text(ending).endswith("\n\n4") and books.counts.total() == 6
        [question] = [msgspec.json.decode(event.params) for event in events if isinstance(event, InputRequired)]
        assert "add with" in question["message"] and "await add(title=book" in question["message"]


async def test_next_hub_on_the_file_continues_the_script(tmp_path: Path) -> None:
    code = """
import random
a = await add(title="one")
x = random.random()
print(x)
b = await hold()
await add(title="two")
[a, b, x]
"""
    async with a_hub(tmp_path) as (app, books):
        call = run(app, code)
        with anyio.fail_after(WAIT):
            while not books.counts["hold"]:  # noqa: ASYNC110 - what is looked at is a count
                await anyio.sleep(0.01)
        counts = books.counts
        id_ = call.call.id
    async with a_hub(tmp_path) as (app, books):
        books.go.set()
        stream = await app.hub.durable.open("local", id_, None)
        with anyio.fail_after(WAIT):
            while not stream.info.has_ended:
                await anyio.sleep(0.05)
                stream = await app.hub.durable.open("local", id_, None)
        [end] = await stream.lines(stream.info.last - 1)
        assert stream.info.status == "completed", end
        assert b"added one" in end and b"held" in end
        assert counts["add one"] == 1 and books.counts == Counter({"hold": 1, "add two": 1})


async def test_run_of_nothing_is_quick_with_a_warm_pool(tmp_path: Path) -> None:
    async with a_hub(tmp_path) as (app, _):
        await ended(run(app, "1"))
        times = []
        for _ in range(5):
            began = anyio.current_time()
            assert text((await ended(run(app, "1")))[0]) == "1"
            times.append(anyio.current_time() - began)
        print("a run of nothing:", sorted(times))


async def test_full_disk_holds_a_write_back_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
await add(title="one")
await hold()
await add(title="two")
"""

    def full(self: Any, stream: Any, epoch: Any, chunk: Any, change: Any, callback: Any) -> None:
        callback(StoreFault("full", "store: no room"))

    async def no_room(self: Any) -> None:
        raise StoreFault("full", "store: no room")

    async with a_hub(tmp_path) as (app, books):
        call = run(app, code)
        while not books.counts["hold"]:  # noqa: ASYNC110 - what is looked at is a count
            await anyio.sleep(0.01)
        with monkeypatch.context() as patch:
            patch.setattr(store._SqliteLog, "append", full)
            patch.setattr(store.SqliteStore, "touch", no_room)
            books.go.set()
            with anyio.move_on_after(1.5):
                await ended(call)
            assert books.counts == Counter({"add one": 1, "hold": 1})
        assert text((await ended(call))[0]) == "added two"
        assert books.counts == Counter({"add one": 1, "hold": 1, "add two": 1})


async def test_modern_client_gets_a_task_that_the_script_outlives_its_request_in(tmp_path: Path) -> None:
    tasks: JsonObject = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with a_hub(tmp_path, task_after=0.2) as (app, books):
        session = Session("s", Caller(is_operator=True), Era.MODERN, "2026-07-28", tasks)
        call = run(app, "await hold()", session)
        assert call.early is not None and call.early.is_task
        ready = anyio.Event()
        early = call.early_answer(ready.set)
        await ready.wait()
        assert early is not None and early.take()[2] is None
        books.go.set()
        assert text((await ended(call))[0]) == "held"


async def test_people_at_the_next_hub_answer_for_a_client_that_cannot_be_asked(tmp_path: Path) -> None:
    code = "await hold()\nawait add(title='one')"
    async with a_hub(tmp_path, "ask") as (app, books):
        id_ = run(app, code).call.id
        while (writer := app.hub.durable.table.owned(id_)) is None:  # noqa: ASYNC110 - as above
            await anyio.sleep(0.01)
        await writer.committed()
    async with a_hub(tmp_path, "ask") as (app, books):
        with app.seen.operators.here():
            stream = await app.hub.durable.open("local", id_, None)
            books.go.set()
            while (record := stream.record) is None or not record.questions.open:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.01)
            [(key, question)] = record.questions.open.items()
            assert not record.call.asks_client(question.method, question.params)
            record.questions.answer(key, b'{"action":"accept","content":{"answer":"once"}}')
            await record.until_stored(whole=True)
        assert books.counts["add one"] == 1


async def test_script_of_another_profile_is_unknown(tmp_path: Path) -> None:
    async with a_hub(tmp_path) as (app, _):
        id_ = run(app, "await find(word='x')", a_session("careful")).call.id
        with anyio.fail_after(WAIT):
            while not await app.hub.durable.newest("local", 9, "careful"):  # noqa: ASYNC110 - until it is stored
                await anyio.sleep(0.01)
        assert await app.hub.durable.newest("local", 9, "narrow") == []
        with pytest.raises(UnknownStream):
            await app.hub.durable.open("local", id_, "narrow")
    async with a_hub(tmp_path) as (app, _):
        assert (await app.hub.durable.open("local", id_, "careful")).id == id_
        with pytest.raises(UnknownStream):
            await app.hub.durable.open("local", id_, "narrow")


@pytest.mark.processes
async def test_script_waits_for_a_server_that_starts_and_not_for_one_that_it_does_not_call(tmp_path: Path) -> None:
    sys.modules[__name__].current = Books()  # type: ignore[attr-defined]  # as in `a_hub`
    late = f"sleep 2; exec {sys.executable} -m rigs.code.counter {tmp_path / 'counted'}"
    servers = {
        "books": {"local": f"{__name__}:current.registry"},
        "late": {"command": "sh", "args": ["-c", late]},
        "never": {"command": "sh", "args": ["-c", "while read line; do :; done"]},
    }
    hub = {"prefix": "never", "code": "all", "first_list_wait": "0.1s"}
    loaded = Loaded(Settings.model_validate({"servers": servers, "hub": hub}), tmp_path / "servers.yaml", frozenset())
    with anyio.fail_after(WAIT):
        async with open_app(loaded, {"MCP_HUB_STATE_DIR": str(tmp_path)}, has_executors=True) as app:
            await app.hub.catalog.settled(servers=["books"])
            ending, _ = await ended(run(app, '(await look(key="a"))["count"]'))
            assert "never" in app.hub.catalog.starting(None), "else it has shown nothing"
    assert isinstance(ending, Completed) and msgspec.json.decode(ending.result)["content"][0]["text"] == "0"


async def test_history_knows_which_run_has_made_a_call(tmp_path: Path) -> None:
    async with a_hub(tmp_path) as (app, _):
        call = run(app, 'await add(title="A")\nawait add(title="B")')
        await ended(call)
        plain = app.hub.call(
            a_session(), "tools/call", {"name": msgspec.Raw(b'"add"'), "arguments": msgspec.Raw(b'{"title":"C"}')}, META
        )
        await ended(plain)
        await app.journal.flush()
        calls = await newest(app.journal.store, CallFilter(lambda group: True), 10)
        run_id = call.call.id
        inner = await newest(app.journal.store, CallFilter(HistoryQuery(parent=run_id).fits), 10)
    assert [(each.group.tool, each.group.parent) for each in calls] == [
        ("add", ""), ("run_code", ""), ("add", run_id), ("add", run_id)
    ]  # fmt: skip
    assert inner == calls[2:]
