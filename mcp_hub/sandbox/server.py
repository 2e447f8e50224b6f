"""One server's sandbox for all its starts: rule, private home, refusals."""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from mcp_hub.addresses import host_rule
from mcp_hub.attach.folder import Untrusted
from mcp_hub.errors import StartFailed
from mcp_hub.files import encoded
from mcp_hub.logs import get_logger
from mcp_hub.sandbox.confinement import READ_DIR, READ_FILE, WRITE_FILE, Confinement, Unsupported
from mcp_hub.sandbox.connector import SocketConnector
from mcp_hub.sandbox.home import HomeCare, PrivateHome
from mcp_hub.sandbox.launch import AnyLaunch, Launch, StepFailed, seatbelt_launch
from mcp_hub.sandbox.network.interface import Proxy, Refusals, refused_name
from mcp_hub.sandbox.rules import FileKey, ResolvedRule, Rule, RuleError, Subject, Surroundings, listed, resolve
from mcp_hub.types import LAST_OUTPUT, Cause

if TYPE_CHECKING:
    from mcp_hub.sandbox.learning import Learning

log = get_logger(__name__)

_REFUSED: Final = re.compile(r"EACCES|EPERM|[Pp]ermission denied|not permitted|Read-only|unable to open database")
_PATH: Final = re.compile(r"""(?:['"`](/[^'"`\n]{1,1000})['"`]|(?:^|[\s:=(])(/[^\s'"`:,)]{1,1000}))""")
_MOST_LINES: Final = 200
_ENOENT, _EACCES = 2, 13
_LOOKING: Final = 20.0
"""Seconds for a rule's paths; usually milliseconds."""
_EXPLAINING: Final = 2.0
"""Seconds for the paths in a failed server's output."""


