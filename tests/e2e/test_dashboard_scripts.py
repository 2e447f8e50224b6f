"""The page of a running script in a real browser: its calls as a tree, and the line where it waits."""

import json
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.e2e.browser import BROWSER, WHY_NOT, Page
from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=WHY_NOT),
    pytest.mark.skipif(find_spec("pydantic_monty") is None, reason="the extra code is not installed"),
]

SCRIPT = """# </pre><script>window.pwned=1</script>\u202e
label = "<img src=x onerror=window.pwned=1>"
words = await jobs_count_words(text=label)
await jobs_run_job(steps=100, seconds=60)
words
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dashboard")


@pytest.fixture(scope="module")
async def hub(root: Path) -> AsyncIterator[Hub]:
    settings = {"servers": {"jobs": {"local": "mcp_hub.examples.jobs:registry"}}, "hub": {"code": "all"}}
    async with http_hub(json.dumps(settings), root, HOME=str(root)) as running:
        yield running


async def test_script_is_shown_with_its_calls_and_the_line_where_it_waits(page: Page, rest: RestClient) -> None:
    stream = await rest.started("run_code", {"code": SCRIPT})
    await page.go(f"#/stream/{stream}", "1 call under way")
    await page.sees("label = ")
    assert await page.js("document.querySelector('.script .here').textContent") == (
        "4await jobs_run_job(steps=100, seconds=60)\n"
    )
    assert await page.js("document.querySelectorAll('.script .line').length") == 5
    calls = await page.js("[...document.querySelectorAll('.calls ul > li')].map((one) => one.textContent)")
    assert len(calls) == 2 and "jobs_count_words" in calls[0] and "line 3" in calls[0], calls
    assert "running" in calls[1] and '{"steps":100,"seconds":60}' in calls[1]
    for scheme, width in (("light", 1280), ("dark", 390)):
        await page.wide(scheme, width)
        await page.is_sound()
    assert "\\u{202e}" in await page.text() and await page.js("window.pwned") is None
    assert await page.js("document.querySelectorAll('#app script, img[src=x]').length") == 0
    await page.click("Cancel")
    await page.click("Cancel it now")
    await page.sees("cancelled")
    await page.sees("no result")
    await page.misses("1 call under way")


async def test_ended_script_keeps_its_calls(page: Page, rest: RestClient) -> None:
    code = "try:\n    await jobs_run_job(steps=-1)\nexcept ToolError:\n    pass\nawait jobs_count_words(text='a')"
    stream = await rest.started("run_code", {"code": code})
    await rest.until(stream, "completed")
    await page.go(f"#/stream/{stream}", "2 calls")
    calls = await page.js("[...document.querySelectorAll('.calls ul > li')].map((one) => one.textContent)")
    assert "failed" in calls[0] and "failed" not in calls[1], calls
    await page.sees("except ToolError")
    assert await page.js("document.querySelector('.script .here')") is None


async def test_call_of_no_script_has_neither(page: Page, rest: RestClient) -> None:
    stream = await rest.started("jobs_count_words", {"text": "a"})
    await rest.until(stream, "completed")
    await page.go(f"#/stream/{stream}", "Result")
    assert await page.js("document.querySelector('.calls, .script')") is None
