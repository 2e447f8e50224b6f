"""Starts new servers in a sandbox, never outside, to find out which can have one."""

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from mcp_hub.app.attached.sandboxes import resolved_sandbox
from mcp_hub.app.readiness import StartFolders
from mcp_hub.app.upstream_factory import find_program
from mcp_hub.cli.access.answering import can_ask
from mcp_hub.cli.access.hub import ReachedHub, run_own_hub
from mcp_hub.cli.render.output import agrees, say
from mcp_hub.cli.render.servers import status_of
from mcp_hub.cli.setup import quiet_logs
from mcp_hub.clock import SystemClock
from mcp_hub.config.findings import on_one_line
from mcp_hub.config.load.foreign import works_where_started
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.trust import state_dir
from mcp_hub.edit.writing import Word
from mcp_hub.errors import ConfigError, StartFailed
from mcp_hub.masking import hide, hide_head
from mcp_hub.onboarding.imports.plan import ImportPlan
from mcp_hub.onboarding.servers_file.servers_file import Put, ServersFile, option_for
from mcp_hub.sandbox.confinement import Unsupported, support
from mcp_hub.sandbox.home import PrivateHome
from mcp_hub.sandbox.places import is_inside, secret_of
from mcp_hub.sandbox.rules import ResolvedRule, RuleError
from mcp_hub.types import LAST_OUTPUT, UNKNOWN_CLIENT, JsonObject, UpstreamStatus, not_ready
from mcp_hub.upstreams.process.commands import package_problem
from mcp_hub.upstreams.supervision.server import brief

ON: Final = Word("on")
OFF: Final = Word("off")
_ABOUT: Final = (
    "In a sandbox a server reaches its own programs, the paths among its arguments, a private home folder and the "
    "network, but not your other files."
)
_AT_A_TIME: Final = 8
_SPARE: Final = 5.0
"""Seconds beyond the longest `start_timeout`."""
_LONGEST: Final = 120.0
"""Seconds for a group of servers to start."""
UNATTENDED: Final = 20.0
"""Seconds for a group where nobody waits at a terminal."""
_LONGEST_REASON: Final = 3000
"""Characters of a refusal: it holds a path twice."""
_SPELLING: Final = " does not exist: check its spelling"
_OF_SANDBOX: Final = re.compile(r"\[sandbox\w*\]$")
"""Ends the reason of a start that the sandbox refused."""
_OF_COMMAND: Final = re.compile(rf"{_SPELLING} \[\w+\]$|\[command_not_found\]$")
"""Ends the reason of a start that fails without a sandbox, too."""
_UNCLEAR: Final = re.compile(r"\[start_\w+\]$|[^\]]$")
"""Ends the reason of a start of which the sandbox may be the cause."""
_ELSEWHERE: Final = {
    **dict.fromkeys(
        ("docker", "podman", "nerdctl", "finch"), "in a container, which the sandbox of the hub is not around"
    ),
    **dict.fromkeys(("wsl", "ssh", "kubectl", "systemd-run", "flatpak"), "outside of what a sandbox of the hub limits"),
}
"""Programs that start the server elsewhere than among their own processes."""
WAIT: Final = 60.0
"""Seconds for the servers to start: some are downloaded first."""


class Trial(msgspec.Struct, frozen=True):
    """Servers that start in a sandbox, and why others do not.

    `failed`: why servers did not start that get a sandbox all the same. `servers`: those of a change, with their
    `sandbox`. `notes`: why nothing was tried.
    """

    passed: tuple[str, ...] = ()
    refused: Mapping[str, str] = {}
    untried: Mapping[str, str] = {}
    failed: Mapping[str, str] = {}
    servers: Mapping[str, JsonObject] = {}
    notes: tuple[str, ...] = ()

    def lines(self, file: ServersFile) -> Iterator[str]:
        """The outcome for people."""
        yield from self.notes
        if self.passed:
            yield f"In a sandbox: {', '.join(self.passed)}"
        for name, reason in (*self.refused.items(), *self.untried.items()):
            yield f"Without a sandbox: {name}: {reason}"
        if self.refused:
            which = shlex.quote(next(iter(self.refused))) if len(self.refused) == 1 else "--all"
            yield f"To try again after a change: mcp-hub sandbox {which} on{option_for(file)}"
        for name, reason in self.failed.items():
            yield f"In a sandbox, but it did not start: {name}: {reason}"
            if _UNCLEAR.search(reason) and not _OF_COMMAND.search(reason):
                yield f"If the sandbox is the cause: mcp-hub sandbox {shlex.quote(name)} off{option_for(file)}"


