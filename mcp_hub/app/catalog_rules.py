"""List settings as the rules of the catalog."""

import hashlib
from collections.abc import Callable, Mapping
from itertools import chain, count
from types import MappingProxyType
from typing import Final, NamedTuple, get_args

import msgspec
from pydantic import JsonValue

from mcp_hub.catalog.offers.filters import HINTS, Filter, HintClaims, Selector
from mcp_hub.catalog.offers.rules import Override, ServerRules, Supplied, ViewRules
from mcp_hub.catalog.pins import Policy
from mcp_hub.config.findings import quoted
from mcp_hub.config.schema.settings import ProfileSettings, Settings
from mcp_hub.config.schema.tools import (
    FilterSettings,
    OverlaySettings,
    SelectorSettings,
    ToolFilterSettings,
    ToolSelector,
    ToolSettings,
)
from mcp_hub.extras import is_installed
from mcp_hub.globs import first_match
from mcp_hub.protocol.jsonrpc.envelope import read_as
from mcp_hub.types import CodeMode, RawJson, RawObject
from mcp_hub.upstreams.supervision.server import Repetition

_CODE_MODES: Final[tuple[CodeMode, ...]] = get_args(CodeMode)
_NOTHING: Final = ViewRules({}, shared=False, max_result_tokens=0)


class ProjectView(NamedTuple):
    """A client's profile (None: everything) with its project's overlay.

    With a `refusal`, the end of a sentence, nothing is offered.
    """

    profile: str | None
    overlay: OverlaySettings
    refusal: str = ""

    @property
    def name(self) -> str:
        """A unique profile name for this view."""
        digest = hashlib.sha256(repr(tuple(self)).encode(errors="surrogatepass")).hexdigest()[:16]
        return f"{self.profile or 'everything'} in a project ({digest})"

    def rules(self, settings: Settings, executor_name: str | None) -> ViewRules:
        """The view's rules; an empty one says why."""
        refusal = self.refusal or "names a profile that does not exist"
        nothing = f"mcp-hub offers no tools here: the file .mcp-hub.yaml of this project {refusal}."
        rules = None if self.refusal else project_rules(settings, self.profile, self.overlay, executor_name)
        return rules or msgspec.structs.replace(_NOTHING, instructions=nothing)


def view_rules(
    settings: Settings, executor_name: str | None = None, projects: Mapping[str, ProjectView] = MappingProxyType({})
) -> dict[str | None, ViewRules]:
    """A view of everything (None), of each profile, and of each of `projects`."""
    every = _every(settings, executor_name)
    is_public = not settings.profiles and not settings.hub.tokens and settings.hub.http.oauth is None
    everywhere = {name: server for name, server in every.items() if not _is_for_projects(settings, name)}
    rules: dict[str | None, ViewRules] = {None: _view_rules(settings, everywhere, ProfileSettings(), is_public)}
    for name, profile in settings.profiles.items():
        rules[name] = _view_rules(settings, everywhere, profile, is_public=False)
    for name, view in projects.items():
        rules[name] = view.rules(settings, executor_name)
    return rules


def _every(settings: Settings, executor_name: str | None) -> dict[str, ServerRules]:
    every = {name: _server_rules(settings, name) for name in settings.servers}
    return {**every, executor_name or executor_server(settings): ServerRules(yields=True)}


def _is_for_projects(settings: Settings, name: str) -> bool:
    return name in settings.servers and settings.servers[name].enabled == "project"


def project_rules(
    settings: Settings, profile: str | None, overlay: OverlaySettings, executor_name: str | None = None
) -> ViewRules | None:
    """A profile (None: everything) in a project; None if the profile is missing.

    At most what the profile has; of `enabled: project` servers those that the overlay turns on.
    """
    narrower = ProfileSettings() if overlay.profile is None else settings.profiles.get(overlay.profile)
    base = ProfileSettings() if profile is None else settings.profiles.get(profile)
    if narrower is None or base is None:
        return None
    every = {
        name: server_rules
        for name, server_rules in _every(settings, executor_name).items()
        if name not in overlay.disable and (name in overlay.enable or not _is_for_projects(settings, name))
    }
    inner = _view_rules(settings, every, narrower, is_public=False)
    outer = _view_rules(settings, inner.servers, base, is_public=False)
    return msgspec.structs.replace(
        outer,
        tools=_both(inner.tools, outer.tools),
        resources=_both(inner.resources, outer.resources),
        prompts=_both(inner.prompts, outer.prompts),
        events=_both(inner.events, outer.events),
        code=min(inner.code, outer.code, key=_CODE_MODES.index),
        lists_code=inner.lists_code and outer.lists_code,
    )


def _both(inner: Filter, outer: Filter) -> Filter:
    deny = (*inner.deny, *outer.deny)
    if inner.allow is None or outer.allow is None:
        return Filter(outer.allow if inner.allow is None else inner.allow, deny)
    return Filter(inner.allow, deny, Filter(outer.allow))


def for_projects(settings: Settings, server: str) -> ServerRules:
    """The rules of an `enabled: project` server; a removed one claims nothing."""
    return _server_rules(settings, server) if _is_for_projects(settings, server) else ServerRules(hints="ignore")


