"""The effective configuration by key, and facts about a server, with secrets masked."""

import json
import re
import shlex
from collections.abc import Collection, Iterator
from typing import Final

from pydantic import SecretStr

from mcp_hub.app.dashboard.overrides import Overrides
from mcp_hub.config.load.secrets import secret_arguments, secrets_of_url
from mcp_hub.config.schema.section import Section
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.masking import MASK, hide_head
from mcp_hub.protocol.rest.overview import ServerFacts, SettingInfo

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
