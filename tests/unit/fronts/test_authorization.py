"""The hub as an authorization server, in this process: what it gives, and what it refuses to whom."""

import errno
import hashlib
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from mcp_hub.app.logins import _RECORDS
from mcp_hub.fronts.http.authorization.grants import AccessGrants, hashed
from mcp_hub.stores import keyed_files
from tests.e2e.consents import ALICE, BOB, CALLBACK, NARROW, PUBLIC, Flow, fields_of, form_of
from tests.unit.fronts.authorized_hub import browser, grants_of, hub
from tests.unit.fronts.dashboard_peer import DashboardPeer
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[DashboardPeer]:
    async with hub(tmp_path) as running:
        yield running


@pytest.fixture
async def flow(peer: DashboardPeer) -> AsyncIterator[Flow]:
    async with browser(peer) as http:
        flow = Flow(http)
        await flow.register()
        yield flow


# -- what it gives


async def test_metadata_names_what_the_server_has(flow: Flow) -> None:
    unknown = await flow.http.post("/mcp", json={})
    assert unknown.status_code == 401
    where = re.search(r'resource_metadata="([^"]*)"', unknown.headers["www-authenticate"])
    assert where is not None
    resource = (await flow.http.get(where[1])).json()
    assert resource["resource"] == f"{PUBLIC}/mcp" and resource["authorization_servers"] == [PUBLIC]
    metadata = (await flow.http.get("/.well-known/oauth-authorization-server")).json()
    assert metadata["issuer"] == PUBLIC and metadata["code_challenge_methods_supported"] == ["S256"]
    assert metadata["authorization_response_iss_parameter_supported"] is True
    for name in ("authorization", "token", "registration", "revocation"):
        assert metadata[f"{name}_endpoint"].startswith(f"{PUBLIC}/oauth/")


async def test_tokens_of_a_consent_are_good_for_its_principal(flow: Flow, peer: DashboardPeer) -> None:
    tokens = await flow.tokens()
    assert tokens["token_type"] == "Bearer" and 0 < tokens["expires_in"] <= 900
    assert await flow.status(tokens["access_token"]) == 200
    [grant] = grants_of(peer).families.values()
    assert (grant.principal, grant.profile, grant.name) == ("alice", None, "Claude")
    admin = await flow.http.post(
        "/v1/reload", headers={"authorization": f"Bearer {tokens['access_token']}", "x-mcp-hub": "1"}
    )
    assert admin.status_code == 403, "a grant never operates the hub"


async def test_answer_has_state_and_issuer_and_goes_to_the_exact_address(flow: Flow) -> None:
    state = "a b&iss=https://evil.example#<script>"
    sent = await flow.answer(await flow.login(address=flow.address(state=state)))
    location = sent.headers["location"]
    assert location.startswith(f"{CALLBACK}?") and sent.headers["cache-control"] == "no-store"
    assert fields_of(location)["state"] == state and fields_of(location)["iss"] == PUBLIC
    assert "Max-Age=0" in sent.headers["set-cookie"] or "1970" in sent.headers["set-cookie"]


async def test_refusal_is_an_answer_too(flow: Flow) -> None:
    sent = await flow.answer(await flow.login(), "refuse")
    assert fields_of(sent.headers["location"]) == {
        "error": "access_denied", "error_description": "the person refused", "state": "st-1", "iss": PUBLIC,
    }  # fmt: skip


async def test_profile_is_chosen_and_kept(flow: Flow, peer: DashboardPeer) -> None:
    page = await flow.login()
    assert form_of(page.text).choices == ["", "narrow", "elsewhere"]
    code = fields_of((await flow.answer(page, profile="narrow")).headers["location"])["code"]
    tokens = (await flow.redeem(code)).json()
    listed = await flow.http.get("/v1/tools", headers={"authorization": f"Bearer {tokens['access_token']}"})
    assert sorted(tool["name"] for tool in listed.json()["tools"]) == ["echo", "hold"]
    renewed = (await flow.refresh(tokens["refresh_token"], scope="mcp everything")).json()
    assert grants_of(peer).of_access(bytes.fromhex(hashed(renewed["access_token"]))) is not None
    [grant] = grants_of(peer).families.values()
    assert grant.profile == "narrow"


async def test_bound_token_gives_its_own_profile_only(flow: Flow) -> None:
    page = await flow.login(NARROW)
    assert form_of(page.text).choices == [] and form_of(page.text).fields["profile"] == "narrow"
    for wider in ("", "elsewhere"):
        assert (await flow.answer(page, profile=wider)).status_code == 403


