"""Events on the page, in a real browser: types, what happens while somebody looks, texts of strangers."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.browser import BROWSER, WHY_NOT, Page, base, browsed
from tests.e2e.client import Hub
from tests.e2e.hostile_texts import EVIL
from tests.interaction.fronts import MODERN, connected, http_hub
from tests.interaction.hooked import Answer, Post, receiving, subscribe, taken

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason=WHY_NOT)]


LIVE = "document.querySelector('.events .badge.ok') !== null"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
async def hub(root: Path) -> AsyncIterator[Hub]:
    hub = {"prefix": "always", "events": {"webhook_hosts": ["127.0.0.1"]}}
    settings = {"servers": {"ci": {"local": "tests.e2e.event_sources:registry"}}, "hub": hub}
    async with http_hub(json.dumps(settings), root, TEST_EVENTS=str(root / "events")) as running:
        yield running


@pytest.fixture
async def page(hub: Hub, root: Path) -> AsyncIterator[Page]:
    async with browsed() as page:
        await page.enter(hub, root)
        yield page
        assert page.errors == [] and await page.js("window.violations") == []
        assert page.hosts == {base(hub)}


def happens(root: Path, **data: object) -> None:
    with (root / "events").open("a") as file:
        file.write(json.dumps(data) + "\n")


async def test_events_appear_while_somebody_looks(page: Page, root: Path) -> None:
    await page.go("#/server/ci", "2 event types")
    await page.go("#/tools", "2 event types")
    await page.go("#/event/ci_builds", "A build of a branch has ended.")
    await page.click("Follow")
    await page.until(LIVE)
    happens(root, status="red")
    await page.sees('"status":"red"')
    happens(root, status="green")
    await page.sees('"status":"green"')
    await page.click("build-1")
    await page.sees('"eventId": "build-1"')
    for scheme in ("light", "dark"):
        for width in (1280, 390):
            await page.wide(scheme, width)
            await page.is_sound()
            await page.shot(root / f"event-{scheme}-{width}.png", width, 900)


async def gone(post: Post) -> Answer:
    return await taken(post) if "type" in post.json else (410, {}, b"")


async def test_messages_that_no_webhook_took_are_counted(page: Page, hub: Hub, root: Path) -> None:
    async with receiving() as receiver, connected(hub, MODERN) as peer:
        receiver.respond = gone
        assert "result" in (await subscribe(peer, "ci_builds", receiver.url())).answer
        for number in (1, 2, 3):
            happens(root, n=number)
        await receiver.until(lambda: len(receiver.of()) == 3)
        await page.go("#/overview", "3 messages about its events reached no webhook")
        await page.click("ci: 3 messages about its events reached no webhook")
        await page.sees("3 messages given up")


async def test_texts_of_a_hostile_source_are_only_text(page: Page, root: Path) -> None:
    (root / "events").unlink(missing_ok=True)
    await page.go("#/tools", "2 event types")
    await page.click("2 event types")
    await page.go("#/event/ci_evil", "<script>window.pwned=1</script>")
    await page.click("Follow")
    await page.until(LIVE)
    happens(root)
    await page.sees("4 events")
    await page.sees(f"2{EVIL}"[:60])
    assert await page.js("document.querySelectorAll('#app :is(script, iframe, object), main img').length") == 0
    assert await page.js("window.pwned") is None
    assert len(await page.text()) < 120_000


async def test_unknown_type_is_said(page: Page) -> None:
    for name in ("nothing", "__proto__", "%zz"):
        await page.go(f"#/event/{name}", "There is no event type of this name")
