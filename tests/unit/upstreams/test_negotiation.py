"""Every way in which a server may take the question for its era."""

import anyio
import pytest

from mcp_hub.errors import StartFailed
from mcp_hub.types import Era, JsonObject
from mcp_hub.upstreams.peer.era_cache import KnownEras
from mcp_hub.upstreams.peer.negotiation import (
    AnotherProcess,
    FreshNeeded,
    Incompatible,
    ProbeKilled,
    ProbeTime,
    Terms,
    negotiate,
)
from mcp_hub.upstreams.peer.state import CLIENT_INFO, PeerInfo
from tests.unit.upstreams.scripted import APPS, DISCOVERED, EXTENSIONS, INITIALIZED, Script, Server, talking, together

pytestmark = pytest.mark.anyio

HANDSHAKE, MODERN = Era.HANDSHAKE, Era.MODERN
META = "io.modelcontextprotocol/"


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

    terms = Terms(wanted, known or KnownEras(), preferred, learn, ProbeTime(0.05))
    async with talking(apps=apps) as (peer, server):
        return await together(script(server), negotiate(peer, terms))


# -- finding out


@pytest.mark.parametrize(
    ("wanted", "known"),
    [(None, None), (MODERN, None), (None, speaking(MODERN)), (None, speaking(MODERN, HANDSHAKE))],
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
            assert "extensions" not in (await server.handshake())["params"]["capabilities"]

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
    "answer",
    [
        *('"result":{"content":[}', '"result":null', '"result":[]', '"error":"what?"'),
        *(
            f'"result":{{"supportedVersions":{versions}}}'
            for versions in ("[]", '["2031-01-01"]', '"2026-07-28"', "null")
        ),
    ],
)
async def test_an_answer_to_the_probe_that_cannot_be_read_or_has_no_version_of_ours_is_a_refusal(answer: str) -> None:
    async def script(server: Server) -> None:
        await server.reply("server/discover", answer)
        await server.handshake()

    assert (await settled(script)).era is HANDSHAKE


@pytest.mark.parametrize(
    ("answer", "is_modern"),
    [
        ({"result": DISCOVERED}, True),
        ({"result": {**DISCOVERED, "supportedVersions": ["2031-01-01"]}}, False),
        ({"result": {}}, False),
        ({"error": {"code": -32601, "message": "Method not found"}}, False),
    ],
)
async def test_a_silent_server_is_asked_to_initialise_and_its_late_answer_says_whether_it_is_modern(
    answer: JsonObject, is_modern: bool
) -> None:
    learned: list[tuple[Era, bool]] = []

    async def script(server: Server) -> None:
        probe = await server.expect("server/discover")
        hello = await server.expect("initialize")  # and nothing before it: strict servers take nothing else
        declared = hello["params"]["capabilities"]
        assert declared["experimental"] == {"dev.mcp-hub/streams": {}} and declared["extensions"] == APPS
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
        with pytest.raises(FreshNeeded):
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
        info = await together(script(server), negotiate(peer, Terms(probe=ProbeTime(0, runs.wait))))
    assert info.era is HANDSHAKE


@pytest.mark.parametrize("known", [speaking(HANDSHAKE), None])
async def test_a_server_that_refuses_initialize_by_version_is_modern(known: KnownEras | None) -> None:
    async def script(server: Server) -> None:
        if known is None:
            await server.refuse("server/discover", -32603)
        await server.refuse("initialize", -32022, {"supported": ["2026-07-28"]})
        await server.answer("server/discover", DISCOVERED)

    learned: list[tuple[Era, bool]] = []
    assert (await settled(script, known=known, prefer=HANDSHAKE, learned=learned)).era is MODERN
    assert learned == [(HANDSHAKE, False), (MODERN, True)]


@pytest.mark.parametrize(
    ("wanted", "known"),
    [(HANDSHAKE, None), (None, speaking(HANDSHAKE)), (None, speaking(HANDSHAKE, MODERN))],
)
async def test_a_server_known_for_its_handshake_is_not_probed(wanted: Era | None, known: KnownEras | None) -> None:
    async def script(server: Server) -> None:
        await server.handshake()

    assert (await settled(script, wanted, known, prefer=HANDSHAKE)).version == "2025-06-18"


# -- both eras


async def test_a_server_of_both_eras_is_initialised_on_the_pipe_that_was_probed() -> None:
    async def script(server: Server) -> None:
        await server.answer("server/discover", DISCOVERED)
        await server.handshake()

    learned: list[tuple[Era, bool]] = []
    assert (await settled(script, prefer=HANDSHAKE, learned=learned)).version == "2025-06-18"
    assert learned == [(MODERN, True), (HANDSHAKE, True)]


async def test_a_server_known_to_refuse_the_handshake_is_not_asked_again() -> None:
    async def script(server: Server) -> None:
        await server.answer("server/discover", DISCOVERED)

    assert (await settled(script, known=speaking(MODERN, refuses=HANDSHAKE), prefer=HANDSHAKE)).era is MODERN


