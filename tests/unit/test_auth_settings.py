"""The guard that settings ask for, and what a change of them changes."""

import hashlib
import os
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.applications import Starlette

from mcp_hub.app.catalog_rules import view_rules
from mcp_hub.app.http import _HttpAuthFactory, is_authenticated, metadata_routes
from mcp_hub.cli.commands import serve
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.trust import OVERRIDE
from mcp_hub.fronts.http.auth import HttpAuth, Refusal
from mcp_hub.sessions.session import Caller
from tests.unit.fronts.oauth_tokens import ISSUER, RESOURCE, claims, jwk, key_set, rsa_key, token
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

SHOWN = token(claims(exp=9_999_999_999))
TOKENS = [{"token": "s3cret-of-alice", "principal": "alice"}]


def settings(path: Path | None = None, tokens: Any = (), **http: Any) -> Settings:
    issuers = [{"issuer": ISSUER, "jwks_file": str(path)}]
    oauth = {} if path is None else {"oauth": {"resource": RESOURCE, "issuers": issuers}}
    return Settings.model_validate({"hub": {"tokens": list(tokens), "http": {**oauth, **http}}, "profiles": {"p": {}}})


async def who(guard: HttpAuth, shown: bytes | None = None, host: bytes = b"localhost") -> Caller | int:
    headers = {b"host": host} | ({} if shown is None else {b"authorization": b"Bearer " + shown})
    found = guard.admit(headers) or guard.identify(headers)
    if found is None:
        found = await guard.verified(headers)
    return found.status if isinstance(found, Refusal) else found


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(jwk(rsa_key())))
    return path


async def test_guard_follows_settings_for_local_callers_tokens_and_the_host_of_the_resource() -> None:
    assert await who(_HttpAuthFactory(None).for_settings(settings())) == Caller()
    assert await who(_HttpAuthFactory("p").for_settings(settings())) == Caller(profile="p")
    door = _HttpAuthFactory(None)
    first = door.for_settings(settings(tokens=TOKENS))
    assert await who(first, b"s3cret-of-alice") == Caller("alice")
    second = door.for_settings(settings(tokens=[{"token": "another-secret", "principal": "bob", "profile": "p"}]))
    assert await who(second, b"s3cret-of-alice") == 401
    assert await who(second, b"another-secret") == Caller("bob", "p")
    door = _HttpAuthFactory(None)
    assert await who(door.for_settings(settings(Path("none"))), host=b"hub.example.com") == 401
    assert await who(door.for_settings(settings()), host=b"hub.example.com") == 421


async def test_keys_outlive_a_change_of_the_configuration_and_a_removed_issuer_lets_nobody_in(keys: Path) -> None:
    door = _HttpAuthFactory(None)
    assert isinstance(await who(door.for_settings(settings(keys)), SHOWN), Caller)
    assert await who(door.for_settings(settings(tokens=TOKENS)), SHOWN) == 401
    door = _HttpAuthFactory("p")
    assert door.key_states() == []
    first = door.for_settings(settings(keys))
    assert await who(first, SHOWN) == Caller(f"{ISSUER}#alice", "p")
    os.unlink(keys)
    later = door.for_settings(settings(keys, TOKENS))
    assert await who(later, SHOWN) == Caller(f"{ISSUER}#alice", "p"), "known, though the file is gone"
    assert await who(later, b"s3cret-of-alice") == Caller("alice", "p")
    assert len(door.key_states()) == 1


async def test_keys_are_read_in_the_background_from_the_first_issuer_on(keys: Path) -> None:
    door = _HttpAuthFactory(None)
    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(door.run)
            await anyio.wait_all_tasks_blocked()
            guard = door.for_settings(settings(keys))
            await until(lambda: any("1 key," in state for state in door.key_states()))
            tasks.cancel_scope.cancel()
    assert isinstance(await who(guard, SHOWN), Caller)


def test_authenticated_settings_know_who_comes_and_share_no_lists() -> None:
    assert is_authenticated(settings(tokens=TOKENS)) and is_authenticated(settings(Path("k")))
    assert not is_authenticated(settings()) and not is_authenticated(settings(allow_public=True))
    assert view_rules(Settings())[None].shared
    oauth = settings(Path("k")).model_copy(update={"profiles": {}})
    assert not view_rules(oauth)[None].shared
    guard = _HttpAuthFactory(None).for_settings(settings(tokens=TOKENS))
    assert "s3cret" not in repr(vars(guard)) and hashlib.sha256(b"s3cret-of-alice").digest() in guard._callers


async def test_metadata_is_published_with_an_issuer_only() -> None:
    assert metadata_routes(settings()) == {}
    routes = metadata_routes(settings(Path("k")))
    assert "/.well-known/oauth-protected-resource/mcp" in routes and "/.well-known/oauth-protected-resource" in routes
    transport = httpx2.ASGITransport(Starlette(routes=[*routes.values()]))
    async with httpx2.AsyncClient(transport=transport, base_url="http://hub") as http:
        for path in routes:
            assert (await http.get(path)).json()["authorization_servers"] == [ISSUER]
            assert (await http.post(path)).status_code == 405


@pytest.mark.parametrize("host", ["192.0.2.1", "0.0.0.0", "::", "hub.example.com", "2001:db8::1"])
def test_a_public_address_needs_to_know_who_comes(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        serve._listen(settings(), host, 0)
    said = capsys.readouterr().err
    assert caught.value.code == 2 and f"The hub does not listen on {host} without tokens" in said
    assert "hub.tokens or hub.http.oauth" in said


@pytest.mark.parametrize("own", [{"path": Path("k")}, {"tokens": TOKENS}, {"allow_public": True}], ids=str)
def test_tokens_issuers_or_a_word_of_the_owner_open_a_public_address(
    own: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """192.0.2.1 is nobody's (RFC 5737): past the refusal it is the system that says no."""
    with pytest.raises(SystemExit):
        serve._listen(settings(**own), "192.0.2.1", 0)
    shown = capsys.readouterr().err
    assert "Cannot listen on 192.0.2.1" in shown and "with --port, or by hub.http.port in the configuration" in shown


async def test_a_file_of_keys_that_others_can_write_lets_nobody_in(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chmod(keys, 0o666)
    door = _HttpAuthFactory(None)
    assert await who(door.for_settings(settings(keys)), SHOWN) == 503
    assert "others can write it" in door.key_states()[0]
    monkeypatch.setenv(OVERRIDE, "1")
    assert isinstance(await who(_HttpAuthFactory(None).for_settings(settings(keys)), SHOWN), Caller)
