"""What a running hub has to do for its settings to become other ones: a typed plan, made of two `Settings`. Pure.

Every key has a place on purpose: of a server, whether its process or connection has to start again
(`OF_THE_CONNECTION`) or only what the hub makes of it changes (`OF_THE_RULES`); of the hub, whether it holds at once
(`AT_ONCE`) or from the hub's next start (`NEXT_START`). A key that has none counts as one of the connection or of the
next start, and a test finds it. Source: reliability.md §3.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mcp_hub.config.schema.section import Section
from mcp_hub.config.schema.settings import Defaults, ProfileSettings, ServerSettings, Settings

__all__ = [
    "AT_ONCE",
    "NEXT_START",
    "OF_THE_CONNECTION",
    "OF_THE_RULES",
    "Plan",
    "apply",
    "leaves",
    "plan",
]

OF_THE_CONNECTION: Final = frozenset(
    {
        *("command", "args", "env", "cwd", "scope"),
        *("url", "type", "headers", "bearer", "oauth"),
        *("local", "enabled", "era"),
    }
)
"""Keys of a server that hold for its next process or connection: a change of one starts it again."""
OF_THE_RULES: Final = frozenset(
    {
        *("tools", "resources", "prompts", "expose", "compact", "prefix", "rename", "per_tool", "description"),
        *("timeout", "max_duration", "request_timeout", "start_timeout", "restart", "start", "idle_stop"),
        *("task", "orphan", "idempotent", "approval"),
    }
)
"""Keys of a server, and of `defaults`, that hold at once without its process hearing of it."""
AT_ONCE: Final = frozenset(
    {
        *("hub.expose", "hub.budget", "hub.compact", "hub.pinned", "hub.max_result_tokens", "hub.aliases"),
        *("hub.prefix", "hub.max_name_length", "hub.page_size", "hub.task_after", "hub.clients", "hub.instructions"),
        *("hub.tokens", "hub.watch", "hub.drain_timeout"),
        *("hub.http.allowed_hosts", "hub.http.allowed_origins", "hub.http.allow_public", "hub.http.oauth"),
        *("hub.limits.running_calls", "hub.limits.waiting_calls"),
        *("hub.limits.pages", "hub.limits.tools_per_server"),
    }
)
"""Keys of the hub that hold as soon as they are read."""
NEXT_START: Final = frozenset(
    {
        *("hub.name", "hub.first_list_wait", "hub.log.level", "hub.log.format"),
        *("hub.http.host", "hub.http.port", "hub.http.max_body"),
        *("hub.http.max_sessions", "hub.http.sessions_per_principal", "hub.http.session_rate"),
        *("hub.http.requests_per_principal", "hub.http.request_rate", "hub.http.bodies_per_principal"),
        *("hub.http.max_connections", "hub.http.max_headers", "hub.http.header_timeout", "hub.http.body_timeout"),
        "hub.http.close_streams_after",
        *("hub.store.type", "hub.store.path", "hub.store.retention"),
        *("hub.limits.line", "hub.limits.stderr_lines", "hub.limits.question_timeout", "hub.limits.event"),
        *("hub.limits.detached_calls", "hub.limits.followers", "hub.limits.stream_events", "hub.limits.stream_size"),
        *("hub.limits.depth", "hub.limits.batch", "hub.limits.open_requests", "hub.limits.listens"),
        *("hub.limits.results", "hub.limits.results_size", "hub.limits.result_ttl"),
        *("hub.telemetry.enabled", "hub.telemetry.endpoint", "hub.telemetry.headers", "hub.telemetry.metrics"),
    }
)
"""Keys of the hub that what runs was built with: a change waits for the hub's next start."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The difference of two settings, by what is to be done; names in the order of the file.

    `restarted` are servers whose connection changes, `adjusted` those of which only rules and limits do, effective
    values included; `kept` are all others. `at_once` and `next_start` are keys outside of servers, written with dots.
    What follows is the difference itself, for `apply`: entries that are new or other ones, their order where that
    changes, and the values of single keys.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    adjusted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    at_once: tuple[str, ...] = ()
    next_start: tuple[str, ...] = ()
    servers: Mapping[str, ServerSettings] = field(default_factory=dict, repr=False)
    profiles: Mapping[str, ProfileSettings] = field(default_factory=dict, repr=False)
    order: tuple[str, ...] | None = None
    profile_order: tuple[str, ...] | None = None
    values: Mapping[Path, object] = field(default_factory=dict, repr=False)

    @property
    def is_empty(self) -> bool:
        """Whether the settings say the same."""
        return not (self.servers or self.profiles or self.values or self.order or self.profile_order or self.removed)


