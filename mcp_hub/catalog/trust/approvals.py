"""Findings for texts that differ from the approved ones, with records on disk."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, Gate
from mcp_hub.catalog.flags import decoded
from mcp_hub.catalog.offers.definitions import Definition
from mcp_hub.catalog.pins import (
    INSTRUCTIONS,
    Fingerprint,
    Policy,
    Record,
    UnapprovedTool,
    Verdict,
    check_shown,
    compared_kinds,
    encoded,
    findings_of,
    fingerprint,
    label_of,
    pin_name,
    pinned,
    pinned_instructions,
    pinned_texts,
    read,
    seen,
    subject_of,
    without_texts,
)
from mcp_hub.catalog.routes import awaiting
from mcp_hub.ids import record_key
from mcp_hub.logs import get_logger
from mcp_hub.notices import Notices
from mcp_hub.types import Kind, Origin, Snapshot

log = get_logger(__name__)

_LOOK_AGAIN: Final = 1.0  # seconds between looks for approvals by other processes, while there is something to approve
_TRY_AGAIN: Final = 30.0  # seconds until a record is written again that could not be
_MOST_ORDERED: Final = 1000  # unapproved definitions of a list that are put in order: the event loop waits for it
_MOST_LOGGED: Final = 10  # tools that one line of the log names; `mcp-hub approve` shows all
_MOST_LINES: Final = 100  # of the log about one server, which could change its tools all the time
_CHECKED: Final = {"tools/call": Kind.TOOL, "prompts/get": Kind.PROMPT, "skills/get": Kind.SKILL}
_NOT_READ: Final = object()  # the stamp of a record that was never read


class _PinStore(Protocol):
    """Small files by key, shared by processes. All raise `OSError`."""

    def stamp(self, key: str) -> object: ...

    def read(self, key: str) -> bytes | None: ...

    def update(self, key: str, change: Callable[[bytes | None], bytes | None]) -> None: ...


class Approvals:
    """The findings of one hub. `policies` are by server; `config` is the configuration's path.

    `relist` gets a server whose processes list a tool differently; `confirms` are servers where a person's approval
    matters. `judged` blocks only to read a changed record; `run` sees approvals of other processes within a second.
    """

    def __init__(
        self,
        store: _PinStore,
        config: str,
        policies: Mapping[str, Policy],
        changes: Notices,
        wall_clock: Callable[[], float],
        relist: Callable[[str], None] = lambda server: None,
        confirms: Collection[str] = (),
    ) -> None:
        self._relist = relist
        self._confirms = confirms
        self._store = store
        self._config = config
        self._policies = dict(policies)
        self._changes = changes
        self._wall_clock = wall_clock
        self._servers: dict[str, _Server] = {}
        self.approved: dict[str, Snapshot] = {}
        """Each server's last judged list, if it has no findings."""
        self._wake = anyio.Event()

    def follow(self, policies: Mapping[str, Policy], confirms: Collection[str] = ()) -> None:
        """Replaces the policies. Servers without one are ignored; their records stay."""
        self._policies, self._confirms = dict(policies), confirms
        for name, server in list(self._servers.items()):
            policy = self._policies.get(name, "off")
            if policy == server.policy:
                continue
            self.approved.pop(name, None)
            server.policy, server.snapshot = policy, None
            if policy == "off":
                del self._servers[name]
        self._wake.set()
        self._changes.bump()

    def judged(self, snapshots: Iterable[Snapshot]) -> Verdict:
        """The verdict on these lists; those of one caller are not recorded."""
        withheld: dict[Origin, UnapprovedTool] = {}
        confirmed: set[Origin] = set()
        for snapshot in snapshots:
            name = snapshot.server
            server = self._server(name)
            if server is None or snapshot.is_own:
                continue
            if snapshot.is_apart:
                self._load(server)
                findings = server.judged_apart(snapshot, self._wall_clock())
                withheld |= {(name, tool): finding for tool, finding in findings.items() if finding.is_held}
                if name in self._confirms:
                    confirmed |= {(name, tool) for tool in server.confirmed.difference(findings)}
                continue
            if server.snapshot is not snapshot:
                server.snapshot = snapshot
                self._judge(server)
                if server.unsaved or self._is_followed(server):
                    self._wake.set()
            withheld |= {(name, tool): finding for tool, finding in server.findings.items() if finding.is_held}
            if name in self._confirms:
                confirmed |= {(name, tool) for tool in server.confirmed}
        return withheld, frozenset(confirmed)

    def is_confirmed(self, server: str, definition: Definition) -> bool:
        """Whether a person approved the definition."""
        state = self._server(server) if server in self._confirms else None
        return state is not None and state.confirms(definition)

    def _server(self, name: str) -> "_Server | None":
        policy = self._policies.get(name, "off")
        if policy != "off" and name not in self._servers:
            self._servers[name] = _Server(name, record_key(self._config, name), policy)
        return self._servers.get(name)

    def check(self, call: Call, snapshot: Snapshot) -> None:
        """A `Gate` against the process's own list. Raises `not_approved`."""
        kind = _CHECKED.get(call.method)
        if kind is None:
            return
        server = self._servers.get(call.upstream) or self._server(call.upstream)
        if kind is Kind.SKILL:
            self._check_skill(call, server, snapshot)
            return
        if server is None or (server.snapshot is snapshot and not server.findings):
            return
        key = msgspec.json.decode(call.params["name"], type=str)
        name = pin_name(kind, key)
        finding = server.findings.get(name)
        if not server.lists_as(snapshot, kind):
            self._load(server)
            listed_finding, finding = finding, server.judged(name, snapshot, self._wall_clock())
            if finding is not None and (listed_finding is None or listed_finding.digest != finding.digest):
                self._relist(server.name)
        if finding is not None and finding.is_held:
            label = key if call.exported_name is msgspec.UNSET else msgspec.json.decode(call.exported_name, type=str)
            raise awaiting(label, finding, kind.value.capitalize())

    def _check_skill(self, call: Call, server: "_Server | None", snapshot: Snapshot) -> None:
        """An unlisted skill cannot be approved."""
        if server is None:
            return
        uri = msgspec.json.decode(call.params["uri"], type=str)
        name = pin_name(Kind.SKILL, uri)
        self._load(server)
        finding = server.judged(name, snapshot, self._wall_clock())
        if finding is None and name not in pinned_texts(snapshot):
            finding = UnapprovedTool(server.name, name, "new", is_held=server.policy == "block")
        if finding is not None and finding.is_held:
            raise awaiting(call.exported_uri or uri, finding, "Skill")

    def findings(self) -> list[UnapprovedTool]:
        """By server in order of first listing, then by tool; held or not."""
        return [finding for server in self._servers.values() for finding in server.findings.values()]

    def _judge(self, server: "_Server") -> None:
        self._load(server)
        server.judge(self._wall_clock())
        self.approved.pop(server.name, None)
        if server.snapshot is not None and not server.findings:
            self.approved[server.name] = server.snapshot

    def _is_followed(self, server: "_Server") -> bool:
        return bool(server.findings) or server.name in self._confirms

    def _load(self, server: "_Server") -> None:
        try:
            stamp = self._store.stamp(server.key)
            if stamp != server.stamp:
                server.load(read(self._store.read(server.key)), stamp)
        except (OSError, ValueError) as problem:
            server.log.has_failed("approvals_unread", str(problem))
            server.is_unreadable = True

    async def run(self) -> None:
        """Writes records in a worker thread until cancelled."""
        while True:
            self._wake = anyio.Event()
            for server in self._unsaved():
                await anyio.to_thread.run_sync(self._save, server)
                self._judge_again(server)
            with anyio.move_on_after(self._pause()):
                await self._wake.wait()
            self.look()

    def look(self) -> None:
        """Applies approvals written elsewhere."""
        for server in list(self._servers.values()):
            if self._is_followed(server) and self._is_stale(server):
                before, confirmed = server.findings.keys() - server.confirmed, server.confirmed
                self._judge_again(server)
                names = sorted((before - server.findings.keys()) | (server.confirmed - confirmed))
                if names := [decoded(name) for name in names[:_MOST_LOGGED]]:
                    log.info("definitions_approved", audit="approval", upstream=server.name, names=names)

    def close(self) -> None:
        for server in self._unsaved():
            self._save(server)

    def _pause(self) -> float:
        if any(map(self._is_followed, self._servers.values())):
            return _LOOK_AGAIN
        return _TRY_AGAIN if self._unsaved() else math.inf

    def _unsaved(self) -> list["_Server"]:
        return [server for server in self._servers.values() if server.unsaved]

    def _save(self, server: "_Server") -> None:
        base, snapshot = server.record, server.snapshot
        offered = {} if snapshot is None else _offered(snapshot, base)

        def change(text: bytes | None) -> bytes:
            record = read(text)
            # what was first seen here stays the first, also if the server has changed it before this was written
            pins, kinds = {**base.tools, **record.tools}, tuple(sorted({*base.kinds, *record.kinds}))
            first = replace(record, tools=pins, kinds=kinds, server=server.name, config=self._config)
            return encoded(seen(first, offered, server.policy, self._wall_clock()))

        try:
            self._store.update(server.key, change)
        except (OSError, ValueError) as problem:
            server.log.has_failed("approvals_unwritten", str(problem))
        else:
            server.unsaved = False

    def _judge_again(self, server: "_Server") -> None:
        before, was_unsaved = (server.findings, server.confirmed), server.unsaved
        self._judge(server)
        if server.unsaved and not was_unsaved:  # a record that cannot be written waits for the next try
            self._wake.set()
        if (server.findings, server.confirmed) != before:
            self._changes.bump()

    def _is_stale(self, server: "_Server") -> bool:
        try:
            return self._store.stamp(server.key) != server.stamp
        except OSError:
            return False