class ServerSandbox:
    """Prepares each start of a server; with `learning`, each is a learning run.

    `absence`: why the latest start is unconfined. `latest`: its resolved rule, or None.
    """

    def __init__(
        self, server: str, rule: Rule, private: str, around: Surroundings,
        make_proxy: Callable[[], Proxy] | None = None, learning: "Learning | None" = None,
    ) -> None:  # fmt: skip
        self.server = server
        self.rule = rule
        self.refusals = Refusals(server)
        self.absence = ""
        self.learning = learning
        self._private = PrivateHome(private)
        self._around = around
        self._make_proxy = make_proxy
        self.latest: ResolvedRule | None = None
        self.care = HomeCare(server, self._private)

    def has_same_rule(self, sandbox: "ServerSandbox") -> bool:
        return (self.rule, self._around, self._private) == (sandbox.rule, sandbox._around, sandbox._private)

    @property
    def entries(self) -> Mapping[str, Sequence[str]]:
        """The rule's lists by key; once known, also what a missing list would have to repeat."""
        hosts = [entry for host in self.rule.hosts for entry in host.entries]
        return {**({} if self.latest is None else self.latest.entries), "net": hosts, "sockets": self.rule.sockets}

    @property
    def notes(self) -> tuple[str, ...]:
        absence = f"runs without a sandbox: {self.absence}" if self.absence else ""
        large = (
            f"its private home is larger than 4 GiB: mcp-hub sandbox {quote(self.server)}" if self.care.is_large else ""
        )
        return tuple(filter(None, (absence, self.latest.confinement.shrinks if self.latest is not None else "", large)))

    async def begin(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, *, is_spare: bool
    ) -> "SandboxedStart | None":
        """Trims the private home before the first start, then runs `prepare` in a thread. Raises `StartFailed`.

        A hanging file system stops this server alone.
        """
        await self.care.tidy()
        try:
            with anyio.fail_after(_LOOKING):
                return await self.care.in_thread(partial(self.prepare, argv, env, cwd, is_spare=is_spare))
        except TimeoutError:
            reason = f"looking at the paths of its sandbox and of PATH takes more than {_LOOKING:g} s"
            advice = "Is one of them on a network file system that does not answer?"
            raise StartFailed("start_timeout", f"{reason}. {advice}") from None

    async def attend(self) -> None:
        """Holds and measures the private home until cancelled."""
        await self.care.run()

    def prepare(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, *, is_spare: bool
    ) -> "SandboxedStart | None":
        """The start of a command; None: unconfined. Blocks for milliseconds. Raises `StartFailed`."""
        self.absence, self.latest = "", None
        self.refusals.begin()
        try:
            self._private.make(self._around.home, env)
            subject = self._subject(argv, env, cwd, is_spare=is_spare)
            resolved = resolve(self.rule, subject, self._private)
            confinement = resolved.confinement
            if self.learning is not None:
                confinement = self.learning.begin(subject, confinement)
            launch = _launch(confinement, argv, confinement.environment(env))
        except Unsupported as problem:
            if not self.rule.is_preferred:
                raise StartFailed("sandbox_unsupported", str(problem)) from None
            self.absence = str(problem)
            log.warning("sandbox_absent", upstream=self.server, reason=str(problem))
            return None
        except RuleError as problem:
            raise StartFailed("sandbox_rule", f"sandbox: {problem.key}: {problem}") from None
        except (OSError, Untrusted) as problem:
            raise StartFailed("sandbox_unsupported", f"the sandbox cannot be made: {problem}") from None
        self.latest = resolved if self.learning is None else None
        return SandboxedStart(sandbox=self, argv=argv, confinement=confinement, launch=launch, proxy=self._proxy())

    def _proxy(self) -> Proxy | None:
        if self._make_proxy is None or self.rule.net != "hosts":
            return None
        return self._make_proxy() if self.learning is None else self.learning.proxy()

    def resolved(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, *, is_spare: bool) -> ResolvedRule:
        """The rule for a command. Raises `RuleError` and `Unsupported`."""
        return resolve(self.rule, self._subject(argv, env, cwd, is_spare=is_spare), self._private)

    def _subject(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, *, is_spare: bool) -> Subject:
        return Subject(program=argv[0], args=argv[1:], env=env, cwd=cwd, around=self._around, is_spare=is_spare)

    async def explained(self, cause: Cause) -> Cause:
        """`explain` in a thread; the cause itself if that takes long."""
        with anyio.move_on_after(_EXPLAINING):
            return await self.care.in_thread(partial(self.explain, cause))
        return cause

    def explain(self, cause: Cause) -> Cause:
        """A failed start's cause, as `sandbox_refused` if a path or host was refused."""
        if self.latest is None or cause.code.startswith("sandbox"):
            return cause
        line = refused_path(cause.reason, self.latest, self.refusals) or self._refused_host()
        line = line or refused_name(cause.reason, self.rule.net, self.latest.confinement.hosts, self.entries["net"])
        return cause if line is None else Cause("sandbox_refused", f"{line} The server: {cause.reason}")

    def _refused_host(self) -> str | None:
        if not self.refusals.has_new:
            return None
        latest = self.refusals.latest()[0]
        sentence = f"The sandbox refused {latest.target} ({latest.reason})."
        if not isinstance(latest.key, str) or not isinstance(latest.entry, str):
            return sentence
        return (
            f"{sentence} If it may, set {listed(latest.key, (*self.entries[latest.key], latest.entry))} in its sandbox."
        )


class SandboxedStart:
    """One sandboxed start: spawn `launch`, then `begin`."""

    def __init__(
        self, sandbox: ServerSandbox, argv: Sequence[str], confinement: Confinement, launch: AnyLaunch,
        proxy: Proxy | None,
    ) -> None:  # fmt: skip
        self.launch = launch
        self.confinement = confinement
        self._sandbox = sandbox
        self._argv = argv
        self._proxy = proxy

    def first(self) -> AbstractAsyncContextManager[None]:
        """Spans the start until ready; first starts of packages take turns."""
        return self._sandbox.care.first(self._argv)

    async def begin(self, tasks: TaskGroup) -> None:
        """Returns once the command is executed; `tasks` serve its connections. Raises `StartFailed`."""
        sandbox, learning = self._sandbox, self._sandbox.learning

        def serve(listener: int) -> None:
            make = SocketConnector if learning is None else learning.connector
            arguments = (sandbox.server, self.confinement, self._proxy, sandbox.refusals)
            connector = make(listener, *arguments, thread=sandbox.care.names)
            tasks.start_soon(connector.run)

        if self._proxy is not None:
            tasks.start_soon(self._proxy.run)
        try:
            await self.launch.executed(serve)
        except StepFailed as problem:
            raise StartFailed(*_cause_of(problem, self._argv[0], sandbox.latest)) from None
        tasks.start_soon(sandbox.attend)


