"""The TypeScript client of streams: its package, its types, its example, and calls that it follows through a real hub.

It is installed beside what it needs under `.venv/clients`, once; without Node.js or the npm registry it is not tested.
"""

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import anyio
import httpx2
import pytest

from mcp_hub.types import JsonObject
from rigs.clients.install import NotInstalled, node, node_project, npm
from rigs.followers.followed import log_of
from rigs.followers.node import SOURCE, node_follower
from rigs.followers.rig import followers
from tests.e2e.browser import BROWSER, WHY_NOT, browsed
from tests.e2e.client import Hub, threaded
from tests.e2e.cutting_proxy import cutter
from tests.interaction.fronts import http_hub
from tests.upstreams.launch import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]

STREAMING = {"command": sys.executable, "args": ["-m", "examples.streaming.server"]}
MARK = "dev.mcp-hub/streams"
SECONDS = 240
PAGE = """<!doctype html><script type="importmap">%s</script><script type="module">
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { capabilities, streamTool } from "mcp-hub-streams";
window.follow = async (url, mode) => {
  const client = new Client({ name: "page", version: "1" }, { capabilities, versionNegotiation: { mode } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const stream = streamTool(client, "jobs_run_job", { steps: 4, seconds: 0.8 });
  const live = [];
  for await (const { seq, type } of stream) live.push([seq, type]);
  const result = await stream.result();
  const place = new URL(`/v1/streams/${stream.id}/events?after=0`, url);
  const answer = await fetch(place, { headers: { accept: "application/x-ndjson" } });
  const lines = (await answer.text()).split("\\n").filter((line) => line.includes('"seq"'));
  await client.close();
  return { live, result, text: stream.text(), read: lines.map((line) => JSON.parse(line)) };
};
</script>"""


@pytest.fixture(scope="module")
def project() -> Path:
    """The client and what it needs, with the package that npm makes of it in `consumer`."""
    try:
        folder = node_project(SOURCE)
    except NotInstalled as why:
        pytest.skip(str(why))
    about = json.loads(npm("pack", "--json", "--loglevel=error", folder=folder))[0]
    packed = folder / "consumer" / "node_modules" / "mcp-hub-streams"
    with tarfile.open(folder / about["filename"]) as package:
        if hasattr(tarfile, "data_filter"):
            package.extractall(packed.parent, filter="data")
        else:  # Python 3.11 before 3.11.4; the package is our own
            package.extractall(packed.parent)
    if packed.exists():
        subprocess.run(["rm", "-r", str(packed)], check=True)
    (packed.parent / "package").rename(packed)
    return folder


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Hub, str]]:
    """A hub, and the origin whose pages may use it."""
    origin = f"http://127.0.0.1:{free_port()}"
    settings = {"prefix": "always", "task_after": "100ms", "http": {"cors": [origin]}}
    servers = {"jobs": {"local": "mcp_hub.examples.jobs:registry"}, "ref": STREAMING}
    async with http_hub(json.dumps({"servers": servers, "hub": settings}), tmp_path_factory.mktemp("hub")) as running:
        yield running, origin


