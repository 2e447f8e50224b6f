"""What a client of a test says when the server asks it something, in both eras.

The clients answer requests of a handshake server by themselves; `follow_input` answers the results of a modern one.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from tests.upstreams.child import PeerClosed
from tests.upstreams.messages import CLIENT, Id, Message, Params

METHOD_NOT_FOUND = -32601

CAPABILITIES: Mapping[str, Message] = {
    "elicitation/create": {"elicitation": {"form": {}, "url": {}}},
    "sampling/createMessage": {"sampling": {}},
    "roots/list": {"roots": {}},
}
"""What a client declares that answers these."""
EVERYTHING: Message = {name: value for declared in CAPABILITIES.values() for name, value in declared.items()}
"""The capabilities of a client that answers everything."""


@dataclass(frozen=True)
class Reply:
    """One answer: a `result` or an `error` member, and how it is sent.

    `copies` is how often (0: never), `delay` waits so many seconds first, `after` waits for a test to set it, `id`
    answers under another id than the question's.
    """

    body: Message
    copies: int = 1
    delay: float = 0
    after: anyio.Event | None = None
    id: Id | None = None

    def twice(self) -> "Reply":
        return replace(self, copies=2)

    def late(self, by: float | anyio.Event) -> "Reply":
        """The same, so many seconds later, or once the event is set."""
        return replace(self, after=by) if isinstance(by, anyio.Event) else replace(self, delay=by)

    def with_id(self, id: Id) -> "Reply":
        return replace(self, id=id)

    async def wait(self) -> None:
        """Until it is time to send it."""
        await anyio.sleep(self.delay)
        if self.after is not None:
            await self.after.wait()


def result(value: Mapping[str, Any]) -> Reply:
    return Reply({"result": dict(value)})


def form(action: str = "accept", **content: Any) -> Reply:
    """The answer to an elicitation."""
    return result({"action": action, **({"content": content} if content else {})})


def error(code: int, message: str, data: Any = None) -> Reply:
    return Reply({"error": {"code": code, "message": message, **({} if data is None else {"data": data})}})


def never() -> Reply:
    return Reply({}, copies=0)


Script = Reply | Callable[[Message], Reply] | Iterable[Reply]
"""What is said to the questions of a method: always this, what it makes of the question, or one after the other."""


@dataclass
class Answers:
    """The questions that one client got, and what it says to each: by method, else -32601.

    `asked` has every question in the order of arrival: whole requests (handshake), or `{"key", "method", "params"}`
    (modern). A `Reply` that is a `never`, or an `error`, leaves its key out of a modern retry: there is no other way.
    """

    scripts: Mapping[str, Script]
    asked: list[Message] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    """The answers that were sent, in order."""

    def __post_init__(self) -> None:
        # an iterator keeps its place between questions
        self._scripts = {
            method: script if isinstance(script, Reply) or callable(script) else iter(script)
            for method, script in self.scripts.items()
        }

    @property
    def capabilities(self) -> Message:
        """What a client declares that answers these methods."""
        return {key: value for method in self.scripts for key, value in CAPABILITIES.get(method, {}).items()}

    def params(self, method: str) -> list[Message]:
        """The params of the questions of this method."""
        return [question.get("params", {}) for question in self.asked if question["method"] == method]

    def reply(self, question: Message) -> Reply:
        """Note the question, and what to say to it. Raises: `AssertionError` when its script has come to an end."""
        self.asked.append(question)
        if question["method"] == "ping":
            return result({})
        script = self._scripts.get(question["method"], error(METHOD_NOT_FOUND, "Method not found"))
        if isinstance(script, Reply):
            return script
        if callable(script):
            return script(question)
        found = next(script, None)
        assert found is not None, f"asked once more than scripted: {question}"
        return found

    async def answer(self, question: Message, send: Callable[[Message], Awaitable[object]]) -> None:
        """Answer a handshake server's request by `send`. A server that is gone gets no answer."""
        reply = self.reply(question)
        await reply.wait()
        message = {"jsonrpc": "2.0", "id": question["id"] if reply.id is None else reply.id, **reply.body}
        for _ in range(reply.copies):
            self.sent.append(message)
            with suppress(PeerClosed):
                await send(message)

    async def responses(self, requests: Mapping[str, Message]) -> Message:
        """The `inputResponses` to a modern server's `inputRequests`."""
        replies = {key: self.reply({"key": key, **request}) for key, request in requests.items()}
        for reply in replies.values():
            await reply.wait()
        found = {key: reply.body["result"] for key, reply in replies.items() if reply.copies and "result" in reply.body}
        self.sent.append(found)
        return found


def hello(version: str, capabilities: Params, answers: Answers | None, name: str = "") -> Message:
    """The params of `initialize` of a client of this name; the capabilities are those of `answers` unless given."""
    if capabilities is None and answers is not None:
        capabilities = answers.capabilities
    return {
        "protocolVersion": version,
        "capabilities": dict(capabilities or {}),
        "clientInfo": CLIENT | ({"name": name} if name else {}),
    }


async def follow_input(
    send: Callable[[Message], Awaitable[Message]], params: Mapping[str, Any], answers: Answers, *, limit: int = 100
) -> tuple[Message, list[Message]]:
    """Send `params`, and again with what the server asks for, until it asks for nothing more, or nothing is answered.

    Returns the last response message, and every `input_required` result. Raises: `AssertionError` after `limit` rounds.
    """
    rounds: list[Message] = []
    retry: Message = {}
    while True:
        response = await send({**params, **retry})
        found = response.get("result", {})
        if found.get("resultType") != "input_required":
            return response, rounds
        rounds.append(found)
        assert len(rounds) <= limit, f"still input_required after {limit} rounds"
        requests = found.get("inputRequests", {})
        responses = await answers.responses(requests)
        if requests and not responses:
            return response, rounds
        retry = {"inputResponses": responses} if requests else {}
        retry |= {"requestState": found["requestState"]} if "requestState" in found else {}