def boxed(
    file: ServersFile,
    servers: Mapping[str, JsonObject],
    fill: Callable[[JsonObject], JsonObject],
    choice: bool | None,
    *,
    asks: bool,
    are_used: bool = False,
) -> Trial:
    """The servers, with a sandbox unless it keeps them from starting; existing rules stay.

    `choice` None: `asks`, or agrees. `fill` resolves unwritten secrets. `are_used`: by clients, without a sandbox; one
    that fails for a reason that may be the sandbox stays without.
    """
    names = [name for name, entry in servers.items() if is_local(entry) and "sandbox" not in entry]
    if not names:
        return Trial(servers=servers)
    these = f"{len(names)} servers" if len(names) > 1 else names[0]
    if choice is not False and (reason := why_unsupported()) is not None:
        return Trial(servers=servers, notes=(f"This system has no sandbox, so nothing limits {these}: {reason}",))
    if choice is None and is_default(file):
        return Trial(servers=servers, notes=(f"The sandbox of `defaults` is for {these}, too",))
    possible = [name for name in names if why_not_tried(servers[name]) is None]
    if choice is None and asks and possible:
        say(_ABOUT)
        which = f"these {len(possible)} servers" if len(possible) > 1 else possible[0]
        choice = agrees(f"Run {which} in a sandbox?", default=True)
    if choice is False:
        return Trial(servers={**servers, **{name: in_sandbox(servers[name], OFF) for name in names}})
    trial = tried(file, {name: fill(servers[name]) for name in names}, _LONGEST if can_ask() else UNATTENDED)
    failed = {
        name: reason
        for name, reason in trial.refused.items()
        if _OF_COMMAND.search(reason) or not (are_used or _OF_SANDBOX.search(reason))
    }
    refused = {name: reason for name, reason in trial.refused.items() if name not in failed}
    limited = {name: in_sandbox(servers[name]) for name in (*trial.passed, *failed)}
    return structs.replace(trial, refused=refused, failed=failed, servers={**servers, **limited})


def boxed_plan(plan: ImportPlan, choice: bool | None, *, asks: bool) -> tuple[ImportPlan, Trial]:
    """The plan of an import with sandboxes."""
    servers = {server.name: server.entry for server in plan.taken}
    result = boxed(plan.file, servers, plan.secrets.filled, choice, asks=asks, are_used=True)
    return plan.limited(result.servers), result


def print_trial(trial: Trial, file: ServersFile) -> None:
    for line in trial.lines(file):
        say(hide(on_one_line(line)))


def is_default(file: ServersFile) -> bool:
    """Whether the file has a sandbox for all."""
    try:
        return file.loaded_with(()).settings.defaults.sandbox.mode != "off"
    except ConfigError:  # the command says so later
        return False


def why_unsupported() -> str | None:
    """Why this system has no sandbox, or None."""
    try:
        support()
    except Unsupported as problem:
        return str(problem)
    return None


def is_local(entry: Mapping[str, object]) -> bool:
    return bool(entry.get("command")) and not entry.get("url")


def in_sandbox(entry: JsonObject, word: Word = ON) -> JsonObject:
    """The entry with its sandbox switched; a rule stays."""
    box = entry.get("sandbox")
    return {**entry, "sandbox": {**box, "mode": word} if isinstance(box, dict) else word}


def tried(file: ServersFile, servers: Mapping[str, JsonObject], longest: float = _LONGEST) -> Trial:
    """Starts local servers once in a sandbox, in groups; writes nothing.

    `longest`: seconds for a group, twice that for all.
    """
    untried = {name: reason for name, entry in servers.items() if (reason := why_not_tried(entry)) is not None}
    chosen = {name: in_sandbox(entry) for name, entry in servers.items() if name not in untried}
    if not chosen:
        return Trial((), {}, untried)
    try:
        loaded = file.loaded_with([Put(name, entry, replaces=True) for name, entry in chosen.items()])
    except ConfigError as error:
        return Trial((), {}, {**untried, **dict.fromkeys(chosen, on_one_line(str(error)))})
    failed = {name: cause for name in chosen if (cause := loaded.settings.failure(name)) is not None}
    refused = {name: f"{cause.reason} [{cause.code}]" for name, cause in failed.items()}
    names = [name for name in chosen if name not in failed]
    homes = {name: PrivateHome(_folders(loaded).home(name)) for name in names}
    fresh = [name for name, home in homes.items() if not os.path.lexists(home.folder)]
    if names:
        these = "they work there" if len(names) > 1 else "it works there"
        say(f"Starting {', '.join(names)} once in a sandbox, to see if {these}; packages may come first …")
    quiet_logs(0)
    clock = SystemClock()
    until = clock.now() + 2 * longest
    for first in range(0, len(names), _AT_A_TIME):
        group, seconds = names[first : first + _AT_A_TIME], min(longest, until - clock.now())
        refused |= _started(loaded, group, seconds) if seconds > 1 else dict.fromkeys(group, "others took all the time")
    for name in [name for name in names if name not in refused]:
        if (reason := next(_closed(loaded, name), None)) is not None:
            refused[name] = f"{reason} [sandbox_refused]"
    for name in fresh:
        if name in refused:
            homes[name].remove()
    return Trial(tuple(name for name in names if name not in refused), refused, untried)


def why_not_tried(entry: Mapping[str, object]) -> str | None:
    """Why a trial cannot show whether a server works in a sandbox, or None."""
    if entry.get("enabled") is False:
        return "it is disabled"
    program = os.path.basename(str(entry["command"])).removesuffix(".exe")
    if program in _ELSEWHERE:
        return f"{program} starts it {_ELSEWHERE[program]}"
    if works_where_started(entry["command"], entry.get("args")):
        return "it works in the folder of its client, in which a sandbox lets it only read"
    return None


