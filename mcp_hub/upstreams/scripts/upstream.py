"""A folder of scripts as a server: its tools, with hints from the tools that they use, and their runs."""

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, CallChannel, Gate
from mcp_hub.clock import wall_time
from mcp_hub.errors import InvalidParams, UnknownEntry, UpstreamUnavailable
from mcp_hub.events import Completed
from mcp_hub.masking import hide, hide_head
from mcp_hub.notices import Notices
from mcp_hub.types import CacheHint, Cause, Era, Kind, RawJson, Snapshot, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.local_source import LocalSource
from mcp_hub.upstreams.scripts.source import Script, findings_of, read_folder
from mcp_hub.upstreams.supervision.server import OwnedUpstream

_TTL: Final = 5.0
"""Seconds for which a look at the folder counts for lists and calls."""
_HINT: Final = CacheHint(int(_TTL * 1000), public=False)
_MOST_WARNINGS: Final = 20

ReadOnly = Callable[[], Mapping[str, bool] | None]
"""Whether each tool, by its name in a script, only reads; None while servers are on their first way up."""


class _Runs(Protocol):
    """Runs scripts as calls. Both raise `RpcError`."""

    async def run(self, call: Call, channel: CallChannel, code: str) -> Completed:
        """Runs `code` for the caller of `call`."""

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        """Continues another hub's run."""


class _Look(msgspec.Struct, frozen=True):
    """One look at the folder: `at` by the clock of the loop, `wall` in Unix seconds."""

    scripts: Mapping[str, Script] = {}
    problem: Cause | None = None
    at: float = -math.inf
    wall: float | None = None


class _Listed(msgspec.Struct, frozen=True):
    """The listed scripts, with these hints of other tools."""

    read_only: Mapping[str, bool] | None = None
    snapshot: Snapshot | None = None
    warnings: tuple[str, ...] = ()


def script_upstream(
    name: str,
    folder: str,
    changes: Notices,
    *,
    env: Mapping[str, str],
    runs: Callable[[], _Runs],
    read_only: ReadOnly,
    gate: Gate | None = None,
) -> OwnedUpstream:
    """The scripts of one folder. They are listed once the tools that they may use are known."""
    return _ScriptUpstream(name, folder, changes, env=env, runs=runs, read_only=read_only, gate=gate)


