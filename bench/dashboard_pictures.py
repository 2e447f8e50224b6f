"""Three pictures of the dashboard for docs/dashboard.md, from a real hub in a headless browser.

`make dashboard-pictures` (`python -m bench.dashboard_pictures docs`) starts a hub with the servers of the tests, makes
calls of several kinds and writes `dashboard-overview.png`, `dashboard-stream.png` and `dashboard-tools.png`.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio

from tests.e2e.browser import BROWSER, WHY_NOT, Page, browsed
from tests.e2e.client import HttpClient, Hub
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub
from tests.upstreams.launch import entry

TOOLS = {
    "git": ["commit", "diff", "log", "merge", "push", "status"],
    "files": ["list_folder", "read_file", "search_files", "write_file"],
    "ci": ["cancel_run", "list_runs", "run_tests"],
}
CALLS = {"git_status": 22, "git_diff": 14, "files_read_file": 31, "ci_list_runs": 9}


def _tools(names: list[str]) -> str:
    return json.dumps([
        {
            "name": name, "description": f"{name.replace('_', ' ').capitalize()}, as the service documents it.",
            "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
            "annotations": {"readOnlyHint": not name.startswith(("write", "push", "merge", "cancel", "commit"))},
        }
        for name in names
    ])  # fmt: skip


def _configuration(root: Path) -> str:
    servers: dict[str, Any] = {"jobs": {"local": "mcp_hub.examples.jobs:registry"}}
    for name, tools in TOOLS.items():
        (root / f"{name}.json").write_text(_tools(tools))
        servers[name] = entry(name=name, tools_json=root / f"{name}.json")
    servers["helpdesk"] = entry(name="helpdesk")
    servers["mail"] = {"command": "mail-mcp"}
    return json.dumps({"servers": servers, "hub": {"prefix": "always"}})


async def _calls(hub: Hub, rest: RestClient) -> str:
    """Makes calls of several kinds; the stream of one that runs."""
    async with HttpClient(hub.url) as client:
        await client.initialize(name="claude-code")
        for tool, count in CALLS.items():
            for _ in range(count):
                await client.request("tools/call", {"name": tool, "arguments": {"path": "src"}})
        await client.request("tools/call", {"name": "helpdesk_tool_error", "arguments": {"text": "no such ticket"}})
        await rest.started("helpdesk_ask_form", {"nonce": "n", "message": "Which customer is meant?"})
        stream = await rest.started("jobs_run_job", {"steps": 12, "seconds": 10})
        await anyio.sleep(5.2)
        return stream


async def _take(page: Page, place: Path, fragment: str, text: str, height: int = 720) -> None:
    await page.go(fragment, text)
    await anyio.sleep(0.4)
    await page.shot(place, width=1200, height=height)


async def main(folder: Path) -> None:
    """Takes the pictures."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        async with http_hub(_configuration(root), root, HOME=name) as hub, RestClient(hub) as rest, browsed() as page:
            await page.scheme("light")
            await page.enter(hub, root)
            stream = await _calls(hub, rest)
            await _take(page, folder / "dashboard-stream.png", f"#/stream/{stream}", "step 5 done")
            await _take(page, folder / "dashboard-overview.png", "#/overview", "Needs you")
            await page.scheme("dark")
            await _take(page, folder / "dashboard-tools.png", "#/tools?sort=-last", "Description", 560)


if __name__ == "__main__":
    if BROWSER is None:
        sys.exit(WHY_NOT)
    anyio.run(main, Path(sys.argv[1]))