async def test_address_with_a_profile_asks_for_it_alone(flow: Flow) -> None:
    page = await flow.login(address=flow.address(resource=f"{PUBLIC}/mcp/p/narrow"))
    assert form_of(page.text).fields["profile"] == "narrow"
    assert (await flow.answer(page, profile="")).status_code == 303
    for token, profile in ((NARROW, "elsewhere"), (ALICE, "no-such")):
        refused = await flow.login(token, flow.address(resource=f"{PUBLIC}/mcp/p/{profile}"))
        assert refused.status_code == 400 and "not for you" in refused.text


async def test_local_programs_may_come_from_any_port(flow: Flow) -> None:
    flow.redirect = "http://127.0.0.1/cb"
    await flow.register()
    flow.redirect = "http://127.0.0.1:49152/cb"
    assert (await flow.redeem(await flow.code())).status_code == 200
    for other in ("http://127.0.0.1:1/other", "http://localhost:1/cb", "http://127.0.0.1:1/cb?x=1", "http://10.0.0.1/cb",
                  "http://user@127.0.0.1:1/cb", "http://127.0.0.1:1/cb#x", "https://127.0.0.1:1/cb"):  # fmt: skip
        assert (await flow.http.get(flow.address(redirect_uri=other))).status_code == 400, other


async def test_refresh_token_that_comes_again_soon_has_the_same_answer(flow: Flow) -> None:
    first = await flow.tokens()
    one, two = [(await flow.refresh(first["refresh_token"])).json() for _ in range(2)]
    assert one["access_token"] == two["access_token"] and one["refresh_token"] == two["refresh_token"]
    assert await flow.status(one["access_token"]) == 200


async def test_revocation_ends_the_grant(flow: Flow, peer: DashboardPeer) -> None:
    tokens = await flow.tokens()
    stranger = await flow.http.post(
        "/oauth/revoke", data={"token": tokens["refresh_token"], "client_id": "https://x.example/c"}
    )
    assert stranger.status_code == 200 and await flow.status(tokens["access_token"]) == 200
    done = await flow.http.post("/oauth/revoke", data={"token": tokens["access_token"], "client_id": flow.client})
    assert done.status_code == 200 and await flow.status(tokens["access_token"]) == 401
    assert (await flow.refresh(tokens["refresh_token"])).json()["error"] == "invalid_grant"
    assert not grants_of(peer).families


async def test_grants_survive_a_restart_and_tokens_are_not_in_the_file(tmp_path: Path) -> None:
    async with hub(tmp_path) as peer, browser(peer) as http:
        flow = Flow(http)
        tokens = await flow.tokens()
    [file] = (tmp_path / "state/access").glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    assert not any(secret in text for secret in (tokens["access_token"], tokens["refresh_token"], ALICE))
    async with hub(tmp_path) as peer, browser(peer) as http:
        flow.http = http
        assert await flow.status(tokens["access_token"]) == 200
        assert (await flow.refresh(tokens["refresh_token"])).status_code == 200


async def test_without_the_key_nothing_is_there(tmp_path: Path) -> None:
    async with hub(tmp_path, False) as peer, browser(peer) as http:
        for path in ("/oauth/authorize", "/.well-known/oauth-authorization-server"):
            assert (await http.get(path)).status_code == 404
        assert (await http.post("/oauth/token", data={"grant_type": "refresh_token"})).status_code == 404
        assert not (tmp_path / "state/access").exists()


# -- what ends a grant


