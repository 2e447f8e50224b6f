"""Options, configuration, event loop and exit codes of all commands."""

import math
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import anyio
import click
import msgspec
from msgspec.structs import replace

from mcp_hub import logs
from mcp_hub.attach import arguments
from mcp_hub.cli import completion
from mcp_hub.cli.render.output import say
from mcp_hub.errors import ConfigError
from mcp_hub.files import open_null

if TYPE_CHECKING:
    from mcp_hub.config.load.load import Loaded

EXIT_TOOL = 1
EXIT_CONFIG = 2
EXIT_UNAVAILABLE = 3
EXIT_INTERRUPTED = 130

_T = TypeVar("_T")
_TURN: Final = 0.0005
"""Seconds until a busy event loop lets another thread run: with the default of 5 ms, a commit takes up to 150 ms."""


class Seconds(click.FloatRange):
    """A finite number within bounds; click's range admits NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Refuses infinity and NaN."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return seconds


def _named(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not value.strip():  # a variable that is not set, most often
        raise click.BadParameter("The id of a stream is missing. mcp-hub streams lists them.")
    return value


config_option = click.option(
    "--config", "-c", metavar="FILE",
    help="Configuration file. Default: $MCP_HUB_CONFIG, ./servers.yaml, then the user's configuration folder; "
    "@user: the same without ./servers.yaml.",
)  # fmt: skip
verbose_option = click.option(
    "--verbose", "-v", count=True, help="Show the hub's log on stderr; -vv also shows the servers' stderr."
)
wait_option = click.option(
    "--wait", type=Seconds(min=0), default=30.0, show_default=True, metavar="SECONDS",
    help="How long to wait for servers to start.",
)  # fmt: skip
_FORMATS: Final = ("text", "json", "jsonl")
_format_option = click.option(
    "--format", "form", type=click.Choice(_FORMATS), help="Output format. Default: text, or JSON with --json."
)
_output_option = click.option(
    "--output", metavar="DIR", help="Save images, audio and other binary content of the result in this folder."
)


def _made_folder(folder: Path) -> Path:
    from mcp_hub.cli.render.results import make_media_folder

    try:
        make_media_folder(folder)
    except OSError as problem:
        fail("output_unwritable", f"{folder} is not a folder to write to: {problem.strerror}. Choose another --output.")
    return folder


class Output(msgspec.Struct, frozen=True):
    """The format of a result (text, json, jsonl), and the folder for binary content."""

    form: str
    folder: Path | None = None


def output_options(default: Callable[[Mapping[str, object]], str]) -> Callable[[Callable[..., Any]], Any]:
    """Adds --format and --output, passed as `output`."""

    def decorated(command: Callable[..., Any]) -> Any:
        @wraps(command)
        def run(form: str | None, output: str | None, **options: Any) -> Any:
            if output in _FORMATS:
                form, output = form or output, None
            folder = None if output is None else _made_folder(Path(output))
            return command(output=Output(form or default(options), folder), **options)

        return _format_option(_output_option(run))

    return decorated


stream_argument = click.argument("stream", callback=_named, shell_complete=completion.streams)


def check_state_folder() -> None:
    """Exits with 2 if others may write the state folder."""
    from mcp_hub.config.trust import check_state

    try:
        check_state([Path(arguments.state_folder(os.environ))], os.environ)
    except ConfigError as exc:
        fail_with(exc)


def config_place(path: str | None) -> str:
    """The configuration's absolute path. Raises `ConfigError`."""
    file = None if sys.platform == "win32" else arguments.find_config(path, os.getcwd(), os.environ)
    if file is not None:
        return file
    from mcp_hub.config.load.load import find_config  # pydantic and YAML, which few commands about a hub need

    return os.path.abspath(find_config(path, Path.cwd(), os.environ))


def config_path(path: str | None) -> Path:
    """The configuration file. Exits with 2."""
    from mcp_hub.config.load.load import find_config  # pydantic and YAML, which commands with --url do without

    try:
        return find_config(path, Path.cwd(), os.environ)
    except ConfigError as exc:
        fail_with(exc)


def read_config(path: str | None, *, partly: bool = False, lenient: bool = True) -> "Loaded":
    """The configuration, if only this user may write the hub's folders. Raises `ConfigError`."""
    from mcp_hub.config.load.load import find_config, is_named, load
    from mcp_hub.config.trust import check_state, own_folders

    file = find_config(path, Path.cwd(), os.environ)
    is_chosen = is_named(path, file, Path.cwd(), os.environ)
    loaded = load(file, os.environ, partly=partly, lenient=lenient, is_named=is_chosen)
    check_state(own_folders(loaded.settings, os.environ), os.environ)
    return loaded


