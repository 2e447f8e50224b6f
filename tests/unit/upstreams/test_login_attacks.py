"""Attacks on the login of a person to an own account by links, browsers and codes: each is refused."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import pytest

from tests.unit.upstreams.browser import BASE, Browser, Clock, Desk, Scene, new_key
from tests.upstreams.own_accounts import OwnAccounts, own_accounts

pytestmark = pytest.mark.anyio


@pytest.fixture
def upstream() -> Iterator[OwnAccounts]:
    with own_accounts() as running:
        yield running


@pytest.fixture
async def scene(upstream: OwnAccounts, tmp_path: Path) -> AsyncIterator[Scene]:
    key = new_key()
    yield Scene(Desk(tmp_path, upstream, key, Clock()), upstream, tmp_path, key)


async def test_a_login_by_link_click_and_code_becomes_the_account_of_the_principal(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        page = await alice.log_in(await scene.desk.link())
        assert "alice@example.com" in page.text and "ann" in page.text
        assert await scene.desk.person() is None
        await scene.confirmed(alice.code)
    assert await scene.desk.person() == "alice@example.com"
    assert await scene.pending() == 0


async def test_each_step_may_be_taken_at_another_hub_of_the_store(scene: Scene) -> None:
    link = await scene.desk.link()
    hubs = [scene.restarted() for _ in range(4)]
    async with Browser(hubs[0], "alice") as first, Browser(hubs[1], "alice") as second, Browser(hubs[2]) as third:
        await first.get(link)
        second.page = first.page
        await second.send_form()
        back = await second.to_authorization()
        third.cookies = second.cookies
        await third.get(back)
        await hubs[3].desk.confirm("own", "ann", third.code)
    assert await scene.desk.person() == "alice@example.com"


# -- links


async def test_a_preview_that_fetches_the_link_changes_nothing(scene: Scene) -> None:
    link = await scene.desk.link()
    rows = {file: file.read_bytes() for file in (scene.root / "pending").glob("*.json")}
    async with scene.browser("bot") as bot:
        for _ in range(20):
            page = await bot.get(link, user_agent="Slackbot-LinkExpanding 1.0")
            assert page.status_code == 200 and "set-cookie" not in page.headers
    assert rows == {file: file.read_bytes() for file in (scene.root / "pending").glob("*.json")}
    assert scene.upstream.asked == []
    async with scene.browser("alice") as alice:
        await alice.log_in(link)
        assert alice.code


async def test_a_link_works_once(scene: Scene) -> None:
    link = await scene.desk.link()
    async with scene.browser("alice") as alice, scene.browser("mallory") as mallory:
        await mallory.get(link)
        await alice.get(link)
        await alice.send_form()
        assert (await mallory.send_form()).status_code == 410
        assert (await mallory.get(link)).status_code == 410
    assert len(scene.upstream.places("/register")) == 1


async def test_of_two_clicks_at_once_one_counts(scene: Scene) -> None:
    link = await scene.desk.link()
    async with scene.browser("alice") as one, scene.browser("alice") as two:
        await one.get(link)
        await two.get(link)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.send_form)
            tasks.start_soon(two.send_form)
        assert sorted((one.page.status_code, two.page.status_code)) == [200, 410]


async def test_a_link_is_over_after_ten_minutes(scene: Scene) -> None:
    link = await scene.desk.link()
    async with scene.browser("alice") as alice:
        await alice.get(link)
        scene.desk.clock.now += 601
        assert (await alice.send_form()).status_code == 410
        assert (await alice.get(link)).status_code == 410
    assert scene.upstream.asked == []


async def test_forged_tickets_are_refused_and_told_apart_from_nothing(scene: Scene) -> None:
    ticket = parse_qs(urlsplit(await scene.desk.link()).query)["t"][0]
    row, _, secret = ticket.partition(".")
    forged = ["", ".", row, f"{row}.", f"{row}.{secret[:-1]}", f"{row}.{secret}x", f"{'0' * 32}.{secret}", "../../x.y"]
    forged += [
        f"{row[:-1]}.{secret}",
        f"{row}.{'a' * 5000}",
        "\0.\0",
        f"{row}/../{row}.{secret}",
        f"{row}.{secret[::-1]}",
    ]
    async with scene.browser("mallory") as mallory:
        for text in forged:
            page = await mallory.get(f"{BASE}/login/own?{urlencode({'t': text})}")
            assert page.status_code == 410, text
    assert scene.upstream.asked == []


async def test_a_ticket_is_for_its_server_alone(scene: Scene) -> None:
    ticket = parse_qs(urlsplit(await scene.desk.link()).query)["t"][0]
    async with scene.browser("mallory") as mallory:
        assert (await mallory.get(f"{BASE}/login/other?t={ticket}")).status_code == 410


async def test_the_links_of_a_principal_are_bounded(scene: Scene) -> None:
    for number in range(100):
        await scene.desk.link("ann", f"server-{number}")
    row = await scene.desk.desk._read(scene.desk.desk._row_of("ann"))
    assert len(row.pending) == 16
    assert len(list((scene.root / "pending").glob("*.json"))) == 1


async def test_many_calls_at_once_share_a_link(scene: Scene) -> None:
    assert len({await scene.desk.link() for _ in range(30)}) == 1
    assert await scene.desk.link("bob") != await scene.desk.link("ann")


# -- whose browser it is


async def test_a_link_that_is_sent_to_a_victim_gives_nothing_without_the_code_on_its_screen(scene: Scene) -> None:
    async with scene.browser("victim") as victim:
        page = await victim.log_in(await scene.desk.link("mallory"))
        assert "mallory" in page.text and "Give the code to nobody" in page.text
        right = victim.code
    for guess in range(3):
        refused = await scene.refused(str((int(right) + 1 + guess) % 10**6).zfill(6), "mallory")
        assert refused.code == "code_wrong"
    assert (await scene.refused(right, "mallory")).code == "login_unknown"
    assert await scene.desk.person("mallory") is None


async def test_the_page_of_the_authorization_server_that_is_sent_to_a_victim_leads_nowhere(scene: Scene) -> None:
    async with scene.browser("mallory") as mallory, scene.browser("victim") as victim:
        await mallory.get(await scene.desk.link("mallory"))
        await mallory.send_form()
        page = await victim.get(await victim.to_authorization(mallory.way_out))
        assert page.status_code == 403 and "code" not in re.sub(r"<style>.*</style>", "", page.text, flags=re.DOTALL)
    assert scene.upstream.places("/token") == []


async def test_the_answer_for_a_victim_that_is_brought_to_an_attackers_browser_is_refused(scene: Scene) -> None:
    async with scene.browser("victim") as victim, scene.browser("mallory") as mallory:
        await victim.get(await scene.desk.link("ann"))
        await victim.send_form()
        stolen = await victim.to_authorization()
        await mallory.get(await scene.desk.link("mallory"))
        await mallory.send_form()
        own = parse_qs(urlsplit(await mallory.to_authorization()).query)
        assert (await mallory.get(stolen)).status_code == 403
        code = parse_qs(urlsplit(stolen).query)["code"][0]
        injected = urlencode({"code": code, "state": own["state"][0], "iss": scene.upstream.url})
        # RFC 9700 §4.5: an injected code fits no verifier but that of its own login
        assert (await mallory.get(f"{BASE}/login-callback/own?{injected}")).status_code == 502
    assert await scene.desk.person("mallory") is None


async def test_swapped_states_are_refused(scene: Scene) -> None:
    async with scene.browser("alice") as alice, scene.browser("bella") as bella:
        for browser, principal in ((alice, "ann"), (bella, "bob")):
            await browser.get(await scene.desk.link(principal))
            await browser.send_form()
        to_alice, to_bella = await alice.to_authorization(), await bella.to_authorization()
        assert (await alice.get(to_bella)).status_code == 403
        assert (await bella.get(to_alice)).status_code == 403
        assert scene.upstream.places("/token") == []
        assert (await alice.get(to_alice)).status_code == 200  # neither has lost its login


async def test_the_cookie_of_another_login_is_refused(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link("ann"))
        await alice.send_form()
        back, old = await alice.to_authorization(), dict(alice.cookies)
        await alice.get(await scene.desk.link("ann"))
        await alice.send_form()
        assert alice.cookies != old
        assert (await alice.get(back)).status_code == 403
        alice.cookies = {}
        assert (await alice.get(back)).status_code == 403


@pytest.mark.parametrize("state", ["", "x", "0" * 32 + ".x", "."])
async def test_an_answer_without_its_state_is_refused(scene: Scene, state: str) -> None:
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link())
        await alice.send_form()
        parts = parse_qs(urlsplit(await alice.to_authorization()).query)
        changed = urlencode({"code": parts["code"][0], "iss": parts["iss"][0], "state": state})
        assert (await alice.get(f"{BASE}/login-callback/own?{changed}")).status_code in (403, 410)
    assert scene.upstream.places("/token") == []


async def test_a_code_is_redeemed_once_however_often_it_comes_back(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link())
        await alice.send_form()
        back = await alice.to_authorization()
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(alice.get, back)
        await alice.get(back)
        code = alice.code
        await alice.get(back)
        assert alice.code == code
        async with scene.browser("mallory") as mallory:
            assert (await mallory.get(back)).status_code == 403
        assert len(scene.upstream.places("/token")) == 1
        await scene.confirmed(code)
        assert (await alice.get(back)).status_code == 403


async def test_the_form_of_the_code_page_belongs_to_its_browser(scene: Scene) -> None:
    async with scene.browser("alice") as alice, scene.browser("mallory") as mallory:
        await alice.log_in(await scene.desk.link())
        mallory.page = alice.page
        assert (await mallory.send_form()).status_code == 403
        assert await scene.pending() == 1
        code = alice.code
        assert (await alice.send_form()).status_code == 200
    assert (await scene.refused(code)).code == "login_unknown"


# -- codes


async def test_a_code_is_entered_on_its_principals_side_only(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        await alice.log_in(await scene.desk.link("ann"))
        assert (await scene.refused(alice.code, "mallory")).code == "login_unknown"
        assert (await scene.refused(alice.code, "ann", "other")).code == "login_unknown"
        await scene.confirmed(f" {alice.code[:3]} {alice.code[3:]} ")
    assert await scene.desk.person("mallory") is None and await scene.desk.person("ann") == "alice@example.com"


@pytest.mark.parametrize("guess", ["", "000", "1234567", "½½½½½½", "٠١٢٣٤٥", "a" * 10_000])
async def test_what_is_no_code_takes_a_try(scene: Scene, guess: str) -> None:
    async with scene.browser("alice") as alice:
        await alice.log_in(await scene.desk.link())
        refused = await scene.refused(guess)
        assert refused.code == "code_wrong" and refused.members == {"tries_left": 2}
        await scene.confirmed(alice.code)


async def test_guesses_at_once_count_each(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        await alice.log_in(await scene.desk.link())
        right = int(alice.code)

        async def guess(offset: int) -> None:
            await scene.refused(str((right + offset) % 10**6).zfill(6))

        async with anyio.create_task_group() as tasks:
            for offset in range(1, 30):
                tasks.start_soon(guess, offset)
        assert (await scene.refused(alice.code)).code == "login_unknown"


async def test_a_second_login_gives_no_second_chance_to_guess(scene: Scene) -> None:
    async with scene.browser("alice") as first, scene.browser("alice") as second:
        await first.log_in(await scene.desk.link())
        await second.log_in(await scene.desk.link())
        assert await scene.pending() == 1
        if first.code != second.code:
            assert (await scene.refused(first.code)).code == "code_wrong"
        await scene.confirmed(second.code)


async def test_a_code_is_over_after_ten_minutes(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        await alice.log_in(await scene.desk.link())
        scene.desk.clock.now += 601
        assert (await scene.refused(alice.code)).code == "login_unknown"


# -- revocation


async def test_an_account_that_is_removed_ends_links_and_logins(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        link = await scene.desk.link()
        await alice.get(link)
        await scene.desk.accounts.remove("own", "ann")
        assert (await alice.send_form()).status_code == 410
        await alice.get(await scene.desk.link())
        await alice.send_form()
        back = await alice.to_authorization()
        await scene.desk.accounts.remove("own", "ann")
        assert (await alice.get(back)).status_code == 410
        assert scene.upstream.places("/token") == []


async def test_a_login_that_is_confirmed_after_a_removal_is_thrown_away(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        await alice.log_in(await scene.desk.link())
        await scene.desk.accounts.remove("own", "ann")
        assert (await scene.refused(alice.code)).code == "login_unknown"
    assert await scene.desk.person() is None


async def test_a_removal_while_the_tokens_are_fetched_wins(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link())
        await alice.send_form()
        back = await alice.to_authorization()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(alice.get, back)
            tasks.start_soon(scene.desk.accounts.remove, "own", "ann")
            tasks.start_soon(scene.desk.desk.withdraw, "own", "ann")
        if "code" in alice.page.text and alice.page.status_code == 200:
            await scene.refused(alice.code)
    assert await scene.desk.person() is None


async def test_a_login_that_began_for_another_url_of_the_server_gives_it_no_token(scene: Scene) -> None:
    with own_accounts() as other:
        async with scene.browser("alice") as alice:
            await alice.get(await scene.desk.link())
            await alice.send_form()
            back = await alice.to_authorization()
            scene.desk.url = other.resource
            assert (await alice.get(back)).status_code == 403
            assert scene.upstream.places("/token") == []
            scene.desk.url = scene.upstream.resource
            await alice.get(back)
            scene.desk.url = other.resource
            assert (await scene.refused(alice.code)).code == "login_unknown"
        assert other.asked == [] and await scene.desk.person() is None
