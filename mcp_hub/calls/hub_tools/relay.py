"""Questions of a call that runs without its client, passed on by another call of that client which waits for it."""

from collections.abc import Callable, Collection
from functools import partial

from mcp_hub.call import CallChannel, Question
from mcp_hub.calls.streams.port import StreamHandle
from mcp_hub.errors import RpcError
from mcp_hub.events import CallEvent, InputReceived, InputRequired
from mcp_hub.types import RawJson


class Relay:
    """Asks the questions of a stream through `channel`, and passes the answers on as long as the waiting call runs.

    `wake` is called when there is an answer to `pass_on`.
    """

    def __init__(
        self, stream: StreamHandle, channel: CallChannel, wake: Callable[[], None], answered: Collection[str] = ()
    ) -> None:
        self._wake = wake
        self._stream = stream
        self._channel = channel
        self._known = stream.info.last
        self._asked = set(answered)
        self._open: dict[str, str] = {}  # keys of the stream, to those of the channel
        self._answers: list[tuple[str, RawJson | RpcError]] = []

    @property
    def is_asking(self) -> bool:
        return bool(self._open)

    async def begin(self) -> None:
        """Asks the questions that are open already.

        Where the store does not have those yet that are answered, what it has open is older: answered, too.
        """
        questions = await self._stream.questions()
        if self._asked <= questions.keys():
            for question in questions.values():
                self._ask(question)

    def take(self, seq: int, event: CallEvent) -> None:
        """An event of the stream; questions before the beginning are known."""
        if isinstance(event, InputReceived):
            self._withdraw(event.key)
        elif isinstance(event, InputRequired) and seq > self._known:
            self._ask(event)

    async def pass_on(self) -> None:
        """Hands over what was answered. Raises `UnknownStream`, `StoreError`."""
        answers, self._answers = self._answers, []
        for key, outcome in answers:
            await self._stream.answer(key, outcome)

    def _ask(self, question: InputRequired) -> None:
        if question.key in self._asked:
            return
        self._asked.add(question.key)
        self._open[question.key] = ""
        answered, late = partial(self._answered, question.key), partial(self._late, question.key)
        own = self._channel.ask(Question(question.method, question.params, answered, late))
        if question.key in self._open:
            self._open[question.key] = own

    def _late(self, key: str, outcome: RawJson | RpcError) -> None:
        """An answer that comes when nobody waits any more still counts, if the call runs here."""
        if (record := self._stream.record) is not None:
            record.answer(key, outcome)

    def _answered(self, key: str, outcome: RawJson | RpcError) -> None:
        if self._open.pop(key, None) is not None:
            self._answers.append((key, outcome))
            self._wake()

    def _withdraw(self, key: str) -> None:
        own = self._open.pop(key, None)
        if own is not None:
            self._channel.withdraw(own)
