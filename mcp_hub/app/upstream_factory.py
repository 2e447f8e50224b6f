"""Makes an upstream from its entry, and finds its program."""

import math
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcp_hub.aio import Turn
from mcp_hub.app.catalog_rules import repetition
from mcp_hub.app.logins import Logins
from mcp_hub.app.readiness import StartFolders, folder_key, working_directory
from mcp_hub.call import Gate
from mcp_hub.catalog.offers.definitions import prepare
from mcp_hub.clock import Clock
from mcp_hub.config.findings import DataPath, path_text
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.defaults import Defaults
from mcp_hub.config.schema.servers import CommandLookup, Lookup, ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError, ConfigFinding, StartFailed
from mcp_hub.logs import get_logger
from mcp_hub.notices import Notices
from mcp_hub.stores.documents import Holdings
from mcp_hub.stores.server_logs import ServerLogWriter
from mcp_hub.types import Cause, Era, Snapshot
from mcp_hub.upstreams.lists.list_reader import ListFile, ListLimits, list_key
from mcp_hub.upstreams.local_source import disabled_upstream
from mcp_hub.upstreams.peer.era_cache import EraCache, server_key, url_key
from mcp_hub.upstreams.peer.server_eras import ANY_ERA, ClientEra, EraWish, ServerEras
from mcp_hub.upstreams.process import commands
from mcp_hub.upstreams.process.lookups import CommandOutputs, commands_of, outputs_once, with_outputs
from mcp_hub.upstreams.process.stdio import StdioConnection, StdioSpec, TakeLines
from mcp_hub.upstreams.process.watchdog import Watchdog
from mcp_hub.upstreams.supervision.both_eras import BothEras, Connect
from mcp_hub.upstreams.supervision.lifecycle import RestartRule
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from mcp_hub.upstreams.supervision.scoped import Scoped
from mcp_hub.upstreams.supervision.server import OwnedUpstream, SupervisorRules

if TYPE_CHECKING:
    from mcp_hub.sandbox.learning import Learning
    from mcp_hub.sandbox.server import ServerSandbox
    from mcp_hub.upstreams.accounts.accounts import Accounts
    from mcp_hub.upstreams.auth.access import Access

log = get_logger(__name__)

_READING: Final = 10.0
"""Seconds to read secrets again."""
_IDLE: Final = 600.0
"""Default `idle_stop` in seconds, for servers started on demand."""

_LATER: Final = Cause("start_failed", "hub.accounts.key holds from the hub's next start on")
MakeSpec = Callable[[str | None], StdioSpec | Awaitable[StdioSpec]]
"""Makes a process for a client in that folder, or for none."""


def _nothing_to_read() -> Loaded:
    raise ConfigError(ConfigFinding("config_not_found", "These settings do not come from a file."))


