"""Doubles among servers, and a name for each that is left. Pure."""

import json
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from mcp_hub.cli.imports.found import FoundServer
from mcp_hub.types import JsonObject

_SAME: Final = ("command", "args", "cwd", "env", "url", "headers", "bearer", "local", "skills")
"""Keys that make a server what it is: entries that differ in `env` or `headers` may be two accounts."""
_LONGEST: Final = 64


class MergedServer(msgspec.Struct):
    """One server, however many clients have it."""

    name: str
    own: JsonObject
    found: list[FoundServer]


def merged(servers: Iterable[FoundServer], taken: Collection[str]) -> list[MergedServer]:
    """Each server once. Names that are `taken`, or that another server has, get the name of a client behind them."""
    done: dict[str, MergedServer] = {}
    names = set(taken)
    for one in servers:
        key = identity(one.own)
        if (known := done.get(key)) is not None:
            known.found.append(one)
            continue
        name = _free(clean(one.name), one.client, names)
        names.add(name)
        done[key] = MergedServer(name, one.own, [one])
    return list(done.values())


def identity(own: JsonObject) -> str:
    """The same text for the same server."""
    same = {key: own[key] for key in _SAME if own.get(key)}
    if isinstance(url := same.get("url"), str):
        same["url"] = url.rstrip("/")
    return json.dumps(same, sort_keys=True, default=str)


def clean(name: str) -> str:
    """A name that the hub takes: without control characters, and not too long."""
    shown = "".join(char if char.isprintable() else " " for char in name).strip()
    return shown[:_LONGEST].rstrip() or "server"


def _free(name: str, client: str, names: Collection[str]) -> str:
    if name not in names:
        return name
    for tail in (f"-{client}", *(f"-{client}-{number}" for number in range(2, 1000))):
        tried = name[: _LONGEST - len(tail)] + tail
        if tried not in names:
            return tried
    raise AssertionError("a thousand servers of one name")