@pytest.mark.parametrize("how", [None, "ended", -32600, -32601, -32022])
async def test_a_server_that_is_locked_by_the_probe_has_to_be_started_again(how: str | int | None) -> None:
    async def script(server: Server) -> None:
        await server.answer("server/discover", DISCOVERED)
        if isinstance(how, int):
            await server.refuse("initialize", how, {"supported": ["2026-07-28"]})
            return
        await server.expect("initialize")
        if how == "ended":
            server.close()

    learned: list[tuple[Era, bool]] = []
    with pytest.raises(FreshNeeded):
        await settled(script, prefer=HANDSHAKE, learned=learned)
    assert learned == [(MODERN, True)]


@pytest.mark.parametrize("prefer", [HANDSHAKE, MODERN])
async def test_a_passing_error_of_a_server_of_both_eras_does_not_change_its_era(prefer: Era) -> None:
    async def script(server: Server) -> None:
        await server.refuse("initialize" if prefer is HANDSHAKE else "server/discover", -32603)

    learned: list[tuple[Era, bool]] = []
    with pytest.raises(StartFailed):
        await settled(script, known=speaking(HANDSHAKE, MODERN), prefer=prefer, learned=learned)
    assert learned == []


@pytest.mark.parametrize(
    ("prefer", "asked", "code"),
    [
        (HANDSHAKE, "initialize", -32601),
        (HANDSHAKE, "initialize", -32022),
        (MODERN, "server/discover", -32601),
    ],
)
async def test_a_server_that_no_longer_speaks_an_era_is_asked_for_the_other_one_in_another_process(
    prefer: Era, asked: str, code: int
) -> None:
    async def script(server: Server) -> None:
        await server.refuse(asked, code, {"supported": ["2026-07-28"]})

    learned: list[tuple[Era, bool]] = []
    with pytest.raises(AnotherProcess):
        await settled(script, known=speaking(HANDSHAKE, MODERN), prefer=prefer, learned=learned)
    assert learned == [(prefer, False)]


async def test_a_server_known_as_modern_has_all_the_time_of_its_start_for_the_answer() -> None:
    async def script(server: Server) -> None:
        probe = await server.expect("server/discover")
        with anyio.move_on_after(0.2):  # longer than a probe takes
            pytest.fail(f"it was sent {await server.line()}")
        await server.send(id=probe["id"], result=DISCOVERED)

    assert (await settled(script, known=speaking(MODERN))).era is MODERN


# -- failing


@pytest.mark.parametrize("code", [None, -32602])
async def test_a_server_that_dies_of_the_probe_also_after_it_has_refused_it_can_be_started_again(
    code: int | None,
) -> None:
    async def script(server: Server) -> None:
        await (server.expect("server/discover") if code is None else server.refuse("server/discover", code))
        server.close()

    with pytest.raises(ProbeKilled, match="server/discover"):
        await settled(script)


async def test_a_server_that_is_to_be_modern_and_dies_is_not_taken_for_an_old_one() -> None:
    async def script(server: Server) -> None:
        await server.expect("server/discover")
        server.close()

    with pytest.raises(StartFailed) as caught:
        await settled(script, MODERN)
    assert not isinstance(caught.value, ProbeKilled) and caught.value.code == "closed_output"


@pytest.mark.parametrize("code", [-32020, -32021, -32022])
async def test_a_modern_refusal_means_that_there_is_no_common_version(code: int) -> None:
    async def script(server: Server) -> None:
        await server.refuse("server/discover", code, {"supported": ["2031-01-01"]})

    with pytest.raises(StartFailed, match="2031-01-01") as caught:
        await settled(script)
    assert caught.value.code == "era_mismatch"


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


async def test_a_version_that_the_hub_does_not_know_is_one() -> None:
    async def script(server: Server) -> None:
        await server.answer("initialize", {**INITIALIZED, "protocolVersion": "DRAFT-2025-v3+" + "x" * 50})
        await server.expect("notifications/initialized")

    assert (await settled(script, HANDSHAKE)).version.startswith("DRAFT")


@pytest.mark.parametrize(
    ("code", "data", "said"),
    [
        (-32603, None, "handshake_failed"),
        (-32602, {"supported": ["1999-01-01"], "requested": "2025-11-25"}, "era_mismatch"),
        (-32601, None, "not_mcp"),
    ],
)
async def test_a_server_that_refuses_both_says_why(code: int, data: JsonObject | None, said: str) -> None:
    async def script(server: Server) -> None:
        await server.refuse("server/discover", -32601)
        await server.refuse("initialize", code, data)

    with pytest.raises(StartFailed) as caught:
        await settled(script)
    assert caught.value.code == said


async def test_what_a_server_says_of_itself_in_wrong_types_is_left_out() -> None:
    async def script(server: Server) -> None:
        wrong = {"capabilities": [], "serverInfo": "me", "instructions": {"no": 1}}
        await server.answer("initialize", {"protocolVersion": "2024-11-05", **wrong})
        await server.expect("notifications/initialized")

    assert await settled(script, HANDSHAKE) == PeerInfo(HANDSHAKE, "2024-11-05")
