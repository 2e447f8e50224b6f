"""The resources that callers can read: listed ones, files of skills, and others that filters admit."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property

from mcp_hub.catalog.offers.filters import EVERYTHING, Filter
from mcp_hub.catalog.pins import UnapprovedTool
from mcp_hub.catalog.resources import uris
from mcp_hub.catalog.resources.readings import is_denied, readings, uri_variants
from mcp_hub.catalog.resources.skills import SkillRoots, directory_result, exported_skill
from mcp_hub.catalog.views.entries import Entry, Offer
from mcp_hub.protocol.skills import root_of
from mcp_hub.types import Kind, Origin

FindingOf = Callable[[str, str], UnapprovedTool | None]
"""The finding that blocks a server's URI, however it is written."""


def held_folders(findings: Mapping[Origin, UnapprovedTool]) -> FindingOf:
    """Blocks the folders of skills that await approval."""
    unapproved: dict[str, list[tuple[Filter, UnapprovedTool]]] = {}
    for (server, uri), finding in findings.items():
        root = "".join(f"[{char}]" if char in "*?[]" else char for char in root_of(uri))
        unapproved.setdefault(server, []).append((Filter(deny=(root, f"{root}/*")), finding))

    def finding_of(server: str, uri: str) -> UnapprovedTool | None:
        folders = unapproved.get(server, ())
        return next((finding for folder, finding in folders if is_denied((folder,), (uri,))), None)

    return finding_of


class ListedResources:
    """The resources that callers can read."""

    def __init__(
        self,
        entries: Mapping[Kind, Sequence[Entry]],
        hidden: Mapping[Kind, Sequence[Origin]],
        table: uris.UriTable,
        templates: uris.Templates,
        filters: Mapping[str, tuple[Filter, Filter]],
        roots: SkillRoots,
        finding_of: FindingOf,
        directories: Collection[str],
    ) -> None:
        """`templates`: the listed ones. `filters`: each server's and the view's. `directories`: servers that can list
        directories.
        """
        self._listed = {(entry.server, entry.key) for entry in entries[Kind.RESOURCE]}
        self._unlisted = hidden[Kind.RESOURCE]
        self._table = table
        self._templates = templates
        self._hidden_templates = uris.Templates(hidden[Kind.TEMPLATE])
        self._filters = filters
        self._roots = roots
        self._finding_of = finding_of
        self.directories = directories
        self.exported = table.exported

    def resolve(self, uri: str, *, may_guess: bool = True) -> Origin | None:
        """None if unknown, held back or filtered."""
        origin = self._table.resolve(uri, may_guess=may_guess)
        if origin is None or self._finding_of(*origin) is not None:
            return None
        return origin if origin in self._listed or self._lets_through(*origin, uri) else None

    def is_of_skill(self, server: str, upstream_uri: str) -> bool:
        """Whether it is, or seems to be, a skill's file: servers need not list all."""
        return upstream_uri.startswith("skill://") or self._roots.exported(server, upstream_uri) is not None

    def unapproved(self, uri: str) -> UnapprovedTool | None:
        origin = self._table.resolve(uri)
        return None if origin is None else self._finding_of(*origin)

    def skill(self, offer: Offer) -> bytes | None:
        """The entry of a skill; None if its main file may not be read."""
        server = offer.server

        def exported(upstream_uri: str) -> str | None:
            name = self.exported(server, upstream_uri)
            return name if self.resolve(name) is not None else None

        if exported(offer.definition.key) is None:
            return None
        return exported_skill(offer.definition.fields, server, exported)

    def _lets_through(self, server: str, upstream_uri: str, uri: str) -> bool:
        filters = [filter_ for filter_ in self._filters[server] if filter_ != EVERYTHING]
        if not filters:
            return True
        if any(filter_.deny for filter_ in filters) and is_denied(
            filters, (upstream_uri, uri), hidden=self._hidden_readings[server]
        ):
            return False
        variants = uri_variants(upstream_uri)
        if variants is None or any((server, text) in self._hidden for text in variants.denied):
            return False
        if any(
            filter_.denies(text, _alike(uri, upstream_uri, text)) for filter_ in filters for text in variants.denied
        ):
            return False
        is_hidden = any(self._hidden_templates.covers(server, text) for text in variants.denied)
        return all(
            self._templates.covers(server, text)
            or (not is_hidden and all(filter_.admits(text, _alike(uri, upstream_uri, text)) for filter_ in filters))
            for text in variants.allowed
        )

    def directory(self, uri: str, skills: Iterable[Entry]) -> bytes | None:
        """The result of `resources/directory/read` from listed skills; None if the server can be asked. Raises
        `UnknownEntry`.
        """
        origin = self.resolve(uri)
        if origin is None or origin[0] in self.directories:
            return None
        return directory_result(uri, (entry.raw for entry in skills if entry.server == origin[0]), origin[0])

    @cached_property
    def _hidden_readings(self) -> Mapping[str, Collection[str]]:
        texts: dict[str, set[str]] = {server: set() for server in self._filters}
        for server, uri in self._unlisted:
            texts[server] |= readings(uri, with_nested=False) or set()
        return texts

    @cached_property
    def _hidden(self) -> frozenset[Origin]:
        hidden = ((server, uri, uri_variants(uri)) for server, uri in self._unlisted)
        return frozenset(
            (server, text) for server, uri, variants in hidden for text in (variants.denied if variants else (uri,))
        )


def _alike(exported: str, upstream_uri: str, text: str) -> str:
    if exported.endswith(upstream_uri):
        return exported.removesuffix(upstream_uri) + text
    scheme, _, path = upstream_uri.partition("://")  # the address of an app keeps its scheme in front
    return exported.removesuffix(path) + text.removeprefix(f"{scheme}://")
