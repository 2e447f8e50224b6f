"""The folders of skills under the URIs that clients know, and the way back from the URI of any file in one."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Final
from urllib.parse import quote

from mcp_hub.protocol.skills import MAIN, above, root_of
from mcp_hub.types import Origin

_LONGEST: Final = 8192  # characters; longer URIs are data, not addresses
_SCHEME: Final = "skill://"


class SkillRoots:
    """The outermost folders of skills. One that an earlier server has something in gets the name of its server.

    `skills` are the URIs of the main files, `resources` all listed URIs, both with their servers, which come in the
    order of `servers`.
    """

    def __init__(
        self, skills: Iterable[Origin] = (), resources: Iterable[Origin] = (), servers: Sequence[str] = ()
    ) -> None:
        self._exported: dict[Origin, str] = {}
        self._origins: dict[str, Origin] = {}
        self._taken: set[str] = set()  # URIs that are somebody's, and all folders above them
        mains = [*skills, *(own for own in resources if own[1].startswith(_SCHEME) and own[1].endswith(f"/{MAIN}"))]
        roots = {server: _outermost(root_of(uri) for owner, uri in mains if owner == server) for server in servers}
        moved: list[Origin] = []
        for server in servers if mains else ():
            own = roots[server]
            kept = [root for root in own if not self._clashes(root)]
            moved += ((server, root) for root in own if root not in kept)
            others = [uri for owner, uri in resources if owner == server and own.isdisjoint(above(uri))]
            for uri in (*kept, *others):
                self._taken.update(above(uri))
            for root in kept:
                self._add(server, root, root)
        for server, root in moved:
            self._add(server, root, next(name for name in _names(server, root) if not self._clashes(name)))

    def _clashes(self, root: str) -> bool:
        return root in self._taken or any(folder in self._origins for folder in above(root))

    def _add(self, server: str, root: str, name: str) -> None:
        self._exported[server, root] = name
        self._origins[name] = server, root
        self._taken.update(above(name))

    def exported(self, server: str, uri: str) -> str | None:
        """The client's URI of something in a skill of this server; None of anything else."""
        if self._exported and len(uri) <= _LONGEST:
            for folder in above(uri):
                if (name := self._exported.get((server, folder))) is not None:
                    return name + uri[len(folder) :]
        return None

    def resolve(self, uri: str) -> Origin | None:
        """The server and its own URI behind a client's, listed or not; None if it is not in a skill."""
        if self._origins and len(uri) <= _LONGEST:
            for folder in above(uri):
                if (origin := self._origins.get(folder)) is not None:
                    return origin[0], origin[1] + uri[len(folder) :]
        return None


def _outermost(roots: Iterable[str]) -> set[str]:
    """Without those that are inside of another one."""
    found = set(roots)
    return {root for root in found if not any(folder in found for folder in above(root) if folder != root)}


def _names(server: str, root: str) -> Iterator[str]:
    scheme, rest = (_SCHEME, root[len(_SCHEME) :]) if root.startswith(_SCHEME) else ("hub://", root)
    host = quote(server, safe="", errors="surrogatepass")
    yield f"{scheme}{host}/{rest}"
    yield from (f"{scheme}{host}!{number}/{rest}" for number in count(1))
