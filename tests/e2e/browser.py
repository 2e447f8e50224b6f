"""Headless Chromium, driven over the pipe of its debugging protocol: one page at a time, every wait bounded.

`BROWSER` is the program, or None where there is none; `WHY_NOT` says so for a test that is skipped.
"""

import asyncio
import base64
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from rigs.clients.install import NotInstalled, node_package
from tests.e2e.client import Hub
from tests.upstreams.child import WAIT

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER = os.environ.get("MCP_HUB_TEST_BROWSER") or next(filter(None, map(shutil.which, PROGRAMS)), None)
WHY_NOT = f"no browser ({', '.join(PROGRAMS)}): install Debian's chromium-headless-shell"
FLAGS = (
    *("--headless", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio"),
    *("--hide-scrollbars", "--no-default-browser-check", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
)
WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""
FIND = """async (wanted, within) => {
    const is_meant = (one) => one?.innerText?.trim() === wanted || one?.getAttribute('aria-label') === wanted;
    const note = (event) => { clicked ||= is_meant(event.target.closest('button, a, summary, input')); };
    window.clicked = false;
    document.addEventListener('click', note, {capture: true, once: true});
    for (const one of document.querySelectorAll(within + ' :is(button, a, summary, input)')) {
        if (!is_meant(one) || one.disabled) continue;
        one.scrollIntoView({block: 'center'});
        const before = one.getBoundingClientRect();
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        const box = one.getBoundingClientRect();  // nothing moves any more
        if (box.width && box.y === before.y) return [box.x + box.width / 2, box.y + box.height / 2];
    }
}"""
FOCUS = """(selector) => {
    const one = document.querySelector(selector);
    one?.focus();
    one?.select?.();
    return document.activeElement === one;
}"""
CHOOSE = """(selector, value) => {
    const one = document.querySelector(selector);
    if (![...(one?.options ?? [])].some((option) => option.value === value)) return false;
    one.value = value;
    one.dispatchEvent(new Event('change', {bubbles: true}));
    return true;
}"""
ROWS = """(async () => {
    const list = document.querySelector('[role=table] .tbody'), found = [];
    for (let part = 0; part <= 10; part++) {
        list.scrollTop = (list.scrollHeight - list.clientHeight) * part / 10;
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 60)));
        found.push(document.querySelectorAll('.tr').length);
    }
    return found;
})()"""
HOLD = """{
    const ask = window.fetch, held = new Promise((done) => { window.release = () => { window.fetch = ask; done(); }; });
    window.fetch = async (...request) => {
        const answer = await ask(...request);
        if (request[1]?.method === 'POST') await held;
        return answer;
    };
}"""
ANSWERS = """(({pattern, status, body}) => {
    window.honest ??= window.fetch;
    window.fetch = (url, options) => (new RegExp(pattern).test(url)
        ? Promise.resolve(new Response(JSON.stringify(body), {status})) : window.honest(url, options));
})"""
"""Answers requests to a URL with this pattern in place of the hub."""
FINDINGS = """axe.run({resultTypes: ['violations']}).then((found) => found.violations.map((one) =>
    ({id: one.id, impact: one.impact, nodes: one.nodes.slice(0, 3).map((node) => node.html)})))"""
TOO_WIDE = """[document.documentElement,
    ...document.querySelectorAll('.screen, .side, .screen > *, .two > *, .table, .tbody')]
    .filter((one) => one.scrollWidth > one.clientWidth + 2
        || one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.className)"""
PALE = """(() => {
    const parts = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
    const light = (text) => parts(text).slice(0, 3).map((one) => one / 255)
        .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
        .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
    const ground = (one) => {
        while (one && parts(getComputedStyle(one).backgroundColor)[3] === 0) one = one.parentElement;
        return light(getComputedStyle(one ?? document.body).backgroundColor); };
    return [...document.querySelectorAll('#app *')].filter((one) => one.offsetParent).flatMap((one) => {
        const style = getComputedStyle(one);
        if (style.borderBottomStyle === 'none' || !parseFloat(style.borderBottomWidth)) return [];
        const [a, b] = [light(style.borderBottomColor), ground(one.parentElement)].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05) < 3 ? [`${one.tagName} ${one.className}`] : [];
    });
})()"""
"""Borders with a contrast below 3 to what is around them (WCAG 1.4.11)."""
CUT = """(() => {
    const open = [...document.querySelectorAll('details.panel[open]')].filter((one) => one.clientHeight < 80);
    return [...document.querySelectorAll('.tr > *')].filter((one) => one.scrollHeight > one.clientHeight + 1)
        .concat(open).map((one) => `${one.tagName} ${one.className} ${one.innerText.slice(0, 40)}`);
})()"""
"""Cells that are lower than what is in them, and opened panels that show nothing."""
EXEC = "import os, sys; a, b, *argv = sys.argv[1:]; os.dup2(int(a), 3); os.dup2(int(b), 4); os.execv(argv[0], argv)"
"""Puts the ends of the pipes where the browser looks for them, above any number that they may have now."""
FOCUSED = """(({activeElement: one}) =>
    one.getAttribute('aria-label') ?? one.labels?.[0]?.innerText.trim() ?? one.innerText.trim())(document)"""
POLL = 0.05
AXE = "axe-core@4.14.1"
_MOST_TABS = 120


def operator(root: Path) -> str:
    """The token that `mcp-hub open` reads."""
    (record,) = (root / "state" / "hubs").glob("*.json")
    return str(json.loads(record.read_text())["operator"])


def base(hub: Hub) -> str:
    """The origin of a hub."""
    return hub.url.removesuffix("/mcp")


class Connection:
    """Commands to the browser and its events."""

    def __init__(self, reader: asyncio.StreamReader, write: int) -> None:
        self._reader = reader
        self._write = write
        self._last = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.events: list[Any] = []

    async def run(self) -> None:
        """Reads until the browser ends."""
        while True:
            try:
                message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
            except asyncio.IncompleteReadError:
                return
            answer = self._answers.pop(message.get("id"), None)
            if answer is None:
                self.events.append(message)
            elif not answer.done():
                answer.set_result(message)

    async def ask(self, method: str, session: str | None = None, **params: Any) -> Any:
        self._last += 1
        command = {"id": self._last, "method": method, "params": params}
        if session is not None:
            command["sessionId"] = session
        answer = self._answers[self._last] = asyncio.get_running_loop().create_future()
        os.write(self._write, json.dumps(command).encode() + b"\0")
        with anyio.fail_after(WAIT):
            message = await answer
        assert "error" not in message, (method, message["error"])
        return message["result"]


class Page:
    """One page of the browser. Selectors are CSS; `text` is what a person reads."""

    def __init__(self, connection: Connection, session: str) -> None:
        self._connection = connection
        self._session = session

    async def ask(self, method: str, **params: Any) -> Any:
        return await self._connection.ask(method, self._session, **params)

    async def open(self, url: str) -> None:
        await self.ask("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def enter(self, hub: Hub, root: Path) -> None:
        """Opens the dashboard of a hub whose state is in `root`, as `mcp-hub open` does."""
        await self.open(f"{base(hub)}/#token={operator(root)}")
        await self.sees("Needs you")

    async def go(self, place: str, text: str) -> None:
        """Goes to a screen without loading the page again; returns once a person can read the text."""
        await self.js(f"location.hash = {json.dumps(place)}")
        await self.sees(text)

    async def js(self, expression: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        found = await self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, expression: str) -> Any:
        """The value of an expression once it is true."""
        value = None
        try:
            with anyio.fail_after(WAIT):
                while not value:
                    with suppress(AssertionError):  # the page is between two documents
                        value = await self.js(expression)
                    if not value:
                        await anyio.sleep(POLL)
        except TimeoutError:
            raise AssertionError(f"never: {expression}\n{await self.text()}") from None
        return value

    async def text(self) -> str:
        return str(await self.js("document.body.innerText"))

    async def sees(self, text: str) -> None:
        """Returns once a person can read this."""
        await self.until(f"document.body.innerText.includes({json.dumps(text)})")

    async def rows(self) -> list[int]:
        """The rows in the document at eleven places of the list that is shown, from its top to its end."""
        return list(await self.js(ROWS))

    @asynccontextmanager
    async def holding_answers(self) -> AsyncIterator[None]:
        """Answers to requests that change something come only when the block ends."""
        await self.js(HOLD)
        yield
        await self.js("window.release()")

    async def misses(self, text: str) -> None:
        """Returns once a person can no longer read this."""
        await self.until(f"!document.body.innerText.includes({json.dumps(text)})")

    async def click(self, text: str, within: str = "body") -> None:
        """Clicks on the button, link or summary with this text or label, by the mouse; again if it moved away."""
        has_missed = True
        while has_missed:
            x, y = await self.until(f"({FIND})({json.dumps(text)}, {json.dumps(within)})")
            for kind in ("mousePressed", "mouseReleased"):
                await self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            has_missed = await self.js("window.clicked") is False  # undefined in another document

    async def fill(self, selector: str, value: str) -> None:
        """Types into a field, in place of what is there."""
        await self.until(f"({FOCUS})({json.dumps(selector)})")
        await self.ask("Input.insertText", text=value)

    async def choose(self, selector: str, value: str) -> None:
        """Chooses an option of a select."""
        await self.until(f"({CHOOSE})({json.dumps(selector)}, {json.dumps(value)})")

    async def press(self, key: str) -> None:
        code = {"Enter": 13, "Tab": 9, "Escape": 27, "Backspace": 8}.get(key, ord(key.upper()[0]))
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        down = {"type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code}
        await self.ask("Input.dispatchKeyEvent", **down)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def activate(self, text: str) -> None:
        """Presses Enter at the control with this text or label, which the keyboard alone reaches."""
        await self.tab_to(text)
        await self.press("Enter")

    async def tab_to(self, text: str) -> None:
        """Moves the focus by the keyboard alone to the control with this text or label; each Tab moves it once."""
        for _ in range(_MOST_TABS):
            if await self.js(FOCUSED) == text:
                return
            await self.press("Tab")
        raise AssertionError(f"the keyboard does not reach {text!r}")

    async def wide(self, scheme: str, width: int) -> None:
        """Shows the page `light` or `dark`, in a window of so many pixels."""
        await self.scheme(scheme)
        await self.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)

    async def is_sound(self) -> None:
        """Asserts that the screen does not scroll sideways, that nothing is cut, and that its borders can be seen."""
        await self.until(f"!({TOO_WIDE}).length")  # tables become cards a moment after the width
        assert await self.js(TOO_WIDE) == [] == await self.js(PALE) == await self.js(CUT)

    async def findings(self, places: Mapping[str, str]) -> list[Any]:
        """What axe-core finds on these screens, each with a text on it; skips where it cannot be installed."""
        try:
            package = await anyio.to_thread.run_sync(node_package, AXE)
        except NotInstalled as why:
            pytest.skip(f"no {AXE}: {why}")
        axe = await anyio.Path(package / "axe.min.js").read_text()
        findings: list[Any] = []
        for place, text in places.items():
            await self.go(place, text)
            await self.js(f"{axe}; 0")
            findings += [(place, one) for one in await self.js(FINDINGS)]
            await self.is_sound()
        return findings

    async def scheme(self, name: str) -> None:
        """`light` or `dark`."""
        await self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    async def shot(self, place: Path, width: int = 1280, height: int = 800) -> None:
        """A picture of what can be seen."""
        await self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        await anyio.sleep(0.3)  # until transitions have ended
        found = await self.ask("Page.captureScreenshot", format="png")
        await anyio.Path(place).write_bytes(base64.b64decode(found["data"]))

    @property
    def hosts(self) -> set[str]:
        """The schemes and hosts of all requests so far, those from memory aside."""
        urls = [event["params"]["request"]["url"] for event in self._of("Network.requestWillBeSent")]
        return {"/".join(url.split("/")[:3]) for url in urls if not url.startswith(("data:", "blob:"))}

    @property
    def errors(self) -> list[str]:
        """Exceptions of the page, and what its console calls an error."""
        thrown = [str(event["params"]["exceptionDetails"]) for event in self._of("Runtime.exceptionThrown")]
        said = [event["params"] for event in self._of("Runtime.consoleAPICalled")]
        return thrown + [str(one["args"]) for one in said if one["type"] in ("error", "assert")]

    def _of(self, method: str) -> list[Any]:
        mine = [event for event in self._connection.events if event.get("sessionId") == self._session]
        return [event for event in mine if event.get("method") == method]


@asynccontextmanager
async def browsed() -> AsyncIterator[Page]:
    """A fresh page in a fresh browser, whose profile is removed with it."""
    assert BROWSER is not None
    ours, theirs = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(prefix="browser", ignore_cleanup_errors=True) as profile:
        flags = [*FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", EXEC, str(theirs[0]), str(ours[1]), BROWSER, *flags, "about:blank",
            pass_fds=(theirs[0], ours[1]), stderr=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs[0])
        os.close(ours[1])
        reader = asyncio.StreamReader(limit=1 << 26)
        pipe = os.fdopen(ours[0], "rb")
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        connection = Connection(reader, theirs[1])
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connection.run)
                yield await _page(connection)
                tasks.cancel_scope.cancel()
        finally:
            transport.close()
            os.close(theirs[1])
            if process.returncode is None:
                process.kill()
            with anyio.CancelScope(shield=True):
                await process.wait()


async def _page(connection: Connection) -> Page:
    targets = (await connection.ask("Target.getTargets"))["targetInfos"]
    target = next(one["targetId"] for one in targets if one["type"] == "page")
    attached = await connection.ask("Target.attachToTarget", targetId=target, flatten=True)
    page = Page(connection, attached["sessionId"])
    for domain in ("Page", "Runtime", "Network"):
        await page.ask(f"{domain}.enable")
    await page.ask("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    return page