class _ScriptUpstream(LocalSource):
    def __init__(
        self,
        name: str,
        folder: str,
        changes: Notices,
        *,
        env: Mapping[str, str],
        runs: Callable[[], _Runs],
        read_only: ReadOnly,
        gate: Gate | None,
    ) -> None:
        super().__init__(name, self.run)
        self._folder = folder
        self._read = partial(read_folder, folder, env)
        self._changes = changes
        self._runs = runs
        self._read_only = read_only
        self._gate = gate
        self._looked = _Look()
        self._listed = _Listed()
        self._turn = anyio.Lock()

    async def run(self) -> None:
        """Lists the scripts, anew whenever the tools of other servers change."""
        await self._look(-math.inf)
        while True:
            version = self._changes.version
            self._list()
            await self._changes.wait(version)

    def status(self) -> UpstreamStatus:
        if self._looked.problem is not None:
            code, reason = self._looked.problem
            return UpstreamStatus(self.name, UpstreamState.FAILED, reason, code=code)
        state = UpstreamState.STARTING if self._listed.snapshot is None else UpstreamState.READY
        warnings, wall = self._listed.warnings, self._looked.wall
        return UpstreamStatus(self.name, state, era=Era.HANDSHAKE, warnings=warnings, listed_at=wall)

    def snapshot(self) -> Snapshot | None:
        return None if self._looked.problem is not None else self._listed.snapshot

    def refresh(self, kind: Kind, *, is_new: bool = False) -> Callable[[], Awaitable[None]] | None:
        if kind is not Kind.TOOL or anyio.current_time() < self._looked.at + _TTL:
            return None
        return partial(self._look, anyio.current_time())

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """Runs a script's present text. Raises `InvalidParams` for another script's call."""
        before = self._listed.snapshot
        await self._look(anyio.current_time() - _TTL)
        if self._looked.problem is not None:
            code, reason = self._looked.problem
            data = {"server": self.name, "state": UpstreamState.FAILED.value, "reason": reason, "code": code}
            raise UpstreamUnavailable(f'server "{self.name}" has failed: {reason}', data={"upstream": data})
        if call.parent is not None:
            raise InvalidParams("A script cannot call a script.")
        name, snapshot = self.tool_of(call), self._listed.snapshot
        script = self._looked.scripts.get(name)
        if script is None or script.fault:
            why = f": {script.fault} (line {script.line})" if script is not None else ""
            raise UnknownEntry(f'server "{self.name}" does not have a tool "{hide_head(name, 100)}"{why}')
        if self._gate is not None and snapshot is not None and snapshot is not before:
            self._gate(call, snapshot, snapshot)
        return await self._runs().run(self._as_listed(call), channel, script.call(_arguments(call)))

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        listed = self._as_listed(call) if "name" in call.params else call
        return await self._runs().resume(listed, channel, state)

    def _as_listed(self, call: Call) -> Call:
        """The call may only read if its script is listed so: in its profile names can be of other tools."""
        script, read_only = self._looked.scripts.get(self.tool_of(call)), self._listed.read_only
        if script is None or read_only is None or not _only_reads(script, read_only):
            return call
        return replace(call, must_read=True)

    async def _look(self, requested_at: float) -> None:
        """One look serves all who asked before it began."""
        async with self._turn:
            before = self._looked
            if before.at >= requested_at > -math.inf:
                return
            began, scripts, problem = anyio.current_time(), before.scripts, None
            try:
                scripts = await anyio.to_thread.run_sync(self._read, scripts)
            except OSError as error:
                reason = hide_head(hide(f"scripts {self._folder}: {error.strerror or error}"), 500)
                problem = Cause("scripts_not_found", reason)
            self._looked = _Look(scripts, problem, began, wall_time())
            if problem != before.problem:
                self._changes.bump()
            self._list()

    def _list(self) -> None:
        before, read_only = self._listed, self._read_only()
        if read_only is None:
            read_only = before.read_only
        if read_only is None:
            return  # hints that come later would be a change of the tool
        scripts = self._looked.scripts
        unknown = {name: [used for used in item.names if used not in read_only] for name, item in scripts.items()}
        findings = findings_of(self._folder, scripts, unknown)[:_MOST_WARNINGS]
        tools = tuple(_definition(script, read_only) for script in scripts.values() if not script.fault)
        snapshot = Snapshot(
            server=self.name, era=Era.HANDSHAKE, lists={Kind.TOOL: tools}, hints={Kind.TOOL: _HINT},
            capabilities={"tools": {}},
        )  # fmt: skip
        warnings = tuple(hide_head(hide(str(finding)), 500) for finding in findings)
        is_same = (snapshot, warnings) == (before.snapshot, before.warnings)
        self._listed = _Listed(read_only, before.snapshot if is_same else snapshot, warnings)
        if not is_same:
            self._changes.bump()


def _definition(script: Script, read_only: Mapping[str, bool]) -> bytes:
    """The definition; read-only if all that the script uses is."""
    hints = {"annotations": {"readOnlyHint": True}} if _only_reads(script, read_only) else {}
    return msgspec.json.encode({**script.definition, **hints})


def _only_reads(script: Script, read_only: Mapping[str, bool]) -> bool:
    return all(read_only.get(name, False) for name in script.names)


def _arguments(call: Call) -> dict[str, object]:
    raw = call.params.get("arguments", msgspec.Raw(b"{}"))
    try:
        return msgspec.json.decode(raw, type=dict[str, object] | None) or {}
    except (msgspec.MsgspecError, RecursionError):
        raise InvalidParams("The arguments of a tool have to be an object.") from None
