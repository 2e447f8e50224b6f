"""Allow and deny entries over names, URIs, tags and hints."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from mcp_hub.catalog.offers.hints import HINTS, Hints
from mcp_hub.globs import any_matches


class Traits(msgspec.Struct, frozen=True):
    """Selects a definition besides its names."""

    tags: frozenset[str] = frozenset()
    hints: Hints = Hints()


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