def plan(old: Settings, new: Settings) -> Plan:
    """What leads from `old` to `new`; empty if they say the same, the order of servers and profiles included."""
    common = [name for name in new.servers if name in old.servers]
    restarted = tuple(name for name in common if _connection(old, name) != _connection(new, name))
    adjusted = tuple(name for name in common if name not in restarted and _rules(old, name) != _rules(new, name))
    values = _differences(old, new)
    profiles = {name: own for name, own in new.profiles.items() if old.profiles.get(name) != own}
    dropped = [name for name in old.profiles if name not in new.profiles]
    keys = [".".join(path) for path in values]
    return Plan(
        added=tuple(name for name in new.servers if name not in old.servers),
        removed=tuple(name for name in old.servers if name not in new.servers),
        restarted=restarted,
        adjusted=adjusted,
        kept=tuple(name for name in common if name not in restarted and name not in adjusted),
        at_once=(
            *(key for key in keys if _holds_at_once(key)),
            *(f"profiles.{name}" for name in (*profiles, *dropped)),
        ),
        next_start=tuple(key for key in keys if not _holds_at_once(key)),
        servers={name: own for name, own in new.servers.items() if not _is_same_entry(old.servers.get(name), own)},
        profiles=profiles,
        order=_order(old.servers, new.servers),
        profile_order=_order(old.profiles, new.profiles),
        values=values,
    )


def apply(settings: Settings, change: Plan, *, is_next_start: bool = True) -> Settings:
    """`settings` with the change; without `is_next_start` what waits for the hub's next start stays as it is."""
    servers = {**settings.servers, **change.servers}
    profiles = {**settings.profiles, **change.profiles}
    if change.order is not None:
        servers = {name: servers[name] for name in change.order}
    if change.profile_order is not None:
        profiles = {name: profiles[name] for name in change.profile_order}
    changed: Section = settings.model_copy(update={"servers": servers, "profiles": profiles})
    for path, value in change.values.items():
        if is_next_start or _holds_at_once(".".join(path)):
            changed = _with(changed, path, value)
    assert isinstance(changed, Settings)
    return changed


def leaves(section: Section, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every key below a section that is no section itself, with its value."""
    for key, described in type(section).model_fields.items():
        value = getattr(section, key)
        if isinstance(described.annotation, type) and issubclass(described.annotation, Section):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _differences(old: Settings, new: Settings) -> dict[Path, object]:
    """Of the sections that have no entries: `hub` and `defaults`. `pinned` and the like are lists, order included."""
    before = {**dict(leaves(old.hub, ("hub",))), **dict(leaves(old.defaults, ("defaults",)))}
    after = {**dict(leaves(new.hub, ("hub",))), **dict(leaves(new.defaults, ("defaults",)))}
    return {path: value for path, value in after.items() if not _same(before[path], value)}


def _same(one: object, other: object) -> bool:
    """Also of mappings the order: entries of `hub.clients` go by it."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one.items()) == list(other.items())
    return one == other


def _holds_at_once(key: str) -> bool:
    return key in AT_ONCE or key.startswith("defaults.")


def _connection(settings: Settings, name: str) -> list[object]:
    """Whatever the server's process or connection depends on. A scope that is left out is `shared`."""
    own, general = settings.servers[name], settings.effective(name)
    keys = sorted(ServerSettings.model_fields.keys() - OF_THE_RULES)
    values = {key: getattr(general if key in Defaults.model_fields else own, key) for key in keys}
    values["scope"] = own.scope or "shared"
    return list(values.values())


def _rules(settings: Settings, name: str) -> tuple[list[object], object]:
    """Everything else; which of the mappings' entries decides goes by their order.

    Whether a remote server has a `restart` of its own matters, too.
    """
    return _written(settings.servers[name]), settings.effective(name)


def _written(own: ServerSettings) -> list[object]:
    return [list(value.items()) if isinstance(value, dict) else value for _, value in leaves(own)]


def _is_same_entry(one: ServerSettings | None, other: ServerSettings) -> bool:
    return one is not None and _written(one) == _written(other)


def _order(old: Mapping[str, object], new: Mapping[str, object]) -> tuple[str, ...] | None:
    return None if list(old) == list(new) else tuple(new)


def _with(section: Section, path: Path, value: object) -> Section:
    key, *rest = path
    inner = _with(getattr(section, key), tuple(rest), value) if rest else value
    return section.model_copy(update={key: inner})
