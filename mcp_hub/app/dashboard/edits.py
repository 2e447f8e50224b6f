"""Servers by the dashboard: shows their effective configuration, secrets masked; changes them.

An edit that the hub cannot use is undone; one that would run a command only becomes a proposal.
"""

import json
import re
import shlex
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from typing import Final, Protocol, TypeVar

import anyio
import anyio.to_thread
import msgspec
from pydantic import SecretStr

from mcp_hub.app.dashboard.overrides import Overrides
from mcp_hub.app.limits import Current
from mcp_hub.config.load.secrets import secret_arguments, secrets_of_url
from mcp_hub.config.schema.fields import Section
from mcp_hub.config.schema.json_schema import json_schema
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError
from mcp_hub.fronts.rest.problem import Problem, unknown_server
from mcp_hub.logs import get_logger
from mcp_hub.masking import MASK, hide, hide_head
from mcp_hub.protocol.rest.overview import (
    EditBody,
    EditOutcome,
    EditState,
    ProposalInfo,
    ServerEntry,
    ServerFacts,
    SettingInfo,
    SwitchBody,
)
from mcp_hub.types import JsonObject

_SECRET: Final = frozenset({"args", "env", "headers", "fixed", "arguments"})
"""Keys whose values may be secret."""
_TEXT: Final = 500
"""Characters of a value."""
_MOST: Final = 5000
"""Keys that are listed."""
_LINE: Final = 4000
"""Characters of a command line or URL."""
_NAMES: Final = 200
"""Variables or headers that are listed."""
_LIMITS: Final = ("timeout", "max_duration", "request_timeout", "start_timeout", "idle_stop")
_ELSEWHERE: Final = (
    "Servers are changed here only where nobody but this machine reaches the hub. "
    "Change the configuration file, or use mcp-hub add."
)
_REPLACED: Final = "The files of mcp-hub have changed since this hub started. Restart it to change servers here."
_STATUS: Final = {
    "unknown_server": 404, **dict.fromkeys(("server_exists", "entry_changed", "foreign_file", "not_editable"), 409),
    "config_too_large": 413, **dict.fromkeys(("state_unwritable", "output_unwritable", "file_busy"), 503),
    **dict.fromkeys(("proposals_full", "no_registry"), 409),
    **dict.fromkeys(("fetch_failed", "invalid_server_json"), 502),
}  # fmt: skip
_Result = TypeVar("_Result")

log = get_logger(__name__)


def server_facts(settings: Settings, server: str) -> ServerFacts:
    """A server's entry and limits. Raises `KeyError`."""
    entry, general = settings.servers[server], settings.effective(server)
    limits = {key: value for key in _LIMITS if isinstance(value := getattr(general, key), float | int)}
    kind, text = _source(entry)
    return ServerFacts(
        kind=kind,  # type: ignore[arg-type]  # one of the four
        text=hide_head(text, _LINE),
        variables=[hide_head(name, _TEXT) for name in dict.fromkeys([*entry.env, *entry.pass_env])][:_NAMES],
        headers=[hide_head(name, _TEXT) for name in (*entry.headers, *(["Authorization"] if entry.bearer else ()))][
            :_NAMES
        ],
        folder=hide_head(entry.cwd or "", _LINE),
        scope=(entry.scope or "shared") if entry.command is not None else "",
        start=general.start if entry.command is not None or entry.url is not None else "",
        limits=limits,
    )


def _source(entry: ServerSettings) -> tuple[str, str]:
    if entry.command is not None:
        secrets = secret_arguments(entry.args)
        args = [_without(arg, secrets.get(index, ())) for index, arg in enumerate(entry.args)]
        return "command", shlex.join([entry.command, *args])
    if entry.url is not None:
        return "url", _without(entry.url, secrets_of_url(entry.url))
    if entry.scripts is not None:
        return "scripts", entry.scripts
    return ("local", entry.local) if entry.local is not None else ("skills", entry.skills or "")


def _without(text: str, secrets: Collection[str]) -> str:
    parts = sorted(secrets, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, parts)), MASK, text) if parts else text


def setting_list(settings: Settings, overrides: Overrides) -> list[SettingInfo]:
    """Every key with a value, in schema order; `hub` and `defaults` with default values."""
    listed: list[SettingInfo] = []
    written = {
        f"servers.{server}.per_tool.{tool}.{key}"
        for server, tools in overrides.items()
        for tool, keys in tools.items()
        for key in keys
    }
    for info in _section(settings, "", written):
        if len(listed) == _MOST:
            break
        listed.append(info)
    return listed


def _section(section: Section, path: str, written: Collection[str]) -> Iterator[SettingInfo]:
    for key in type(section).model_fields:
        value, full_path = getattr(section, key), f"{path}.{key}" if path else key
        is_given = key in section.model_fields_set
        if not is_given and path.split(".")[0] not in ("", "hub", "defaults"):
            continue  # of servers and profiles only what was written
        yield from _value(value, full_path, key, is_given, written)


def _value(value: object, path: str, key: str, is_given: bool, written: Collection[str]) -> Iterator[SettingInfo]:
    if isinstance(value, Section):
        yield from _section(value, path, written)
    elif (
        isinstance(value, dict)
        and key not in _SECRET
        and any(isinstance(section, Section) for section in value.values())
    ):
        for name, section in value.items():
            yield from _value(section, f"{path}.{name}", name, True, written)
    elif value is not None or is_given:
        origin = "default"
        if is_given:
            origin = "overrides" if _is_overridden(path, written) else "file"
        yield SettingInfo(hide_head(path, _TEXT), _text_of(value, key), origin)  # type: ignore[arg-type]  # one of the three


