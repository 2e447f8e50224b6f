"""Additions to a rule from a learning run: folded, bounded, without secrets, all checked."""

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

import mcp_hub
from mcp_hub.addresses import host_rule
from mcp_hub.masking import hide
from mcp_hub.sandbox import paths
from mcp_hub.sandbox.confinement import WRITE_FILE, Confinement
from mcp_hub.sandbox.learning import Learning, Sighting
from mcp_hub.sandbox.network.interface import is_literal
from mcp_hub.sandbox.places import ancestors, is_inside, programs_at, secret_at, why_shared, why_too_broad
from mcp_hub.sandbox.rules import Subject

MOST: Final = 48
"""Proposed paths, hosts or sockets per key."""
_ENTRIES: Final = 3
"""Used entries from which their folder is proposed."""
_ENTRIES_NEAR_HOME: Final = 8
"""For folders right below the home, or in two levels of the root."""
_ENTRIES_IF_MANY: Final = 2
_GLOBS: Final = frozenset("*?[")
_KERNEL: Final = ("/dev", "/proc", "/sys")


_LEADS_ELSEWHERE: Final = "it leads elsewhere by a link since then"


class Proposal(msgspec.Struct, frozen=True):
    """Additions to a rule; `net` None: unchanged.

    `replaced_read` and `replaced_write` are open without a list, so a list must repeat them. `refused` paths stay
    closed.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    net: tuple[str, ...] | None = None
    replaced_read: tuple[str, ...] = ()
    replaced_write: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    secrets: tuple[Sighting, ...] = ()


class _Places:
    """Decides which paths a proposal may open."""

    def __init__(self, subject: Subject, secrets: Collection[str]) -> None:
        self.home = os.path.realpath(subject.around.home)
        self._hub = [os.path.realpath(folder) for folder in subject.around.hub]
        self._above = {above: secret for secret in secrets for above in ancestors(secret)}
        self._inner_secrets: dict[str, str | None] = {}
        self._programs = list(paths.installations(subject.program, subject.env, self.home))
        files = (subject.around.config, mcp_hub.__file__, sys.executable)
        self._own_files = [form for file in files if file for form in (os.path.abspath(file), os.path.realpath(file))]

    def refusal(self, path: str, *, writes: bool) -> str | None:
        if not _is_literal(path):
            return "its name cannot stand in a rule"
        if any(is_inside(path, folder) for folder in _KERNEL):
            return "it is a device, or belongs to the kernel"
        if (reason := why_too_broad(path, self.home, self._hub) or why_shared(path, self.home)) is not None:
            return reason
        if (secret := self._secret_in(path)) is not None:
            return f"{secret} is secret"
        if any(is_inside(file, path) for file in self._own_files) and (writes or os.path.isdir(path)):
            return "the hub's configuration or program is in it"
        if writes and (programs := programs_at(path, self.home, self._programs)) is not None:
            return f"{programs} has programs or settings of others"
        return None

    def _secret_in(self, path: str) -> str | None:
        if path not in self._inner_secrets:
            self._inner_secrets[path] = self._above.get(path) or secret_at(path, self.home)
        return self._inner_secrets[path]

    def entries(self, folder: str) -> int:
        is_near = os.path.dirname(folder) == self.home or folder.count("/") <= 2
        return _ENTRIES_NEAR_HOME if is_near else _ENTRIES


def _is_literal(path: str) -> bool:
    return path.isprintable() and not _GLOBS & set(path) and is_literal(path) and hide(path) == path


def proposal(learning: Learning, hosts: tuple[str, ...] | None) -> Proposal:
    """Additions for the latest start; `hosts` None: unlimited."""
    subject, confinement = learning.subject, learning.confinement
    assert subject is not None and confinement is not None
    places = _Places(subject, learning.secrets)
    refused: list[tuple[str, str]] = []
    write = _chosen(learning.writes, places, refused, writes=True)
    covered = {
        path: seen for path, seen in learning.reads.items() if not any(is_inside(path, written) for written in write)
    }
    read = _chosen(covered, places, refused, writes=False)
    return Proposal(
        read=tuple(read),
        write=tuple(write),
        sockets=tuple(_sockets(learning, confinement, refused)),
        net=_net(learning, confinement, hosts, refused),
        replaced_read=tuple(_readable(subject, confinement, places)),
        replaced_write=tuple(_writable(subject, confinement)),
        refused=tuple(refused),
        secrets=tuple(learning.secrets.values()),
    )


def _chosen(
    seen: Mapping[str, Sighting], places: _Places, refused: list[tuple[str, str]], *, writes: bool
) -> list[str]:
    useful: dict[str, bool] = {}
    for path, sighting in seen.items():
        reason = places.refusal(path, writes=writes)
        if reason is None and os.path.realpath(path) != path:
            reason = _LEADS_ELSEWHERE
        if reason is None:
            useful[path] = sighting.is_folder
        else:
            refused.append((path, reason))

    def entries(folder: str) -> int | None:
        return None if places.refusal(folder, writes=writes) is not None else places.entries(folder)

    folded = fold(useful, entries)
    counts = Counter(dict.fromkeys(folded, 0))
    for path in useful:
        counts[next(above for above in ancestors(path) if above in counts)] += seen[path].count
    ranked = sorted(folded, key=lambda path: (-counts[path], path))
    refused += [(path, f"more than {MOST} paths would be needed") for path in ranked[MOST:]]
    return sorted(ranked[:MOST])


def fold(used: Mapping[str, bool], entries: Callable[[str], int | None]) -> list[str]:
    """Paths that open all `used` ones, whose values are true for folders.

    A folder replaces its entries once `entries` of them are used (None: never), or two if paths are too many.
    """
    chosen = _outermost(used)
    while True:
        children: defaultdict[str, set[str]] = defaultdict(set)
        for path in chosen:
            child = path
            for folder in ancestors(os.path.dirname(path)):
                children[folder].add(child)
                child = folder
        many = len(chosen) > MOST
        full = [
            folder
            for folder, names in children.items()
            if (needed := entries(folder)) is not None
            and len(names) >= (min(needed, _ENTRIES_IF_MANY) if many else needed)
        ]
        if not full:
            return list(chosen)
        depth = max(folder.count("/") for folder in full)
        chosen = _outermost({**chosen, **{folder: True for folder in full if folder.count("/") == depth}})


def _outermost(used: Mapping[str, bool]) -> dict[str, bool]:
    return {
        path: is_folder
        for path, is_folder in used.items()
        if not any(used.get(above) for above in ancestors(os.path.dirname(path)) if above != path)
    }


def _sockets(learning: Learning, confinement: Confinement, refused: list[tuple[str, str]]) -> list[str]:
    chosen: list[str] = []
    for path in learning.sockets:
        if not _is_literal(path):
            refused.append((path, "its name cannot stand in a rule"))
        elif os.path.realpath(path) != path:
            refused.append((path, _LEADS_ELSEWHERE))
        elif confinement.allows(os.path.dirname(path), WRITE_FILE) is not None:
            refused.append((path, "the server may write there, and put another socket in its place"))
        elif len(chosen) >= MOST:
            refused.append((path, f"more than {MOST} sockets would be needed"))
        else:
            chosen.append(path)
    return sorted(chosen)


def _net(
    learning: Learning, confinement: Confinement, hosts: tuple[str, ...] | None, refused: list[tuple[str, str]]
) -> tuple[str, ...] | None:
    """All hosts for `net`; None: unchanged."""
    if hosts is None or confinement.net != "hosts":
        return None
    direct = "it was reached without the proxy, which a list of hosts refuses"
    refused += [(address, direct) for address in learning.addresses]
    if learning.addresses and not hosts:
        return None
    entries = [entry for entry in sorted(learning.hosts) if _is_host(entry)]
    if len(entries) > MOST:
        refused += [(entry, f"more than {MOST} hosts would be needed") for entry in entries]
        return None
    fresh = tuple(entry for entry in entries if entry not in hosts)
    if not fresh and not hosts:  # an empty list is not taken: the package index is open anyway
        return tuple(rule.host for rule in confinement.hosts)
    return (*hosts, *fresh) if fresh else None


def _is_host(entry: str) -> bool:
    try:
        host_rule(entry)
    except ValueError:
        return False
    return True


def _readable(subject: Subject, confinement: Confinement, places: _Places) -> list[str]:
    arguments = paths.data(subject.args, subject.cwd, subject.around.home)
    named = [*([] if subject.is_spare else [subject.cwd]), *arguments]
    opened = [path for path in named if confinement.allows(os.path.realpath(path)) is not None]
    writable = _writable(subject, confinement)
    return [path for path in opened if path not in writable and places.refusal(path, writes=False) is None]


def _writable(subject: Subject, confinement: Confinement) -> list[str]:
    arguments = paths.data(subject.args, subject.cwd, subject.around.home)
    return [path for path in arguments if confinement.allows(os.path.realpath(path), WRITE_FILE) is not None]
