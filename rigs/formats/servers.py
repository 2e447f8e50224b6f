"""`python -m rigs.formats.servers`: results of real servers, written for every provider and checked by its rules.

The servers are those of `rigs/sandbox/servers.toml`, which need no account; npx and uvx download them, which takes an
hour for all. `calls.toml` has calls for what they can send: pictures, sounds, links, files, structures and errors.
Besides, tools that only read by their names are called, and one without its arguments. Prints the results and the rules
that they break; exit code 1 if one is broken, a text is lost, or no server answers.
"""

import json
import os
import shutil
import struct
import sys
import tomllib
import wave
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import anyio
import anyio.to_thread
import httpx2

from mcp_hub.formats.calls import write_results
from mcp_hub.formats.providers import PROVIDERS
from mcp_hub.formats.records import ModelCall
from rigs.report import arguments, reported, say
from rigs.sandbox.real import Entry, entries, filled, read_only_calls, settled_report
from rigs.sandbox.stand_in import home_of
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub
from tests.unit.formats.documented_results import broken_result
from tests.unit.formats.lost_texts import lost_texts

Json = dict[str, Any]
CALLS = Path(__file__).with_name("calls.toml")
_READ = 8
"""Tools of a server that are called because of their names."""
_PAGE = """<!doctype html><html><head><title>Note</title></head><body><article><h1>Note</h1>
<p>Error: is the first word of this page.</p><div class="content">A second paragraph with some more words in it.</div>
<img src="picture.png" alt="a picture" width="16" height="16"></article></body></html>
"""
_TEXT = b"BT /F1 24 Tf 20 100 Td (A note) Tj ET"
_PDF = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>endobj
4 0 obj<</Length 37>>stream
BT /F1 24 Tf 20 100 Td (A note) Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
trailer<</Size 6/Root 1 0 R>>
%%EOF
"""
_HEAD = ("server", "calls", "errors", "content", *PROVIDERS, "texts lost")


@dataclass
class Row:
    """The results of a server: how many of each kind, and the rules that they break, by format."""

    name: str
    results: list[Json] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    reason: str = ""

    def add(self, tool: str, result: Json) -> None:
        self.results.append(result)
        self.kinds.update(set(kinds_of(result)))
        call = ModelCall("c1", tool, {})
        for into in PROVIDERS:
            messages = write_results([call], {"c1": result}, into)
            broken = broken_result(into, messages)
            lost = lost_texts(result, messages)
            self.broken[into] += len(broken)
            self.broken["lost"] += len(lost)
            self.faults += [f"{self.name}: {tool}: {into}: {fault}" for fault in broken]
            self.faults += [f"{self.name}: {tool}: {into}: lost {text[:60]!r}" for text in lost]

    def cells(self) -> str:
        if self.reason:
            return f"| {self.name} | 0 | | {self.reason} |{' |' * (len(PROVIDERS) + 1)}"
        errors = sum(bool(result.get("isError")) for result in self.results)
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        counts = (self.broken[key] for key in (*PROVIDERS, "lost"))
        return "| " + " | ".join(map(str, (self.name, len(self.results), errors, kinds, *counts))) + " |"


def kinds_of(result: Json) -> Iterator[str]:
    """The kinds of content in a result, media with their types."""
    for block in result.get("content", ()):
        match block.get("type"):
            case "image" | "audio":
                yield str(block.get("mimeType"))
            case "resource":
                resource = block.get("resource", {})
                yield "resource text" if "text" in resource else f"blob {resource.get('mimeType')}"
            case kind:
                yield str(kind)
    if "structuredContent" in result:
        yield "structure"


def toml_calls(path: Path) -> dict[str, list[Json]]:
    """Calls by server."""
    return {name: table["calls"] for name, table in tomllib.loads(path.read_text("utf-8")).items()}


def calls_of(
    entry: Entry, extra: Iterable[Json], tools: Sequence[Json], places: Mapping[str, str]
) -> Iterator[tuple[str, Json]]:
    """The calls of a server: those of the tables, those that read, and one without its required arguments."""
    for call in extra:
        yield call["tool"], filled(call.get("arguments", {}), places)
    if entry.tool:
        yield entry.tool, filled(entry.arguments or {}, places)
    yield from read_only_calls(tools)[:_READ]
    yield from [(tool["name"], {}) for tool in tools if tool.get("inputSchema", {}).get("required")][:1]


def picture() -> bytes:
    """A PNG of 16 × 16 pixels."""
    pieces = {
        b"IHDR": struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0),
        b"IDAT": zlib.compress((b"\0" + b"\x20\x80\xe0" * 16) * 16),
        b"IEND": b"",
    }
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in pieces.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def write_files(folder: Path) -> None:
    """What the calls read: a picture, a sound, a document, a drawing, a page and a table."""
    (folder / "picture.png").write_bytes(picture())
    (folder / "report.pdf").write_bytes(_PDF)
    (folder / "drawing.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"><circle r="4"/></svg>\n')
    (folder / "table.csv").write_text("name,count\nÄrger,3\n")
    (folder / "page.html").write_text(_PAGE)
    with wave.open(str(folder / "sound.wav"), "wb") as sound:
        sound.setparams((1, 1, 8000, 16, "NONE", ""))
        sound.writeframes(bytes(16))


@contextmanager
def site(folder: Path) -> Iterator[str]:
    """A web site on loopback with the files of the folder: its URL."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


