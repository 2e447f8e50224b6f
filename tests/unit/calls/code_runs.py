"""Scripts of a made engine at hubs that share a store, and a server that counts its calls."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any

import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, CallChannel, StreamInfo
from mcp_hub.calls.code.consent import DESTRUCTIVE, IDEMPOTENT, READ_ONLY
from mcp_hub.calls.code.inner import CodeParts
from mcp_hub.calls.code.runs import CodeRuns
from mcp_hub.calls.code.state import InnerCall
from mcp_hub.calls.handle import CallHandle
from mcp_hub.calls.plan import CallPlan, CallRules
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.starter import _Continuation
from mcp_hub.calls.streams.port import StreamPort
from mcp_hub.code.engine import CodeEngine, _CodeSession
from mcp_hub.code.steps import CodeCall, CodeError, CodeLimits, CodeRaise, CodeStep
from mcp_hub.errors import InvalidParams
from mcp_hub.events import Completed, Ending, Progressed
from mcp_hub.types import OWN, CallId, CodeMode, Era, RawJson
from tests.unit.calls.call_scripts import LONG
from tests.unit.calls.durable_hub import DurableHub
from tests.unit.calls.shared_store import HubStore, Shared

Stage = list[tuple[str, Any]]
TRAITS: dict[str, Collection[str]] = {
    "read": [READ_ONLY],
    "write": [],
    "destroy": [DESTRUCTIVE],
    "put": [IDEMPOTENT],
}


def script(*stages: Stage, prints: str = "") -> str:
    """Code of the made engine: stages of calls, one after the other. It ends with a list of all outcomes."""
    return msgspec.json.encode({"stages": stages, "prints": prints}).decode()


class _Made(msgspec.Struct):
    code: str
    stage: int = 0
    pending: list[int] = []
    next: int = 1
    outcomes: dict[int, Any] = {}


class MadeSession(_CodeSession):
    """One run of such a script."""

    def __init__(self, engine: "MadeEngine") -> None:
        super().__init__(engine)
        self.made_by = engine

    async def start(
        self, code: str, stubs: str, names: Collection[str], limits: CodeLimits, printed: Callable[[str], None]
    ) -> CodeStep:
        self.state, self.printed = _Made(code), printed
        return self._stepped([])

    async def load(self, snapshot: bytes, limits: CodeLimits, printed: Callable[[str], None]) -> CodeStep:
        self.made_by.loads += 1
        self.state, self.printed = msgspec.json.decode(snapshot, type=_Made), printed
        return CodeStep(pending=tuple(self.state.pending), snapshot=snapshot)

    async def feed(self, answers: Mapping[int, RawJson | CodeRaise]) -> CodeStep:
        self.made_by.fed.append(list(answers))
        await asyncio.sleep(0.001)
        for id_, answer in answers.items():
            is_error = isinstance(answer, CodeRaise)
            self.state.outcomes[id_] = answer.kind if is_error else msgspec.json.decode(answer)  # type: ignore[union-attr,arg-type]
            self.state.pending.remove(id_)
        return self._stepped(self.state.pending)

    def _stepped(self, pending: list[int]) -> CodeStep:
        engine, state = self.made_by, self.state
        engine.steps += 1
        if engine.crashes and engine.crashes[0] <= engine.steps:
            engine.crashes.pop(0)
            raise CodeError("crashed", "the worker is gone")
        code = msgspec.json.decode(state.code)
        calls: list[CodeCall] = []
        if not pending:
            if code["prints"]:
                self.printed(code["prints"])
            stage: Sequence[Any] = code["stages"][state.stage] if state.stage < len(code["stages"]) else ()
            for name, arguments in stage:
                calls.append(CodeCall(state.next, name, msgspec.json.encode(arguments), 1))
                state.pending.append(state.next)
                state.next += 1
            state.stage += 1
            if not stage:
                output = [state.outcomes[id_] for id_ in sorted(state.outcomes)]
                return CodeStep(output=msgspec.json.encode(output), has_ended=True)
        snapshot = msgspec.json.encode(state) + b" " * engine.padding
        return CodeStep(calls=tuple(calls), pending=tuple(state.pending), snapshot=snapshot)

    async def close(self) -> None:
        """Nothing is held."""


class MadeEngine(CodeEngine):
    """`crashes`: the steps at which its worker is lost. `fed`: ids of the answers of each feed."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = self.loads = self.padding = 0
        self.crashes: list[int] = []
        self.fed: list[list[int]] = []

    def session(self) -> MadeSession:
        return MadeSession(self)


class Server:
    """Counts what it was called with; slow for arguments that say so. `durable` calls are followed by the next hub."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.running = self.most = 0
        self.ends: dict[str, Ending | BaseException] = {}
        """What becomes of a call by its argument, instead of its value."""

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        name = msgspec.json.decode(call.params["name"])
        arguments = msgspec.json.decode(call.params["arguments"])
        key = f"{name} {arguments.get('x')}"
        self.counts[key] += 1
        if arguments.get("durable"):
            channel.continuable(msgspec.Raw(b"{}"))
        return await self._answered(key, arguments)

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        arguments = msgspec.json.decode(call.params["arguments"])
        channel.continuable(msgspec.Raw(b"{}"))
        return await self._answered(f"{msgspec.json.decode(call.params['name'])} {arguments.get('x')}", arguments)

    async def _answered(self, key: str, arguments: dict[str, Any]) -> Completed:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(arguments.get("seconds", 0.01))
        finally:
            self.running -= 1
        match self.ends.get(key):
            case None:
                return Completed(
                    msgspec.json.encode({"content": [{"type": "text", "text": f'"{key}"'}]}), is_plain=True
                )
            case Completed() as completed:
                return completed
            case BaseException() as error:
                raise error
        raise AssertionError


class CodeStore(HubStore):
    """A hub's store that finds the streams of all."""

    async def rows(self, principal: str | None, limit: int) -> list[StreamInfo]:
        await asyncio.sleep(0.01)
        return [row for row in self.shared.core.streams.rows() if row.principal == principal][:limit]

    def survives(self, stream: CallId) -> bool:
        return not self.is_away

    is_away = False
    """Whether memory alone takes what is written."""