class _Gate:
    def __init__(self, approvals: Approvals, reads: Callable[[Call, Snapshot], None]) -> None:
        self._approvals = approvals
        self._reads = reads
        self.approved = approvals.approved

    def __call__(self, call: Call, compared: Snapshot, listed: Snapshot) -> None:
        self._approvals.check(call, compared)
        if call.seen_hash is not None:
            check_shown(listed, msgspec.json.decode(call.params["name"], type=str), call.seen_hash)
        if call.must_read:
            self._reads(call, listed)


def gate(approvals: Approvals, reads: Callable[[Call, Snapshot], None]) -> Gate:
    """The compared list must be approved; `reads` checks calls that must only read."""
    return _Gate(approvals, reads)


class _Server:
    def __init__(self, name: str, key: str, policy: Policy) -> None:
        self.name = name
        self.key = key
        self.policy = policy
        self.log = _Log(name)
        self.snapshot: Snapshot | None = None
        self.is_unreadable = self.unsaved = False
        self.stamp: object = _NOT_READ
        self.findings: dict[str, UnapprovedTool] = {}
        self.record = Record()

    def load(self, record: Record, stamp: object) -> None:
        self.record, self.stamp, self.is_unreadable = without_texts(record), stamp, False

    def judge(self, at: float) -> None:
        before, offered = self.findings, {} if self.snapshot is None else _offered(self.snapshot, self.record)
        if self.is_unreadable:
            names = {} if self.snapshot is None else pinned_texts(self.snapshot)
            self.findings = {name: self._unreadable(name) for name in names}
        else:
            kinds = () if self.snapshot is None or not offered else compared_kinds(self.snapshot)
            after = seen(self.record, offered, self.policy, at, kinds)
            self.unsaved = self.unsaved or after is not self.record
            self.record = after
            self.findings = findings_of(self.name, after, offered, self.policy)
        news = [
            finding
            for name, finding in self.findings.items()
            if name not in before or before[name].digest != finding.digest
        ]
        if news:
            self.log.report(news)

    def lists_as(self, snapshot: Snapshot, kind: Kind) -> bool:
        mine = self.snapshot
        return mine is not None and (mine is snapshot or mine.lists.get(kind) == snapshot.lists.get(kind))

    @property
    def confirmed(self) -> frozenset[str]:
        tools = {} if self.is_unreadable else self.record.tools
        return frozenset(name for name, pin in tools.items() if pin.by_user and pin.offered is None)

    def confirms(self, definition: Definition) -> bool:
        pin = None if self.is_unreadable else self.record.tools.get(pin_name(Kind.TOOL, definition.key))
        return pin is not None and pin.confirms(fingerprint(pinned(Kind.TOOL, definition.as_sent), pin))

    def judged_apart(self, snapshot: Snapshot, at: float) -> dict[str, UnapprovedTool]:
        if self.is_unreadable:
            return {name: self._unreadable(name) for name in pinned_texts(snapshot)}
        offered = _offered(snapshot, self.record)
        return findings_of(self.name, seen(self.record, offered, self.policy, at), offered, self.policy)

    def _unreadable(self, name: str) -> UnapprovedTool:
        return UnapprovedTool(self.name, name, "unreadable", is_held=self.policy == "block")

    def judged(self, name: str, snapshot: Snapshot, at: float) -> UnapprovedTool | None:
        if self.is_unreadable:
            return self._unreadable(name)
        listed = {key: fields for key, fields in pinned_texts(snapshot).items() if key == name}
        offered = {key: fingerprint(fields, self.record.tools.get(key)) for key, fields in listed.items()}
        return findings_of(self.name, seen(self.record, offered, self.policy, at), offered, self.policy).get(name)


