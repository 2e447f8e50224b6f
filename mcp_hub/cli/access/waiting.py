"""Waits for servers that start, and for a hub to read its file."""

import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import say
from mcp_hub.cli.setup import EXIT_UNAVAILABLE
from mcp_hub.clock import wall_time
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.masking import hide
from mcp_hub.types import FileStamp, UpstreamState, UpstreamStatus, has_settled, not_ready

if TYPE_CHECKING:
    from rich.status import Status

    from mcp_hub.app.build import App
    from mcp_hub.hub import HubPort
    from mcp_hub.protocol.rest.servers import LastReload, ServerInfo, ServerList

_RUNNING: Final = 10.0
"""Seconds to wait for a running hub."""
_SHORTEST: Final = 0.05
_LONGEST: Final = 0.5
_RESTARTED: Final = "restarted"
"""The code of a server that is begun anew on purpose."""
_READING: Final = 5.0
_LOOK: Final = 0.1
"""Seconds for a running hub to read a changed file, and between two looks."""
_CODE: Final = re.compile(r" \[\w+\]$")
"""The code at the end of a finding."""


async def settle(hub: "HubPort", seconds: float, look: Callable[[list[UpstreamStatus]], None] | None = None) -> None:
    """Waits until all servers have settled; `look` gets the states at each change."""
    from mcp_hub.app.readiness import all_settled, wait_until

    with _spinner() as spinner:

        def is_enough() -> bool:
            statuses = hub.statuses()
            if spinner is not None:
                spinner.update(starting_text(statuses).replace("[", r"\["))  # a name is not markup
            if look is not None:
                look(statuses)
            return all_settled(hub)

        await wait_until(hub, is_enough, seconds)


async def settle_running(servers: Callable[[], Awaitable[list["ServerInfo"]]]) -> None:
    """Waits until no server is starting, ten seconds at most."""
    with anyio.move_on_after(_RUNNING):
        names, pause = _on_way_up(await servers()), _SHORTEST
        if not names:
            return
        with _spinner() as spinner:
            while names:
                if spinner is not None:
                    spinner.update(f"starting {', '.join(names)} …".replace("[", r"\["))
                await anyio.sleep(pause)
                pause = min(2 * pause, _LONGEST)
                names = _on_way_up(await servers())


def _on_way_up(servers: Iterable["ServerInfo"]) -> list[str]:
    starting = (server for server in servers if UpstreamState(server.state) is UpstreamState.STARTING)
    return [server.server for server in starting if not server.reason or server.code == _RESTARTED]


def starting_text(statuses: Iterable[UpstreamStatus]) -> str:
    """`starting git, time …`, or empty."""
    names = ", ".join(status.server for status in statuses if not has_settled(status))
    return f"starting {names} …" if names else ""


def _spinner() -> "AbstractContextManager[Status | None]":
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("starting …")


async def file_read(
    servers: Callable[[], Awaitable["ServerList"]], file: str
) -> tuple["ServerList", list[ConfigFinding]]:
    """The servers of a hub, and why it goes by an earlier version of its file; `file` is empty for an unknown one.

    Waits for the hub to read a file that has just changed.
    """
    until = anyio.current_time() + _READING
    while True:
        listed, stamp = await servers(), _stamp_of(file)
        is_read = stamp is None or listed.stamp in ("", stamp.text)
        if is_read or stamp is None or _age(stamp) > _READING or anyio.current_time() >= until:
            break
        await anyio.sleep(_LOOK)
    message = _refusal(listed.reload) if is_read else _unread(file)
    return listed, [ConfigFinding("hub_outdated", message)] if message else []


def _stamp_of(file: str) -> FileStamp | None:
    with suppress(OSError):
        return FileStamp.of(os.stat(file))
    return None


def _age(stamp: FileStamp) -> float:
    return wall_time() - max(stamp.modified, stamp.changed) / 1e9


def _refusal(reload: "LastReload | None") -> str:
    if reload is None or reload.applied or not reload.findings:
        return ""
    cure = "Correct what mcp-hub check shows" if len(reload.findings) > 1 else "Correct it"
    then = ", and the hub reads the file by itself" if reload.trigger == "file" else ", then run mcp-hub reload"
    return f"the running hub keeps its settings from before: {_sentence(reload.findings[0])} {cure}{then}."


def _unread(file: str) -> str:
    from mcp_hub.config.load.load import load  # pydantic and YAML, which few commands about a hub need

    text = "the running hub has not read this version of the file"
    try:
        load(Path(file), os.environ, lenient=True)
    except ConfigError as error:
        return f"{text}: {_sentence(str(error.findings[0]))} Correct it, then run mcp-hub reload."
    return f"{text}. Run mcp-hub reload."


def _sentence(finding: str) -> str:
    text = " ".join(_CODE.sub("", hide(finding)).split())
    return text if text.endswith((".", "?", "!")) else f"{text}."


async def warm(app: "App") -> int:
    """Starts every server once; returns the exit code."""
    working, absent = await started_once(app)
    say(f"{working} of {tables.plural(working + len(absent), 'server')} ready. Their lists are remembered.")
    tables.print_lines(tables.reasons(absent, ends=True))
    return EXIT_UNAVAILABLE if absent else 0


async def started_once(app: "App") -> tuple[int, list[UpstreamStatus]]:
    """Starts every server once; returns the number that work, and the others."""
    settings = app.settings
    names = [name for name, server in settings.servers.items() if server.enabled]
    for name in names:
        app.upstream_set.wake(name)
    limits = [settings.effective(name).start_timeout for name in names]
    await settle(app.hub, 2 * max(limits, default=0.0))  # it may take two processes to find the era
    statuses = [status for status in app.hub.statuses() if status.state is not UpstreamState.DISABLED]
    absent = not_ready(statuses)
    return len(statuses) - len(absent), absent