class _Port:
    """What a hub of a test gives to scripts."""

    def __init__(self, hub: "CodeHub") -> None:
        self._hub = hub
        self.streams = StreamPort(hub.streams, lambda server, tool: CallRules())

    @property
    def limits(self) -> CodeLimits:
        return self._hub.code_limits

    def mode(self, call: Call) -> CodeMode:
        return self._hub.code_mode

    async def tools(self, call: Call, code: str) -> tuple[dict[str, str], str]:
        await asyncio.sleep(self._hub.tools_take)
        return {name: name for name in self._hub.code_traits}, ""

    def signatures(self, call: Call, message: str) -> list[str]:
        return []

    def traits(self, call: Call, tool: str) -> Collection[str] | None:
        return self._hub.code_traits.get(tool)

    def begin(self, call: Call, inner: InnerCall, *, must_read: bool) -> CallHandle:
        hub = self._hub
        if inner.tool not in hub.code_traits:
            raise InvalidParams(f"Unknown tool: {inner.tool}")
        params = {"name": msgspec.Raw(msgspec.json.encode(inner.tool)), "arguments": inner.arguments}
        inside = replace(call, id=inner.stream, upstream="git", params=params, parent=call.id, must_read=must_read)
        record = hub.registry.start(inside, hub.server.call, LONG)
        hub.sent.append(record)
        return CallHandle(inside, record, self.streams)


class CodeHub(DurableHub):
    """A hub that runs scripts, in `code_mode`, and continues those of others. One call of a client runs at a time.

    Each step is committed unless the hub does so `rarely`.
    """

    def __init__(self, store: HubStore, server: Server, engine: MadeEngine | None = None, rarely: float = 0.0) -> None:
        super().__init__(store, running=1, takes_up=True)
        self.go_on = self._continues
        self.server = server
        self.engine = engine or MadeEngine()
        self.tools_take = 0.01
        self.code_mode: CodeMode = "all"
        self.code_limits = CodeLimits()
        self.code_traits = dict(TRAITS)
        self.sent: list[CallRecord] = []
        self.port = _Port(self)
        self.key: Callable[[], bytes] = lambda: b"k" * 32
        parts = CodeParts(self.engine, self.port, lambda: self.key(), is_lasting=True, patience=5.0, rarely=rarely)
        self.code_runs = CodeRuns(parts)
        self.records: list[CallRecord] = []

    def runs_script(
        self,
        code: str,
        capabilities: dict[str, Any] | None = None,
        *,
        must_read: bool = False,
        directory: str | None = None,
        **arguments: Any,
    ) -> CallRecord:
        """Begins a run as a client's call."""
        raw = msgspec.Raw(msgspec.json.encode({"code": code, **arguments}))
        params = {"name": msgspec.Raw(b'"run_code"'), "arguments": raw}
        id_ = CallId(f"st_run{len(self.records)}{self.store.log.instance[-6:]}")
        call = Call(id_, OWN, "tools/call", params, {}, "s", "p", Era.HANDSHAKE, capabilities or {}, "2025-11-25")
        call = replace(call, must_read=must_read, directory=directory)
        plan = CallPlan(digest=self.code_runs.likeness(call))
        record = self.registry.start(call, self.code_runs.call, self.code_runs.limits, plan)
        self.code_runs.keep(call, record)
        self.records.append(record)
        return record

    async def _continues(self, row: StreamInfo, progressed: Progressed | None) -> None:
        left = _Continuation.of(row)
        upstream = self.server if row.server == "git" else self.code_runs
        record = left.started(upstream, self.registry, self.code_runs.limits, left.plan(row, progressed))
        self.streams.take_up(record, row).orphan(3600)
        (self.sent if row.server == "git" else self.records).append(record)

    async def dies(self) -> None:
        for record in (*self.records, *self.sent):
            record.task and record.task.cancel()
        await super().dies()


def output(ending: Ending) -> list[Any]:
    """The outcomes of a script that has ended well."""
    assert isinstance(ending, Completed), ending
    text = msgspec.json.decode(ending.result)["content"][0]["text"]
    value: list[Any] = msgspec.json.decode(text)
    return value


class Recorder(CodeStore):
    """Copies everything at each write: what is stored, and what the server has been called with."""

    def __init__(self, shared: Shared, server: Server) -> None:
        super().__init__(shared)
        self.server = server
        self.copies: list[tuple[Shared, Counter[str], Counter[str]]] = []
        """The store after each write; the counts then, and before the next one."""

    def create(self, *args: Any) -> None:
        self._closes()
        super().create(*args)
        self._copies()

    def append(self, *args: Any) -> None:
        self._closes()
        super().append(*args)
        self._copies()

    def _copies(self) -> None:
        shared = Shared()
        shared.core = deepcopy(self.shared.core)
        counts = Counter(self.server.counts)
        self.copies.append((shared, counts, counts))

    def _closes(self) -> None:
        if self.copies:
            shared, counts, _ = self.copies[-1]
            self.copies[-1] = shared, counts, Counter(self.server.counts)