def _launch(confinement: Confinement, argv: Sequence[str], env: Mapping[str, str]) -> AnyLaunch:
    if sys.platform == "darwin":
        return seatbelt_launch(confinement, argv, env)
    else:
        return Launch(confinement, [encoded(word) for word in argv], _encoded(env))


def refused_path(text: str, resolved: ResolvedRule, refusals: Refusals) -> str | None:
    """Advice about the first refused path in an output, which it counts.

    Secret or broad paths get no line to add.
    """
    lines = text.replace(LAST_OUTPUT, "\n").replace(" | ", "\n").splitlines()  # as `with_output` joins them
    for line in lines[-_MOST_LINES:]:
        if not _REFUSED.search(line):
            continue
        for path, key in _refused_in(line, resolved.confinement):
            why_not = resolved.why_not(key, path)
            refusals.note(key, path, why_not or "the server's last output names it", "" if why_not else path)
            return f"The sandbox refuses to {key} {path}. {resolved.advice(key, path)}"
    return None


def _refused_in(line: str, confinement: Confinement) -> list[tuple[str, FileKey]]:
    refused: list[tuple[str, FileKey]] = []
    for match in _PATH.finditer(line):
        path = os.path.realpath(match[1] or match[2])
        if not os.path.exists(os.path.dirname(path)):
            continue
        if confinement.allows(path, READ_DIR if os.path.isdir(path) else READ_FILE) is None:
            refused.append((path, "read"))
        elif confinement.allows(path, WRITE_FILE) is None and not (os.path.isfile(path) and os.access(path, os.X_OK)):
            refused.append((path, "write"))
    return sorted(refused, key=lambda entry: entry[1])


def _cause_of(problem: StepFailed, program: str, rule: ResolvedRule | None) -> Cause:
    if problem.step == "exec" and problem.number == _ENOENT:
        if os.path.exists(program):
            message = f"cannot start {program}: the interpreter that its first line (#!) names does not exist"
            return Cause("interpreter_not_found", message)
        return Cause("command_not_found", f"cannot start {program}: no such file")
    if problem.step == "exec" and problem.number == _EACCES:
        if not os.access(program, os.X_OK):
            return Cause("not_executable", f"cannot start {program}: no permission to execute it")
        advice = "" if rule is None else f" {rule.advice_for_program(program)}"
        return Cause("sandbox_refused", f"the sandbox refuses to execute {program} or its interpreter.{advice}")
    if problem.step == "exec":
        return Cause("cannot_start", f"cannot start {program}: {os.strerror(problem.number)}")
    if problem.step == "path":
        message = f"the sandbox cannot open {problem.path}: {os.strerror(problem.number)}. Start the server again."
        return Cause("sandbox_refused", message)
    return Cause("sandbox_unsupported", f"the sandbox could not be entered ({problem})")


def rule_of(
    read: Sequence[str] | None,
    write: Sequence[str] | None,
    net: str | Sequence[str],
    sockets: Sequence[str],
    *,
    is_preferred: bool = False,
) -> Rule:
    """A rule from checked configuration values."""
    return Rule(
        read=None if read is None else tuple(read),
        write=None if write is None else tuple(write),
        net="none" if net == "none" else "any" if net == "any" else "hosts",
        hosts=() if isinstance(net, str) else tuple(map(host_rule, net)),
        sockets=tuple(sockets),
        is_preferred=is_preferred,
    )


def _encoded(env: Mapping[str, str]) -> dict[bytes, bytes]:
    return {encoded(name): encoded(value) for name, value in env.items()}
