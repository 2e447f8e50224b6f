"""Questions on their way to a client: requests of its own wire, or in the modern era a result that asks."""

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import anyio
import anyio.lowlevel
import msgspec
import pytest

from mcp_hub.call import Call, Question, StreamInfo
from mcp_hub.calls.pending_input import PendingInput, is_pending
from mcp_hub.calls.plan import StreamLimits, TimeLimits
from mcp_hub.calls.runner import CallRecord, new_record
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.clock import SystemClock
from mcp_hub.errors import RpcError, StoreUnavailable, UnknownEntry
from mcp_hub.events import Cancelled, Completed, Failed, Progressed, Started
from mcp_hub.fronts.mcp.client_requests import ClientRequests
from mcp_hub.fronts.mcp.responder import CallResponder
from mcp_hub.hub import HubPort
from mcp_hub.ids import new_call_id
from mcp_hub.protocol.jsonrpc.envelope import whole
from mcp_hub.protocol.meta import take_params
from mcp_hub.sessions.session import LOCAL, Session
from mcp_hub.stores.base import Appended, Chunk, EventStore
from mcp_hub.stores.memory import MemoryLog, MemoryStore, MemoryStreams
from mcp_hub.types import Era, JsonObject, RawJson
from tests.unit.calls.call_scripts import handle_of
from tests.unit.fakes import LoneReplicas, ResponderPort, enveloped, unused
from tests.unit.fronts.small_hub import Hub
from tests.upstreams.child import WAIT

FORM: JsonObject = {"message": "name?", "requestedSchema": {"type": "object"}}


class Client:
    """One call of one client, and what the client is sent for it."""

    def __init__(self, era: Era, version: str = "2025-11-25", asks: bool = True) -> None:
        version = version if era is Era.HANDSHAKE else "2026-07-28"
        capabilities: JsonObject = {"elicitation": {"form": {}, "url": {}}}
        call = Call(new_call_id(), "git", "tools/call", {"name": msgspec.Raw(b'"x"')}, {}, "s", "p", era, capabilities)
        self.hub = ResponderPort()
        self.record = new_record(call, unused, TimeLimits(9, 9), SystemClock())
        self.session = Session("s", LOCAL, era, version, capabilities)
        self.asking = ClientRequests() if asks else None
        self.answers: list[RawJson | RpcError] = []
        self.record.log.append(Started())
        self.responder = self.follow()

    def follow(self, after: int = 0) -> CallResponder:
        hub = cast(HubPort, self.hub)
        call = handle_of(self.record, after=after)
        return CallResponder(hub, b"9", self.session, call, b'"t"', lambda: None, self.asking)

    def asked(self, method: str = "elicitation/create", params: JsonObject = FORM) -> str:
        return self.record.ask(Question(method, msgspec.Raw(json.dumps(params).encode()), self.answers.append))

    def gets(self) -> list[Any]:
        return [json.loads(frame) for frame in self.responder.take()]

    @property
    def result(self) -> Any:
        assert self.responder.answer is not None
        return json.loads(whole(self.responder.answer))["result"]

    def answers_with(self, **members: Any) -> None:
        assert self.asking is not None
        self.asking.take(enveloped({"jsonrpc": "2.0", **members}))


async def settle() -> None:
    """Callbacks of futures run in the next loop pass."""
    for _ in range(3):
        await anyio.lowlevel.checkpoint()


def asking() -> tuple[Client, Any]:
    """A handshake client with a question that it has got."""
    client = Client(Era.HANDSHAKE)
    client.asked()
    (question,) = client.gets()
    return client, question


async def test_a_handshake_client_is_asked_in_order_and_its_answer_counts_once() -> None:
    client = Client(Era.HANDSHAKE)
    client.record.send(Progressed(1))
    client.asked()
    client.record.send(Progressed(2))
    before, question, after = client.gets()
    assert (before["params"]["progress"], after["params"]["progress"]) == (1, 2)
    assert question["method"] == "elicitation/create" and question["params"] == FORM
    for _ in range(2):
        client.answers_with(id=question["id"], result={"action": "accept", "content": {"a": 1}})
    await settle()
    (answer,) = client.answers
    assert json.loads(bytes(cast(bytes, answer))) == {"action": "accept", "content": {"a": 1}}
    assert client.gets() == [], "what was answered is not taken back"


MALFORMED = {"code": "client_error", "client": {"error": {"code": "x"}}}
NO_RESULTS: list[object] = [[], "x", None, 7]


