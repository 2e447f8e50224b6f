"""A hub that goes by other settings: lists, limits and sessions follow, and calls are not lost."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import structlog
from anyio.abc import TaskGroup

from mcp_hub import extras
from mcp_hub.app import build, readiness
from mcp_hub.app.apply import RuleGates, UpstreamSet
from mcp_hub.app.build import App, open_app
from mcp_hub.app.code_runs import EventFeeds
from mcp_hub.app.logins import Logins
from mcp_hub.calls.history.journal import CallJournal
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.catalog.trust.approvals import Approvals
from mcp_hub.code.steps import CodeLimits
from mcp_hub.config.load.load import load
from mcp_hub.fronts.mcp.subscriptions import Announcer
from mcp_hub.fronts.rest.calls import rest_session
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.notices import Notices
from mcp_hub.protocol.meta import take_meta
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import Era, Kind, UpstreamState
from mcp_hub.upstreams.functions.registry import Registry
from mcp_hub.upstreams.process.watchdog import Watchdog
from tests.interaction.fronts import is_alive
from tests.unit.upstreams.remote import Remote
from tests.unit.wire.http_server import Reply, Request, serving
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import argv

pytestmark = pytest.mark.anyio

go = anyio.Event()
tools = Registry()


@tools.tool
async def echo(text: str) -> str:
    return text


@tools.tool
async def hold() -> str:
    await go.wait()
    return "held"


LOCAL = {"local": f"{__name__}:tools"}
SETTINGS: dict[str, Any] = {
    "hub": {"prefix": "always", "expose": "full", "store": {"type": "memory"}, "max_result_tokens": 0},
    "servers": {"a": LOCAL},
}


class Changing:
    """A running hub and its file."""

    def __init__(self, app: App, path: Path) -> None:
        self.app = app
        self._path = path

    async def to(self, *, errors: str | None = None, **changes: Any) -> None:
        """Other settings, by section; what is not given stays as it is in `SETTINGS`."""
        hub = {**SETTINGS["hub"], **changes.pop("hub", {})}
        self._path.write_text(json.dumps({**SETTINGS, "hub": hub, **changes}))
        done = await self.app.reloader.reload("request")
        assert done.is_applied if errors is None else errors in done.errors[0], done.errors

    def session(self, profile: str | None = None, name: str = "x") -> Session:
        caller = Caller(profile=profile)
        return Session(f"s{id(caller)}", caller, Era.HANDSHAKE, "2025-11-25", client_info={"name": name})

    def names(self, session: Session) -> list[str]:
        page = json.loads(self.app.hub.views.page(session, Kind.TOOL, None))
        return [tool["name"] for tool in page["tools"]]

    async def call(self, session: Session, name: str, **arguments: Any) -> Any:
        given = {"name": name, "arguments": arguments}
        params = msgspec.json.decode(json.dumps(given), type=dict[str, msgspec.Raw])
        record = self.app.hub.call(session, "tools/call", params, take_meta(params)).record
        await until(lambda: record.log.ended)
        return record.log.status

    async def begin(self, tasks: TaskGroup, session: Session, name: str, ended: list[object], **arguments: Any) -> None:
        """Starts a call, whose status is added to `ended`."""

        async def call() -> None:
            ended.append(await self.call(session, name, **arguments))

        tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()


@asynccontextmanager
async def changing(root: Path, **changes: Any) -> AsyncIterator[Changing]:
    path = root / "servers.yaml"
    path.write_text(json.dumps({**SETTINGS, **changes}))
    env = {"MCP_HUB_STATE_DIR": str(root / "state")}
    with anyio.fail_after(4 * WAIT):
        async with open_app(load(path, env), env, has_executors=True) as app:
            yield Changing(app, path)


async def test_lists_follow_their_rules_and_sessions_hear_once_of_another_list(tmp_path: Path) -> None:
    async with changing(tmp_path) as hub:
        session = hub.session()
        assert hub.names(session) == ["a_echo", "a_hold"]
        announcer = Announcer(hub.app.hub, session)
        await hub.to(hub={"prefix": "never"})
        assert [json.loads(frame)["method"] for frame in await announcer.next()] == ["notifications/tools/list_changed"]
        announcer.sent()
        assert hub.names(session) == ["echo", "hold"]
        await hub.to(hub={"prefix": "never", "aliases": {"pr": ["pull request"]}})
        with anyio.move_on_after(0.2):
            raise AssertionError(await announcer.next())


async def test_exposures_limits_and_whole_results_for_programs_hold_at_once(tmp_path: Path) -> None:
    async with changing(tmp_path) as hub:
        session = hub.session(name="special")
        assert "a_echo" in hub.names(session)
        await hub.to(hub={"expose": "search"})
        assert "find_tools" in hub.names(session) and "a_echo" not in hub.names(session)
        await hub.to(hub={"expose": "search", "clients": {"special": {"expose": "full"}}})
        assert "a_echo" in hub.names(session)
        assert hub.app.hub.views.facts(session).deadline is None
        await hub.to(hub={"clients": {"special": {"soft_deadline": "9s"}}})
        hub.names(session)
        assert hub.app.hub.views.facts(session).deadline == 9
    async with changing(tmp_path) as hub:
        await hub.to(hub={"expose": "search", "max_result_tokens": 100})
        session = rest_session(Caller(), "s1")
        assert {"a_echo", "a_hold"} <= set(hub.names(session))
        assert hub.app.hub.views.facts(session).result_tokens == 0
    async with changing(tmp_path) as hub:
        assert hub.app.operations.applier.current.limits["a"][0].silence == 1800
        await hub.to(defaults={"timeout": "5s"}, servers={"a": LOCAL, "b": {**LOCAL, "timeout": "7s"}})
        limits = hub.app.operations.applier.current.limits
        assert [limits[name][0].silence for name in ("a", "b", "virtual")] == [5, 7, 5]
        assert hub.app.settings.defaults.timeout == 5


async def test_scripts_are_allowed_and_forbidden_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "code", "json")
    async with changing(tmp_path) as hub:
        session = hub.session(name="special")
        assert hub.names(session) == ["a_echo", "a_hold"]
        await hub.to(hub={"code": "ask"})
        assert hub.names(session) == ["run_code", "a_echo", "a_hold"]
        assert list(hub.app.hub.views.of(session).callables) == ["a_echo", "a_hold"]
        await hub.to(hub={"code": "ask", "code_limits": {"calls": 5}})
        assert hub.app.operations.applier.current.code_limits == CodeLimits(calls=5)
        await hub.to(hub={"code": "reads"})
        assert hub.names(session) == ["run_code", "a_echo", "a_hold"], "though none of these is known to only read"
        await hub.to()
        assert hub.names(session) == ["a_echo", "a_hold"]


async def test_who_has_a_profile_that_is_gone_is_listed_nothing(tmp_path: Path) -> None:
    async with changing(tmp_path, profiles={"p": {}}) as hub:
        session = hub.session("p")
        announcer = Announcer(hub.app.hub, session)
        assert hub.names(session) == ["a_echo", "a_hold"]
        assert await hub.call(session, "a_echo", text="x") == "completed"
        await hub.to()
        assert await announcer.next() and hub.names(session) == []
        await hub.to(profiles={"p": {"tools": {"deny": ["a_hold"]}}})
        assert hub.names(session) == ["a_echo"]


async def test_calls_at_functions_go_on_when_their_server_is_removed(tmp_path: Path) -> None:
    global go
    go = anyio.Event()
    async with changing(tmp_path) as hub, anyio.create_task_group() as tasks:
        ended: list[object] = []
        await hub.begin(tasks, hub.session(), "a_hold", ended)
        await hub.to(servers={"b": LOCAL})
        assert hub.names(hub.session()) == ["b_echo", "b_hold"] and not ended
        go.set()
        await until(lambda: ended)
        assert ended == ["completed"]


@pytest.mark.processes
async def test_a_removed_server_is_seen_to_drain_and_is_gone_then(tmp_path: Path) -> None:
    command, *args = argv(name="b")
    servers = {"a": LOCAL, "b": {"command": command, "args": args}}
    async with changing(tmp_path, servers=servers) as hub, anyio.create_task_group() as tasks:
        states: list[UpstreamState] = []

        def state() -> UpstreamState | None:
            return next((status.state for status in hub.app.hub.statuses() if status.server == "b"), None)

        await until(lambda: state() is UpstreamState.READY)
        session = hub.session()
        ended: list[object] = []
        await hub.begin(tasks, session, "b_slow", ended, seconds=0.4)
        await hub.to()
        assert "b_echo" not in hub.names(session)
        await until(lambda: states.append(state()) or state() is None)  # type: ignore[func-returns-value, arg-type]
        assert ended == ["completed"] and UpstreamState.DRAINING in states
        assert list(hub.app.upstreams) == ["a", "virtual"]


@pytest.mark.processes
async def test_a_server_that_is_started_again_and_again_keeps_a_few_old_processes(tmp_path: Path) -> None:
    command, *args = argv(name="b")
    async with changing(tmp_path, servers={"b": {"command": command, "args": args}}) as hub:
        async with anyio.create_task_group() as tasks:
            session, ended = hub.session(), list[object]()
            pids: list[int] = []
            for number in range(6):
                await until(lambda: hub.app.upstreams["b"].status().pid not in (None, *pids))
                pids.append(hub.app.upstreams["b"].status().pid or 0)
                await hub.begin(tasks, session, "b_slow", ended, seconds=60)
                if number < 4:
                    await hub.app.operations.restart("b")
                    continue
                with pytest.raises(Problem) as refused:  # no request cuts calls short
                    await hub.app.operations.restart("b")
                assert (refused.value.status, refused.value.code) == (503, "busy")
                hub.app.operations.applier.restart("b")
            await until(lambda: len(ended) == 2)
            assert ended == ["failed", "failed"] and not is_alive(pids[0]) and all(map(is_alive, pids[2:]))
            tasks.cancel_scope.cancel()


@dataclass
class Guarded(Remote):
    """Takes one token."""

    token: str = "first-token"

    async def __call__(self, request: Request, reply: Reply) -> None:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return await reply.status(401)
        await super().__call__(request, reply)


def secret(root: Path, text: str) -> None:
    (root / "token").write_text(f"{text}\n")
    (root / "token").chmod(0o600)


async def test_secret_of_a_file_is_read_again_when_the_server_answers_401(tmp_path: Path) -> None:
    secret(tmp_path, "first-token")
    guard = Guarded()
    async with serving(guard) as server:
        far = {"far": {"url": server.url, "bearer": "${file:token}"}}
        async with changing(tmp_path, servers=far) as hub:
            session = hub.session()
            await until(lambda: "far_x" in hub.names(session))
            guard.token = "second-token"
            secret(tmp_path, "second-token")
            before = len(server.of("initialize"))
            assert await hub.call(session, "far_x") == "completed", "the call itself is repeated"
            assert len(server.of("initialize")) == before, "and the session continues"
            guard.token = "third-token"
            assert await hub.call(session, "far_x") == "failed"
            tried = len(server.of("tools/call"))
            assert await hub.call(session, "far_x") == "failed"
            assert len(server.of("tools/call")) == tried + 1, "an unchanged secret is not sent twice"


async def test_secret_of_a_file_is_read_again_on_restart(tmp_path: Path) -> None:
    secret(tmp_path, "early-token")
    guard = Guarded()
    async with serving(guard) as server:
        far = {"far": {"url": server.url, "bearer": "${file:token}"}, "a": LOCAL}
        async with changing(tmp_path, servers=far) as hub:

            def state() -> UpstreamState:
                return hub.app.upstreams["far"].status().state

            await until(lambda: state() is UpstreamState.FAILED)
            other = hub.app.upstreams["a"]
            secret(tmp_path, "first-token")
            await hub.app.operations.restart("far")
            await until(lambda: state() is UpstreamState.READY)
            assert hub.app.upstreams["a"] is other, "no other server is touched"
            assert hub.app.settings.servers["far"].sent_headers() == {"Authorization": "Bearer first-token"}


async def test_restart_reads_nothing_of_a_file_that_has_changed_itself(tmp_path: Path) -> None:
    secret(tmp_path, "first-token")
    async with serving(Guarded()) as server:
        far = {"url": server.url, "bearer": "${file:token}"}
        async with changing(tmp_path, servers={"far": far}, hub={**SETTINGS["hub"], "watch": False}) as hub:
            await until(lambda: hub.app.upstreams["far"].status().state is UpstreamState.READY)
            changed = {**SETTINGS, "servers": {"far": {**far, "url": f"{server.url}/other"}}}
            (tmp_path / "servers.yaml").write_text(json.dumps(changed))
            await hub.app.operations.restart("far")
            assert hub.app.settings.servers["far"].url == server.url


async def test_lists_follow_the_order_of_the_file_and_servers_that_come_back(tmp_path: Path) -> None:
    async with changing(tmp_path, servers={"a": LOCAL, "b": LOCAL}) as hub:
        assert hub.names(hub.session())[0] == "a_echo"
        await hub.to(servers={"b": LOCAL, "a": LOCAL})
        assert hub.names(hub.session())[0] == "b_echo"
        assert list(hub.app.upstreams) == ["b", "a", "virtual"]
    async with changing(tmp_path) as hub:
        await hub.to(servers={"a": {**LOCAL, "enabled": False}})
        assert hub.names(hub.session()) == []
        (status,) = [status for status in hub.app.hub.statuses() if status.server == "a"]
        assert status.state is UpstreamState.DISABLED
        await hub.to()
        assert hub.names(hub.session()) == ["a_echo", "a_hold"]
    async with changing(tmp_path) as hub:
        await hub.to(servers={"a": LOCAL, "virtual": LOCAL}, errors="servers.virtual")
        assert hub.names(hub.session()) == ["a_echo", "a_hold"]
        assert list(hub.app.settings.servers) == ["a"]


async def test_warnings_of_unmatched_patterns_follow_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with changing(tmp_path) as hub:
        await hub.to(servers={"a": {**LOCAL, "tools": {"deny": ["nothing_like_it"]}}})
        await until(lambda: "nothing_like_it" in str(capsys.readouterr()))


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        *((build, name) for name in ("log_start", "log_flags", "warn_of_unmatched")),
        *((part, "run") for part in (Approvals, CallJournal, EventFeeds, RuleGates, StreamTable, Watchdog)),
        (Logins, "follow"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
async def test_a_part_of_the_hub_that_crashes_ends_neither_the_hub_nor_its_calls(
    owner: object, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(owner, name, crash)
    with structlog.testing.capture_logs() as entries:
        async with changing(tmp_path) as hub:
            await until(lambda: any(entry["event"] == "part_crashed" for entry in entries))
            assert await hub.call(hub.session(), "a_echo", text="x") == "completed"


async def test_flags_are_searched_again_after_lists_that_could_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []

    def inspected(*of: object) -> tuple[list[object], dict[str, str]]:
        looks.append(of)
        if len(looks) == 1:
            raise ValueError("odd")
        return [], {}

    monkeypatch.setattr(readiness, "inspected", inspected)
    with structlog.testing.capture_logs() as entries:
        async with changing(tmp_path) as hub:
            await until(lambda: looks)
            await hub.to(servers={"a": LOCAL, "b": LOCAL})
            await until(lambda: len(looks) > 1)
    assert [entry["event"] for entry in entries].count("flags_not_searched") == 1


class Crashing:
    """An upstream that runs, or fails as nobody expected."""

    def __init__(self, name: str, *, crashes: bool) -> None:
        self.name, self.lifecycle, self._crashes = name, self, crashes
        self.runs = anyio.Event()

    async def run(self) -> None:
        if self._crashes:
            raise RuntimeError("odd")
        self.runs.set()


async def test_an_upstream_that_crashes_ends_no_other() -> None:
    odd, other = Crashing("odd", crashes=True), Crashing("other", crashes=False)
    with structlog.testing.capture_logs() as entries, anyio.fail_after(WAIT):
        async with anyio.create_task_group() as tasks:
            await tasks.start(UpstreamSet({"odd": odd, "other": other}, Notices(None)).run)  # type: ignore[dict-item]  # of tests
            await other.runs.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert [entry["upstream"] for entry in entries if entry["event"] == "upstream_crashed"] == ["odd"]
