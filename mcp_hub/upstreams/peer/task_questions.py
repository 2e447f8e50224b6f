"""Questions of the tasks of modern servers: put to the caller of the call, and kept until the server has the answers.

Source: the extension `io.modelcontextprotocol/tasks` (SEP-2663), "Task Update Requests".
"""

from collections.abc import Mapping

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel, Question
from mcp_hub.errors import RpcError
from mcp_hub.protocol import questions
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.types import RawJson, RawObject
from mcp_hub.upstreams.peer.questions import MOST_QUESTIONS, check, declined

__all__ = ["TaskQuestions"]


class TaskQuestions:
    """The questions of the task of one call: each key once in its life, whatever connection it is seen over.

    Answers wait until nothing that was asked is open, since a server need not take a part of them, and then until the
    server has them. Source: SEP-2663, "Task Update Requests".
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
        """Whether there are answers that the server does not have yet, and nobody else is waited for."""
        return bool(self._answers) and not self._open

    def take(self, requests: RawJson | None) -> None:
        """Asks what is new of the `inputRequests` that the task has now, and withdraws what it no longer has.

        Raises `RpcError` for what cannot be asked, and for an answer that the server would not have.
        """
        wanted = _outstanding(requests)
        for key in [key for key in self._open if key not in wanted]:
            self._channel.withdraw(self._open.pop(key))
        self._answers = {key: answer for key, answer in self._answers.items() if key in wanted}
        fresh = {key: question for key, question in wanted.items() if key not in self._seen}
        for key in wanted:
            if key in self._refused:
                raise self._refused[key]
        if len(self._seen) + len(fresh) > MOST_QUESTIONS:
            raise RpcError(f'upstream "{self._call.upstream}" asked for more than {MOST_QUESTIONS} inputs in one task')
        for method, params in fresh.values():
            check(self._call, method, params)
        for key, (method, params) in fresh.items():
            self._ask(key, method, params)

    def _ask(self, key: str, method: str, params: RawJson) -> None:
        self._seen.add(key)
        self._open[key] = ""

        def answered(outcome: RawJson | RpcError) -> None:
            if self._open.pop(key, None) is None:
                return  # it was withdrawn
            if isinstance(outcome, RpcError):
                self._failure = self._failure or declined(self._call, method, outcome)
            else:
                self._answers[key] = msgspec.Raw(bytes(outcome))
            if self._failure is not None or not self._open:
                self._news.set()

        name = self._channel.ask(Question(method, params, answered))
        if key in self._open:
            self._open[key] = name

    async def answered(self) -> None:
        """Returns when `answers` has something new to say."""
        await self._news.wait()

    def answers(self) -> RawObject:
        """The answers to hand back; nothing while a question is open. Raises `RpcError` if the caller declined one."""
        self._news = anyio.Event()
        if self._failure is not None:
            raise self._failure
        return {} if self._open else dict(self._answers)

    def taken(self, answers: RawObject) -> None:
        """The server has these."""
        for key in answers:
            self._answers.pop(key, None)

    def refused(self, answers: RawObject, error: RpcError) -> None:
        """The server would not have these: no harm, unless it still waits for one of them (`take`)."""
        self.taken(answers)
        self._refused |= dict.fromkeys(answers, error)

    def close(self) -> None:
        """Nothing is asked any more."""
        while self._open:
            _, name = self._open.popitem()
            self._channel.withdraw(name)


def _outstanding(requests: RawJson | None) -> Mapping[str, tuple[str, RawJson]]:
    """The questions by key. Raises `RpcError` for what cannot be read."""
    if requests is None or bytes(requests) in (b"", b"{}", b"null"):
        return {}
    asked = {"resultType": "input_required", "inputRequests": msgspec.Raw(bytes(requests))}
    found = questions.input_requests(object_bytes(asked))
    return found.requests if found is not None else {}