def load_config(path: str | None, *, partly: bool = False, reports_failures: bool = True) -> "Loaded":
    """The configuration; prints warnings, about failed servers only if it `reports_failures`. Exits with 2."""
    try:
        loaded = read_config(path, partly=partly)
    except ConfigError as exc:
        fail_with(exc)
    failures = [] if reports_failures else [*chain.from_iterable(loaded.failures.values())]
    for warning in loaded.warnings:
        if warning not in failures:
            say(f"warning: {warning}")
    return loaded


def check_servers(loaded: "Loaded", names: Iterable[str]) -> None:
    """Exits with 2 for an unknown server."""
    for name in names:
        _check_known("server", name, loaded.settings.servers, loaded.path)


def check_caller(loaded: "Loaded", profile: str | None, client: str | None = None) -> None:
    """Exits with 2 for an unknown profile or client."""
    if profile is not None:
        _check_known("profile", profile, loaded.settings.profiles, loaded.path)
    if client is not None:
        try:
            loaded.settings.client_table.require(client)
        except ConfigError as exc:
            fail_with(exc, loaded.path)


def _check_known(kind: str, name: str, names: Collection[str], file: Path) -> None:
    from mcp_hub.config.findings import nearest

    if name not in names:
        hint = nearest(name, names) or f". Configured: {', '.join(names) or 'none'}."
        fail(f"unknown_{kind}", f'{file}: there is no {kind} "{name}"{hint}')


def fail(code: str, message: str, exit_code: int = EXIT_CONFIG) -> NoReturn:
    """Exits with a message and a stable code."""
    say(f"{message} [{code}]")
    raise SystemExit(exit_code)


def fail_with(error: ConfigError, file: Path | None = None) -> NoReturn:
    """Exits with the findings about `file`."""
    for finding in error.findings:
        say(str(finding if file is None else replace(finding, file=str(file))))
    raise SystemExit(EXIT_CONFIG)


def leave() -> None:
    """Ends the process at once if a thread still runs or stdout is closed."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        os._exit(0)
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        os._exit(0)


def run(main: Callable[[], Awaitable[_T]]) -> _T:
    """Runs `main` on uvloop, on Windows on asyncio."""
    sys.setswitchinterval(_TURN)
    try:
        return anyio.run(main, backend_options={"use_uvloop": sys.platform != "win32"})
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


_SENTENCES: Final = {
    "store_failed": (
        "Calls of this command are not stored for mcp-hub resume: {reason}. Check the permissions of the folder "
        "and the space on its disk, or set MCP_HUB_STATE_DIR to a folder of yours. If hub.store names a server, check "
        "that it runs."
    ),
    "store_set_aside": "The file of streams {store} was damaged. It is {file} now. What can be read of it is kept.",
    "store_not_set_aside": "The file of streams {store} is damaged and cannot be renamed: {reason}. Do it yourself.",
    "store_not_salvaged": "The damaged file of streams {file} cannot be read: {reason}. Its streams are lost.",
    "file_set_aside": "{file} is a pipe, a socket or a device, and was renamed to {aside}. Nothing to do.",
}
"""Lines for a person in place of events of the log."""


def quiet_logs(verbose: int) -> None:
    """Logs errors only, or more with `verbose`."""
    logs.configure(("error", "info", "debug")[min(verbose, 2)], "console", {} if verbose else _SENTENCES)


def run_with(opened: Callable[[], AbstractAsyncContextManager[_T]], main: Callable[[_T], Awaitable[int]]) -> NoReturn:
    """Runs `main` with an opened object; exits with its code.

    SIGINT and SIGTERM cancel it and exit with 130; a closed stdout ends it with 1.
    """
    code = EXIT_TOOL
    try:
        code = run(lambda: _interruptible(opened, main))
        sys.stdout.flush()
    except* BrokenPipeError:
        os.dup2(open_null(os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
    except* SystemExit:
        pass  # rich raises it for a reader that has left
    if code == EXIT_INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more, while Python exits, must not change the code
    raise SystemExit(code)


async def _interruptible(
    opened: Callable[[], AbstractAsyncContextManager[_T]], main: Callable[[_T], Awaitable[int]]
) -> int:
    from mcp_hub.cli.signals import signal_receiver  # asyncio, which few commands need

    code = EXIT_INTERRUPTED
    # open until everything is cleaned up: a second Ctrl-C must not interrupt the end of the child processes
    with signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with opened() as resource, anyio.create_task_group() as tasks:

            async def stop() -> None:
                await anext(signals)
                tasks.cancel_scope.cancel()

            tasks.start_soon(stop)
            code = await main(resource)
            tasks.cancel_scope.cancel()
    return code
