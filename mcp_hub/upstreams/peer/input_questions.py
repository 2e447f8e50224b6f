"""Questions in results and tasks of modern servers.

Source: specification 2026-07-28, basic/patterns/mrtr; `io.modelcontextprotocol/tasks` (SEP-2663).
"""

from collections.abc import Callable, Mapping
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel, CallHandler, Question
from mcp_hub.errors import RpcError
from mcp_hub.events import Completed
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, read_as
from mcp_hub.protocol.shape import questions
from mcp_hub.types import JsonObject, Kind, RawJson, RawObject, Snapshot
from mcp_hub.upstreams.peer.questions import MOST_QUESTIONS

_ROUNDS: Final = 10
"""Times that a modern server may ask in one call."""
_AGAIN: Final = (
    "{tool} stopped before a question, because the server cannot ask over the connection that ran the call. "
    "mcp-hub can run it again over another one. It then does again what it did before the question. Run it again?"
)

Wanted = Mapping[str, tuple[str, RawJson]]
"""Methods and params of questions, by the server's keys."""


async def follow_up(call: Call, channel: CallChannel, handler: CallHandler, result: Completed) -> Completed:
    """Asks a handshake client `result`'s questions and retries the call until it is complete.

    Raises `RpcError` if the client refuses, cannot answer, or is asked too often.
    """
    rounds = 0
    while (inputs := questions.input_requests(result.result)) is not None:
        rounds += 1
        if rounds == _ROUNDS:
            text = f'server "{call.upstream}" asked for input {_ROUNDS} times in one call.'
            raise RpcError(text, data=_error_data(call, {"rounds": _ROUNDS}))
        responses = await _ask_all(call, channel, inputs.requests) if inputs.requests else None
        call = msgspec.structs.replace(call, input_responses=responses, request_state=inputs.state)
        result = await handler(call, channel)
    return result


async def _ask_all(call: Call, channel: CallChannel, requests: Wanted) -> RawObject:
    open_questions = InputQuestions(call, channel)
    try:
        open_questions.put(requests)
        while not (answers := open_questions.answers()):
            await open_questions.answered()
        return answers
    finally:
        open_questions.close()


class _Answer(msgspec.Struct):
    action: str


class _Tool(msgspec.Struct):
    name: str


async def _agrees(call: Call, channel: CallChannel, message: str) -> bool:
    params = object_bytes({"message": message, "requestedSchema": {"type": "object", "properties": {}}})
    try:
        answers = await _ask_all(call, channel, {"agreement": (questions.ELICIT, params)})
    except RpcError:
        return False
    answer = read_as(answers["agreement"], _Answer)
    return answer is not None and answer.action == "accept"


async def may_repeat(
    call: Call,
    channel: CallChannel,
    question: str,
    lists: Snapshot | None,
    repetition: Callable[[str, RawJson], str],
) -> None:
    """Returns if a call that stopped before a `question` may be repeated. Raises `RpcError`.

    `repetition` takes a tool's name and definition, and returns "safe", "agreed" (the caller must agree) or "never".
    """
    if call.method != "tools/call":
        return
    name = read_as(call.params.get("name", b""), str) or ""
    tools = () if lists is None else lists.lists.get(Kind.TOOL, ())
    definitions = [raw for raw in tools if (tool := read_as(raw, _Tool)) is not None and tool.name == name]
    rules = {repetition(name, raw) for raw in definitions or [b""]}
    if rules == {"safe"}:
        return
    tool_name = f'The tool "{hide_head(name, 100)}" of the server "{call.upstream}"'
    if "never" not in rules and await _agrees(call, channel, _AGAIN.format(tool=tool_name)):
        return
    raise RpcError(
        f"{tool_name} stopped before its question ({question}), because the server cannot ask over the connection that "
        "ran the call. What the tool did before that is done. Call it again if that does no harm: from now on "
        "your calls use a connection over which the server can ask.",
        data={"upstream": {"server": call.upstream, "question": question}, "outcome": "unknown"},
    )