class UpstreamFactory(msgspec.Struct, frozen=True):
    """Parts of all upstreams. Relative commands and modules are searched in `folder`.

    `clients`: folders in a background hub, the latest last. `read` loads the configuration again. `scripts` makes an
    upstream for a name and folder. `accounts` are principals', `of_principals` makes servers with them.
    """

    env: Mapping[str, str]
    folder: str
    memory: EraCache
    clock: Clock
    changes: Notices
    watchdog: Watchdog
    last_lists: Path | None = None
    logins: Logins | None = None
    gate: Gate | None = None
    turn: Turn | None = None
    client: ClientEra = msgspec.field(default_factory=ClientEra)
    logs: ServerLogWriter | None = None
    holder: Callable[[str], Holdings | None] = lambda server: None
    read: Callable[[], Loaded] = _nothing_to_read
    clients: deque[str | None] | None = None
    starts: StartFolders = StartFolders(None, Path(os.devnull))
    outputs: CommandOutputs | None = None
    learning: "Learning | None" = None
    scripts: Callable[[str, str, Gate | None], OwnedUpstream] | None = None
    sandboxes: dict[str, "ServerSandbox"] = msgspec.field(default_factory=dict)
    accounts: "Accounts | None" = None
    of_principals: "Callable[[UpstreamFactory, Settings, str], OwnedUpstream] | None" = None

    def eras(self, server: ServerSettings) -> ServerEras:
        """The eras that the server speaks, as remembered."""
        key = server_key(server.command or "", server.args) if server.url is None else url_key(server.url)
        return ServerEras(self.memory, key, self.client)

    def put_interactive(self, server: ServerSettings) -> None:
        self.eras(server).put_interactive()

    def make(self, settings: Settings, name: str) -> OwnedUpstream:
        """The upstream, not yet running."""
        server, sandbox = settings.servers[name], self.sandboxes.pop(name, None)
        if (upstream := self._without_connection(settings, name)) is not None:
            return upstream
        if server.account == "own" and self.of_principals is not None:
            return self.of_principals(self, settings, name)
        eras = self.eras(server)
        if server.url is None:
            spec = self.specs(settings, name, server, sandbox)
            connect = self.by_pipe(name, spec, None, eras)
        else:
            connect = self.remote(name, settings, server, server.url, eras)
        rules = supervisor_rules(settings, name)
        lists = list_file(self.last_lists, name, server) if self.last_lists is not None else None
        clock, changes, gate = self.clock, self.changes, self.gate
        scope = server.scope if self.clients is None else self.starts.scope(server, asks=eras.is_interactive)
        if scope is not None and scope != "shared":

            def connect_in(directory: str | None) -> Connect:
                return self.by_pipe(name, spec, directory, eras)

            return Scoped(
                name=name, connect=connect, rules=rules, scope=scope, eras=eras, clock=clock, changes=changes,
                lists=lists, gate=gate, connect_in=connect_in, folder_of=partial(folder_key, server),
                holder=self.holder(name),
            )  # fmt: skip
        return self.connected(name, server, connect, rules, eras, lists)

    def connected(
        self, name: str, server: ServerSettings, connect: Connect, rules: SupervisorRules, eras: ServerEras,
        lists: ListFile | None = None,
    ) -> OwnedUpstream:  # fmt: skip
        """An upstream over such connections."""
        clock, changes, gate = self.clock, self.changes, self.gate
        if server.era == "follow" and server.type != "sse":
            return BothEras(name, connect, rules, eras, clock=clock, changes=changes, lists=lists, gate=gate)
        pinned, asks = partial(connect, ANY_ERA), eras.is_interactive and server.era != "modern"
        return ManagedUpstream(
            name, pinned, rules, clock=clock, changes=changes, lists=lists, takes_turns=asks, gate=gate
        )

    def by_pipe(self, name: str, spec: MakeSpec, directory: str | None, eras: ServerEras) -> Connect:
        """Starts a process for a client in `directory`."""
        make_spec, watchdog, turn = partial(spec, directory), self.watchdog, self.turn

        def connect(wish: EraWish) -> StdioConnection:
            return StdioConnection(name, make_spec, eras, watchdog, turn=turn, wish=wish)

        return connect

    def _without_connection(self, settings: Settings, name: str) -> OwnedUpstream | None:
        server, cause = settings.servers[name], settings.failure(name)
        if server.enabled and server.account == "own" and self.accounts is None:
            cause = cause or _LATER
        if cause is not None or (server.enabled and server.local is not None):
            from mcp_hub.upstreams.functions.upstream import function_upstream, loaded_upstream

            if cause is not None:
                return function_upstream(name, cause)
            return loaded_upstream(name, server.local or "", self.folder, self.env)
        if not server.enabled:
            return disabled_upstream(name)
        if server.skills is not None:
            from mcp_hub.upstreams.folders import folder_upstream

            return folder_upstream(name, server.skills, self.changes, self.gate)
        if server.scripts is not None and self.scripts is not None:
            return self.scripts(name, server.scripts, self.gate)
        return None

    def _spec(
        self, settings: Settings, name: str, server: ServerSettings, output: TakeLines | None, directory: str | None
    ) -> StdioSpec:
        """A process for a client in `directory`, or for no client. Finds the command now. Raises `StartFailed`."""
        client = directory or (working_directory() if self.clients is None else self.clients[-1])
        args, env = self.starts.fill(name, server, client)
        program = _command(server, self.env, self.folder)
        limits, folder = settings.hub.limits, self.starts.start(name, server, client)
        return StdioSpec(
            argv=(program, *args),
            env=commands.child_env(self.env, env, [os.path.dirname(program)], server.pass_env),
            cwd=folder,
            era=_pinned(server),
            line_limit=limits.line,
            output=output,
            apps=server.apps,
            sandbox=self.sandboxes.get(name),
            is_spare=self.starts.is_spare(name, folder),
        )

    def remote(
        self, name: str, settings: Settings, server: ServerSettings, url: str, eras: ServerEras,
        access: "Access | None" = None,
    ) -> Connect:  # fmt: skip
        """Connects to a remote server, with the hub's login or this one."""
        from mcp_hub.upstreams.remote.connection import HttpConnection, HttpSpec

        has_secrets = bool(server.headers or server.bearer)
        spec = HttpSpec(
            url=url,
            headers={} if server.command_texts else server.sent_headers(),
            transport=server.type,
            era=_pinned(server),
            line_limit=settings.hub.limits.line,
            apps=server.apps,
            ca=server.tls.ca,
            renew=partial(self._headers_now, name, url) if has_secrets and server.account == "shared" else None,
            look_up=partial(self._headers_of, name, server, self.clock.now()) if server.command_texts else None,
        )
        if access is None and self.logins is not None:
            access = self.logins.access(name, server)
        return partial(HttpConnection, name, spec, eras, access)

    async def _headers_now(self, name: str, url: str) -> dict[str, str] | None:
        """Headers with secrets read again; None if that fails, or the entry has changed."""
        settings: Settings | None = None
        try:
            with anyio.move_on_after(_READING):
                settings = (await anyio.to_thread.run_sync(self.read, abandon_on_cancel=True)).settings
            server = settings.servers.get(name) if settings is not None else None
            if settings is None or server is None or server.url != url or settings.failure(name) is not None:
                return None
            return await self._headers_of(name, server)
        except (ConfigError, StartFailed) as exc:
            log.warning("secrets_not_read", upstream=name, reason=str(exc))
        return None

    async def _headers_of(self, name: str, server: ServerSettings, since: float = math.inf) -> dict[str, str]:
        return (await self._filled(name, server, since)).sent_headers()

    def specs(self, settings: Settings, name: str, server: ServerSettings, sandbox: "ServerSandbox | None") -> MakeSpec:
        """Makes the server's processes, in its sandbox if it has one."""
        if settings.effective(name).sandbox.mode != "off":
            from mcp_hub.app.attached.sandboxes import server_sandbox

            self.sandboxes[name] = server_sandbox(settings, name, self.env, self.starts, sandbox, self.learning)
        output = None if self.logs is None else partial(self.logs.output, name)
        spec = partial(self._spec, settings, name, server, output)
        return partial(self._spec_with_outputs, spec, name, server, self.clock.now()) if server.command_texts else spec

    async def _spec_with_outputs(
        self,
        make_spec: Callable[[str | None], StdioSpec],
        name: str,
        server: ServerSettings,
        since: float,
        directory: str | None,
    ) -> StdioSpec:
        spec = make_spec(directory)
        filled = await self._filled(name, server, since)
        program, *args = spec.argv
        env = dict(spec.env)
        for key in server.command_texts:
            match key:
                case ("args", int(index)):
                    args[index] = filled.args[index]
                case ("env", str(variable)):
                    env[variable] = filled.env[variable]
        return replace(spec, argv=(program, *args), env=env)

    async def _filled(self, name: str, server: ServerSettings, since: float) -> ServerSettings:
        """Fills in command outputs, run concurrently; shares a run unless it ended before `since`. Raises
        `StartFailed`.
        """
        if not server.command_texts:
            return server
        outputs: dict[Lookup, str] = {}
        failures: list[StartFailed] = []

        async def read(lookup: CommandLookup, path: DataPath) -> None:
            assert self.outputs is not None
            try:
                outputs[lookup] = await self.outputs.read(lookup, "" if server.scope == "call" else name, since)
            except StartFailed as exc:
                failures.append(StartFailed(exc.code, f"{path_text(path)}: {exc.brief}", can_retry=exc.can_retry))

        async with anyio.create_task_group() as tasks:
            for lookup, path in commands_of(name, server).items():
                tasks.start_soon(read, lookup, path)
        if failures:
            raise failures[0]
        return with_outputs(name, server, outputs)


