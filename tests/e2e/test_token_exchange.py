"""`grant: token_exchange` at a running hub: each caller's token is exchanged for one of the server's own."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.fernet import Fernet

from mcp_hub.app.logins import client_of
from mcp_hub.config.schema.servers import OAuthSettings, ServerSettings
from mcp_hub.upstreams.auth.access import Access
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import LoginFailed
from mcp_hub.upstreams.auth.token_exchange import SubjectTokens, exchanged, in_memory
from tests.e2e.client import HttpClient
from tests.interaction.fronts import HANDSHAKE, MODERN, Peer, http_hub
from tests.upstreams.launch import patient
from tests.upstreams.own_accounts import ACCESS, EXCHANGE, KEY, OwnAccounts, own_accounts

pytestmark = pytest.mark.anyio


@pytest.fixture
def upstream() -> Iterator[OwnAccounts]:
    with own_accounts() as running:
        yield running


def token(upstream: OwnAccounts, person: str, **changed: Any) -> str:
    said = {"iss": upstream.url, "aud": "hub", "sub": person, "exp": time.time() + 600}
    return jwt.encode({**said, **changed}, KEY)


def config(upstream: OwnAccounts) -> str:
    oauth = {"grant": "token_exchange", "issuer": upstream.url, "client_id": "hub", "client_secret": "s3cr3t-of-hub"}
    entry = {
        "url": upstream.resource, "account": "own", "era": "handshake",
        "oauth": {**oauth, "audience": "the-server", "resource": upstream.resource, "scopes": ["read"]},
    }  # fmt: skip
    issuer = {"issuer": upstream.url, "shared_key": KEY, "algorithms": ["HS256"], "audience": ["hub"]}
    http = {"oauth": {"resource": "https://hub.example.com/mcp", "issuers": [issuer]}}
    hub = {"http": http, "accounts": {"key": Fernet.generate_key().decode()}, "prefix": "never"}
    return json.dumps(patient({"servers": {"own": entry}, "hub": hub}))


def everything_below(root: Path) -> bytes:
    return b"".join(file.read_bytes() for file in root.rglob("*") if file.is_file())


@pytest.mark.first(1)
@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_each_caller_has_a_token_of_their_own_and_keeps_the_hubs(
    upstream: OwnAccounts, tmp_path: Path, era: str
) -> None:
    alice, bella = token(upstream, "alice"), token(upstream, "bella")
    async with http_hub(config(upstream), tmp_path) as hub:
        for person, own in (("alice", alice), ("bella", bella), ("alice", alice)):
            async with HttpClient(hub.url, own) as wire:
                if era == HANDSHAKE:
                    await wire.initialize()
                peer = Peer(wire, era)
                assert f"only_{person}" in await peer.names()
                assert (await peer.call("whoami")).text == f"you are {person}"
    asked = upstream.places("/token")
    assert [form["subject_token"] for form in asked] == [alice, bella]
    for form in asked:
        assert form["grant_type"] == EXCHANGE and form["subject_token_type"] == ACCESS
        assert form["audience"] == "the-server" and form["resource"] == upstream.resource and form["scope"] == "read"
        assert form["auth"].startswith("Basic ")
    assert not {alice, bella} & upstream.shown
    others = [json.dumps(form) for path, form in upstream.asked if path != "/token"]
    assert not [form for form in others if alice in form or bella in form]
    stored = everything_below(tmp_path)
    assert alice.encode() not in stored and bella.encode() not in stored


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def access(upstream: OwnAccounts, subjects: SubjectTokens, clock: Clock, **changed: Any) -> Access:
    oauth = OAuthSettings(
        **{
            "grant": "token_exchange",
            "issuer": upstream.url,
            "client_id": "hub",
            "resource": upstream.resource,
            **changed,
        }
    )
    client = client_of(ServerSettings(url=upstream.resource, account="own", oauth=oauth))
    assert client is not None

    async def alone() -> Any:
        return await exchanged(client, Addresses(upstream.resource), subjects.find("ann"), clock())

    return Access("own", upstream.resource, replace(client, is_machine=True, alone=alone), in_memory(), clock)


async def test_a_token_is_kept_until_thirty_seconds_before_its_end(upstream: OwnAccounts) -> None:
    clock = Clock()
    subjects = SubjectTokens(clock)
    subjects.note("ann", token(upstream, "alice"), clock.now + 86400)
    used = access(upstream, subjects, clock)
    await used.prepare()
    first = await used.token()
    clock.now += upstream.expires_in - 31
    assert await used.token() == first and len(upstream.places("/token")) == 1
    clock.now += 2
    assert await used.token() != first and len(upstream.places("/token")) == 2


async def test_without_a_valid_token_of_the_caller_nothing_is_sent(upstream: OwnAccounts) -> None:
    clock = Clock()
    subjects = SubjectTokens(clock)
    used = access(upstream, subjects, clock)
    with pytest.raises(LoginFailed, match="not have a valid one"):
        await used.prepare()
    subjects.note("ann", token(upstream, "alice"), clock.now + 10)
    subjects.note("bob", token(upstream, "bella"), clock.now + 86400)
    clock.now += 11
    with pytest.raises(LoginFailed, match="not have a valid one"):
        await used.prepare()
    assert upstream.asked == []


@pytest.mark.parametrize(
    "metadata",
    [{"issuer": "https://evil.example"}, {"token_endpoint": ""}, {"token_endpoint": "http://evil.example/t"}],
)
async def test_a_callers_token_goes_to_the_configured_issuer_alone(
    upstream: OwnAccounts, metadata: dict[str, str]
) -> None:
    upstream.faults["metadata"] = metadata
    clock = Clock()
    subjects = SubjectTokens(clock)
    subjects.note("ann", token(upstream, "alice"), clock.now + 86400)
    with pytest.raises(LoginFailed):
        await access(upstream, subjects, clock).prepare()
    assert upstream.places("/token") == []


async def test_a_server_that_names_another_issuer_does_not_change_who_gets_the_token(upstream: OwnAccounts) -> None:
    clock = Clock()
    subjects = SubjectTokens(clock)
    subjects.note("ann", token(upstream, "alice"), clock.now + 86400)
    with own_accounts() as evil:
        upstream.faults["issuer"] = evil.url
        used = access(upstream, subjects, clock)
        await used.prepare()
        assert await used.token() and evil.asked == []


async def test_a_refusal_shows_no_token(upstream: OwnAccounts) -> None:
    clock = Clock()
    subjects = SubjectTokens(clock)
    subject = token(upstream, "alice", aud="another")
    subjects.note("ann", subject, clock.now + 86400)
    with pytest.raises(LoginFailed, match="none of ours") as refused:
        await access(upstream, subjects, clock).prepare()
    assert subject not in str(refused.value)


async def test_the_kept_tokens_are_bounded() -> None:
    subjects = SubjectTokens(Clock())
    for number in range(5000):
        subjects.note(f"p{number}", "t" * 20 + str(number), Clock.now + 60)
    with pytest.raises(LoginFailed):
        subjects.find("p0")
    assert subjects.find("p4999")
