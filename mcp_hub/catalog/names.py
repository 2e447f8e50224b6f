"""Exported names of tools and prompts: legal, unique, short, and independent of the order of servers.

Names are resolved by lookup in what `assign` returned and never split: `git` + `hub_x` and `git_hub` + `x` join
alike. A name depends only on its own origin and on those that want the same name, so servers may come and go.
"""

import re
from base64 import b32encode
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256

import msgspec

from mcp_hub.types import Origin

RESERVED = frozenset({"find_tools", "read_tool", "run_tool", "read_result", "hub_wait", "hub_cancel"})
MIN_LENGTH = 16  # below this a cut name is little more than its hash
_HASH_LENGTH = 6  # 30 bits: among 10,000 tools only those that also share the rest of the name can meet
_LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


class Wanted(msgspec.Struct, frozen=True):
    """One tool or prompt that needs a name; see `rules.ServerRules`."""

    server: str
    name: str
    prefix: str | None = None
    always: bool = False
    rename: str | None = None
    yields: bool = False


def assign(wanted: Iterable[Wanted], *, max_length: int = 48, reserved: frozenset[str] = RESERVED) -> dict[Origin, str]:
    """A name for each origin, matching `^[A-Za-z_][A-Za-z0-9_-]*$`.

    All that want the same name get a suffix, so nobody's name can be taken over; only a legal rename beats a generated
    name, and what is called so anyway beats others of its own server. Raises: ValueError below `MIN_LENGTH`.
    """
    if max_length < MIN_LENGTH:
        raise ValueError(f"names of at most {max_length} characters: {MIN_LENGTH} is the least")
    by_origin = {(one.server, one.name): one for one in wanted}
    renamed = {origin: one.rename for origin, one in by_origin.items() if _is_fit(one.rename, max_length, reserved)}
    wishers = Counter(renamed.values())
    names = {origin: name for origin, name in renamed.items() if name is not None and wishers[name] == 1}
    others = {origin: _plain(one, reserved) for origin, one in by_origin.items() if origin not in names}
    taken = {*reserved, *(name for name in renamed.values() if name is not None)}
    for yields in (False, True):
        group = {origin: plain for origin, plain in others.items() if by_origin[origin].yields is yields}
        names |= _settle(group, taken, max_length)
        taken.update(names.values())
    return names


def _is_fit(rename: str | None, max_length: int, reserved: frozenset[str]) -> bool:
    if rename is None or len(rename) > max_length or rename in reserved:
        return False
    return _LEGAL.fullmatch(rename) is not None


def _plain(one: Wanted, reserved: frozenset[str]) -> str:
    """The name that `one` gets if nobody else wants it and it fits."""
    if one.rename:
        name = _legal(one.rename)
    elif not one.prefix or (not one.always and begins_with(one.name, one.prefix)):
        name = _legal(one.name)
    else:
        name = _legal(f"{one.prefix}_{one.name}")
    return _legal(f"{one.server}_{name}") if name in reserved else name


def begins_with(name: str, prefix: str) -> bool:
    """Whether a name has the prefix already, or is it."""
    name, prefix = _legal(name).lower(), _legal(prefix).lower()
    return name == prefix or name.startswith((f"{prefix}_", f"{prefix}-"))


def _legal(text: str) -> str:
    text = _ILLEGAL.sub("_", text)
    return text if _LEGAL.match(text) else f"_{text}"


def _settle(plain: dict[Origin, str], taken: set[str], max_length: int) -> dict[Origin, str]:
    """Everyone proposes at once; all that meet, or meet a taken name, go on to their next proposal.

    A name that was fought over stays taken: a later proposal must not win what its owners gave up. Only where all of
    them are of one server it goes to the one that the server itself calls so.
    """
    attempts = dict.fromkeys(plain, 0)
    names: dict[Origin, str] = {}
    fought: dict[str, set[str]] = {}  # the servers that wanted it
    pending = list(plain)
    while pending:
        for origin in pending:
            names[origin] = _proposal(plain[origin], origin, attempts[origin], max_length)
        wishers = Counter(names.values())
        for (server, _), name in names.items():
            if wishers[name] > 1:
                fought.setdefault(name, set()).add(server)
        pending = [
            (server, own)
            for (server, own), name in names.items()
            if name in taken or (name in fought and not (own == name and fought[name] == {server}))
        ]
        for origin in pending:
            attempts[origin] += 1
    taken.update(fought)
    return names


def _proposal(plain: str, origin: Origin, attempt: int, max_length: int) -> str:
    if attempt == 0 and len(plain) <= max_length:
        return plain
    # a name that was cut has its hash from the start, so its first two proposals are the same
    salt = () if attempt <= 1 else (str(attempt),)
    text = "\0".join((*origin, *salt)).encode(errors="surrogatepass")
    suffix = b32encode(sha256(text).digest()).decode().lower()[:_HASH_LENGTH]
    return f"{plain[: max_length - _HASH_LENGTH - 1]}_{suffix}"
