"""Every way in which a server may take the question for its era."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from mcp_hub.errors import StartFailed
from mcp_hub.types import Era, JsonObject
from mcp_hub.upstreams.peer.era_cache import KnownEras
from mcp_hub.upstreams.peer.negotiation import (
    AnotherProcess,
    Incompatible,
    Terms,
    negotiate,
)
from mcp_hub.upstreams.peer.state import CLIENT_INFO, PeerInfo
from tests.unit.upstreams.scripted import (
    APPS,
    DISCOVERED,
    EXTENSIONS,
    INITIALIZED,
    Script,
    Server,
    answering,
    talking,
    together,
)

pytestmark = pytest.mark.anyio

HANDSHAKE, MODERN = Era.HANDSHAKE, Era.MODERN
META = "io.modelcontextprotocol/"
STREAMS: JsonObject = {"dev.mcp-hub/streams": {}}


def speaking(*eras: Era, refuses: Era | None = None) -> KnownEras:
    return KnownEras(frozenset(eras), frozenset(() if refuses is None else (refuses,)))


async def settled(
    script: Script,
    wanted: Era | None = None,
    known: KnownEras | None = None,
    prefer: Era = MODERN,
    learned: list[tuple[Era, bool]] | None = None,
    *,
    apps: bool = True,
) -> PeerInfo:
    """What is settled with a server that follows this script; a silent one is given a moment."""

    def learn(era: Era, speaks: bool) -> None:
        if learned is not None:
            learned.append((era, speaks))

    async def preferred() -> Era:
        return prefer

    terms = Terms(wanted, known or KnownEras(), preferred, learn, 0.05)
    async with talking(apps=apps) as (peer, server):
        return await together(script(server), negotiate(peer, terms))


@pytest.mark.parametrize(
    ("wanted", "known"), [(None, None), (MODERN, None), (None, speaking(MODERN)), (None, speaking(MODERN, HANDSHAKE))]
)
async def test_a_server_that_answers_the_probe_is_modern(wanted: Era | None, known: KnownEras | None) -> None:
    async def script(server: Server) -> None:
        probe = await server.answer("server/discover", DISCOVERED)
        assert probe["params"]["_meta"] == {
            META + "protocolVersion": "2026-07-28",
            META + "clientInfo": CLIENT_INFO,
            META + "clientCapabilities": EXTENSIONS,
        }

    info = await settled(script, wanted, known)
    assert info == PeerInfo(MODERN, "2026-07-28", {"name": "m", "version": "2"}, {"tools": {}}, "say please")


@pytest.mark.parametrize("is_modern", [True, False])
async def test_a_server_without_apps_does_not_hear_of_them_in_either_era(is_modern: bool) -> None:
    async def script(server: Server) -> None:
        if is_modern:
            probe = await server.answer("server/discover", DISCOVERED)
            declared = probe["params"]["_meta"][META + "clientCapabilities"]
            assert declared["extensions"].keys() == EXTENSIONS["extensions"].keys() - APPS.keys()
        else:
            await server.refuse("server/discover", -32601)
            declared = (await server.handshake())["params"]["capabilities"]
            assert declared["extensions"] == declared["experimental"] == STREAMS

    info = await settled(script, apps=False)
    assert info.era is (MODERN if is_modern else HANDSHAKE) and META + "ui" not in str(info.declares)


@pytest.mark.parametrize("code", [-32601, -32600, -32602, -32603, 0, -32002])
async def test_a_server_that_refuses_the_probe_is_asked_to_initialise(code: int) -> None:
    async def script(server: Server) -> None:
        await server.refuse("server/discover", code)
        hello = await server.handshake()
        assert hello["params"]["protocolVersion"] == "2025-11-25"
        assert "_meta" not in hello["params"] and hello["params"]["clientInfo"]["name"] == "mcp-hub"

    info = await settled(script)
    assert info == PeerInfo(
        HANDSHAKE, "2025-06-18", {"name": "h", "version": "1"}, INITIALIZED["capabilities"], "be brief"
    )


@pytest.mark.parametrize(
    ("answer", "is_modern"),
    [
        ({"result": DISCOVERED}, True),
        ({"result": {**DISCOVERED, "supportedVersions": ["2031-01-01"]}}, False),
        ({"result": {}}, False),
        ({"error": {"code": -32601, "message": "Method not found"}}, False),
    ],
)
async def test_silent_server_is_initialised_and_a_late_answer_says_its_era(answer: JsonObject, is_modern: bool) -> None:
    learned: list[tuple[Era, bool]] = []

    async def script(server: Server) -> None:
        probe = await server.expect("server/discover")
        hello = await server.expect("initialize")  # and nothing before it: strict servers take nothing else
        declared = hello["params"]["capabilities"]
        assert declared["experimental"] == STREAMS and declared["extensions"] == STREAMS | APPS
        await server.send(id=probe["id"], **answer)
        await server.send(id=hello["id"], result=INITIALIZED)
        await server.expect("notifications/initialized")

    assert (await settled(script, learned=learned)).era is HANDSHAKE
    assert learned == [(MODERN, True)] * is_modern + [(HANDSHAKE, True)]


@pytest.mark.parametrize("prefer", [MODERN, HANDSHAKE])
async def test_a_server_too_slow_for_the_probe_is_not_taken_for_one_that_refuses_the_handshake(prefer: Era) -> None:
    """It refuses `initialize` because it has been probed. Another process shows whether it speaks both eras."""

    async def script(server: Server) -> None:
        probe = await server.expect("server/discover")
        hello = await server.expect("initialize")
        await server.send(id=probe["id"], result=DISCOVERED)
        error = {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}}
        await server.send(id=hello["id"], error=error)
        if prefer is MODERN:
            await server.answer("server/discover", DISCOVERED)

    learned: list[tuple[Era, bool]] = []
    if prefer is MODERN:
        assert (await settled(script, learned=learned)).era is MODERN
    else:
        with pytest.raises(AnotherProcess, check=lambda exc: exc.is_spent):
            await settled(script, prefer=HANDSHAKE, learned=learned)
    assert set(learned) == {(MODERN, True)}


async def test_the_time_of_the_probe_begins_when_the_server_runs() -> None:
    runs = anyio.Event()

    async def script(server: Server) -> None:
        await server.expect("server/discover")
        await server.send(id="first", method="ping")  # answered long after the time of the probe, were it running
        assert (await server.line())["id"] == "first"
        runs.set()
        await server.handshake()

    async with talking() as (peer, server):
        info = await together(script(server), negotiate(peer, Terms(probe=0, alive=runs.wait)))
    assert info.era is HANDSHAKE


PROBE, HELLO = "server/discover", "initialize"
BOTH = speaking(HANDSHAKE, MODERN)
SHAKEN = [(HELLO, INITIALIZED), ("notifications/initialized", None)]
SUPPORTED = {"supported": ["2026-07-28"]}
UNREADABLE = ['"result":{"content":[}', '"result":null', '"result":[]', '"error":"what?"']
UNREADABLE += [f'"result":{{"supportedVersions":{of}}}' for of in ("[]", '["2031-01-01"]', '"2026-07-28"', "null")]
DATED = {"supported": ["1999-01-01"], "requested": "2025-11-25"}


@dataclass
class Talk:
    """Terms, what the server does, and what comes of it: an era, or a failure, whose text or code is in `says`."""

    steps: Sequence[tuple[str, Any]]
    outcome: Era | type[StartFailed]
    learned: list[tuple[Era, bool]] | None = None
    prefer: Era = MODERN
    known: KnownEras | None = None
    wanted: Era | None = None
    says: str = ""
    is_spent: bool = False


LOCKED: dict[str, list[tuple[str, Any]]] = {
    "silent": [(HELLO, None)],
    "ends": [(HELLO, None), ("close", None)],
    **{str(code): [(HELLO, (code, SUPPORTED))] for code in (-32600, -32601, -32022)},
}
LEARNED_NOW = [(HANDSHAKE, False), (MODERN, True)]
TALKS = {
    **{f"unreadable {n}": Talk([(PROBE, text), *SHAKEN], HANDSHAKE) for n, text in enumerate(UNREADABLE)},
    "refuses initialize by version": Talk(
        [(HELLO, (-32022, SUPPORTED)), (PROBE, DISCOVERED)], MODERN, LEARNED_NOW, HANDSHAKE, speaking(HANDSHAKE)
    ),
    "refuses probe, then initialize by version": Talk(
        [(PROBE, -32603), (HELLO, (-32022, SUPPORTED)), (PROBE, DISCOVERED)], MODERN, LEARNED_NOW, HANDSHAKE
    ),
    "handshake is wanted": Talk(SHAKEN, HANDSHAKE, None, HANDSHAKE, wanted=HANDSHAKE),
    "handshake is known": Talk(SHAKEN, HANDSHAKE, None, HANDSHAKE, speaking(HANDSHAKE)),
    "both are known": Talk(SHAKEN, HANDSHAKE, None, HANDSHAKE, BOTH),
    "both on one pipe": Talk([(PROBE, DISCOVERED), *SHAKEN], HANDSHAKE, [(MODERN, True), (HANDSHAKE, True)], HANDSHAKE),
    "known to refuse the handshake": Talk(
        [(PROBE, DISCOVERED)], MODERN, None, HANDSHAKE, speaking(MODERN, refuses=HANDSHAKE)
    ),
    **{
        f"locked by the probe: {name}": Talk(
            [(PROBE, DISCOVERED), *steps], AnotherProcess, [(MODERN, True)], HANDSHAKE, is_spent=True
        )
        for name, steps in LOCKED.items()
    },
    "passing error of initialize": Talk([(HELLO, -32603)], StartFailed, [], HANDSHAKE, BOTH),
    "passing error of the probe": Talk([(PROBE, -32603)], StartFailed, [], MODERN, BOTH),
    **{
        f"no longer speaks {prefer.value}: {code}": Talk(
            [(method, (code, SUPPORTED))], AnotherProcess, [(prefer, False)], prefer, BOTH
        )
        for prefer, method, code in ((HANDSHAKE, HELLO, -32601), (HANDSHAKE, HELLO, -32022), (MODERN, PROBE, -32601))
    },
    "dies of the probe": Talk([(PROBE, None), ("close", None)], AnotherProcess, says=PROBE, is_spent=True),
    "dies after its refusal": Talk([(PROBE, -32602), ("close", None)], AnotherProcess, says=PROBE, is_spent=True),
    "dies, and is to be modern": Talk(
        [(PROBE, None), ("close", None)], StartFailed, wanted=MODERN, says="closed_output"
    ),
    **{
        f"no common version: {code}": Talk(
            [(PROBE, (code, {"supported": ["2031-01-01"]}))], StartFailed, says="era_mismatch .*2031-01-01"
        )
        for code in (-32020, -32021, -32022)
    },
    **{
        f"refuses both: {code}": Talk([(PROBE, -32601), (HELLO, (code, data))], StartFailed, says=f"{says} ")
        for code, data, says in (
            (-32603, None, "handshake_failed"),
            (-32602, DATED, "era_mismatch"),
            (-32601, None, "not_mcp"),
        )
    },
}


@pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS)
async def test_steps_of_a_server_settle_its_era_or_fail(talk: Talk) -> None:
    learned: list[tuple[Era, bool]] = []
    settling = settled(answering(*talk.steps), talk.wanted, talk.known, talk.prefer, learned)
    if isinstance(talk.outcome, Era):
        assert (await settling).era is talk.outcome
    else:
        with pytest.raises(talk.outcome) as caught:
            await settling
        assert re.match(talk.says, f"{caught.value.code} {caught.value}") or talk.says in str(caught.value)
        assert getattr(caught.value, "is_spent", False) is talk.is_spent
    assert talk.learned is None or learned == talk.learned


@pytest.mark.parametrize(
    ("members", "info"),
    [
        (
            {"protocolVersion": "2024-11-05", "capabilities": [], "serverInfo": "me", "instructions": {"no": 1}},
            PeerInfo(HANDSHAKE, "2024-11-05"),
        ),
        (
            {"protocolVersion": "DRAFT-2025-v3+" + "x" * 50, "capabilities": {}},
            PeerInfo(HANDSHAKE, "DRAFT-2025-v3+" + "x" * 50),
        ),
    ],
    ids=["wrong types are left out", "version that the hub does not know"],
)
async def test_answer_to_initialize_is_read_as_far_as_it_can_be(members: JsonObject, info: PeerInfo) -> None:
    assert await settled(answering((HELLO, members), SHAKEN[1]), HANDSHAKE) == info


async def test_a_server_known_as_modern_has_all_the_time_of_its_start_for_the_answer() -> None:
    async def script(server: Server) -> None:
        probe = await server.expect("server/discover")
        with anyio.move_on_after(0.2):  # longer than a probe takes
            pytest.fail(f"it was sent {await server.line()}")
        await server.send(id=probe["id"], result=DISCOVERED)

    assert (await settled(script, known=speaking(MODERN))).era is MODERN


@pytest.mark.parametrize(
    "version", [None, 5, "2026-07-28", "", "2025-é€", "2025-11-25\r\nX-Evil: 1", "2025-11-25\n", "2025 11 25", "2" * 65]
)
async def test_an_answer_to_initialize_without_a_handshake_version_is_a_failure(version: object) -> None:
    async def script(server: Server) -> None:
        await server.answer("initialize", {**INITIALIZED, "protocolVersion": version})

    with pytest.raises(Incompatible) as caught:
        await settled(script, HANDSHAKE)
    assert caught.value.code == "era_mismatch"
    assert str(caught.value).isascii() and len(str(caught.value)) < 200