async def reloaded(peer: DashboardPeer, tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = tmp_path / "servers.yaml"
    settings = json.loads(path.read_text())
    change(settings)
    path.write_text(json.dumps(settings))
    await peer.app.reloader.reload("request")


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "token removed": lambda settings: settings["hub"]["tokens"].pop(0),
    "token replaced": lambda settings: settings["hub"]["tokens"][0].update(token="another-token-0123456"),
    "another principal": lambda settings: settings["hub"]["tokens"][0].update(principal="carol"),
    "token bound": lambda settings: settings["hub"]["tokens"][0].update(profile="elsewhere"),
    "profile removed": lambda settings: (
        settings["profiles"].pop("narrow"), settings["hub"]["tokens"].pop(2)
    ),
    "switched off": lambda settings: settings["hub"]["http"].update(authorization=False),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_grant_ends_with_what_it_came_of(
    change: Callable[[dict[str, Any]], object], flow: Flow, peer: DashboardPeer, tmp_path: Path
) -> None:
    tokens, others = await flow.tokens(profile="narrow"), await flow.tokens(BOB)
    code = await flow.code(profile="narrow")
    assert await flow.status(tokens["access_token"]) == 200
    await reloaded(peer, tmp_path, change)
    assert await flow.status(tokens["access_token"]) == 401
    is_off = change is CHANGES["switched off"]
    assert await flow.status(others["access_token"]) == (401 if is_off else 200)
    if not is_off:
        for answer in (await flow.refresh(tokens["refresh_token"]), await flow.redeem(code)):
            assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant"), "or the client tries forever"
        assert {each.principal for each in grants_of(peer).families.values()} == {"bob"}
        assert (await flow.refresh(others["refresh_token"])).status_code == 200


async def test_open_stream_and_running_call_of_a_removed_grant_end_within_a_second(
    flow: Flow, peer: DashboardPeer
) -> None:
    tokens = await flow.tokens()
    access = tokens["access_token"]
    hub = {"host": "hub.example.com"}
    session = await peer.session(token=access)
    listening = peer.start("GET", "/mcp", headers={**session, "accept": "text/event-stream"}, token=access)
    bobs = peer.start(
        "GET", "/mcp", headers={**await peer.session(token=BOB), "accept": "text/event-stream"}, token=BOB
    )
    await anyio.wait_all_tasks_blocked()
    assert listening.status == bobs.status == 200 and hub
    [family] = grants_of(peer).families
    other_hub = AccessGrants(grants_of(peer)._record, grants_of(peer)._clock, 1e9)
    await other_hub.look()
    await other_hub.remove([family])
    assert _RECORDS <= 0.5, "seconds between two looks"
    with anyio.fail_after(WAIT):
        await listening.done.wait()
    assert not bobs.is_complete and await flow.status(access) == 401


async def test_removed_record_ends_all_and_people_begin_anew(flow: Flow, peer: DashboardPeer, tmp_path: Path) -> None:
    tokens = await flow.tokens()
    [file] = (tmp_path / "state/access").glob("grants-*.json")
    file.unlink()
    await anyio.sleep(1.0)
    assert await flow.status(tokens["access_token"]) == 401
    assert (await flow.refresh(tokens["refresh_token"])).status_code in (400, 401), "its client is of the old record"
    again = Flow(flow.http)
    assert await again.status((await again.tokens())["access_token"]) == 200


ONE_TOKEN = b"the digest of an access token"
"""Is not a number in the record."""


@pytest.mark.parametrize("damage", [b"{", b'{"key":"00","grants":{}}', b"\xff" * 99, b"[" * 9999, ONE_TOKEN])
async def test_damaged_record_is_said_and_works_again_when_it_is_put_back(
    damage: bytes, flow: Flow, tmp_path: Path
) -> None:
    tokens = await flow.tokens()
    [file] = (tmp_path / "state/access").glob("grants-*.json")
    good = file.read_bytes()
    if damage is ONE_TOKEN:
        digest = hashlib.sha256(tokens["access_token"].encode()).hexdigest().encode()
        assert digest in good
        damage = good.replace(digest, b"not hexadecimal")
    file.write_bytes(damage)
    with capture_logs() as events:
        await anyio.sleep(0.5)
        answer = await flow.refresh(tokens["refresh_token"])
    assert answer.status_code == 503 and "log" in answer.json()["error_description"]
    assert any("Remove it" in str(event.get("reason")) for event in events)
    assert file.read_bytes() == damage, "and nothing is written over it"
    file.write_bytes(good)
    await anyio.sleep(0.5)
    answer = await flow.refresh(tokens["refresh_token"])
    assert await flow.status(answer.json()["access_token"]) == 200


async def test_full_disk_while_a_code_is_redeemed_uses_nothing_up(
    flow: Flow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await flow.register()
    code = await flow.code()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(keyed_files, "os", SimpleNamespace(**vars(os) | {"fsync": full}))
        refused = await flow.redeem(code)
        assert refused.status_code == 503 and refused.json()["error"] == "temporarily_unavailable"
    redeemed = await flow.redeem(code)
    assert redeemed.status_code == 200 and await flow.status(redeemed.json()["access_token"]) == 200
    assert len(list((tmp_path / "state/access").glob("grants-*"))) == 2, "the file and its lock"


async def test_many_refreshes_at_once_have_one_answer(flow: Flow, peer: DashboardPeer) -> None:
    tokens = await flow.tokens()
    answers: list[dict[str, Any]] = []

    async def refresh() -> None:
        answers.append((await flow.refresh(tokens["refresh_token"])).json())

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(refresh)
    assert len({(each["access_token"], each["refresh_token"]) for each in answers}) == 1 and len(answers) == 20
    assert await flow.status(answers[0]["access_token"]) == 200
