"""Attacks on the same login by answers, forms, texts and the store: nothing becomes anybody's account."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import anyio
import pytest

from mcp_hub.upstreams.accounts import desk as desk_module
from tests.unit.upstreams.browser import BASE, PUBLIC, Browser, Clock, Desk, Scene, new_key
from tests.upstreams.own_accounts import OwnAccounts, own_accounts

pytestmark = pytest.mark.anyio

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


@pytest.fixture
def upstream() -> Iterator[OwnAccounts]:
    with own_accounts() as running:
        yield running


@pytest.fixture
async def scene(upstream: OwnAccounts, tmp_path: Path) -> AsyncIterator[Scene]:
    key = new_key()
    yield Scene(Desk(tmp_path, upstream, key, Clock()), upstream, tmp_path, key)


# -- the authorization server


async def test_an_answer_of_another_issuer_is_refused_before_its_code_is_shown_to_anybody(scene: Scene) -> None:
    scene.upstream.faults["back"] = {"iss": "https://evil.example"}
    async with scene.browser("alice") as alice:
        page = await alice.log_in(await scene.desk.link())
        assert page.status_code == 502 and "nother authorization server" in page.text
    assert scene.upstream.places("/token") == [] and await scene.pending() == 0


async def test_an_issuer_that_says_it_names_itself_must(scene: Scene) -> None:
    scene.upstream.faults["back"] = {"iss": None}
    async with scene.browser("alice") as alice:
        assert (await alice.log_in(await scene.desk.link())).status_code == 502
    assert scene.upstream.places("/token") == []


async def test_the_issuer_is_fixed_at_the_click(scene: Scene) -> None:
    with own_accounts() as evil:
        async with scene.browser("alice") as alice:
            await alice.get(await scene.desk.link())
            await alice.send_form()
            back = await alice.to_authorization()
            scene.upstream.faults["issuer"] = evil.url  # the server names another one from now on
            assert (await alice.get(back)).status_code == 200
        assert evil.asked == [] and len(scene.upstream.places("/token")) == 1


async def test_metadata_that_names_another_issuer_is_refused(scene: Scene) -> None:
    scene.upstream.faults["metadata"] = {"issuer": "https://evil.example"}
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link())
        assert (await alice.send_form()).status_code == 502
    assert scene.upstream.places("/register") == []


@pytest.mark.parametrize(("of_server", "of_itself"), [("/", ""), ("", "/")])
async def test_slash_at_the_end_makes_no_other_issuer(scene: Scene, of_server: str, of_itself: str) -> None:
    """As the SDK writes an issuer without a path, and as some name themselves."""
    upstream, issuer = scene.upstream, f"{scene.upstream.url}{of_itself}"
    upstream.faults |= {"issuer": f"{upstream.url}{of_server}", "metadata": {"issuer": issuer}, "back": {"iss": issuer}}
    async with scene.browser("alice") as alice:
        page = await alice.log_in(await scene.desk.link())
        assert page.status_code == 200, page.text
    [pending] = await scene.desk.desk.pending("own", "ann")
    assert pending.grant is not None and pending.grant.issuer == issuer


@pytest.mark.parametrize("issuer", ["/x", "//", "/."])
async def test_issuer_below_another_one_is_refused(scene: Scene, issuer: str) -> None:
    scene.upstream.faults["metadata"] = {"issuer": f"{scene.upstream.url}{issuer}"}
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link())
        assert (await alice.send_form()).status_code == 502
    assert scene.upstream.places("/register") == []


async def test_an_authorization_server_without_pkce_is_refused(scene: Scene) -> None:
    scene.upstream.faults["metadata"] = {"code_challenge_methods_supported": ["plain"]}
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link())
        page = await alice.send_form()
        assert page.status_code == 502 and "PKCE" in page.text


PLACES = [
    "javascript:alert(1)",
    "data:text/html,x",
    "http://evil.example/a",
    "//evil.example/a",
    "file:///etc/passwd",
    "",
]


@pytest.mark.parametrize("place", PLACES)
async def test_the_hub_redirects_to_no_unfit_place(scene: Scene, place: str) -> None:
    scene.upstream.faults["metadata"] = {"authorization_endpoint": place}
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link())
        page = await alice.send_form()
        assert page.status_code == 502 and "http-equiv" not in page.text


async def test_no_parameter_of_a_link_leads_elsewhere(scene: Scene) -> None:
    extra = "&".join(
        f"{name}=https%3A%2F%2Fevil.example" for name in ("next", "redirect_uri", "url", "return_to", "iss")
    )
    async with scene.browser("alice") as alice:
        await alice.get(f"{await scene.desk.link()}&{extra}")
        await alice.send_form({"next": "https://evil.example", "redirect_uri": "https://evil.example"})
        sent = parse_qs(urlsplit(alice.way_out).query)
        assert alice.way_out.startswith(f"{scene.upstream.url}/authorize?")
        assert sent["redirect_uri"] == [f"{BASE}/login-callback/own"] and "evil" not in alice.way_out
        assert sent["code_challenge_method"] == ["S256"] and sent["resource"] == [scene.upstream.resource]


async def test_each_server_has_a_redirect_address_of_its_own(scene: Scene) -> None:
    places = set()
    for server in ("own", "other", "a/b c"):
        async with scene.browser("alice") as alice:
            await alice.get(await scene.desk.link("ann", server))
            await alice.send_form()
            places.add(parse_qs(urlsplit(alice.way_out).query)["redirect_uri"][0])
    assert places == {f"{BASE}/login-callback/{quote(name, safe='')}" for name in ("own", "other", "a/b c")}


async def test_an_answer_that_is_sent_to_another_servers_address_is_refused(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link())
        await alice.send_form()
        back = (await alice.to_authorization()).replace("/login-callback/own", "/login-callback/other")
        alice.cookies |= {name.replace("5b397565", "d9298a10"): value for name, value in alice.cookies.items()}
        assert (await alice.get(back)).status_code == 403


async def test_a_parameter_that_comes_twice_is_refused(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link())
        await alice.send_form()
        back = await alice.to_authorization()
        assert (await alice.get(f"{back}&code=other")).status_code == 403
        assert (await alice.get(f"{back}&iss=https%3A%2F%2Fevil.example")).status_code == 403
    assert scene.upstream.places("/token") == []


async def test_an_oversized_answer_ends_the_login(scene: Scene) -> None:
    scene.upstream.faults["huge"] = 3 << 20
    async with scene.browser("alice") as alice:
        page = await alice.log_in(await scene.desk.link())
        assert page.status_code == 502 and len(page.content) < 10_000


async def test_a_slow_authorization_server_holds_a_request_for_a_bounded_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "_SECONDS", 0.3)
    scene.upstream.faults["slow"] = 2.0
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link())
        with anyio.fail_after(60):
            page = await alice.send_form()
        assert page.status_code == 502 and "longer than" in page.text
    assert await scene.pending() == 0


async def test_logins_at_once_are_bounded(scene: Scene) -> None:
    scene.desk.desk._asking = anyio.Semaphore(2)
    scene.upstream.faults["slow"] = 2.0
    links = [await scene.desk.link(f"p{number}") for number in range(8)]
    statuses: list[int] = []

    async def click(link: str) -> None:
        async with scene.browser("alice") as browser:
            await browser.get(link)
            statuses.append((await browser.send_form()).status_code)

    async with anyio.create_task_group() as tasks:
        for link in links:
            tasks.start_soon(click, link)
    assert statuses.count(502) + statuses.count(200) == 8 and statuses.count(502) >= 2 <= statuses.count(200)


@pytest.mark.parametrize(
    "answer", [{"access_token": "a b"}, {"access_token": ""}, {"access_token": "x", "token_type": "mac"}, []]
)
async def test_an_unfit_token_is_nobodys_account(scene: Scene, answer: Any) -> None:
    scene.upstream.faults["token"] = (200, answer)
    async with scene.browser("alice") as alice:
        assert (await alice.log_in(await scene.desk.link())).status_code == 502
    assert await scene.pending() == 0


async def test_a_refusal_of_the_person_ends_the_login(scene: Scene) -> None:
    async with scene.browser("nobody") as nobody:
        page = await nobody.log_in(await scene.desk.link())
        assert page.status_code == 502 and "access_denied" in page.text
    assert await scene.pending() == 0


# -- forms


SITES = [
    {"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "none"}, {"origin": BASE + "0"},
]  # fmt: skip


@pytest.mark.parametrize("headers", SITES)
async def test_a_form_of_another_site_is_refused(scene: Scene, headers: dict[str, str]) -> None:
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link())
        assert (await alice.send_form(headers=headers)).status_code == 403
        assert scene.upstream.asked == [] and await scene.pending() == 1


async def test_only_forms_are_taken(scene: Scene) -> None:
    ticket = parse_qs(urlsplit(await scene.desk.link()).query)["t"][0]
    async with scene.browser("alice") as alice:
        for how in ({"json": {"t": ticket}}, {"content": f"t={ticket}"}, {"files": {"t": ticket}}):
            assert (await alice._send("POST", f"{BASE}/login/own", **how)).status_code == 400
        large = {"t": ticket, "x": "x" * 70_000}
        assert (await alice._send("POST", f"{BASE}/login/own", data=large)).status_code == 400
        many = {"t": ticket, **{f"x{n}": "" for n in range(200)}}
        assert (await alice._send("POST", f"{BASE}/login/own", data=many)).status_code == 400
        assert (await alice._send("POST", f"{BASE}/login/own?t={ticket}", data={"x": "y"})).status_code == 410
    assert scene.upstream.asked == []


async def test_values_are_taken_from_the_browser_of_their_form_alone(scene: Scene) -> None:
    link = await scene.desk.link("ann", "own", "API_KEY", "TEAM")
    async with scene.browser("alice") as alice, scene.browser("mallory") as mallory:
        await alice.get(link)
        await alice.send_form()
        mallory.page = alice.page
        values = {"v:API_KEY": "k3y-of-alice", "v:TEAM": "t"}
        assert (await mallory.send_form(values)).status_code == 403
        assert (await alice.send_form({**values, "proof": "0" * 32 + ".x"})).status_code in (403, 410)
        assert (await alice.get(link)).status_code == 410
    assert await scene.desk.person() is None


@pytest.mark.parametrize("value", ["", "a\nb", "a\0b", "\x1b[2J", "x" * 20_000, "a\rB: c"])
async def test_a_value_that_no_variable_holds_is_refused(scene: Scene, value: str) -> None:
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link("ann", "own", "API_KEY"))
        await alice.send_form()
        page = await alice.send_form({"v:API_KEY": value})
        assert page.status_code == 400 and (not value or value not in page.text)


async def test_values_are_stored_by_their_code_and_never_shown(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link("ann", "own", "API_KEY"))
        await alice.send_form()
        page = await alice.send_form({"v:API_KEY": "k3y-of-alice", "v:PATH": "/evil"})
        assert page.status_code == 200 and "k3y-of-alice" not in page.text
        await scene.confirmed(alice.code)
    account = await scene.desk.accounts.read("own", "ann")
    assert account is not None and account.values == {"API_KEY": "k3y-of-alice"}
    assert b"k3y-of-alice" not in b"".join(file.read_bytes() for file in scene.root.rglob("*.json"))


# -- texts of strangers


async def test_no_text_of_a_stranger_is_markup(scene: Scene) -> None:
    scene.upstream.faults |= {"name": MARKUP, "text": MARKUP}
    async with scene.browser("alice") as alice, scene.browser("nobody") as nobody:
        link = await scene.desk.link(MARKUP, "own")
        pages = [await alice.get(link), await alice.send_form(), await alice.get(await alice.to_authorization())]
        pages.append(await nobody.log_in(await scene.desk.link("bob")))
        pages.append(await alice.get(f"{BASE}/login/own?t={quote(MARKUP)}"))
        pages.append(
            await alice.get(f"{BASE}/login-callback/own?state={quote(MARKUP)}&{quote(MARKUP)}=1&{quote(MARKUP)}=2")
        )
    for page in pages:
        assert "<script" not in page.text and "<img" not in page.text and "x\"'" not in page.text
    assert "&lt;script&gt;" in pages[0].text and "&lt;script&gt;" in pages[2].text and "&lt;script&gt;" in pages[3].text


async def test_a_servers_name_is_no_markup_no_header_and_no_command(scene: Scene) -> None:
    server = "a\"><script>'$(x)`; y"
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link("ann", server))
        first = alice.page
        await alice.send_form()
        set_cookie = alice.page.headers["set-cookie"]
        page = await alice.get(await alice.to_authorization())
    assert all("<script" not in each.text for each in (first, page))
    assert re.match(r"login-[0-9a-f]{8}=", set_cookie)
    assert "mcp-hub account confirm &#x27;a&quot;&gt;&lt;script&gt;&#x27;\\&#x27;&#x27;$(x)`; y&#x27; " in page.text


async def test_line_breaks_of_an_authorization_server_make_no_header_and_no_line(scene: Scene) -> None:
    scene.upstream.faults["text"] = "a\r\nset-cookie: x=1\r\n\r\n<b>"
    async with scene.browser("nobody") as nobody:
        page = await nobody.log_in(await scene.desk.link())
        assert "set-cookie" not in page.headers and "\r" not in page.text and "<b>" not in page.text


async def test_a_token_endpoint_that_repeats_the_code_does_not_show_it(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        await alice.get(await scene.desk.link())
        await alice.send_form()
        back = await alice.to_authorization()
        code = parse_qs(urlsplit(back).query)["code"][0]
        scene.upstream.faults["token"] = (400, {"error": "invalid_grant", "error_description": f"bad {code}"})
        page = await alice.get(back)
        assert page.status_code == 502 and code not in page.text


async def test_every_page_forbids_scripts_frames_and_caches(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        link = await scene.desk.link()
        pages = [await alice.get(link), await alice.send_form(), await alice.get(await alice.to_authorization())]
        pages += [await alice.get(link), await alice.get(f"{BASE}/login-callback/own")]
    for page in pages:
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "script-src" not in policy and "form-action 'self'; frame-ancestors 'none'" in policy
        assert page.headers["x-frame-options"] == "DENY" and page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "same-origin" and "<script" not in page.text
        assert "location" not in page.headers


async def test_the_cookie_of_a_public_hub_is_bound_to_its_host(upstream: OwnAccounts, tmp_path: Path) -> None:
    desk = Desk(tmp_path, upstream, new_key(), Clock(), PUBLIC)
    async with Browser(desk, "alice", PUBLIC) as alice:
        await alice.get(await desk.link())
        await alice.send_form()
        set_cookie = alice.page.headers["set-cookie"]
        flags = {part.strip().lower() for part in set_cookie.split(";")[1:]}
        assert set_cookie.startswith("__Host-login-") and {"secure", "httponly", "samesite=lax", "path=/"} <= flags
        assert not any(flag.startswith("domain") for flag in flags)
        assert (await alice.get(await alice.to_authorization())).status_code == 200


# -- the store


async def test_rows_that_were_swapped_in_the_store_are_none(scene: Scene) -> None:
    link = await scene.desk.link("ann")
    ann = next((scene.root / "pending").glob("*.json"))
    await scene.desk.link("bob")
    bob = next(file for file in (scene.root / "pending").glob("*.json") if file != ann)
    ann.write_bytes(bob.read_bytes())
    async with scene.browser("mallory") as mallory:
        assert (await mallory.get(link)).status_code == 410
        row = ann.stem
        ticket = parse_qs(urlsplit(await scene.desk.link("bob")).query)["t"][0]
        assert (await mallory.get(f"{BASE}/login/own?t={row}.{ticket.partition('.')[2]}")).status_code == 410


async def test_what_is_pending_lies_encrypted_in_private_files(scene: Scene) -> None:
    async with scene.browser("alice") as alice:
        await alice.log_in(await scene.desk.link())
        files = list((scene.root / "pending").glob("*.json"))
        content = b"".join(file.read_bytes() for file in files)
        assert len(files) == 2 and all(file.stat().st_mode & 0o777 == 0o600 for file in files)
        assert not [text for text in (b"alice", b"ann", b"own", alice.code.encode()) if text in content]
    other = Desk(scene.root, scene.upstream, new_key(), scene.desk.clock)
    assert await other.desk.pending("own", "ann") == ()