async def row_of(folder: Path, entry: Entry, extra: Iterable[Json]) -> Row:
    row = Row(entry.name)
    places = home_of(folder)
    write_files(Path(places["data"]))
    with site(Path(places["data"])) as url:
        await _fill(row, folder, entry, extra, {**places, "site": url})
    return row


async def _fill(row: Row, folder: Path, entry: Entry, extra: Iterable[Json], places: Mapping[str, str]) -> None:
    """Adds the results of all calls; the reason, if there are none."""
    settings = entry.settings(places)
    settings["env"] |= {"npm_config_cache": f"{folder.parent}/npm", "UV_CACHE_DIR": f"{folder.parent}/uv"}
    config = {"hub": {"prefix": "never", "expose": "full"}, "servers": {entry.name: settings}}
    try:
        async with http_hub(json.dumps(config), folder, HOME=places["home"]) as hub, RestClient(hub) as rest:
            report = await settled_report(rest)
            if report["state"] != "ready":
                row.reason = " ".join(f"{report['state']}: {report.get('reason')}".replace("|", "/").split())[:120]
                return
            tools = (await rest.ask("GET", "/tools")).json()["tools"]
            for tool, values in calls_of(entry, extra, tools, places):
                if (result := await _called(rest, tool, values)) is not None:
                    row.add(tool, result)
    except (AssertionError, TimeoutError, KeyError, ValueError, httpx2.TransportError) as exc:
        row.reason = row.reason or f"{type(exc).__name__}: {exc}".replace("|", "/").replace("\n", " ")[:120]


async def _called(rest: RestClient, tool: str, values: Json) -> Json | None:
    """The result, an error among them; None: it did not come in time."""
    body = {"id": "c1", "name": tool, "arguments": values}
    try:
        response = await rest.ask("POST", "/tools/call?format=mcp", body, prefer="wait=15")
    except httpx2.TimeoutException:
        return None
    if response.status_code != 200:
        return None
    (message,) = response.json()["messages"]
    result: Json = message["result"]
    return result


async def _run(root: Path, chosen: Iterable[Entry], rows: dict[str, Row], together: int, seconds: float) -> None:
    """Fills in the rows; begins no server after so many seconds."""
    calls = toml_calls(CALLS)
    waiting = deque(chosen)
    end = anyio.current_time() + seconds

    async def work() -> None:
        while waiting and anyio.current_time() < end:
            entry = waiting.popleft()
            folder = root / entry.name
            folder.mkdir()
            row = rows[entry.name] = await row_of(folder, entry, calls.get(entry.name, ()))
            say(row.cells())
            await anyio.to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))

    async with anyio.create_task_group() as tasks:
        for _ in range(together):
            tasks.start_soon(work)


def main() -> int:
    parser = arguments("formats.servers", __doc__)
    parser.add_argument("--only", default="", help="servers with one of these in their names: A,B")
    parser.add_argument("--together", type=int, default=2, help="servers at a time")
    parser.add_argument("--minutes", type=float, default=120, help="begin no server after so long")
    parser.add_argument("--keep", type=Path, help="a file for all results, one a line")
    given = parser.parse_args()
    chosen = [entry for entry in entries() if any(word in entry.name for word in given.only.split(","))]
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    rows: dict[str, Row] = {}
    with TemporaryDirectory(prefix="formats-servers-", ignore_cleanup_errors=True) as folder:
        anyio.run(_run, Path(folder), chosen, rows, given.together, given.minutes * 60)
    tried = [rows[entry.name] for entry in chosen if entry.name in rows]
    answered = [row for row in tried if row.results]
    if given.keep:
        lines = (json.dumps([row.name, result]) for row in answered for result in row.results)
        given.keep.write_text("".join(f"{line}\n" for line in lines))
    faults = [fault for row in answered for fault in row.faults] or ([] if answered else ["no server answered"])
    return reported([*table(tried), "", summary(answered)], faults)


def table(rows: Iterable[Row]) -> list[str]:
    return [f"| {' | '.join(_HEAD)} |", f"|{' --- |' * len(_HEAD)}", *(row.cells() for row in rows)]


def summary(rows: Sequence[Row]) -> str:
    """The last line: of how many servers and results, and what is in them."""
    kinds = sum((row.kinds for row in rows), Counter[str]())
    results = sum(len(row.results) for row in rows)
    errors = sum(bool(result.get("isError")) for row in rows for result in row.results)
    broken = sum(row.broken[into] for row in rows for into in PROVIDERS)
    content = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return (
        f"{len(rows)} servers, {results} results ({errors} errors; {content}) × {len(PROVIDERS)} providers: "
        f"{broken} broken rules, {sum(row.broken['lost'] for row in rows)} texts lost"
    )


if __name__ == "__main__":
    sys.exit(main())
