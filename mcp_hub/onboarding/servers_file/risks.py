"""Finds server changes that need approval: they run something, or send the user's data elsewhere. Pure.

A stolen operator token can send changes. Keys that apply at once are listed: at worst, they reach the sender's own
server.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from mcp_hub.addresses import address_of, normal_host, refused_address, special_kind
from mcp_hub.config.load.interpolate import Reference, Unresolved, split_text
from mcp_hub.config.schema.fields import as_flag
from mcp_hub.types import JsonObject

AT_ONCE: Final = frozenset(
    (
        "url type transport headers bearer auth enabled disabled tools resources prompts events expose compact prefix"
        " rename era apps logs timeout max_duration request_timeout start_timeout restart start idle_stop task orphan"
        " idempotent retry approval hints per_tool description rate concurrency"
    ).split()
)
"""Server keys that run no program, read no file and get no variable, except by `${…}`."""
_SENT: Final = ("headers", "bearer", "oauth")
_SOURCES: Final = {
    "command": "it runs a program",
    "local": "it runs Python code of this machine",
    "skills": "it offers a folder of this machine",
    "scripts": "it runs scripts of this machine over the tools of all servers",
}
_LISTED: Final = 8
"""References that a reason names."""
_INNER: Final = ("internal", "local", "lan", "home", "corp", "intranet", "private", "home.arpa", "test", "onion")
"""Suffixes without public names."""
_HARMLESS_LOGIN: Final = frozenset(("scopes", "redirect_port"))


def reasons_to_ask(before: JsonObject | None, after: JsonObject, servers: Mapping[str, JsonObject]) -> list[str]:
    """Why a person must approve; empty if the change may apply at once."""
    previous = before or {}
    changed = [key for key in {**previous, **after} if previous.get(key, ...) != after.get(key, ...)]
    reasons = [reason for key, reason in _SOURCES.items() if key in after and key not in previous]
    risky = [key for key in changed if key not in AT_ONCE and not (key == "oauth" and _is_harmless_login(after))]
    if risky and (before is not None or not reasons):
        reasons.append(f"it changes {', '.join(risky)}")
    if _is_off(previous) and not _is_off(after) and ("url" not in after or references(after)):
        reasons.append("it enables a server that is disabled")
    fresh = references(after) - _sent_already(before, after, servers)
    if fresh:
        names = ", ".join(f"${{{name}}}" for name in sorted(fresh)[:_LISTED])
        reasons.append(f"it gets {names}{', …' if len(fresh) > _LISTED else ''}")
    if before is not None and before.get("url") != after.get("url") and _credentials(before) & _credentials(after):
        reasons.append("it sends credentials of the old URL to another one")
    if "url" in changed and (reason := _of_address(after.get("url"))) is not None:
        reasons.append(reason)
    return reasons


def refused_url(url: object) -> str | None:
    """Why the URL must not even be proposed, else None. Names are not resolved."""
    address = address_of(_host(url))
    if address is None or address.is_loopback:
        return None
    reason = refused_address(address, is_near=True)
    return None if reason is None else f"{reason}. Write it into the configuration file yourself if you need it"


def references(tree: object) -> set[str]:
    """The insides of all `${…}`, without defaults; an unreadable text counts as one."""
    return {name for text in _texts(tree) for name in _in_text(text)}


def neutralized(tree: object, keep: set[str], stand_in: str) -> object:
    """A copy with `stand_in` for texts with a `${…}` outside of `keep`."""
    if isinstance(tree, dict):
        return {key: neutralized(value, keep, stand_in) for key, value in tree.items()}
    if isinstance(tree, list):
        return [neutralized(value, keep, stand_in) for value in tree]
    if isinstance(tree, str) and _in_text(tree) - keep:
        return stand_in
    return tree


def _texts(tree: object) -> Iterator[str]:
    if isinstance(tree, dict):
        for value in tree.values():
            yield from _texts(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _texts(value)
    elif isinstance(tree, str):
        yield tree


def _in_text(text: str) -> set[str]:
    try:
        parts = split_text(text)
    except Unresolved:
        return {text} if "${" in text else set()
    return {part.text.partition(":-")[0] for part in parts if isinstance(part, Reference)}


def _sent_already(before: JsonObject | None, after: JsonObject, servers: Mapping[str, JsonObject]) -> set[str]:
    if "url" not in after:
        return references(before) if before is not None and "url" not in before else set()
    same = [entry for entry in servers.values() if isinstance(entry, dict) and entry.get("url") == after["url"]]
    return {name for entry in same for name in references(entry)}


def _credentials(entry: JsonObject) -> set[str]:
    return {text for key in _SENT for text in _texts(entry.get(key))}


def _is_harmless_login(entry: JsonObject) -> bool:
    login = entry.get("oauth") or {}
    return isinstance(login, dict) and login.keys() <= _HARMLESS_LOGIN


def _is_off(entry: JsonObject) -> bool:
    return as_flag(entry.get("enabled", True)) is False or as_flag(entry.get("disabled", False)) is True


def _of_address(url: object) -> str | None:
    """Names are not resolved: a public name of an inner address passes."""
    host = _host(url)
    address = address_of(host)
    if address is None:
        is_inner = host != "localhost" and ("." not in host or host.endswith(tuple(f".{end}" for end in _INNER)))
        return "its URL has a name of an inner network" if host and is_inner else None
    kind = None if address.is_loopback else special_kind(address)
    return None if kind is None else f"its URL has {kind}"


def _host(url: object) -> str:
    try:
        host = urlsplit(url).hostname if isinstance(url, str) else None
    except ValueError:
        return ""
    return normal_host(f"[{host}]" if ":" in host else host) or host if host else ""