class _Log:
    """At most `_MOST_LINES` per server, each failure once."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._failure: str | None = None
        self._lines = 0

    def report(self, news: Sequence[UnapprovedTool]) -> None:
        self._lines += 1
        if self._lines > _MOST_LINES:
            return
        log.warning(
            "tools_not_approved",
            upstream=self._server,
            count=len(news),
            tools=[f"{decoded(_logged(finding.tool), 80)} {finding.text}" for finding in news[:_MOST_LOGGED]],
            held=news[0].is_held,
            fix=f"mcp-hub approve {decoded(self._server)}",
            last=self._lines == _MOST_LINES,
        )

    def has_failed(self, event: str, reason: str) -> None:
        if reason != self._failure:
            log.warning(event, upstream=self._server, reason=decoded(reason))
        self._failure = reason


def _logged(name: str) -> str:
    subject, key = subject_of(name)
    return key if subject == "tool" else label_of(name)


def _offered(snapshot: Snapshot, record: Record) -> dict[str, Fingerprint]:
    """Absent instructions count as empty ones, so that later ones differ."""
    pins = pinned_texts(snapshot)
    if pins and INSTRUCTIONS not in record.tools:
        pins.setdefault(INSTRUCTIONS, pinned_instructions(""))
    prints: dict[str, Fingerprint] = {}
    unapproved = 0
    for name, fields in pins.items():
        pin = record.tools.get(name)
        prints[name] = offered = fingerprint(fields, pin, is_ordered=unapproved < _MOST_ORDERED)
        unapproved += pin is None or offered is not pin.approved
    return prints