def _text_of(value: object, key: str) -> str:
    if key in _SECRET:
        value = dict.fromkeys(value, MASK) if isinstance(value, dict) else MASK
    text = value if isinstance(value, str) else json.dumps(value, default=_masked, ensure_ascii=False)
    return hide_head(text, _TEXT)


def _masked(value: object) -> object:
    if isinstance(value, SecretStr):
        return MASK
    return value.model_dump(mode="json", exclude_unset=True) if isinstance(value, Section) else str(value)


def _is_overridden(path: str, written: Collection[str]) -> bool:
    while path and path not in written:
        path = path.rpartition(".")[0]
    return bool(path)


Edited = tuple[EditOutcome, Callable[[], None] | None]
"""An edit's outcome, and what undoes it, which blocks; None if nothing was written."""


class ServerEditor(Protocol):
    """Edits the configuration file. Methods block, and raise `ConfigError` or `OSError`."""

    def origin(self, server: str) -> str: ...

    def text(self, server: str) -> tuple[str, str]: ...

    def waiting(self) -> list[ProposalInfo]: ...

    def judge(self, body: EditBody) -> EditOutcome: ...

    def edit(self, body: EditBody) -> Edited: ...

    def switch(self, body: SwitchBody) -> Edited: ...

    def search(self, words: str) -> list[JsonObject]: ...


class HubEdits(msgspec.Struct):
    """A `fronts.dashboard` `HubEditor`. `reload` raises `Problem` 422.

    `is_near`: only this machine reaches the hub. `open_editor` loads the editor, and blocks; without it nothing is
    edited.
    """

    current: Current
    open_editor: Callable[[], ServerEditor] | None
    is_near: Callable[[], bool]
    reload: Callable[[], Awaitable[object]]
    _turn: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    _opening: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    _searching: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    _editor: ServerEditor | None = None
    _schema: JsonObject | None = None

    async def entry(self, server: str) -> ServerEntry:
        """A server's facts and text. Raises `Problem` 404."""
        settings = self.current.settings
        if server not in settings.servers:
            raise unknown_server(server, settings.servers)
        facts = server_facts(settings, server)
        editor = await self._opened()
        if editor is None:
            return ServerEntry(server, facts)
        try:
            client = await anyio.to_thread.run_sync(editor.origin, server)
            text, digest = await anyio.to_thread.run_sync(editor.text, server)
        except (ConfigError, OSError):  # the file of another client, or one that is gone: it is only shown
            return ServerEntry(server, facts)
        return ServerEntry(server, msgspec.structs.replace(facts, client=hide(client)), text, digest)

    async def state(self, host: str) -> EditState:
        """Whether requests to this host may edit, and waiting proposals."""
        why, editor = self._refusal(host), await self._opened()
        if editor is None:
            return EditState(False, why or _REPLACED)
        has_registry = self.current.settings.hub.registry is not None
        try:
            return EditState(not why, why, await anyio.to_thread.run_sync(editor.waiting), has_registry)
        except (ConfigError, OSError) as problem:
            return EditState(False, hide(str(problem)))

    async def schema(self) -> JsonObject:
        """The JSON Schema of one entry."""
        if self._schema is None:
            whole = await anyio.to_thread.run_sync(json_schema)
            self._schema = {**whole["$defs"]["ServerSettings"], "$defs": whole["$defs"]}
        return self._schema

    async def judge(self, body: EditBody, host: str) -> EditOutcome:
        return await self._run(partial((await self._usable(host)).judge, body))

    async def edit(self, body: EditBody, host: str) -> EditOutcome:
        return await self._applied(partial((await self._usable(host)).edit, body))

    async def switch(self, body: SwitchBody, host: str) -> EditOutcome:
        return await self._applied(partial((await self._usable(host)).switch, body))

    async def search(self, words: str, host: str) -> list[JsonObject]:
        """Servers of the registry, one search at a time."""
        editor = await self._usable(host)
        try:
            self._searching.acquire_nowait()
        except anyio.WouldBlock:
            message = "Another search of the registry is running. Try again."
            raise Problem(503, "busy", message, headers=((b"retry-after", b"5"),)) from None
        try:
            return await self._run(partial(editor.search, words))
        finally:
            self._searching.release()

    async def _opened(self) -> ServerEditor | None:
        async with self._opening:
            if self._editor is None and self.open_editor is not None:
                try:
                    self._editor = await anyio.to_thread.run_sync(self.open_editor)
                except ImportError as error:
                    log.error("editor_not_loaded", reason=str(error))
        return self._editor

    async def _usable(self, host: str) -> ServerEditor:
        if refusal := self._refusal(host):
            raise Problem(403, "not_on_this_machine", refusal)
        editor = await self._opened()
        if editor is None:
            raise Problem(409, "not_editable", _REPLACED)
        return editor

    def _refusal(self, host: str) -> str:
        return "" if self.open_editor is not None and self.is_near() and _is_loopback(host) else _ELSEWHERE

    async def _applied(self, edit: Callable[[], Edited]) -> EditOutcome:
        async with self._turn:
            with anyio.CancelScope(shield=True):  # a page that leaves does not leave half an edit
                outcome, undo = await self._run(edit)
                if undo is not None:
                    try:
                        await self.reload()
                    except Problem:
                        await self._run(undo)
                        raise
        return outcome

    async def _run(self, act: Callable[[], _Result]) -> _Result:
        try:
            return await anyio.to_thread.run_sync(act)
        except ConfigError as error:
            status = _STATUS.get(error.code, 422)
            code = error.code if error.code in _STATUS else "invalid_configuration"
            raise Problem(status, code, hide("; ".join(finding.message for finding in error.findings))) from None


def _is_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name.lower() in ("localhost", "127.0.0.1", "[::1]")
