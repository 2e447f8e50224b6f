"""What crosses the hub and how it arrives, for each era of client and server: measured, as tables.

`python -m tests.interaction.lossless` writes `docs/lossless.md`; a test holds the file equal to what happens. A cell
says `same` where every byte is, else what changed; a change that nothing explains is an error.
"""

import itertools
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import anyio

from tests.interaction.fronts import ERAS
from tests.interaction.lossless_answers import ERRORS, OTHER_RESULTS, RESULTS, URIS
from tests.interaction.lossless_others import DEFINITIONS, LISTED, NOTIFICATIONS, REQUESTS
from tests.interaction.lossless_places import Place, Row, places
from tests.interaction.lossless_reasons import BESIDES, RELAY, Reason, reason_for

DOCUMENT = Path(__file__).parents[2] / "docs" / "lossless.md"
SECTIONS: dict[str, dict[str, Row]] = {
    "Results of tools": RESULTS,
    "Results of prompts, resources and completions": OTHER_RESULTS,
    "Resource URIs": URIS,
    "Errors": ERRORS,
    "Requests, as the server gets them": REQUESTS,
    "Lists": LISTED,
    "Notifications": NOTIFICATIONS,
}
COLUMNS = list(itertools.product(ERAS, ERAS))
INTRODUCTION = """\
# Lossless relay, measured

`python -m tests.interaction.lossless` measures this page on real hubs and servers. It compares the JSON text that
was sent with the JSON text that arrived; a test holds the page equal to the result. `same`: every byte is equal. –:
the case does not exist. Clients and servers are connected over stdio and over Streamable HTTP; a cell says where
that makes a difference. A call through `run_tool` gives the same as a direct call, with one exception: if the tool
refuses its arguments (-32602), its definition is added to the message."""

Found = dict[tuple[str, str], dict[Place, list[str] | None]]
"""What changed, by section and row, and place."""


async def measure(groups: list[list[Place]], sections: Mapping[str, Mapping[str, Row]] = SECTIONS) -> Found:
    """Everything of these sections at every place, the groups side by side."""
    found: Found = {(section, name): {} for section, rows in sections.items() for name in rows}

    async def one(group: list[Place]) -> None:
        for place, (section, rows) in itertools.product(group, sections.items()):
            for name, row in rows.items():
                try:
                    found[section, name][place] = await row(place)
                except Exception as failed:
                    failed.add_note(f"{section}, {name}, at {place}")
                    raise

    async with anyio.create_task_group() as tasks:
        for group in groups:
            tasks.start_soon(one, group)
    return found


def render(found: Found) -> str:
    """The document. Raises: `AssertionError` for changes that nothing explains."""
    lines = [INTRODUCTION]
    seen: dict[Reason, set[str]] = {}
    for section, rows in itertools.groupby(found.items(), lambda item: item[0][0]):
        lines += [
            "",
            f"## {section}",
            "",
            _line("", *(f"{client} client, {server} server" for client, server in COLUMNS)),
        ]
        lines.append(_line(*["---"] * 5))
        for (_, name), cells in rows:
            _explain(f"{section}, {name}", cells, seen)
            lines.append(_line(name, *(_cell(cells, *column) for column in COLUMNS)))
    lines += ["", "## Why", "", _line("change", "reason"), _line("---", "---")]
    for reason in (*RELAY, *BESIDES):
        if reason in seen:
            page = "[relay.md](relay.md): " if reason in RELAY else ""
            lines.append(_line("; ".join(sorted(seen[reason])), page + reason.rule))
    return "\n".join(lines) + "\n"


def _explain(what: str, cells: Mapping[Place, list[str] | None], seen: dict[Reason, set[str]]) -> None:
    for place, found in cells.items():
        for change in found or ():
            reason = reason_for(change, place.era, place.server_era)
            assert reason is not None, f"{what}: {change}; nothing explains it at {place}"
            seen.setdefault(reason, set()).add(change)


def _cell(cells: Mapping[Place, list[str] | None], client: str, server: str) -> str:
    """What happened in one pair of eras; what differs by transport is told apart."""
    texts = {
        (p.front, p.transport): _said(found) for p, found in cells.items() if (p.era, p.server_era) == (client, server)
    }
    for name, side in (("client", 0), ("server", 1)):
        by_side = {(ends[side], text) for ends, text in texts.items()}
        if len({text for _, text in by_side}) == 1:
            return by_side.pop()[1]
        if len(by_side) == 2:
            return "; ".join(f"{name} over {transport}: {text}" for transport, text in sorted(by_side, reverse=True))
    return "; ".join(f"client over {ends[0]}, server over {ends[1]}: {texts[ends]}" for ends in sorted(texts))


def _said(found: list[str] | None) -> str:
    if found is None:
        return "–"
    # `a` dropped, `b` dropped → `a`, `b` dropped
    merged: list[str] = []
    for change in found:
        before, _, verb = merged[-1].rpartition(" ") if merged else ("", "", "")
        if verb in ("added", "dropped") and change.endswith(f" {verb}"):
            merged[-1] = f"{before}, {change}"
        else:
            merged.append(change)
    return "; ".join(merged) or "same"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


async def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        async with places(Path(root), DEFINITIONS) as groups:
            DOCUMENT.write_text(render(await measure(groups)), "utf-8")
    print(DOCUMENT.read_text("utf-8"), file=sys.stderr)


if __name__ == "__main__":
    anyio.run(main)
