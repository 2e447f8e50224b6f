"""Keys of issuers: which are taken from a set, when it is read again, and what holds while it cannot be read."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from mcp_hub.fronts.http.oauth.keys import KeyRing, KeySet, _KeysUnusable, parse_keys, shared_key
from tests.unit.fakes import HandClock
from tests.unit.fronts.oauth_tokens import ec_key, ed_key, jwk, key_set, private_jwk, rsa_key

BOTH = frozenset(("RS256", "ES256"))


class Source:
    """Where a key set is read from; `body` None is out of reach."""

    def __init__(self, body: bytes | None) -> None:
        self.body = body
        self.reads = 0
        self.gate: anyio.Event | None = None

    async def __call__(self) -> bytes:
        self.reads += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.body is None:
            raise _KeysUnusable("cannot be fetched: HTTP 503")
        return self.body


def key_ids(found: KeySet) -> list[str]:
    return [kid for kid in ("one", "two") if found.find(kid, "RS256")]


async def loaded(source: Source, clock: HandClock | None = None) -> KeySet:
    """A set that was read once."""
    keys = KeySet("x", source, BOTH, clock or HandClock())
    await keys.refresh()
    return keys


ONE, TWO = jwk(rsa_key()), jwk(rsa_key("two"), "two")


@pytest.mark.parametrize(
    ("key", "algorithms", "taken"),
    [
        (ONE, {"RS256"}, {"RS256"}),
        (ONE, {"RS256", "PS512", "ES256"}, {"RS256", "PS512"}),
        ({**ONE, "alg": "PS256"}, {"RS256", "PS256"}, {"PS256"}),
        (jwk(ec_key()), {"RS256", "ES256", "ES384"}, {"ES256"}),
        (jwk(ed_key()), {"EdDSA", "ES256"}, {"EdDSA"}),
        ({name: value for name, value in ONE.items() if name not in ("use", "kid")}, {"RS256"}, {"RS256"}),
        ({**ONE, "key_ops": ["verify"]}, {"RS256"}, {"RS256"}),
    ],
)
def test_key_is_for_the_algorithms_of_its_kind_or_the_one_that_it_names(key: Any, algorithms: Any, taken: Any) -> None:
    assert {found.algorithm_name for found in parse_keys(key_set(key), algorithms)} == taken


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "oct", "k": "c2VjcmV0LW9mLW1vcmUtdGhhbi0zMi1ieXRlcy1oZXJl", "kid": "one", "alg": "HS256"},
        {**ONE, "alg": "HS256"},
        {**ONE, "alg": "none"},
        {**ONE, "use": "enc"},
        {**ONE, "key_ops": ["encrypt"]},
        private_jwk(rsa_key()),
        {**ONE, "n": "!"},
        {**ONE, "n": 7},
        {"kty": "RSA"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": ["RSA"]},
        {},
        [],
        "key",
        jwk(rsa_key("short", 1024)),
    ],
    ids=[
        *("symmetric", "for HMAC", "for nothing", "for encryption", "not to verify with", "private", "n is no base64"),
        *("n is a number", "no modulus", "no point", "kind is a list", "empty", "list", "text", "short"),
    ],
)
def test_what_is_no_strong_public_signing_key_is_passed_over(key: Any) -> None:
    with pytest.raises(_KeysUnusable, match="none of its keys .1. is a public one for ES256, HS256, RS256"):
        parse_keys(key_set(key), {"RS256", "ES256", "HS256"})
    assert len(parse_keys(key_set(key, ONE), {"RS256"})) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"keys": {}}', b'{"keys": null}', b"[" * 100_000, b"\xff"])
def test_what_is_no_key_set_is_said_so(body: bytes) -> None:
    with pytest.raises(_KeysUnusable, match="is not JSON|is not a key set"):
        parse_keys(body, BOTH)


def test_of_a_set_without_end_only_the_first_hundred_keys_are_looked_at() -> None:
    with pytest.raises(_KeysUnusable):
        parse_keys(key_set(*[{}] * 100, ONE), BOTH)


async def test_a_key_is_found_by_its_id_or_as_the_only_one() -> None:
    found = await loaded(Source(key_set(ONE, jwk(ec_key(), "ec"))))
    assert found.find("one", "RS256") and found.find("ec", "ES256")
    assert not found.find("one", "ES256") and not found.find("two", "RS256")
    assert found.find(None, "RS256") == found.find("one", "RS256")
    assert not (await loaded(Source(key_set(ONE, TWO)))).find(None, "RS256"), "any of them could be meant"


async def test_unknown_keys_are_looked_for_again_but_not_all_the_time() -> None:
    clock, source = HandClock(), Source(key_set(ONE))
    found = await loaded(source, clock)
    source.body, first = key_set(TWO), found.version
    for _ in range(100):
        await found.refresh()
    assert (source.reads, key_ids(found), found.version) == (1, ["one"], first)
    clock.time += 10
    await found.refresh()
    assert (source.reads, key_ids(found)) == (2, ["two"]) and found.version != first


async def test_a_set_that_is_the_same_again_changes_nothing() -> None:
    clock = HandClock()
    found = await loaded(Source(key_set(ONE)), clock)
    clock.time += 3600
    assert found.is_due
    first = found.version
    await found.refresh()
    assert (found.version, found.is_due) == (first, False)


async def test_a_hundred_tokens_that_wait_for_a_set_read_it_once() -> None:
    source = Source(key_set(ONE))
    source.gate = anyio.Event()
    found = KeySet("x", source, BOTH, HandClock())
    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(found.refresh)
            await anyio.wait_all_tasks_blocked()
            source.gate.set()
    assert (source.reads, key_ids(found)) == (1, ["one"])


async def test_without_keys_nothing_is_found_and_the_reason_is_reported() -> None:
    clock, source = HandClock(), Source(None)
    found = KeySet("https://auth.example.com/keys", source, BOTH, clock)
    assert found.trouble == "not read yet; no keys" and found.is_due
    await found.refresh()
    assert found.trouble == "cannot be fetched: HTTP 503; no keys" and not found.find("one", "RS256")
    assert found.state == "https://auth.example.com/keys: 0 keys; cannot be fetched: HTTP 503; no keys"
    clock.time += 10
    source.body = key_set(ONE)
    await found.refresh()
    assert found.trouble is None and key_ids(found) == ["one"]
    clock.time += 5
    assert found.state == "https://auth.example.com/keys: 1 key, read 5 s ago"


@pytest.mark.parametrize("broken", [None, b"<html>", key_set()])
async def test_keys_that_were_read_hold_for_a_day_while_they_cannot_be_read_again(broken: bytes | None) -> None:
    clock, source = HandClock(), Source(key_set(ONE))
    found = await loaded(source, clock)
    source.body = broken
    clock.time += 86399
    await found.refresh()
    assert key_ids(found) == ["one"] and found.trouble is not None and "no keys" not in found.trouble
    clock.time += 1
    assert key_ids(found) == [] and str(found.trouble).endswith("no keys")


def test_a_shared_key_is_for_its_algorithms_only() -> None:
    shared = shared_key(b"x" * 64, ["HS256"])
    assert shared.find("any", "HS256") and shared.find(None, "HS256")
    assert not shared.find(None, "HS512") and not shared.find(None, "RS256") and not shared.find(None, "none")


async def test_a_file_is_read_again_when_a_key_is_unknown(tmp_path: Path) -> None:
    clock, path = HandClock(), tmp_path / "keys.json"
    path.write_bytes(key_set(ONE))
    ring = KeyRing(clock)
    found = ring.key_set(path, BOTH)
    await found.refresh()
    assert key_ids(found) == ["one"] and ring.states() == [f"{path}: 1 key, read 0 s ago"]
    path.write_bytes(key_set(TWO))
    clock.time += 10
    await found.refresh()
    assert key_ids(found) == ["two"]
    path.write_bytes(b" " * (256 * 1024) + key_set(ONE))
    clock.time += 10
    await found.refresh()
    assert found.trouble == "is larger than 262144 bytes"
    path.unlink()
    clock.time += 10
    await found.refresh()
    assert found.trouble == "cannot be read: No such file or directory"


async def test_a_ring_keeps_the_keys_of_sources_that_are_in_use_and_drops_the_others(tmp_path: Path) -> None:
    one, two = (tmp_path / name for name in ("one", "two"))
    ring = KeyRing(HandClock())
    used = [ring.key_set(one, BOTH), ring.key_set(two, BOTH)]
    later = ring.key_set(one, BOTH)
    assert later is used[0] and len(ring.states()) == 2
    del used
    assert len(ring.states()) == 1


@pytest.mark.parametrize(
    ("head", "body", "problem"),
    [
        (b"200 OK", key_set(ONE), None),
        (b"302 Found\r\nlocation: http://127.0.0.1:1/keys", b"", "cannot be fetched: HTTP 302"),
        (b"500 Oops", key_set(ONE), "cannot be fetched: HTTP 500"),
        (b"200 OK", b" " * (256 * 1024) + key_set(ONE), "is larger than 262144 bytes"),
        (b"200 OK", b"<html>", "is not JSON"),
        (b"garbage\r\nx", b"", "cannot be fetched: RemoteProtocolError"),
    ],
    ids=["good", "redirect", "error", "huge", "no JSON", "no HTTP"],
)
async def test_a_set_is_fetched_whole_and_from_nowhere_else(head: bytes, body: bytes, problem: str | None) -> None:
    async def serve(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            status = head if head.startswith(b"garbage") else b"HTTP/1.1 " + head
            with suppress(anyio.BrokenResourceError):
                await stream.send(status + b"\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(SocketAttribute.local_port)
        found = KeyRing(HandClock()).key_set(f"http://127.0.0.1:{port}/keys", BOTH)
        with anyio.fail_after(240):
            await found.refresh()
        tasks.cancel_scope.cancel()
    assert (found.trouble or "").partition("; no keys")[0] == (problem or "")
    assert key_ids(found) == ([] if problem else ["one"])


def test_what_of_a_source_is_shown_has_no_query() -> None:
    assert (
        KeyRing(HandClock()).key_set("https://auth.example.com/keys?code=s3cret", BOTH).name
        == "https://auth.example.com/keys"
    )
