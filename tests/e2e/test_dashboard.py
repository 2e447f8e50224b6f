"""The dashboard in a real browser, before a hub with real servers: what a person sees and does there.

Each test ends with a page that has thrown nothing, has broken no rule of its policy, and has asked no other host.
"""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import yaml

from mcp_hub.onboarding.changes.written import ClientRecords, WrittenEntry
from tests.e2e.browser import BROWSER, WHY_NOT, Page, base, browsed
from tests.e2e.client import HttpClient, Hub
from tests.e2e.hostile_texts import BOXED, BOXED_RULE, EVERYWHERE, EVIL, HASHES, HOSTILE, OBJECTS
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub
from tests.unit.sandbox.confined import needs_sandbox
from tests.unit.upstreams.authorization import Authorization
from tests.unit.wire.http_server import serving
from tests.upstreams.launch import argv

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason=WHY_NOT)]

MOST_ROWS = 80
SCREENS = {
    "#/overview": "Needs you", "#/server/a": "Log: stderr, and what the hub says", "#/server/bad": "Fix: Install it",
    "#/tools": "Description", "#/tool/a_echo": "What clients see", "#/calls": "Started", "#/stream/{}": "Output so far",
    "#/server/far": "mcp-hub login far", "#/server/boxed": "Private home", "#/servers": "Select all",
    "#/search?q=answers%20with%20its%20arguments": "hits", "#/clients": "On the machine of the hub",
    "#/settings": "hub.http.port",
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dashboard")


@pytest.fixture(scope="module")
async def hub(root: Path) -> AsyncIterator[Hub]:
    """Servers `a`, with 600 tools, held if changed; `evil`; `far`, without a login; `bad`. Codex lost the hub."""
    (root / "evil.json").write_text(json.dumps(HOSTILE))
    (root / "objects.json").write_text(json.dumps(OBJECTS))
    servers: dict[str, list[str]] = {
        "a": argv(name="a", tools=600), "evil": argv(name="evil", tools_json=root / "evil.json"), "bad": ["no-such"],
        "constructor": argv(name="constructor", tools_json=root / "objects.json"),
    }  # fmt: skip
    entries: dict[str, Any] = {name: {"command": own[0], "args": own[1:]} for name, own in servers.items()}
    entries["jobs"] = {"local": "mcp_hub.examples.jobs:registry"}
    entries["a"]["approval"] = "block"
    (root / "boxed.py").write_text(BOXED)
    entries["boxed"] = {"command": sys.executable, "args": [str(root / "boxed.py")], "sandbox": BOXED_RULE}
    settings = {"servers": entries, "hub": {"prefix": "always", "http": {"session_rate": 0}}}
    codex = root / "home/.codex/config.toml"
    codex.parent.mkdir(parents=True)
    codex.touch()
    ClientRecords(root / "state").add_entry(WrittenEntry("codex", str(codex), ("install", "codex", "--http")))
    async with serving(Authorization(scope="read")) as far:
        entries["far"] = {"url": far.url}
        async with http_hub(json.dumps(settings), root, HOME=str(root / "home")) as running:
            yield running


async def test_the_token_leaves_the_address_at_once_and_survives_a_reload(page: Page, hub: Hub) -> None:
    assert await page.js("location.href") == f"{base(hub)}/#/overview"
    assert not await page.js("document.cookie") and await page.js("localStorage.length") == 0
    await page.ask("Page.reload")
    await page.sees("Needs you")


async def test_every_screen_in_both_schemes_and_on_a_phone(page: Page, rest: RestClient) -> None:
    stream = await rest.started("jobs_run_job", {"steps": 100, "seconds": 60})
    colours = set()
    for scheme, width in (("light", 1280), ("dark", 390)):
        await page.wide(scheme, width)
        for place, text in SCREENS.items():
            await page.go(place.format(stream), text)
            await page.is_sound()
        colours.add(await page.js("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2
    await rest.ask("DELETE", f"/streams/{stream}")


async def test_a_call_is_watched_reloaded_in_the_middle_and_cancelled(page: Page, rest: RestClient) -> None:
    await page.go("#/tool/jobs_run_job", "Call it")
    await page.fill("#call-steps", "3000")
    await page.fill("#call-seconds", "300")
    await page.click("Call")
    await page.sees("step 2 done")
    await page.ask("Page.reload")
    await page.sees("step 5 done")
    assert "step 1 done" in await page.text(), "a reload loses nothing"
    stream = str(await page.js("location.hash")).removeprefix("#/stream/")
    await page.go(f"#/stream/{stream}?after=4", "from the first one")
    await page.misses("step 1 done")
    await page.click("from the first one")
    await page.sees("step 1 done")
    await page.click("Cancel")
    await page.click("Cancel it now")
    await page.sees("cancelled")
    assert (await rest.until(stream, "cancelled"))["status"] == "cancelled"


async def test_a_question_is_answered_for_a_caller_that_cannot(page: Page, rest: RestClient) -> None:
    stream = await rest.started("a_ask_form", {"nonce": "n1", "message": "Which branch?"})
    await page.sees("a_ask_form asks: Which branch?")
    await page.click("a_ask_form asks: Which branch?")
    await page.sees("the tool asks")
    await page.click("Answer")
    await page.sees("is required.")
    await page.fill("form input", "main of 42")
    await page.click("Answer")
    assert "main of 42" in str((await rest.until(stream, "completed"))["result"])
    await page.sees("main of 42")
    await page.go("#/overview", "Needs you")
    await page.misses("a_ask_form asks")


async def test_a_question_is_answered_for_a_client_that_cannot_be_asked(page: Page, hub: Hub) -> None:
    answers: list[str] = []

    async def call(client: HttpClient) -> None:
        given = {"nonce": "n3", "message": "For whom?"}
        answers.append((await client.request("tools/call", {"name": "a_ask_form", "arguments": given})).text)

    async with HttpClient(hub.url) as client, anyio.create_task_group() as tasks:
        await client.initialize()
        tasks.start_soon(call, client)
        await page.click("a_ask_form asks: For whom?")
        await page.sees("For whom?")
        await page.fill("form input", "a client without forms")
        await page.click("Answer")
        await page.sees("done")
    assert "a client without forms" in answers[0]


async def test_a_person_logs_in_to_a_server(page: Page) -> None:
    await page.sees("requires a login")
    await page.go("#/server/far", "mcp-hub login far")
    await page.click("Log in")
    await page.sees("The hub waits for you to log in at http://127.0.0.1:")
    await page.click("Stop waiting")
    await page.click("Log in")
    await page.click("Open the login page")
    await page.sees("Logged in to far with scope read.")
    await page.sees("ready")


async def test_a_client_that_lost_the_hub_needs_a_person(page: Page) -> None:
    await page.click("Codex has lost the hub: its entry is gone")
    await page.sees("entry lost")
    await page.sees("mcp-hub install codex --http")


async def test_how_a_tool_is_listed_is_changed(page: Page, root: Path) -> None:
    await page.go("#/tool/a_tool_00010", "What clients see")
    await page.choose("#listed-readOnlyHint", "true")
    await page.fill("#listed-description", "Better words.")
    await page.click("Save")
    await page.until("document.querySelector('h1 + .tag.ok')?.innerText === 'reads'")
    await page.until("document.querySelector('.out').innerText === 'Better words.'")
    written = yaml.safe_load((root / "servers.overrides.yaml").read_text())["servers"]["a"]["per_tool"]["tool_00010"]
    assert written == {"description": "Better words.", "annotations": {"readOnlyHint": True}}


async def test_a_changed_tool_is_approved_and_another_one_rejected(page: Page, rest: RestClient, root: Path) -> None:
    for name in ("tool_00001", "tool_00002"):
        changed = {"name": name, "description": f"Sends {name} to everybody.", "inputSchema": {"type": "object"}}
        assert (await rest.call("a_add_tool", changed)).status_code == 200
    await page.sees("2 texts changed since they were approved")
    await page.click("2 texts changed since they were approved")
    await page.sees("Sends tool_00001 to everybody.")
    assert (await rest.call("a_tool_00001", {})).status_code == 403, "held back"
    await page.click("Approve", "article:has(.diff[aria-label='Difference of tool_00001'])")
    await page.misses("Sends tool_00001 to everybody.")
    await page.click("Reject and hide", "article:has(.diff[aria-label='Difference of tool_00002'])")
    await page.sees("1 tool hidden by servers.overrides.yaml")
    assert (await rest.call("a_tool_00001", {})).status_code == 200
    written = yaml.safe_load((root / "servers.overrides.yaml").read_text())
    assert written["servers"]["a"]["per_tool"]["tool_00002"] == {"hide": True}


async def test_tools_are_hidden_in_bulk_and_shown_again(page: Page) -> None:
    await page.go("#/tools?q=a_tool_0030", "a_tool_00300")
    await page.click("Choose a_tool_00300")
    await page.click("Choose a_tool_00301")
    await page.click("Hide")
    await page.misses("Choose a_tool_00300")
    await page.until("![...document.querySelectorAll('.tr')].some((row) => row.innerText.includes('a_tool_00300'))")
    await page.js("document.querySelector('details:last-of-type').open = true")
    await page.click("Show tool_00300 again")
    await page.sees("a_tool_00300")


async def test_texts_of_a_hostile_server_are_only_text(page: Page, rest: RestClient) -> None:
    await page.go("#/tools?server=evil", "evil_markup")
    await page.go("#/tool/evil_markup", "<script>window.pwned=1</script>")
    await page.go("#/tool/evil_hidden", "a\\u{200b}b\\u{202e}c\\u{1b}[2Jd")
    result = {"content": [
        {"type": "text", "text": EVIL + "\x07" + "x" * 1_000_000},
        {"type": "image", "mimeType": "image/svg+xml", "data": "PHN2ZyBvbmxvYWQ9IndpbmRvdy5wd25lZD0xIi8+"},
        {"type": "image", "mimeType": "image/png", "data": "!!!"},
        {"type": "resource_link", "uri": "javascript:window.pwned=1", "name": EVIL},
    ]}  # fmt: skip
    stream = await rest.started("a_raw", {"json": json.dumps(result)})
    await rest.until(stream, "completed")
    await page.go(f"#/stream/{stream}", "Show more")
    await page.sees("image/svg+xml")
    assert (
        await page.js("document.querySelectorAll('#app :is(script, iframe, object), main img, svg script').length") == 0
    )
    assert await page.js("[...document.links].every((one) => one.protocol !== 'javascript:')")
    assert len(await page.text()) < 120_000, "16 KiB of a payload, the rest on demand"
    assert await page.js("window.pwned") is None


@needs_sandbox()
async def test_what_a_sandbox_refused_is_only_text_with_a_line_to_copy(page: Page) -> None:
    await page.go("#/server/boxed", "Refused: 3 attempts")
    line = 'net: ["api.example.com", "*.cdn.example.com", "canary.example:8443"]'
    for shown in (EVIL[:60], line, 'sockets: ["/run/none.sock", "', "2 times", "8443: the host is not in its rule"):
        assert shown in await page.text(), shown
    await page.js("navigator.clipboard.writeText = async (text) => { window.copied = text }; 0")
    await page.click(f"Copy the line {line}")
    await page.until(f"window.copied === {json.dumps(line)}")
    assert await page.js("window.pwned") is None
    for place in ("#/overview", "#/servers"):
        await page.go(place, "its sandbox refused 3 attempts")
        assert "Sandbox" in await page.text(), place


async def test_tools_with_the_names_of_every_object_are_called_listed_and_hidden(page: Page, root: Path) -> None:
    await page.go("#/tools?server=constructor", "constructor_toString")
    for name in EVERYWHERE:
        await page.go(f"#/tool/constructor_{name}", f"there {name}")
        assert await page.js("document.querySelector('#listed-name').value") == "", name
    for one in EVERYWHERE:
        await page.fill(f"#call-{one}", f"text of {one}")
    await page.click("Call")
    await page.sees("mcp-hub resume st_")
    await page.sees("text of __proto__")
    await page.go("#/tools?server=constructor", "constructor_toString")
    for name in EVERYWHERE:
        await page.click(f"Choose constructor_{name}")
    await page.click("Hide")
    await page.sees(f"{len(EVERYWHERE)} tools changed in servers.overrides.yaml.")
    written = yaml.safe_load((root / "servers.overrides.yaml").read_text())["servers"]["constructor"]["per_tool"]
    assert written == {name: {"hide": True} for name in EVERYWHERE}
    await page.until("!!document.querySelector('details:last-of-type')?.toggleAttribute('open', true)")
    for name in EVERYWHERE:
        await page.click(f"Show {name} again")
        await page.sees(f"constructor_{name}")


async def test_a_user_who_has_moved_on_is_not_pulled_back_by_a_late_answer(page: Page) -> None:
    await page.go("#/tool/jobs_count_words", "Call it")
    await page.fill("#call-text", "a b")
    async with page.holding_answers():
        await page.click("Call")
        await page.go("#/tools?server=jobs", "jobs_run_job")
    await page.sees("jobs_count_words was called: see Calls.")
    assert await page.js("location.hash") == "#/tools?server=jobs"


async def test_no_address_makes_the_page_throw(page: Page) -> None:
    for place in HASHES:
        await page.js(f"location.hash = {json.dumps(place)}; new Promise(requestAnimationFrame)")
        assert await page.js("!!document.querySelector('main')?.innerText.trim()"), place
        assert page.errors == [], place
    await page.go("#/constructor", "There is no such screen.")
    await page.go("#/tool/%zz", "There is no tool of this name, or it is hidden.")


@pytest.mark.first(1)
@pytest.mark.parametrize("count", [1_000, 10_000])
async def test_ten_thousand_calls_and_600_tools_have_few_rows_in_the_document(page: Page, hub: Hub, count: int) -> None:
    async with HttpClient(hub.url) as client:
        await client.initialize("2025-03-26")
        for start in range(0, count, 100):
            calls = [
                client.message("tools/call", {"name": "a_echo", "arguments": {"text": "x"}}, id=start + number)
                for number in range(1, 101)
            ]
            await client.post(calls)
    await page.go("#/calls?tool=a_echo", "a_echo")
    await page.until(
        f"Number(document.querySelector('.head .dim').innerText.split(' ')[0].replace(',', '')) >= {count}"
    )
    found = await page.rows()
    assert min(found) > 5 and max(found) <= MOST_ROWS, found
    await page.go("#/tools", "a_add_prompt")
    found = await page.rows()
    assert min(found) > 5 and max(found) <= MOST_ROWS, found
    assert await page.js("document.querySelector('[role=table] .tbody').scrollTop") > 15_000, "at the end of 600 rows"


async def test_everything_is_reached_by_the_keyboard(page: Page) -> None:
    await page.go("#/tools", "a_add_prompt")
    await page.press("/")
    await page.ask("Input.insertText", text="jobs_")
    await page.misses("a_add_prompt")
    await page.press("Tab")
    await page.js("document.activeElement.blur()")
    for key in ("j", "j", "k", "j"):
        await page.press(key)
    await page.until("document.activeElement?.innerText === 'jobs_run_job'")
    await page.press("Enter")
    await page.until("location.hash === '#/tool/jobs_run_job'")
    await page.sees("Call it")


async def test_filters_are_in_the_address(page: Page, rest: RestClient) -> None:
    await rest.call("jobs_count_words", {"text": "a"})
    await page.go("#/calls", "jobs_count_words")
    await page.choose("select[aria-label=Server]", "jobs")
    await page.until("location.hash === '#/calls?server=jobs'")
    await page.ask("Page.reload")
    await page.sees("jobs_count_words")
    await page.misses("a_echo")


async def test_without_a_token_the_page_says_how_to_get_one(hub: Hub, page: Page) -> None:
    token = await page.js("sessionStorage.getItem('mcp-hub-token')")
    await page.js("sessionStorage.clear()")
    await page.ask("Page.reload")
    await page.sees("mcp-hub open")
    await page.fill("#token", "wrong")
    await page.click("Continue")
    await page.sees("The hub does not accept this token.")
    await page.fill("#token", token)
    await page.click("Continue")
    await page.sees("Needs you")


@pytest.mark.proof
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_accessibility_has_no_serious_finding(page: Page, rest: RestClient, scheme: str) -> None:
    stream = await rest.started("a_ask_form", {"nonce": "n2", "message": "Which branch?"})
    await page.scheme(scheme)
    places = {place: text for place, text in SCREENS.items() if "{}" not in place}
    found = await page.findings({**places, f"#/stream/{stream}": "Which branch?"})
    await rest.ask("DELETE", f"/streams/{stream}")
    assert [one for one in found if one[1]["impact"] in ("serious", "critical")] == []


@pytest.mark.proof
async def test_a_page_that_only_shows_has_no_actions_and_says_when_its_hub_stops(tmp_path: Path) -> None:
    text = 'servers: {jobs: {local: "mcp_hub.examples.jobs:registry"}}\nhub: {http: {dashboard: read}}'
    async with http_hub(text, tmp_path) as hub, browsed() as page:
        await page.enter(hub, tmp_path)
        places = {"#/server/jobs": "stderr", "#/tools": "jobs", "#/tool/jobs_wait": "read-only", "#/settings": "keys"}
        for place, seen in places.items():
            await page.go(place, seen)
            actions = "[...document.querySelectorAll('main button')].map((one) => one.innerText.trim())"
            assert not {"Restart", "Hide", "Pin", "Call", "Reload the configuration"} & set(await page.js(actions))
        await page.go("#/overview", "Nothing needs you.")
        await hub.terminate()
        await page.sees("Not connected")
        assert "jobs" in await page.text(), "what was known stays"
