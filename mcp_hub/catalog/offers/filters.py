"""Behaviour of tools as hints, and filters over names, URIs, tags and hints. Pure."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mcp_hub.globs import any_matches
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.types import RawObject

HintRule = Literal["trust", "approved", "ignore"]
"""The hints of a server that are used: all, those of tools that a person approved, or none."""
HintOrigin = Literal["server", "user", "default", "unapproved", "ignored"]
"""The origin of a hint; the last two are hints of the server that are not used."""
HINTS: Final = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""The names of hints in a definition (schema, `ToolAnnotations`)."""
EXPLAINED: Final = "dev.mcp-hub/hints"
"""The member of `_meta` that says where hints come from."""


class _Hints(msgspec.Struct, frozen=True):
    """Effective behaviour of a tool (server/tools, `ToolAnnotations`); the defaults are the worse case."""

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


class HintClaims(msgspec.Struct, frozen=True):
    """Hints that a server or user gives for a tool; None: not given."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None

    def hints(self) -> _Hints:
        """Completed with the specification's defaults; reading implies idempotent and not destructive. Destructive
        wins.
        """
        read_only = self.read_only is True and self.destructive is not True
        return _Hints(
            read_only,
            not read_only if self.destructive is None else self.destructive,
            read_only if self.idempotent is None else self.idempotent,
            self.open_world is not False,
        )

    def under(self, user: "HintClaims") -> "HintClaims":
        """Overridden by the user's, without contradictions."""
        merged = {name: getattr(self, name) if (claim := getattr(user, name)) is None else claim for name in HINTS}
        if user.read_only is True and user.destructive is None:
            merged["destructive"] = None
        if user.destructive is True and user.read_only is None:
            merged["read_only"] = None
        return HintClaims(**merged)

    def worse(self, claims: "HintClaims") -> "HintClaims":
        """The more dangerous of two, hint by hint."""
        first, second = self.hints(), claims.hints()
        return HintClaims(
            first.read_only and second.read_only,
            first.destructive or second.destructive,
            first.idempotent and second.idempotent,
            first.open_world or second.open_world,
        )

    def __bool__(self) -> bool:
        return self != NO_CLAIMS


NO_CLAIMS: Final = HintClaims()


class EffectiveHints(msgspec.Struct, frozen=True):
    """The effective hints of one tool, and the claims behind them. `is_trusted`: the server's claims count."""

    server: HintClaims = NO_CLAIMS
    user: HintClaims = NO_CLAIMS
    rule: HintRule = "trust"
    is_trusted: bool = True

    @property
    def claims(self) -> HintClaims:
        return (self.server if self.is_trusted else NO_CLAIMS).under(self.user)

    @property
    def is_as_sent(self) -> bool:
        return not self.user and (self.is_trusted or not self.server)

    def origin(self, name: str) -> HintOrigin:
        """`name` is a key of `HINTS`."""
        if getattr(self.user, name) is not None:
            return "user"
        if getattr(self.server, name) is None:
            return "default"
        if self.is_trusted:
            return "default" if getattr(self.claims, name) is None else "server"
        return "ignored" if self.rule == "ignore" else "unapproved"

    def explained(self, definition: bytes) -> bytes:
        """A definition with each effective hint's value and origin in `_meta`."""
        fields, effective = raw_object(Raw(definition)) or {}, self.claims.hints()
        explanation = {
            wire: {"value": getattr(effective, name), "origin": self.origin(name)} for name, wire in HINTS.items()
        }
        meta = {**(raw_object(fields.get("_meta", UNSET)) or {}), EXPLAINED: explanation}
        return msgspec.json.encode({**fields, "_meta": meta})


def annotated(fields: RawObject, claims: HintClaims) -> RawObject:
    """The members with annotations that show exactly these hints; others stay."""
    sent: RawObject | UnsetType | None = raw_object(fields.get("annotations", UNSET))
    unrelated = {name: value for name, value in (sent or {}).items() if name not in HINTS.values()}
    hints = {wire: value for name, wire in HINTS.items() if (value := getattr(claims, name)) is not None}
    changed = {**fields, "annotations": Raw(msgspec.json.encode({**unrelated, **hints}))}
    if not unrelated and not hints:
        del changed["annotations"]
    return changed


class Traits(msgspec.Struct, frozen=True):
    """Selects a definition besides its names."""

    tags: frozenset[str] = frozenset()
    hints: _Hints = _Hints()


UNTOLD: Final = Traits()


class Selector(msgspec.Struct, frozen=True):
    """A filter entry whose parts must all match: globs on name and tag, hint values."""

    name: str | None = None
    tag: str | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None

    def selects(self, names: Iterable[str], traits: Traits) -> bool:
        """An empty selector matches nothing."""
        if self.name is not None and not any_matches((self.name,), names):
            return False
        if self.tag is not None and not any_matches((self.tag,), traits.tags):
            return False
        required = {hint: getattr(self, hint) for hint in HINTS if getattr(self, hint) is not None}
        return self != _NOTHING and all(getattr(traits.hints, hint) is value for hint, value in required.items())


_NOTHING: Final = Selector()


class Filter(msgspec.Struct, frozen=True):
    """Selectors and globs on names. Without `allow` all pass, with an empty one nothing; `deny` wins; `within` applies,
    too.
    """

    allow: tuple[str | Selector, ...] | None = None
    deny: tuple[str | Selector, ...] = ()
    within: "Filter | None" = None

    def admits(self, *names: str, traits: Traits = UNTOLD) -> bool:
        """Whether something with these names (upstream's, exported) may be used."""
        if self.denies(*names, traits=traits):
            return False
        if self.within is not None and not self.within.admits(*names, traits=traits):
            return False
        return self.allow is None or _any_selects(self.allow, names, traits)

    def denies(self, *names: str, traits: Traits = UNTOLD) -> bool:
        return bool(self.deny) and _any_selects(self.deny, names, traits)


EVERYTHING: Final = Filter()


def _any_selects(entries: tuple[str | Selector, ...], names: tuple[str, ...], traits: Traits) -> bool:
    globs, selectors = _sorted_out(entries)
    return any_matches(globs, names) or any(entry.selects(names, traits) for entry in selectors)


@lru_cache(maxsize=1024)
def _sorted_out(entries: tuple[str | Selector, ...]) -> tuple[tuple[str, ...], tuple[Selector, ...]]:
    globs = tuple(entry for entry in entries if isinstance(entry, str))
    return globs, tuple(entry for entry in entries if isinstance(entry, Selector))