def overlay_problems(settings: Settings, overlay: OverlaySettings) -> list[str]:
    """Sentences about an overlay's unknown names, and servers not for projects."""
    names = [*overlay.disable, *overlay.enable]
    problems = [f"there is no server {quoted(name)}" for name in names if name not in settings.servers]
    problems += [
        f"server {quoted(name)} does not have enabled: project, so a project cannot turn it on"
        for name in overlay.enable
        if name in settings.servers and not _is_for_projects(settings, name)
    ]
    if overlay.profile is not None and overlay.profile not in settings.profiles:
        problems.append(f"there is no profile {quoted(overlay.profile)}, so nothing is offered")
    return problems


def policies(settings: Settings) -> dict[str, Policy]:
    """The policy for changed tools, by server."""
    return {name: settings.effective(name).approval for name in settings.servers}


def confirmed_servers(settings: Settings) -> frozenset[str]:
    return frozenset(name for name in settings.servers if settings.effective(name).hints == "approved")


def executor_server(settings: Settings) -> str:
    """An unused server name for tools that clients execute."""
    names = chain(["virtual"], (f"virtual{number}" for number in count(2)))
    return next(name for name in names if name not in settings.servers)


def _view_rules(
    settings: Settings, every: Mapping[str, ServerRules], profile: ProfileSettings, is_public: bool
) -> ViewRules:
    hub, chosen = settings.hub, profile.servers
    code = hub.code if profile.code is None else profile.code
    return ViewRules(
        servers=every if chosen is None else {name: every[name] for name in every if name in chosen},
        tools=_filter(profile.tools),
        max_name_length=hub.max_name_length,
        shared=is_public,
        resources=_filter(profile.resources),
        prompts=_filter(profile.prompts),
        events=_filter(profile.events),
        event_sources=frozenset(("push", "poll") if hub.http.public_url is None else ("push", "poll", "webhook")),
        pinned=tuple(hub.pinned if profile.pinned is None else profile.pinned),
        expose=hub.expose if profile.expose is None else profile.expose,
        budget=hub.budget if profile.budget is None else profile.budget,
        compact=hub.compact if profile.compact is None else profile.compact,
        max_result_tokens=(hub.max_result_tokens if profile.max_result_tokens is None else profile.max_result_tokens),
        instructions=hub.instructions,
        code=code,
        lists_code=code != "off" and is_installed("code"),
        capabilities=hub.capabilities,
    )


def _server_rules(settings: Settings, name: str) -> ServerRules:
    server = settings.servers[name]
    prefix = server.prefix or settings.hub.prefix
    policy = prefix if prefix in ("auto", "always", "never") else settings.hub.prefix
    text = prefix if prefix not in ("auto", "always", "never") else name
    if prefix == text and policy == "never":
        policy = "auto"  # a prefix that is written out is meant
    return ServerRules(
        prefix=None if policy == "never" else text,
        always=policy == "always",
        rename=server.rename,
        tools=_filter(server.tools),
        resources=_filter(server.resources),
        prompts=_filter(server.prompts),
        events=_filter(server.events),
        overrides={pattern: _override(tool) for pattern, tool in server.per_tool.items()},
        expose=server.expose,
        compact=server.compact,
        description=server.description,
        hints=settings.effective(name).hints,
        apps=server.apps,
        passthrough=tuple(server.passthrough) if server.enabled else (),
    )


def _override(tool: ToolSettings) -> Override:
    return Override(
        name=tool.name,
        description=tool.description,
        hide=tool.hide,
        pin=tool.pin,
        tags=frozenset(tool.tags),
        supplied=Supplied(_encoded(tool.arguments), _encoded(tool.fixed)),
        hints=HintClaims(**{name: getattr(tool.annotations, wire) for name, wire in HINTS.items()}),
        path=tool.path,
    )


class _Tool(msgspec.Struct):
    annotations: dict[str, object] | None = None


def repetition(settings: Settings, server: str) -> Callable[[str, RawJson], Repetition]:
    """The rule for a server's tools; approved hints do not count."""
    per_tool, trusts = settings.servers[server].per_tool, settings.effective(server).hints == "trust"

    def rule(tool: str, definition: RawJson) -> Repetition:
        if settings.tool_rules(server, tool).idempotent:
            return "safe"
        listed = read_as(definition, _Tool) if trusts else None
        annotations = (None if listed is None else listed.annotations) or {}
        sent = {name: annotations.get(wire) for name, wire in HINTS.items()}
        pattern = first_match(tool, per_tool)
        user = HintClaims() if pattern is None else _override(per_tool[pattern]).hints
        server_claims = HintClaims(**{name: hint if isinstance(hint, bool) else None for name, hint in sent.items()})
        claims = server_claims.under(user)
        hints = claims.hints()
        if hints.read_only or hints.idempotent:
            return "safe"
        return "never" if claims.destructive is True else "agreed"

    return rule


def _encoded(arguments: Mapping[str, JsonValue]) -> RawObject:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in arguments.items()}


def _filter(settings: FilterSettings | ToolFilterSettings) -> Filter:
    allow = None if settings.allow is None else tuple(map(_entry, settings.allow))
    return Filter(allow, tuple(map(_entry, settings.deny)))


def _entry(setting: SelectorSettings) -> str | Selector:
    selector = Selector(setting.name, setting.tag)
    if isinstance(setting, ToolSelector):
        selector = Selector(setting.name, setting.tag, *(getattr(setting, wire) for wire in HINTS.values()))
    return setting.name if setting.name is not None and selector == Selector(setting.name) else selector