async def failed_lookups(settings: Settings, env: Mapping[str, str], folder: str) -> dict[DataPath, str]:
    """Runs the commands of all enabled servers; returns failures by path."""
    servers = {name: server for name, server in settings.servers.items() if server.enabled and server.command_texts}
    paths = {name: commands_of(name, server) for name, server in servers.items()}
    argvs = {lookup for lookups in paths.values() for lookup in lookups}
    outcomes = await outputs_once(argvs, env, folder) if argvs else {}
    failed: dict[DataPath, str] = {}
    for name, lookups in paths.items():
        outputs: dict[Lookup, str] = {}
        for lookup, path in lookups.items():
            outcome = outcomes[lookup]
            if isinstance(outcome, str):
                outputs[lookup] = outcome
            else:
                failed[path] = outcome.brief
        try:
            if len(outputs) == len(lookups):
                with_outputs(name, servers[name], outputs)
        except StartFailed as exc:
            failed["servers", name] = exc.brief
    return failed


def last_lists(settings: Settings, folder: Path) -> list[Snapshot]:
    """Servers' lists remembered in `folder`, except Python functions'."""
    files = [
        list_file(folder, name, server)
        for name, server in settings.servers.items()
        if server.enabled and not (server.local or server.skills or server.scripts)
    ]
    return [listed.snapshot for file in files if os.path.exists(file.path) and (listed := file.read()) is not None]


