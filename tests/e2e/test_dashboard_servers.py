"""Servers on the dashboard in a real browser, with the keyboard alone: what they are, on a phone, too.

Each test ends with a page that has thrown nothing, has broken no rule of its policy, and has asked no other host.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from tests.e2e.browser import ANSWERS, BROWSER, WHY_NOT, Page, base, browsed
from tests.e2e.client import HttpClient, Hub
from tests.e2e.hostile_texts import EVIL
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub
from tests.upstreams.launch import entry

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason=WHY_NOT)]

SCREENS = {
    "#/servers": "Select all", "#/edit": "Its entry in the configuration", "#/edit/far": "Secrets are shown as ***",
    "#/server/far": "What it is", "#/offers": "a_greet", "#/prompt/a_greet": "Whom to greet.", "#/tools": "Select all",
    "#/profiles": "Without a profile", "#/calls": "Export as JSONL", "#/figures?span=1h": "a: echo",
    "#/clients": "Connect another client",
}  # fmt: skip
SECRET = "q7w8e9r0t1y2u3i4"
WORD, NAME = "Donaudampfschifffahrt" * 30, "a-server-with-a-name-that-is-as-long-as-it-may-be-and-longer"
LONG = {"servers": [NAME], "tools": {"allow": [WORD]}}
ASKS = {"customer": {"type": "string", "description": WORD}, "s" * 120: {"enum": ["a", WORD]}}
WORDS = """Promise.all(['lib/format.js', 'screens/overview.js'].map((name) => import(`/dashboard/${name}`)))
    .then(([{duration, saying}, {needs, listCost}]) => [duration(1800), duration(7260), saying({question: 'Why?'}, 0),
        ...[540, 5464, 5727].map((tokens) => listCost({current: {mode: 'search', listed: 6, tokens},
            modes: [{expose: 'full', mode: 'full', tokens: 5464}]})).map(({of, text}) => `${of} ${text}`),
        ...[true, false].map((operator) => needs({live: [], asks: [], approvals: [], installs: [], hub: {operator},
            servers: [{server: 'a', state: 'failed'}]}).length)])"""
WIDTHS = (("light", 1280), pytest.param("dark", 390, marks=pytest.mark.proof))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
async def hub(root: Path) -> AsyncIterator[Hub]:
    servers: dict[str, Any] = {
        "text": {"local": "mcp_hub.examples.tools"},
        "jobs": {"local": "mcp_hub.examples.jobs:registry"},
        "far": {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": SECRET}, "start": "lazy"},
        "bad": {"command": "no-such", "args": ["--token", "abc123def456ghi"], "env": {"API_KEY": "k1k2k3k4k5"}},
    }
    servers["a"] = entry(name="a")
    servers[NAME] = {"command": "no-such", "enabled": False, "env": {"V" * 120: "1"}, "description": WORD}
    profiles = {EVIL: {"servers": ["a"], "tools": {"allow": ["a_echo", "echo"]}}, "long": LONG}
    settings = {"servers": servers, "profiles": profiles}
    text, home = json.dumps(settings), str(root / "home")
    async with http_hub(text, root, HOME=home) as earlier, HttpClient(earlier.url) as client:
        await client.initialize(name="Editor")
        for name, nonce in (("a_echo", f"before {EVIL}"), ("a_tool_error", EVIL)):
            await client.request("tools/call", {"name": name, "arguments": {"text": nonce}})
    async with http_hub(text, root, HOME=home) as running:
        yield running


async def test_phone_is_used_by_the_keyboard_alone(page: Page) -> None:
    await page.wide("dark", 390)
    assert await page.js("!document.querySelector('nav').offsetParent"), "behind a button"
    await page.js("document.querySelector('.menu').focus()")
    await page.press("Enter")
    await page.until("!!document.querySelector('nav').offsetParent")
    await page.press("Escape")
    await page.until("document.activeElement === document.querySelector('.menu[aria-expanded=false]')")
    await page.press("Enter")
    for _ in range(2):
        await page.press("Tab")
    assert await page.js("document.activeElement.innerText") == "Servers"
    await page.press("Enter")
    await page.sees("Sort by")
    assert await page.js("document.activeElement.id") == "main"
    assert await page.js("document.querySelector('.tr a').innerText") in ("bad", "far"), "a problem is first"
    await page.js("document.querySelector('.pick input').focus()")
    await page.press(" ")
    await page.sees("6 chosen")
    await page.choose(".sorts select", "-server")
    await page.until("document.querySelector('.tr a').innerText === 'text'")
    await page.choose("select[aria-label=State]", "bad")
    await page.until("document.querySelectorAll('.tr').length === 2")


async def test_long_words_neither_are_cut_nor_make_a_screen_scroll(page: Page, hub: Hub) -> None:
    async with RestClient(hub) as rest:
        failed = await rest.started("a_error", {"code": -32000, "message": f"No such ticket: {WORD}"})
        asks = await rest.started("a_ask_form", {"nonce": "n", "message": WORD, "schema": {"properties": ASKS}})
        for scheme, width in (("light", 1280), ("light", 760), ("dark", 390)):
            await page.wide(scheme, width)
            for place, text in (
                ("#/tools", "a_add_prompt"), (f"#/server/{NAME}", "The server is disabled."),
                ("#/server/far", "silence of a call 30 min, a whole"),
                ("#/profiles", NAME), ("#/clients", "On the machine of the hub"), (f"#/stream/{failed}", "Arguments"),
                (f"#/stream/{asks}", "the tool asks"), ("#/calls?state=input_required", WORD[:20]),
                ("#/overview", "Running now"),
            ):  # fmt: skip
                await page.go(place, text)
                await page.is_sound()
        await page.go(f"#/stream/{failed}", "Arguments")
        assert (await page.js("document.querySelector('.panel p').innerText")).startswith("No such ticket: Donau")
        await page.go("#/tools?q=text_", "text_add")
        for name in ("Choose text_add", "Hide"):
            await page.click(name)
        await page.until("!!document.querySelector('details.panel:last-of-type')?.toggleAttribute('open', true)")
        await page.is_sound()
        await page.click("Show add again")
        await rest.ask("DELETE", f"/streams/{asks}")
    costs = ["5464 : 4,924 saved in each session", "0 ", "0 : 263 more than all tools as they are"]
    costs = [cost.replace(" ", " 6 tools with the hub's own, mode search", 1) for cost in costs]
    assert await page.js(WORDS) == ["30 min", "2 h 1 min", "Why?", *costs, 1, 0]


async def test_screens_say_what_could_not_be_loaded(page: Page) -> None:
    broken = {"pattern": "api/(clients|installs|v1/tokens|server[?])", "status": 503, "body": {"detail": "Broken now."}}
    await page.js(f"{ANSWERS}({json.dumps(broken)})")
    for place in ("#/search", "#/overview", "#/server/a", "#/clients"):
        await page.go(place, "Broken now.")
    await page.sees("Who has come is not known now: Broken now.")
    await page.sees("The clients of this machine are not known now: Broken now.")
    await page.js("window.fetch = window.honest")
    await page.go("#/overview", "Needs you")
    await page.go("#/clients", "Connect another client")
    assert "Broken now." not in await page.text()


@pytest.mark.parametrize(("scheme", "width"), WIDTHS)
async def test_remote_server_is_added_edited_and_removed_by_the_keyboard(
    page: Page, root: Path, scheme: str, width: int
) -> None:
    await page.wide(scheme, width)
    await page.go("#/servers", "Add a server")
    await page.activate("Add a server")
    await page.sees("Its entry in the configuration")
    await page.tab_to("Name")
    await page.ask("Input.insertText", text=f"new{width}")
    await page.tab_to("YAML")
    await page.ask("Input.insertText", text="127.0.0.1:9/mcp\nst")
    await page.sees("start_timeout")
    await page.press("Enter")
    await page.until("document.querySelector('#entry-text').value.endsWith('\\nstart: ')")
    await page.ask("Input.insertText", text="wrong")
    await page.sees("line 2:")
    await page.is_sound()
    for _ in range(5):
        await page.press("Backspace")
    await page.ask("Input.insertText", text="la")
    await page.until("document.querySelector('.options')?.innerText.includes('lazy')")
    await page.press("Enter")
    await page.sees("It holds at once.")
    await page.activate("Add")
    await page.sees("What it is")
    assert yaml.safe_load((root / "servers.yaml").read_text())["servers"][f"new{width}"]["start"] == "lazy"
    await page.is_sound()
    await page.activate("Disable")
    await page.press("Enter")
    await page.until("document.querySelector('h1 + .badge').innerText === 'disabled'")
    await page.activate("Edit")
    await page.sees(f"Edit new{width}")
    await page.until("document.querySelector('#entry-text').value.includes('lazy')")
    await page.go(f"#/server/new{width}", "What it is")
    await page.activate("Remove")
    await page.press("Enter")
    await page.sees(f"new{width} is removed.")
    assert f"new{width}" not in yaml.safe_load((root / "servers.yaml").read_text())["servers"]


@pytest.mark.parametrize(("scheme", "width"), WIDTHS)
async def test_command_is_only_proposed_and_the_page_shows_the_line_to_copy(
    page: Page, root: Path, scheme: str, width: int
) -> None:
    await page.wide(scheme, width)
    before = (root / "servers.yaml").read_text()
    await page.go("#/edit/far", "Secrets are shown as ***")
    await page.until("document.querySelector('#entry-text').value.includes('***')")
    assert SECRET not in await page.js("document.documentElement.outerHTML + document.querySelector('textarea').value")
    evil = json.dumps(EVIL)
    await page.fill("#entry-text", f"command: sh\nargs: [-c, {evil}]\ndescription: {evil}")
    await page.sees("starts nothing until you approve it on a terminal")
    await page.sees("it changes command, args")
    await page.is_sound()
    await page.activate("Propose")
    await page.sees("Nothing is started or changed yet.")
    assert f"mcp-hub approve --config {root / 'servers.yaml'} far" in await page.text()
    await page.go("#/overview", "far: an edit waits for you on a terminal")
    await page.go("#/server/far", "An edit waits for you on a terminal:")
    await page.go("#/servers?show=edits", "1 edit waiting for you on a terminal")
    await page.is_sound()
    assert await page.js("window.pwned") is None and (root / "servers.yaml").read_text() == before
    await page.activate("Withdraw the edit of far")
    await page.misses("1 edit waiting")


async def test_prompts_and_resources_are_got_by_their_forms_and_the_keyboard(page: Page, hub: Hub) -> None:
    async with RestClient(hub) as rest:
        added = await rest.call("a_add_prompt", {"name": EVIL, "text": EVIL})
        assert added.status_code == 200, added.text
    for width in (1280, 390):
        await page.wide("light", width)
        await page.go("#/offers", "test://a/item/{id}")
        await page.is_sound()
    await page.activate("a_greet")
    await page.sees("Whom to greet.")
    await page.tab_to("Get")
    await page.fill("#offer-who", EVIL)
    await page.activate("Get")
    await page.sees("mcp-hub resume st_")
    await page.sees(EVIL)
    await page.go(f"#/resource/{quote('test://a/item/{id}', safe='')}", "Read it")
    await page.fill("#offer-id", "7/8")
    await page.press("Enter")
    await page.sees("test://a/item/7%2F8")
    await page.go("#/offers?q=pwned", "1 entry")
    await page.js("document.querySelector('.tr a').click()")
    await page.sees("Get it")
    await page.go("#/resource/test:nothing", "No server offers this now.")
    await page.go("#/profiles", "Without a profile")
    await page.is_sound()
    assert EVIL in await page.text() and await page.js("window.pwned") is None
    await page.fill("#filter", "a_echo")
    await page.until("document.querySelectorAll('.list.cols a').length === 2")


@pytest.mark.proof
async def test_raw_messages_of_a_server_are_recorded_masked_and_only_text(page: Page, hub: Hub) -> None:
    await page.go("#/server/a", "Record for five minutes")
    await page.activate("Record for five minutes")
    await page.sees("Stop recording")
    async with RestClient(hub) as rest:
        await rest.call("a_echo", {"text": f"{EVIL} Bearer abcdef0123456789"})
    await page.sees('"method":"tools/call"')
    await page.js("document.querySelectorAll('.rawline').forEach((one) => { one.open = true; })")
    await page.sees(EVIL.replace('"', '\\"'))
    await page.sees("Bearer ***")
    for scheme, width in (("light", 1280), ("dark", 390)):
        await page.wide(scheme, width)
        await page.is_sound()
    await page.activate("Stop recording")
    await page.sees("Record for five minutes")
    text = await page.text()
    assert "abcdef0123456789" not in text and await page.js("window.pwned") is None


async def test_calls_of_an_earlier_start_are_there_with_their_arguments_and_are_made_again(page: Page) -> None:
    await page.js("""{
        const made = URL.createObjectURL;
        URL.createObjectURL = (blob) => {
            blob.text().then((text) => { window.exported = text; });
            return made.call(URL, blob);
        };
    } 0""")
    for scheme, width in (("light", 1280), ("dark", 390)):
        await page.wide(scheme, width)
        await page.go("#/calls?server=a", "a_tool_error")
        await page.is_sound()
    await page.activate("Export as JSONL")
    await page.sees("exported.")
    lines = [json.loads(line) for line in (await page.until("window.exported")).splitlines()]
    assert {"text": f"before {EVIL}"} in [line.get("arguments") for line in lines]
    await page.go("#/calls?server=a&tool=a_echo&state=completed&client=Editor&time=3600", "a_echo")
    await page.activate("a_echo")
    await page.sees(f"before {EVIL}")
    await page.sees("Arguments")
    await page.is_sound()
    await page.activate("Call it again")
    await page.press("Enter")
    await page.sees("mcp-hub resume st_")
    await page.sees(f"before {EVIL}")
    await page.go("#/figures?span=1h", "a: echo")
    await page.activate("a week")
    await page.until("location.hash.includes('span=7d') && !!document.querySelector('.spark.small rect')")
    await page.is_sound()
    assert await page.js("window.pwned") is None


@pytest.mark.proof
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
async def test_accessibility_of_these_screens_has_no_finding(page: Page, scheme: str, width: int) -> None:
    await page.wide(scheme, width)
    assert await page.findings(SCREENS) == []


@pytest.mark.parametrize(("scheme", "width"), WIDTHS)
async def test_mistake_in_the_file_of_a_running_hub_is_shown_until_it_is_corrected(
    tmp_path: Path, scheme: str, width: int
) -> None:
    entries: dict[str, Any] = {"text": {"local": "mcp_hub.examples.tools"}}
    async with http_hub(json.dumps({"servers": entries}), tmp_path) as hub, browsed() as page:
        file = tmp_path / "servers.yaml"
        correct = file.read_text()
        await page.enter(hub, tmp_path)
        await page.wide(scheme, width)
        await page.go("#/overview", "Nothing needs you.")
        file.write_text(json.dumps({"servers": {**entries, EVIL: {"comand": "x"}, "b": {"comand": WORD}}}))
        await page.sees("The hub keeps its settings from before: ")
        await page.is_sound()
        await page.go("#/settings", "The file has a mistake.")
        shown = await page.js("document.querySelector('.note.bad').innerText")
        assert "comand" in shown and "<img" in shown, "each of them"
        await page.is_sound()
        file.write_text(correct)
        await page.until("!document.querySelector('.note.bad')")
        await page.go("#/overview", "Nothing needs you.")
        assert page.errors == [] == await page.js("window.violations") and page.hosts == {base(hub)}


ALICE, BOB = "alice-0123456789", "bob-0123456789abc"
REFUSED = "This belongs to the whole hub. Use a token that is marked operator: true, or the dashboard of mcp-hub open."
NO_CALL = "There is no such call, or it is no longer kept."
NOT_HERS = {
    "#/servers": ("jobs", ""), "#/server/jobs": ("Operators of the hub see its log.", ""),
    "#/server/bad": ("Operators of the hub see its log.", "What it is"),
    "#/edit": ("Only an operator changes servers", ""), "#/edit/jobs": ("Only an operator changes servers", ""),
    "#/settings": (REFUSED, "Loading…"), "#/profiles": (REFUSED, ""), "#/tools": ("jobs_wait", ""),
    "#/tool/jobs_wait": ("Call it", "What clients see"), "#/clients": ("Connect another client", "On the machine"),
    "#/calls": ("jobs_count_words", "jobs_run_job"), "#/stream/{quick}": (NO_CALL, ""), "#/stream/{job}": (NO_CALL, ""),
    "#/overview": ("Needs you", ""),
}  # fmt: skip
"""Screens of a person who is not the operator: what is written there, and what is not."""
ACTIONS = {"Restart", "Edit", "Disable", "Remove", "Add a server", "Hide", "Pin", "Save", "Reload the configuration"}


@pytest.mark.parametrize(("scheme", "width"), WIDTHS)
async def test_person_who_is_not_the_operator_reads_why_something_is_refused(
    tmp_path: Path, scheme: str, width: int
) -> None:
    tokens = [{"token": ALICE, "principal": "alice"}, {"token": BOB, "principal": "bob"}]
    servers = {"jobs": {"local": "mcp_hub.examples.jobs:registry"}, "bad": {"command": "no-such"}}
    settings = {"servers": servers, "hub": {"tokens": tokens, "history": {"arguments": "full"}}}
    async with http_hub(json.dumps(settings), tmp_path) as hub, browsed() as page:
        async with RestClient(hub, BOB) as bob, RestClient(hub, ALICE) as alice:
            job = await bob.started("jobs_run_job", {"steps": 100, "seconds": 300})
            quick = (await bob.call("jobs_count_words", {"text": "words of bob"})).json()["stream"]
            await alice.call("jobs_count_words", {"text": "words of alice"})
            await page.wide(scheme, width)
            await page.open(f"{base(hub)}/#token={ALICE}")
            for place, (text, missing) in NOT_HERS.items():
                await page.go(place.format(job=job, quick=quick), text)
                shown = await page.text()
                assert "words of bob" not in shown and not (missing and missing in shown), place
                buttons = (
                    "[...document.querySelectorAll('main :is(button, .button)')].map((one) => one.innerText.trim())"
                )
                assert not ACTIONS & set(await page.js(buttons)), place
                await page.is_sound()
            await page.js("document.querySelector('.menu').offsetParent && document.querySelector('.menu').click()")
            await page.sees("your calls only")
            screens = "[...document.querySelectorAll('nav a')].map((one) => one.textContent.trim())"
            assert not {"Settings", "Profiles"} & set(await page.js(screens))
            assert page.errors == [] == await page.js("window.violations") and page.hosts == {base(hub)}
            assert "words of bob" in (await bob.ask("GET", f"/history/{quick}")).text, "it is there"
            await bob.ask("DELETE", f"/streams/{job}")
