"""The proposal of a learning run, whose paths come from the server."""

import os
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from typing import Final

from mcp_hub.cli.render.tables import plural
from mcp_hub.config.findings import on_one_line
from mcp_hub.config.load.interpolate import escaped
from mcp_hub.config.schema.defaults import SandboxSettings
from mcp_hub.masking import hide, hide_head
from mcp_hub.sandbox.learning import Learning, Sighting
from mcp_hub.sandbox.places import why_closed
from mcp_hub.sandbox.proposal import Proposal
from mcp_hub.types import JsonObject

_LINES: Final = 20
"""Lines of each kind; of more the number."""
_LONGEST: Final = 200


def proposed_value(rule: SandboxSettings, changes: Proposal, home: str) -> JsonObject | str:
    """The value of `sandbox` with the additions."""
    value: JsonObject = {}
    parts = (
        ("read", rule.read, changes.read, changes.replaced_read),
        ("write", rule.write, changes.write, changes.replaced_write),
    )
    for key, listed, added, replaced in parts:
        before = replaced if listed is None else listed
        if added or listed is not None:
            value[key] = list(
                dict.fromkeys([*(_short(path, home) for path in before), *(_short(p, home) for p in added)])
            )
    if changes.net is not None or rule.net != "any":
        value["net"] = rule.net if changes.net is None else (list(changes.net) or "none")
    if sockets := [*map(escaped, rule.sockets), *(_short(path, home) for path in changes.sockets)]:
        value["sockets"] = sockets
    if rule.mode == "prefer":
        return {**value, "mode": "prefer"} if value else "prefer"
    return value or "on"


def _short(path: str, home: str) -> str:
    return escaped(f"~{path[len(home) :]}" if path.startswith(home.rstrip("/") + "/") else path)


def difference(before: str, after: str, key: str) -> list[tuple[str, str]]:
    """The diff of the configuration, with styles."""
    styles = {"+": "green", "-": "yellow"}
    lines = unified_diff(before.splitlines(), after.splitlines(), key, f"{key} (proposed)", lineterm="", n=2)
    return [(hide(line), styles.get(line[:1], "")) for line in lines]


def remarks(learning: Learning, changes: Proposal) -> Iterator[tuple[str, str]]:
    """Lines about what the proposal lacks, with styles."""
    secrets = [_secret(sighting) for sighting in changes.secrets]
    if secrets:
        yield "Refused, and never proposed, since it is secret or starts programs outside:", "bold red"
        yield from _bounded([(line, "red") for line in secrets])
    untouched = [(f"  {_on_one_line(path)}: {_on_one_line(reason)}", "") for path, reason in changes.refused]
    if untouched:
        yield "Used, but not in the proposal. The rule refuses these:", "bold"
        yield from _bounded(untouched)
    named = {text for text, _ in changes.refused}
    reached = [
        (f"  {_on_one_line(text)}, by {_on_one_line(by)}", "")
        for text, by in learning.addresses.items()
        if text not in named
    ]
    if reached:
        yield "Connected to, which net allows. To limit the hosts, learn with --net:", "bold"
        yield from _bounded(reached)
    if learning.missed.beyond:
        yield (
            f"{plural(learning.missed.beyond, 'further use')} could not be noted: the notes are full. "
            "The proposal may lack some.",
            "yellow",
        )
    if learning.missed.unseen:
        yield (
            f"{plural(learning.missed.unseen, 'call')} could not be read, such as those of a process that hides its "
            "memory.",
            "yellow",
        )


def _secret(sighting: Sighting) -> str:
    kind = "socket " if why_closed(sighting.path) is not None else ""
    by = f", by {_on_one_line(sighting.program)}" if sighting.program else ""
    return f"  {kind}{_on_one_line(sighting.path)}{by} ({plural(sighting.count, 'time')})"


def _on_one_line(text: str) -> str:
    """On one line: a name may have line breaks."""
    return on_one_line(hide_head(os.fsencode(text), _LONGEST))


def _bounded(lines: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    yield from lines[:_LINES]
    if len(lines) > _LINES:
        yield f"  and {len(lines) - _LINES} more", ""