def list_file(folder: Path, name: str, server: ServerSettings) -> ListFile:
    return ListFile(folder, name, _list_key(name, server))


def _list_key(name: str, server: ServerSettings) -> str:
    source = (server.command, server.cwd, server.url, server.type, server.era)
    passed = (sorted(server.pass_env),) if server.pass_env else ()
    apps = () if server.apps else ("apps: off",)  # servers offer other tools to clients without apps
    return list_key(name, *source, server.args, sorted(server.env), sorted(server.headers), *apps, *passed)


def _pinned(server: ServerSettings) -> Era | None:
    return None if server.era == "follow" else Era(server.era)


def supervisor_rules(settings: Settings, name: str) -> SupervisorRules:
    """A server's limits, which a reload applies at once."""
    effective, limits = settings.effective(name), settings.hub.limits
    # a remote server that is down says nothing about the next minute
    is_patient = settings.servers[name].url is not None and settings.servers[name].restart is None
    return SupervisorRules(
        start_timeout=effective.start_timeout,
        request_timeout=effective.request_timeout,
        restart=RestartRule(None if is_patient else effective.restart.intensity, effective.restart.period),
        lists=ListLimits(entries=limits.tools_per_server, prepare=prepare, max_age=settings.hub.list_max_age),
        lazy=effective.start == "lazy" or settings.servers[name].enabled == "project",
        idle_stop=_idle_stop(effective, None if effective.start == "eager" else _IDLE),
        part_idle=_idle_stop(effective, _IDLE) or math.inf,
        logs=settings.servers[name].logs or "hub",
        passthrough=tuple(settings.servers[name].passthrough),
        repetition=repetition(settings, name),
    )


def _idle_stop(effective: Defaults, usual: float | None) -> float | None:
    if effective.idle_stop is None:
        return usual
    return None if effective.idle_stop == "never" else effective.idle_stop


def find_program(server: ServerSettings, env: Mapping[str, str], folder: str) -> str:
    """The server's program path, `local` reference, folder, or URL without query. Raises `StartFailed`.

    Runs nothing; of `local` only the source is read.
    """
    if server.url is not None:
        return server.url.partition("?")[0].partition("#")[0]
    if server.local is not None:
        from mcp_hub.upstreams.functions.source import check_reference

        check_reference(server.local, folder)
        return server.local
    for key, path in (("skills", server.skills), ("scripts", server.scripts)):
        if path is not None:
            if not os.path.isdir(path):
                message = f"{key} {path}: the folder does not exist. Create it, or correct the path."
                raise StartFailed(f"{key}_not_found", message)
            return path
    return _command(server, env, folder)


def _command(server: ServerSettings, env: Mapping[str, str], folder: str) -> str:
    path = server.env.get("PATH", env.get("PATH"))
    return commands.resolve(server.command or "", path, str(Path.home()), folder, env)