@pytest.mark.parametrize(
    ("answer", "message", "data"),
    [
        ({"error": {"code": -1, "message": "no", "data": [1]}}, "^no$", [1]),
        ({"error": {"code": "x"}}, "^client answered with a malformed error object", MALFORMED),
        *(({"result": result}, "is not a result", None) for result in NO_RESULTS),
    ],
)
async def test_an_error_answer_keeps_its_data_and_what_is_no_answer_is_an_error_of_the_client(
    answer: dict[str, Any], message: str, data: object
) -> None:
    client, question = asking()
    client.answers_with(id=question["id"], **answer)
    await settle()
    (error,) = client.answers
    assert isinstance(error, RpcError) and re.search(message, error.message)
    assert data is None or json.loads(bytes(error.encoded()))["data"] == data


async def test_an_answer_to_nothing_is_dropped() -> None:
    client, question = asking()
    for id_ in (question["id"] + 1, "x", None, 1.5, [1]):
        client.answers_with(id=id_, result={})
    await settle()
    assert client.answers == [] and client.record.questions.open


ENDINGS: list[Callable[[CallRecord], object]] = [
    lambda record: record.questions.withdraw(next(iter(record.questions.open))),
    lambda record: record.log.append(Completed(b'{"content":[]}')),
    lambda record: record.log.append(Failed(RpcError("late"))),
    lambda record: record.log.append(Cancelled()),
]


@pytest.mark.parametrize("end", ENDINGS)
async def test_a_question_that_is_off_is_taken_back_before_the_answer(end: Callable[[CallRecord], object]) -> None:
    client, question = asking()
    end(client.record)
    (notice,) = client.gets()
    assert notice["method"] == "notifications/cancelled" and notice["params"] == {"requestId": question["id"]}
    client.answers_with(id=question["id"], result={"action": "accept"})
    await settle()
    assert not any(isinstance(answer, bytes) for answer in client.answers), "too late"


async def test_reading_the_log_again_repeats_an_open_question_under_its_id_and_skips_a_settled_one() -> None:
    client, question = asking()
    client.responder = client.follow()
    assert client.gets() == [question]
    client.answers_with(id=question["id"], result={})
    await settle()
    client.responder = client.follow()
    assert client.gets() == []


async def test_a_client_that_cannot_be_reached_declines() -> None:
    client = Client(Era.HANDSHAKE, asks=False)
    client.asked()
    assert client.gets() == []
    (answer,) = client.answers
    assert isinstance(answer, RpcError) and "cannot be asked" in answer.message


async def test_url_questions_get_an_id_and_forms_lose_their_mode_where_the_version_says_so() -> None:
    client = Client(Era.HANDSHAKE)
    client.asked(params={"mode": "url", "url": "https://x", "message": "m"})
    assert client.gets()[0]["params"]["elicitationId"]
    client = Client(Era.HANDSHAKE, "2025-06-18")
    client.asked(params={**FORM, "mode": "form"})
    assert client.gets()[0]["params"] == FORM


async def test_a_modern_client_gets_all_open_questions_as_its_result_and_comes_back() -> None:
    client = Client(Era.MODERN)
    keys = [client.asked(), client.asked("roots/list", {})]
    client.record.send(Progressed(1))
    assert [message["params"]["progress"] for message in client.gets()] == [1]
    assert client.responder.ended and client.responder.state == "pending"
    assert client.result["resultType"] == "input_required" and is_pending(client.result["requestState"])
    wanted = client.result["inputRequests"]
    assert {key: one["method"] for key, one in wanted.items()} == dict(
        zip(keys, ("elicitation/create", "roots/list"), strict=True)
    )
    client.responder.close()
    client.record.send(Progressed(2))
    pending = client.hub.pending_input.fetch(client.result["requestState"], client.record.call)
    client.record.questions.answer(keys[0], msgspec.Raw(b'{"action":"accept"}'))

    client.responder = client.follow(pending.after)
    assert client.responder.has_more
    assert [message["params"]["progress"] for message in client.gets()] == [2], "nothing is lost or repeated"
    assert list(client.result["inputRequests"]) == [keys[1]], "what is still open is asked again"
    pending = client.hub.pending_input.fetch(client.result["requestState"], client.record.call)

    client.responder = client.follow(pending.after)
    assert client.responder.has_more, "though nothing has happened since"
    assert client.gets() == [] and list(client.result["inputRequests"]) == [keys[1]]
    client.record.questions.answer(keys[1], msgspec.Raw(b'{"roots":[]}'))
    client.responder = client.follow(
        client.hub.pending_input.fetch(client.result["requestState"], client.record.call).after
    )
    client.record.log.append(Completed(b'{"content":[]}'))
    assert client.gets() == [] and client.result["content"] == [] and client.responder.state != "pending"


