"""The difference of two `Settings`, for a running hub. Pure.

Keys marked `AtOnce` apply immediately. Other changes restart their server or, outside of servers, wait for the hub's
next start.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from mcp_hub.config.schema.defaults import Defaults
from mcp_hub.config.schema.fields import Section, holds_at_once
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The difference of two settings, in file order. `restarted`: the connection changes; `adjusted`: only rules and
    limits. `at_once`, `next_start`: dotted keys outside of servers.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    adjusted: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    at_once: tuple[str, ...] = ()
    next_start: tuple[str, ...] = ()


def plan(old: Settings, new: Settings) -> Plan:
    """The plan from `old` to `new`."""
    common = [name for name in new.servers if name in old.servers]
    restarted = tuple(name for name in common if _connection(old, name) != _connection(new, name))
    adjusted = tuple(name for name in common if name not in restarted and _rules(old, name) != _rules(new, name))
    paths = _differences(old, new)
    profiles = [name for name, profile in new.profiles.items() if old.profiles.get(name) != profile]
    profiles += [name for name in old.profiles if name not in new.profiles]
    at_once = [".".join(path) for path in paths if _is_at_once(path)]
    return Plan(
        added=tuple(name for name in new.servers if name not in old.servers),
        removed=tuple(name for name in old.servers if name not in new.servers),
        restarted=restarted,
        adjusted=adjusted,
        unchanged=tuple(name for name in common if name not in restarted and name not in adjusted),
        at_once=(*at_once, *(f"profiles.{name}" for name in profiles)),
        next_start=tuple(".".join(path) for path in paths if not _is_at_once(path)),
    )


def until_next_start(old: Settings, new: Settings) -> Settings:
    """`new`, with old values where a change waits for the next start."""
    settings: Section = new
    for path, value in leaves(old.hub, ("hub",)):
        if not _is_at_once(path):
            settings = _with(settings, path, value)
    assert isinstance(settings, Settings)
    return settings


def leaves(section: Section, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every key below a section that is not itself a section, with its value."""
    for key, described in type(section).model_fields.items():
        value = getattr(section, key)
        if isinstance(described.annotation, type) and issubclass(described.annotation, Section):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _differences(old: Settings, new: Settings) -> list[Path]:
    before = {**dict(leaves(old.hub, ("hub",))), **dict(leaves(old.defaults, ("defaults",)))}
    after = {**dict(leaves(new.hub, ("hub",))), **dict(leaves(new.defaults, ("defaults",)))}
    return [path for path, value in after.items() if not _same(before[path], value)]


def _same(first: object, second: object) -> bool:
    """Order of mappings counts: `hub.clients` depends on it."""
    if isinstance(first, dict) and isinstance(second, dict):
        return list(first.items()) == list(second.items())
    return first == second


@cache
def _is_at_once(path: Path) -> bool:
    """Whether the key, or a section that it is in, has the mark."""
    if path[0] == "defaults":
        return True
    section: type[Section] = Settings
    for key in path[:-1]:
        if holds_at_once(section, key):
            return True
        inner = section.model_fields[key].annotation
        assert isinstance(inner, type) and issubclass(inner, Section)
        section = inner
    return holds_at_once(section, path[-1])


def _connection(settings: Settings, name: str) -> list[object]:
    server, general = settings.servers[name], settings.effective(name)
    keys = [key for key in ServerSettings.model_fields if not holds_at_once(ServerSettings, key)]
    values = {key: getattr(general if key in Defaults.model_fields else server, key) for key in keys}
    values["scope"] = server.scope or "shared"
    if server.command is None:
        del values["sandbox"]
    return [*values.values(), server.command_texts, settings.failure(name)]


def _rules(settings: Settings, name: str) -> tuple[list[object], object]:
    """Mapping order counts: the first match decides."""
    written = [list(value.items()) if isinstance(value, dict) else value for _, value in leaves(settings.servers[name])]
    return written, settings.effective(name)


def _with(section: Section, path: Path, value: object) -> Section:
    key, *keys = path
    inner = _with(getattr(section, key), tuple(keys), value) if keys else value
    return section.model_copy(update={key: inner})
