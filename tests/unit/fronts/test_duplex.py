"""One client on a connection both ways: what it is answered, in which order, and what becomes of it when it goes."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_hub.app.build import App
from mcp_hub.errors import RpcError
from mcp_hub.fronts.mcp.binding import modern_session
from mcp_hub.fronts.mcp.duplex import Duplex, OnModern
from mcp_hub.protocol.eras import HANDSHAKE_VERSIONS
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import Frame
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.sessions.session import LOCAL, Session
from tests.unit.fakes import KeptWire, enveloped
from tests.unit.fronts.local_hub import Tools, hello, local_hub
from tests.upstreams.child import until
from tests.upstreams.messages import CLIENT, modern, rpc

Message = dict[str, Any]
GAP = 0.1


class Wire(KeptWire):
    """`writes` has what it is sent as it leaves, at least one write for a loop pass."""

    def __init__(self, duplex: Duplex) -> None:
        super().__init__()
        self.duplex = duplex
        self.writes: list[list[Message]] = [[]]
        self.times: list[float] = []

    def send(self, frame: Frame) -> None:
        super().send(frame)
        if not self.writes[-1]:
            self.soon(self.flush)
            self.times.append(anyio.current_time())
        self.writes[-1].append(self.sent[-1])

    def flush(self) -> None:
        self.writes.append([])

    def close(self) -> None:
        self.is_closed = True
        self.duplex.on_closed("gone", "connection_lost")

    def receive(self, method: str, params: Any = None, id: Any = None) -> None:
        decoded = enveloped(rpc(method, params, **({} if id is None else {"id": id})))
        (self.duplex.on_notification if id is None else self.duplex.on_request)(decoded)

    def call(self, id: Any, name: str, token: Any = None, **arguments: Any) -> None:
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        self.receive("tools/call", {"name": name, "arguments": arguments, **meta}, id)

    def has_answered(self, id: Any) -> bool:
        return any("method" not in message and message.get("id") == id for message in self.sent)

    async def answer(self, id: Any) -> Message:
        await until(lambda: self.has_answered(id))
        (answer,) = (message for message in self.sent if "method" not in message and message.get("id") == id)
        return dict(answer)

    async def ask(self, id: Any, method: str, params: Any = None) -> Message:
        self.receive(method, params, id)
        return await self.answer(id)


def no_modern(meta: RequestMeta) -> Session:
    raise RpcError("not here", code=-32022)


@asynccontextmanager
async def serving(app: App, on_modern: OnModern = no_modern) -> AsyncIterator[Wire]:
    """A client that is connected until the block ends; its wire is then closed."""
    duplex = Duplex(app.hub, app.binding, LOCAL, on_modern)
    wire = Wire(duplex)
    async with duplex.serving(wire):
        yield wire
        wire.close()


@pytest.fixture
async def wire(hub: tuple[App, Tools]) -> AsyncIterator[Wire]:
    """A client that has shaken hands."""
    async with serving(hub[0]) as connected:
        await connected.ask(0, "initialize", hello())
        yield connected


async def test_only_ping_is_served_before_the_handshake(hub: tuple[App, Tools]) -> None:
    async with serving(hub[0]) as wire:
        assert (await wire.ask(1, "ping"))["result"] == {}
        assert (await wire.ask(2, "tools/list"))["error"]["code"] == -32602
        assert (await wire.ask(3, "initialize", hello("2025-03-26")))["result"]["protocolVersion"] == "2025-03-26"
        assert [tool["name"] for tool in (await wire.ask(4, "tools/list"))["result"]["tools"]][:2] == [
            "hub_calls",
            "echo",
        ]


async def test_further_initialize_is_answered_as_the_first_and_the_last_one_holds(hub: tuple[App, Tools]) -> None:
    async with serving(hub[0]) as wire:
        first = (await wire.ask(1, "initialize", hello("2025-03-26")))["result"]
        asks = {
            **hello("2025-11-25"),
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "second", "version": "2"},
        }
        second = (await wire.ask(2, "initialize", asks))["result"]
        assert second == {**first, "protocolVersion": "2025-11-25"}
        assert [tool["name"] for tool in (await wire.ask(3, "tools/list"))["result"]["tools"]][:2] == [
            "hub_calls",
            "echo",
        ]
        sloppy: list[dict[str, Any]] = [{}, {"protocolVersion": None, "capabilities": [], "clientInfo": "x"}]
        for id_, params in enumerate(sloppy, 4):
            assert (await wire.ask(id_, "initialize", params))["result"] == second
        session = wire.duplex._session
        assert session is not None and session.client_info["name"] == "second"
        assert session.capabilities == {"elicitation": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"clientInfo": None},
        {"clientInfo": []},
        {"clientInfo": "Cursor"},
        {"clientInfo": {"name": 7, "version": None}},
        {"capabilities": None},
        {"capabilities": []},
        {"capabilities": {"roots": None, "elicitation": [], "experimental": None}},
        {"protocolVersion": None},
        {"protocolVersion": 2024},
        {"protocolVersion": ""},
    ],
)
@pytest.mark.parametrize("is_absent", [True, False])
async def test_initialize_with_an_odd_or_absent_member_opens_a_session(
    hub: tuple[App, Tools], change: dict[str, Any], is_absent: bool
) -> None:
    params = {key: value for key, value in {**hello(), **change}.items() if not (is_absent and key in change)}
    async with serving(hub[0]) as wire:
        result = (await wire.ask(1, "initialize", params))["result"]
        assert result["protocolVersion"] in HANDSHAKE_VERSIONS and result["capabilities"]["tools"]
        assert [tool["name"] for tool in (await wire.ask(2, "tools/list"))["result"]["tools"]][:2] == [
            "hub_calls",
            "echo",
        ]


async def test_request_with_an_envelope_gets_the_session_that_the_front_makes_of_it(hub: tuple[App, Tools]) -> None:
    asked: list[RequestMeta] = []

    def on_modern(meta: RequestMeta) -> Session:
        asked.append(meta)
        return modern_session(LOCAL, meta, f"one#{len(asked)}")

    async with serving(hub[0], on_modern) as wire:
        assert (await wire.ask(1, "server/discover", modern()))["result"]["resultType"] == "complete"
        assert (await wire.ask(2, "tools/list"))["error"]["code"] == -32602
        assert len(asked) == 1
        assert "result" in await wire.ask(3, "initialize", {**modern(), **hello()})
        assert len(asked) == 1


@pytest.fixture
async def patient(tmp_path: Path) -> AsyncIterator[Wire]:
    """A client that loses progress which it reads together with the result, and so gets the result later."""
    clients = {CLIENT["name"]: {"result_gap": GAP}}
    async with local_hub(tmp_path, clients=clients) as (app, _), serving(app) as connected:
        await connected.ask(0, "initialize", hello())
        yield connected


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_answer_leaves_a_moment_after_the_progress(patient: Wire, is_late: bool) -> None:
    wire = patient
    wire.is_congested = is_late
    wire.call(1, "hurry", token="p", n=5)
    if is_late:
        await anyio.wait_all_tasks_blocked()
        wire.is_congested = False
        wire.duplex.on_writable()
    await wire.answer(1)
    *before, last = [write for write in wire.writes if write]
    told = [message["params"] for write in before for message in write if "method" in message]
    assert [(params["progressToken"], params["progress"]) for params in told] == [("p", i) for i in range(1, 6)]
    assert [message["id"] for message in last] == [1]
    assert wire.times[-1] - wire.times[-2] >= GAP


async def test_answers_that_wait_keep_their_order_and_others_do_not_wait(patient: Wire) -> None:
    for id_ in (1, 2, 3):
        patient.call(id_, "hurry", token=id_, n=2)
    patient.call(4, "hurry", n=2)
    patient.call(5, "echo", text="five")
    await patient.answer(3)
    answered = [message["id"] for message in patient.sent if "method" not in message]
    assert sorted(answered[:3]) == [0, 4, 5] and answered[3:] == [1, 2, 3]


async def test_an_answer_that_waits_is_not_sent_once_its_request_is_cancelled(patient: Wire) -> None:
    patient.call(1, "hurry", token=1, n=2)
    patient.call(2, "hurry", token=2, n=2)
    await until(lambda: len(patient.sent) >= 5)
    assert patient.duplex.is_busy
    patient.receive("notifications/cancelled", {"requestId": 1})
    await patient.answer(2)
    assert not patient.has_answered(1) and not patient.duplex.is_busy


async def test_nothing_is_taken_from_a_call_while_the_client_does_not_read(wire: Wire) -> None:
    wire.is_congested = True
    wire.call(1, "hurry", token=1, n=100)
    wire.call(2, "echo", text="two")
    await anyio.wait_all_tasks_blocked()
    assert [message["id"] for message in wire.sent] == [0]
    assert wire.duplex.is_busy
    wire.is_congested = False
    wire.duplex.on_writable()
    await wire.answer(1)
    await wire.answer(2)
    assert not wire.duplex.is_busy


async def test_cancelled_call_is_stopped_and_never_answered(hub: tuple[App, Tools], wire: Wire) -> None:
    _, tools = hub
    wire.call("c", "hold", nonce="c")
    wire.call("d", "hold", nonce="d")
    await until(lambda: len(tools.held) == 2)
    wire.receive("notifications/cancelled", {"requestId": "c"})
    await until(lambda: tools.cancelled == ["c"])
    tools.go.set()
    assert (await wire.answer("d"))["result"]["content"][0]["text"] == "d"
    assert not wire.has_answered("c")


async def test_id_that_is_in_use_is_not_taken_again(hub: tuple[App, Tools], wire: Wire) -> None:
    _, tools = hub
    wire.call(1, "hold", nonce="first")
    wire.call(1, "echo", text="second")
    tools.go.set()
    assert (await wire.answer(1))["result"]["content"][0]["text"] == "first"
    wire.receive("ping", id=1)
    assert wire.sent[-1] == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize(("first", "second"), [(1000, "1000"), ("7", 7)])
async def test_id_that_is_in_use_in_another_spelling_is_refused_in_that_spelling(
    hub: tuple[App, Tools], wire: Wire, first: int | str, second: int | str
) -> None:
    _, tools = hub
    wire.call(first, "hold", nonce="first")
    refused = await wire.ask(second, "ping")
    error = {"code": -32600, "message": f"invalid request: id {json.dumps(second)} is in use"}
    assert refused == {"jsonrpc": "2.0", "id": second, "error": {**error, "data": {"code": "invalid_request"}}}
    tools.go.set()
    assert (await wire.answer(first))["result"]["content"][0]["text"] == "first"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600),
        (b'{"id":1,"method":"ping"}', -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":nope}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{', -32700),
    ],
)
async def test_bad_line_settles_no_request_of_its_id(
    hub: tuple[App, Tools], wire: Wire, line: bytes, code: int
) -> None:
    _, tools = hub
    wire.call(1, "hold", nonce="first")
    message = envelope.decode(line)
    if isinstance(message, envelope.BadMessage):
        wire.duplex.on_bad_line(message, line)
    else:
        wire.duplex.on_request(message)
    assert wire.sent[-1]["id"] is None and wire.sent[-1]["error"]["code"] == code
    tools.go.set()
    assert (await wire.answer(1))["result"]["content"][0]["text"] == "first"


async def test_id_of_a_request_that_is_no_call_is_in_use_too(hub: tuple[App, Tools]) -> None:
    async with serving(hub[0], lambda meta: modern_session(LOCAL, meta, "one")) as wire:
        wire.receive("tasks/get", {"taskId": "none", **modern()}, 5)
        wire.receive("ping", id="5")
        assert wire.sent[-1]["id"] == "5" and wire.sent[-1]["error"]["code"] == -32600
        assert (await wire.answer(5))["error"]["code"] == -32021
        wire.receive("subscriptions/listen", modern({"notifications": {}}), 6)
        wire.receive("ping", id="6")
        assert wire.sent[-1]["id"] == "6" and wire.sent[-1]["error"]["code"] == -32600


async def test_null_and_empty_arrays_count_as_absent(wire: Wire) -> None:
    requests = [
        ("ping", "null"),
        ("tools/list", "null"),
        ("tools/list", "[]"),
        ("tools/list", " [ \t ] "),
        ("tools/list", '{"cursor":null}'),
        ("tools/list", '{"cursor":""}'),
        ("tools/list", '{"_meta":null}'),
        ("tools/list", '{"_meta":[]}'),
        ("tools/list", '{"_meta":{"progressToken":null}}'),
    ]
    for id_, (method, params) in enumerate([*requests, ("tools/list", "[1]"), ("tools/list", '"x"')], 1):
        text = f'{{"jsonrpc":"2.0","id":{id_},"method":"{method}","params":{params}}}'
        decoded = envelope.decode(text.encode())
        assert isinstance(decoded, envelope.Envelope)
        wire.duplex.on_request(decoded)
    assert (await wire.answer(1))["result"] == {}
    for id_ in range(2, len(requests) + 1):
        assert [tool["name"] for tool in (await wire.answer(id_))["result"]["tools"]][:2] == ["hub_calls", "echo"]
    for id_ in (len(requests) + 1, len(requests) + 2):
        assert (await wire.answer(id_))["error"]["data"] == {"code": "invalid_params"}


async def test_calls_of_a_client_that_is_gone_are_cancelled(hub: tuple[App, Tools]) -> None:
    app, tools = hub
    async with serving(app) as wire:
        await wire.ask(0, "initialize", hello())
        wire.call(1, "hold", nonce="gone")
        await until(lambda: tools.held == ["gone"])
    await until(lambda: tools.cancelled == ["gone"])
    assert not wire.has_answered(1)


async def test_calls_of_a_client_that_is_still_there_are_left_to_the_hub(hub: tuple[App, Tools]) -> None:
    """When the hub stops, a client gets its calls' endings before the wire is closed."""
    app, tools = hub
    with anyio.CancelScope() as scope:
        async with serving(app) as wire:
            await wire.ask(0, "initialize", hello())
            wire.call(1, "hold", nonce="stop")
            await until(lambda: tools.held == ["stop"])
            scope.cancel()
            await anyio.sleep_forever()
    assert tools.cancelled == [] and not wire.duplex.closed.is_set()
    await app.stop()
    wire.duplex.deliver()
    assert "stopping" in (await wire.answer(1))["error"]["message"]


async def test_changes_are_announced_to_a_client_that_has_shaken_hands(hub: tuple[App, Tools]) -> None:
    app, tools = hub
    async with serving(app) as new, serving(app) as old:
        await old.ask(0, "initialize", hello())
        await anyio.wait_all_tasks_blocked()
        tools.registry.tool(name="another")(tools.echo)
        app.changes.bump()
        await until(lambda: len(old.sent) == 2)
        assert old.sent[1]["method"] == "notifications/tools/list_changed"
        assert new.sent == []


async def test_crash_in_one_request_is_answered_and_spares_the_others(hub: tuple[App, Tools]) -> None:
    def crash(meta: RequestMeta) -> Session:
        raise ZeroDivisionError("secret")

    async with serving(hub[0], crash) as wire:
        answer = await wire.ask(1, "tools/list", modern())
        assert answer["error"]["code"] == -32603 and "secret" not in json.dumps(answer)
        assert (await wire.ask(2, "ping"))["result"] == {}