class HeldLog(MemoryLog):
    """Has what it is given when it is told so."""

    def __init__(self, streams: MemoryStreams) -> None:
        super().__init__(streams)
        self.waiting: list[Callable[[], None]] = []

    def create(self, row: StreamInfo, chunk: Chunk, callback: Appended) -> None:
        self.waiting.append(partial(super().create, row, chunk, callback))


class HeldStore(MemoryStore):
    """Shared by replicas."""

    def __init__(self) -> None:
        super().__init__()
        self.replicas = LoneReplicas()
        self.log: HeldLog = HeldLog(self.streams)


async def test_a_modern_client_is_asked_once_every_replica_can_find_the_question() -> None:
    store, woken = HeldStore(), anyio.Event()
    client = Client(Era.MODERN)
    streams = StreamTable(cast(EventStore, store), SystemClock(), StreamLimits())
    call = handle_of(client.record, streams)
    client.responder = CallResponder(cast(HubPort, client.hub), b"9", client.session, call, None, woken.set)
    key = client.asked()
    assert client.gets() == [] and not client.responder.has_more and not client.responder.ended
    with anyio.fail_after(WAIT):
        while not store.log.waiting:
            await anyio.lowlevel.checkpoint()
        woken = anyio.Event()
        client.responder._wake = woken.set
        assert not client.responder.has_more
        store.log.waiting.pop()()
        await woken.wait()
    assert client.gets() == [] and list(client.result["inputRequests"]) == [key]


async def test_a_retry_that_has_to_wait_for_its_server_is_a_retry_when_it_is_tried_again() -> None:
    params, meta = take_params(b'{"name":"x","requestState":"s","inputResponses":{}}')
    given = dict(params)
    with pytest.raises(UnknownEntry):
        Hub().port.call(Session("s", LOCAL, Era.MODERN, "2026-07-28"), "tools/call", params, meta)
    assert params == given


async def test_a_modern_servers_own_state_is_marked() -> None:
    client = Client(Era.MODERN)
    asks = b'{"resultType":"input_required","requestState":"abc","_meta":{"x":1}}'
    client.record.log.append(Completed(asks, Era.MODERN))
    assert client.gets() == []
    state = client.hub.pending_input.mark(client.record.call, "abc")
    assert client.result == {"resultType": "input_required", "requestState": state, "_meta": {"x": 1}}
    odd = Client(Era.MODERN)
    odd.record.log.append(Completed(asks.replace(b'"abc"', b"7"), Era.MODERN))
    assert odd.gets() == [] and b"requestState must be a string" in (odd.responder.answer or b"")


@pytest.mark.parametrize("has_asked", [True, False], ids=["a question", "a server's own state"])
async def test_modern_client_is_refused_while_no_replica_could_read_its_state(has_asked: bool) -> None:
    def key() -> bytes:
        raise StoreUnavailable("not yet")

    cancelled: list[CallRecord] = []
    client = Client(Era.MODERN)
    client.hub.pending_input = PendingInput(SystemClock(), 60, lambda record, why: cancelled.append(record), key)
    if has_asked:
        client.asked()
    else:
        asks = b'{"resultType":"input_required","requestState":"abc"}'
        client.record.log.append(Completed(asks, Era.MODERN))
    assert client.gets() == [] and client.responder.state == "ended" and client.responder.answer is not None
    error = json.loads(whole(client.responder.answer))["error"]
    assert (error["code"], error["data"]["code"]) == (1011, "store_unavailable")
    assert cancelled == ([client.record] if has_asked else [])


async def test_a_url_that_must_be_opened_first_is_asked_for_in_the_modern_way() -> None:
    elicitations = [{"mode": "url", "url": "https://x/", "message": "m", "elicitationId": "e1"}]
    error = {"code": -32042, "message": "first", "data": {"elicitations": elicitations}}
    for era in Era:
        client = Client(era)
        raw = msgspec.Raw(json.dumps(error).encode())
        client.record.log.append(Failed(RpcError("first", code=-32042, raw=raw)))
        assert client.gets() == [] and client.responder.answer is not None
        answer = json.loads(whole(client.responder.answer))
        if era is Era.HANDSHAKE:
            assert answer["error"] == error
        else:
            (asked,) = answer["result"]["inputRequests"].values()
            assert asked["params"] == {"mode": "url", "url": "https://x/", "message": "m"}
            assert "requestState" not in answer["result"]