class InputQuestions:
    """The questions of one result or task, each asked once over all connections.

    Answers wait until no question is open (SEP-2663, "Task Update Requests").
    """

    def __init__(self, call: Call, channel: CallChannel) -> None:
        self._call = call
        self._channel = channel
        self._seen: set[str] = set()
        self._open: dict[str, str] = {}  # the channel's names by the task's keys
        self._answers: RawObject = {}
        self._refused: dict[str, RpcError] = {}
        self._failure: RpcError | None = None
        self._news = anyio.Event()

    @property
    def are_answered(self) -> bool:
        """Whether complete answers wait to be sent."""
        return bool(self._answers) and not self._open

    def take(self, requests: RawJson | None) -> None:
        """Asks new `inputRequests` and withdraws missing ones.

        Raises `RpcError` for a question that cannot be asked, or whose answer was refused.
        """
        self.put(_outstanding(requests))

    def put(self, requests: Wanted) -> None:
        for key in [key for key in self._open if key not in requests]:
            self._channel.questions.withdraw(self._open.pop(key))
        self._answers = {key: answer for key, answer in self._answers.items() if key in requests}
        fresh = {key: question for key, question in requests.items() if key not in self._seen}
        for key in requests:
            if key in self._refused:
                raise self._refused[key]
        if len(self._seen) + len(fresh) > MOST_QUESTIONS:
            raise RpcError(f'server "{self._call.upstream}" asked for more than {MOST_QUESTIONS} inputs in one task.')
        for method, params in fresh.values():
            lack = self._call.lack(method, params)
            if lack is not None:
                text = f'server "{self._call.upstream}" asked for {method}, but {lack}'
                raise RpcError(text, data=_error_data(self._call, {"question": method}))
        for key, (method, params) in fresh.items():
            self._ask(key, method, params)

    def _ask(self, key: str, method: str, params: RawJson) -> None:
        self._seen.add(key)
        self._open[key] = ""

        def answered(outcome: RawJson | RpcError) -> None:
            if self._open.pop(key, None) is None:
                return  # it was withdrawn
            if isinstance(outcome, RpcError):
                self._failure = self._failure or _declined(self._call, method, outcome)
            else:
                self._answers[key] = msgspec.Raw(bytes(outcome))
            if self._failure is not None or not self._open:
                self._news.set()

        name = self._channel.ask(Question(method, params, answered))
        if key in self._open:
            self._open[key] = name

    async def answered(self) -> None:
        await self._news.wait()

    def answers(self) -> RawObject:
        """The answers to send; none while a question is open. Raises `RpcError` if the caller declined."""
        self._news = anyio.Event()
        if self._failure is not None:
            raise self._failure
        return {} if self._open else dict(self._answers)

    def taken(self, answers: RawObject) -> None:
        for key in answers:
            self._answers.pop(key, None)

    def refused(self, answers: RawObject, error: RpcError) -> None:
        self.taken(answers)
        self._refused |= dict.fromkeys(answers, error)

    def close(self) -> None:
        while self._open:
            _, name = self._open.popitem()
            self._channel.questions.withdraw(name)


def _declined(call: Call, method: str, error: RpcError) -> RpcError:
    details = {"question": method, "error": msgspec.Raw(bytes(error.encoded()))}
    return RpcError(f"The client answered {method} with an error: {error.message}", data=_error_data(call, details))


def _error_data(call: Call, details: Mapping[str, object]) -> JsonObject:
    return {"upstream": {"server": call.upstream}, **details}


def _outstanding(requests: RawJson | None) -> Wanted:
    if requests is None or bytes(requests) in (b"", b"{}", b"null"):
        return {}
    envelope = {"resultType": "input_required", "inputRequests": msgspec.Raw(bytes(requests))}
    inputs = questions.input_requests(object_bytes(envelope))
    return inputs.requests if inputs is not None else {}