def _started(loaded: Loaded, names: Collection[str], longest: float) -> dict[str, str]:
    settings = loaded.settings
    at_once = {"start": "eager", "idle_stop": "never"}
    servers = {name: settings.servers[name].model_copy(update=at_once) for name in names}
    only = replace(loaded, settings=settings.model_copy(update={"servers": servers}))
    wait = min(longest, _SPARE + max(settings.effective(name).start_timeout for name in names))
    refused: dict[str, str] = {}
    has_looked = False

    async def look(hub: ReachedHub) -> int:
        nonlocal has_looked
        await hub.settle()
        statuses = map(status_of, (await hub.client.lists.servers()).servers)
        refused.update({status.server: _failure(status) for status in not_ready(statuses)})
        has_looked = True
        return 0

    if (code := run_own_hub(only, look, wait)) or not has_looked:
        raise SystemExit(code)
    return refused


def _folders(loaded: Loaded) -> StartFolders:
    return StartFolders.of(Path(loaded.place), state_dir(os.environ))


def _failure(status: UpstreamStatus) -> str:
    text = (status.reason or "").partition(LAST_OUTPUT)[0]
    is_refusal = (status.code or "").startswith("sandbox")
    message = hide_head(" ".join(text.split()), _LONGEST_REASON, "…") if is_refusal else brief(status.reason)
    if not is_refusal and (missing := package_problem("\n".join((status.reason or "", *status.stderr)))) is not None:
        message = f"{missing}: check its spelling"
    return f"{message or 'it does not start in time'}{f' [{status.code}]' if status.code else ''}"


def _closed(loaded: Loaded, name: str) -> Iterator[str]:
    server, starts = loaded.settings.servers[name], _folders(loaded)
    try:
        program = find_program(server, os.environ, str(loaded.path.absolute().parent))
        resolved = resolved_sandbox(loaded.settings, name, os.environ, program, starts)
    except (StartFailed, RuleError, Unsupported):  # which its start has met
        return
    yield from (remark for remark in resolved.remarks if remark.startswith("args: "))
    for variable, value in server.env.items():
        yield from _closed_value(name, variable, value, resolved)


def _closed_value(server: str, variable: str, value: str, resolved: ResolvedRule) -> Iterator[str]:
    home = str(Path.home())
    path = home + value[1:] if value.startswith("~/") else value
    if not os.path.isabs(path) or os.pathsep in path or "\0" in path:
        return
    folder = os.path.dirname(path)
    real = os.path.realpath(path)
    if resolved.confinement.allows(real) is not None or not os.path.isdir(folder):
        return
    message = f"The sandbox closes {path}, which {variable} names."
    if secret_of(real, os.path.realpath(home)) is not None:
        yield f"{message} {resolved.advice('read', real)}"
    elif os.path.lexists(path):
        yield f"{message} {resolved.advice('write', path)}"
    elif is_inside(home, folder):
        data_folder = os.path.join(folder, f"{server}-data")
        file = os.path.join(data_folder, os.path.basename(path))
        advice = f"Make the folder {data_folder}, and set {variable} to {file}"
        yield f"{message} {advice}. {resolved.advice('write', data_folder)}"
    else:
        yield f"{message} {resolved.advice('write', folder)}"


class MeasuredCosts(msgspec.Struct, frozen=True):
    """Tokens of all definitions `before`, and `after` with the hub; `budget` limits `auto`.

    `absent` servers did not start; `working` counts the others.
    """

    tools: int
    before: int
    after: int
    absent: tuple[UpstreamStatus, ...] = ()
    working: int = 0
    expose: str = "auto"
    mode: str = "full"
    budget: int = 0


def measured(loaded: Loaded, names: Collection[str]) -> MeasuredCosts:
    """Starts these servers, counts, stops them."""
    at_once = {"start": "eager", "idle_stop": "never"}
    servers = {
        name: server.model_copy(update=at_once)
        for name, server in loaded.settings.servers.items()
        if name in names and (server.enabled or loaded.settings.failure(name) is not None)
    }
    only = replace(loaded, settings=loaded.settings.model_copy(update={"servers": servers}))
    costs_found: list[MeasuredCosts] = []

    async def count(hub: ReachedHub) -> int:
        await hub.settle()
        listed = await hub.client.lists.servers()
        account = await hub.client.lists.account(UNKNOWN_CLIENT, None, 1)
        absent = tuple(not_ready(map(status_of, listed.servers)))
        current = account.current
        after, working = current.tokens + account.instructions, len(servers) - len(absent)
        costs = MeasuredCosts(
            tools=len(account.tools), before=account.total.full, after=after, absent=absent, working=working
        )
        costs_found.append(structs.replace(costs, expose=current.expose, mode=current.mode, budget=account.budget))
        return 0

    if (code := run_own_hub(only, count, WAIT)) or not costs_found:
        raise SystemExit(code)
    return costs_found[0]