def ran(folder: Path, *words: str) -> str:
    """What Node.js printed."""
    done = subprocess.run([str(node()), *words], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.proof
def test_its_types_are_strict(project: Path) -> None:
    ran(project, "node_modules/typescript/bin/tsc")


def test_it_stands_what_a_server_may_do(project: Path) -> None:
    assert "fail 0" in ran(project, "--test", *(f"test/{name}.test.ts" for name in ("stream", "vectors", "http")))


def test_the_package_has_types_and_depends_on_nothing(project: Path) -> None:
    packed = project / "consumer" / "node_modules" / "mcp-hub-streams"
    about = json.loads((packed / "package.json").read_text())
    assert "dependencies" not in about and list(about["peerDependencies"]) == ["@modelcontextprotocol/client"]
    assert {"index.js", "index.d.ts"} <= {file.name for file in (packed / "dist").iterdir()}
    imported = {
        name for file in packed.glob("dist/*.js") for name in re.findall(r"from \"([^\"]+)\"", file.read_text())
    }
    assert all(name.startswith("./") for name in imported), imported
    assert not (packed / "test").exists()


@pytest.mark.proof
async def test_the_example_of_its_readme_runs_on_the_package(project: Path, hub: tuple[Hub, str]) -> None:
    example = re.findall(r"```ts\n(.*?)```", (SOURCE / "README.md").read_text(), re.DOTALL)[0]
    assert "127.0.0.1:8765/mcp" in example and len([line for line in example.splitlines() if line]) <= 20
    consumer = project / "consumer"
    (consumer / "package.json").write_text('{"type": "module"}')
    (consumer / "example.ts").write_text(example.replace("http://127.0.0.1:8765/mcp", hub[0].url))
    (consumer / "tsconfig.json").write_text('{"extends": "../tsconfig.json", "include": ["example.ts"]}')
    await anyio.to_thread.run_sync(ran, consumer, "../node_modules/typescript/bin/tsc")
    printed = await anyio.to_thread.run_sync(ran, consumer, "example.ts")
    assert "step 5 done" in printed and "status: 'done'" in printed
    assert re.findall(r"again (\d+)", printed) == ["5", "6", "7", "8", "9", "10", "11"]


@pytest.mark.first(1)
@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_a_server_that_streams_is_followed_through_the_hub(project: Path, hub: tuple[Hub, str], era: str) -> None:
    with anyio.fail_after(SECONDS):
        async with node_follower() as follower:
            order = {"url": hub[0].url, "era": era, "name": "ref_report", "args": {"lines": 5, "pause": 0.1}}
            live, left = [await follower.follow(**order, **more) for more in ({}, {"leave": 2, "tasks": True})]
    async with httpx2.AsyncClient(trust_env=False) as http:
        log = await log_of(http, hub[0].url.removesuffix("/mcp"), live["stream"])
    text = "".join(f"line {number} of 5\n" for number in range(1, 6))
    for found in (live, left):
        assert [event["seq"] for event in found["events"]] == [2, 3, 4, 5, 6]
        assert found["text"] == (text if found is live else text[len("line 1 of 5\n") * 2 :])
        assert found["result"]["content"] == [{"type": "text", "text": text}]
    assert MARK not in json.dumps(log[-1]), "the mark of the server's own stream"


@pytest.mark.parametrize("seen", [0, 2])
async def test_a_cut_in_the_modern_era_ends_a_call_that_is_no_task(
    project: Path, hub: tuple[Hub, str], seen: int
) -> None:
    progress = b"notifications/progress"
    async with (
        node_follower(QUIET="86400000") as follower,  # the client never looks by itself
        cutter(hub[0].url, marker=b'"ref_report"', sign=progress, count=seen) as cut,
    ):
        order = {"era": "modern", "name": "ref_report", "args": {"lines": 600, "pause": 0.1}}
        with anyio.fail_after(SECONDS):
            found = await follower.follow(url=cut.url, **order)
    if seen:
        assert found["error"]["message"] == "the client closed the response stream"
        assert [event["seq"] for event in found["events"]] == list(range(2, len(found["events"]) + 2))
    else:
        assert found["notBegun"] == "the call was lost"


@pytest.mark.proof
async def test_cuts_and_kills_cost_neither_client_an_event(project: Path) -> None:
    with anyio.fail_after(SECONDS):
        outcome = await followers(rounds=3, workers=9, seed=5, serves=(0.6, 0.9), most_kills=2)
    assert outcome.faults == []
    assert outcome.kills and outcome.cuts and outcome.rounds.total() == 9


class _Quiet(SimpleHTTPRequestHandler):
    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.proof
@pytest.mark.skipif(BROWSER is None, reason=WHY_NOT)
async def test_a_page_of_another_origin_follows_a_call(project: Path, hub: tuple[Hub, str]) -> None:
    running, origin = hub
    (imports,) = re.findall(r'<script type="importmap">\n(.*?)</script>', (SOURCE / "README.md").read_text(), re.DOTALL)
    place = "/consumer/node_modules/mcp-hub-streams"
    (project / "page.html").write_text(PAGE % imports.replace("/node_modules/mcp-hub-streams", place))
    other = f"http://127.0.0.1:{free_port()}"
    handler = partial(_Quiet, directory=str(project))
    ports = [int(place.rpartition(":")[2]) for place in (origin, other)]
    with threaded(handler, ports[0]), threaded(handler, ports[1]):
        async with browsed() as page:
            await page.open(f"{origin}/page.html")
            await page.until("!!window.follow")
            for mode in ("'legacy'", "{pin: '2026-07-28'}"):
                check_page(await page.js(f"window.follow({json.dumps(running.url)}, {mode})"))
            await page.open(f"{other}/page.html")
            await page.until("!!window.follow")
            refused = f"window.follow({json.dumps(running.url)}, 'legacy').then(() => 'in', () => 'refused')"
            assert await page.js(refused) == "refused"


def check_page(found: JsonObject) -> None:
    live, read = found["live"], found["read"]
    assert [seq for seq, _ in live] == list(range(2, len(live) + 2)) and len(live) == 8
    assert [[event["seq"], event["type"]] for event in read[1:-1]] == live
    assert (read[0]["type"], read[-1]["type"]) == ("start", "end")
    assert read[-1]["data"]["result"] == found["result"]
    assert found["text"] == "".join(f"step {step} done\n" for step in range(1, 5))
