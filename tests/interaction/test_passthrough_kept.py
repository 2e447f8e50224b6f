"""Methods that are passed on: through replicas, with an account for each principal, and what the hub keeps of them."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.people_server import hub_token, log_in, people_server, settings
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, Peer, connected, http_hub
from tests.interaction.hub_process import hub_process
from tests.interaction.replicas import replicas
from tests.interaction.test_passthrough import ANN, BEN, OURS, config, entry
from tests.redis_server import NO_SERVER, binary
from tests.upstreams.child import WAIT

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

SECRET = "known-secret-0123456789"
WORDS = "words of ann"


@pytest.mark.parametrize("era", ERAS)
async def test_each_principal_reaches_the_server_with_their_own_account(era: str, tmp_path: Path) -> None:
    with people_server("anna", "bert", "carl") as people:
        for name in ("anna", "bert"):
            await log_in(people, tmp_path / "state", name)
        whole = json.loads(settings(people, "anna", "bert", "carl"))
        whole["servers"]["people"]["passthrough"] = ["acme/*"]
        async with http_hub(json.dumps(whole), tmp_path) as hub:
            for name in ("anna", "bert"):
                async with connected(hub, era, hub_token(name)) as peer:
                    answer = (await peer.request("acme/who", {"of": name})).result
                    assert (answer["account"], answer["params"]["of"]) == (name, name)
            async with connected(hub, era, hub_token("carl")) as peer:
                error = (await peer.request("acme/who", {"of": "carl"})).error
                assert error["code"] == 1001 and "/login/people?t=" in error["message"]
        asked = [account for account, method in people.requests if method == "acme/who"]
        assert asked == ["anna", "bert"], "nothing is sent for who has no account"


@pytest.mark.skipif(binary() is None, reason=NO_SERVER)
@pytest.mark.parametrize("era", ERAS)
async def test_each_replica_passes_on_and_keeps_notifications_to_the_caller(era: str, tmp_path: Path) -> None:
    text = config({"one": entry("one", HANDSHAKE, *OURS)})
    async with replicas(text, tmp_path) as running:
        for hub in running.hubs:
            async with connected(hub, era, ANN) as ann, connected(hub, era, BEN) as ben:
                params = {"huge": 1 << 70, "text": "x"}
                assert (await ann.request("acme/echo", params)).result["params"] == params
                seen = await ann.request("acme/announce", {"text": "mine"})
                assert seen.params("acme/changed") == [{"text": "mine"}]
                assert (await ben.request("acme/seen")).params("acme/changed") == []
        running.hubs[0].kill()
        async with connected(running.hubs[1], era, BEN) as ben:
            assert (await ben.request("acme/echo", {"text": "y"})).result["params"] == {"text": "y"}


async def called(peer: Peer) -> None:
    params = {"arguments": {"text": WORDS, "key": SECRET}, "key": SECRET}
    answer = (await peer.request("acme/echo", params)).result
    assert answer["params"] == params, "to its client it passes byte for byte"
    assert (await peer.request("acme/fail", params)).error["code"] == 77


async def kept(rest: RestClient, count: int) -> list[dict[str, Any]]:
    """The calls of this principal in the history, once there are so many."""
    with anyio.fail_after(WAIT):
        while len(calls := (await rest.ask("GET", "/history?details=1")).json()["calls"]) < count:
            pass
    return [call for call in calls if call["method"].startswith("acme/")]


def kept_files(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "servers.yaml"]


@pytest.mark.parametrize("arguments", ["full", "hash"])
async def test_what_is_kept_is_masked_and_belongs_to_its_caller(arguments: str, tmp_path: Path) -> None:
    server = entry("one", HANDSHAKE, *OURS, env={"ACME_KEY": "${ACME_KEY}"})
    keeping = {"history": {"arguments": arguments}, "audit": {"path": "audit.jsonl", "arguments": arguments}}
    async with hub_process(config({"one": server}, **keeping), tmp_path, ACME_KEY=SECRET) as hub:
        for era in ERAS:
            async with connected(hub, era, ANN) as peer:
                await called(peer)
        async with connected(hub, MODERN, BEN) as peer:
            await peer.request("acme/echo", {"text": "words of ben"})
        async with RestClient(hub, ANN) as ann, RestClient(hub, BEN) as ben:
            mine, theirs = await kept(ann, 4), await kept(ben, 1)
        stderr = hub.stderr
    assert sorted(call["method"] for call in mine) == ["acme/echo", "acme/echo", "acme/fail", "acme/fail"]
    assert [call["method"] for call in theirs] == ["acme/echo"]
    assert (WORDS in json.dumps(mine)) is (arguments == "full")
    assert WORDS not in json.dumps(theirs) and "words of ben" not in json.dumps(mine)
    audit = (tmp_path / "audit.jsonl").read_text()
    lines = [line for line in map(json.loads, audit.splitlines()) if line.get("method", "").startswith("acme/")]
    assert sorted((line["principal"], line["method"]) for line in lines) == [
        *[("ann", "acme/echo")] * 2, *[("ann", "acme/fail")] * 2, ("ben", "acme/echo"),
    ]  # fmt: skip
    assert (WORDS in audit) is (arguments == "full")
    files = kept_files(tmp_path)
    assert SECRET not in json.dumps([mine, theirs]) + stderr and WORDS not in stderr
    assert not any(SECRET.encode() in content for content in files)
