"""A call that waits for its caller's login: a link to open, then a code to enter, as questions to the client.

A client that cannot be asked gets the link, or the way to enter the code, as the text of a failed result. The wait ends
with the pending login, at the latest after ten minutes without a step.
"""

import uuid
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel, Question
from mcp_hub.errors import AccountNeeded, Rejected, RpcError, StoreError, StoreUnavailable
from mcp_hub.events import Completed
from mcp_hub.protocol.jsonrpc.envelope import notification_frame, read_as
from mcp_hub.protocol.jsonrpc.rpc_errors import URL_ELICITATION_REQUIRED
from mcp_hub.protocol.shape.questions import ELICIT, can_answer
from mcp_hub.types import HANDSHAKE, JsonObject, RawJson
from mcp_hub.upstreams.accounts.accounts import Needed
from mcp_hub.upstreams.accounts.desk import LoginDesk
from mcp_hub.upstreams.accounts.pending import PendingLogin, awaiting
from mcp_hub.upstreams.auth.grants import LoginFailed

WAITS: Final = b'{"awaits":"login"}'
"""The state of a waiting call: another hub begins the wait anew."""
_LOOK: Final = 1.0
"""Seconds between looks for what other processes have done."""
_COMPLETE: Final = "notifications/elicitation/complete"
_MOST_LINKS: Final = 4096
"""Links whose login somebody may hear of; one more removes the oldest."""
_ONLY_FORM: Final = b'{"mode":"form"}'


class _Content(msgspec.Struct):
    code: str = ""


class _Answer(msgspec.Struct):
    action: str = ""
    content: _Content | None = None


class _OpenQuestion:
    """One question at a time to the caller, and its answer."""

    def __init__(self, channel: CallChannel, news: Callable[[], None]) -> None:
        self._channel = channel
        self._news = news
        self._key: str | None = None
        self.answer: RawJson | RpcError | None = None
        self.subject: object = None

    def ask(self, subject: object, params: JsonObject) -> None:
        """Asks in place of what was asked before."""
        self.close()
        self.subject, self.answer = subject, None

        def answered(outcome: RawJson | RpcError) -> None:
            if self.subject is subject:
                self.answer = outcome
                self._news()

        self._key = self._channel.ask(Question(ELICIT, msgspec.json.encode(params), answered))

    def close(self) -> None:
        self.subject = None
        if self._key is not None:
            self._channel.questions.withdraw(self._key)
            self._key = None


class _Links:
    """The links that clients of a session were given, by principal and server; they hear of the login's end.

    `tell` sends a message to a session.
    """

    def __init__(self, tell: Callable[[str, bytes], None]) -> None:
        self._tell = tell
        self._open: OrderedDict[str, tuple[str, str, str]] = OrderedDict()

    def note(self, id_: str, needed: AccountNeeded, call: Call) -> None:
        if call.era is HANDSHAKE:  # later versions have no such notification
            self._open[id_] = needed.server, needed.principal, call.session
            if len(self._open) > _MOST_LINKS:
                self._open.popitem(last=False)

    def finished(self, server: str, principal: str) -> None:
        for id_ in [id_ for id_, link in self._open.items() if link[:2] == (server, principal)]:
            params = msgspec.json.encode({"elicitationId": id_})
            self._tell(self._open.pop(id_)[2], notification_frame(_COMPLETE, params))


def waits(desk: LoginDesk, tell: Callable[[str, bytes], None]) -> Needed:
    """`wait_for_login` at this desk. `tell` sends sessions the news of a complete login."""
    links = _Links(tell)
    desk.accounts.begun.append(links.finished)
    return partial(wait_for_login, desk, links)


async def wait_for_login(
    desk: LoginDesk, links: _Links, needed: AccountNeeded, call: Call, channel: CallChannel
) -> Completed | None:
    """Returns None when the account is there, so that the call may be tried; else the result of a tool call.

    Raises `RpcError`, for another request what a tool call has as its result, and -32042 for a client that opens links
    but cannot be asked now.
    """
    try:
        text = await _Wait(desk, needed, call, channel, links=links).refusal()
    except Rejected as refused:
        text = _said(needed, f"{refused}")
    except (StoreError, LoginFailed) as problem:
        raise StoreUnavailable(f"the accounts cannot be read: {problem}") from None
    if text is not None and call.method != "tools/call":
        raise RpcError(text, code=needed.code, data=needed.data)
    return None if text is None else Completed.of(text, is_error=True)


class _Wait:
    def __init__(
        self, desk: LoginDesk, needed: AccountNeeded, call: Call, channel: CallChannel, *, links: _Links
    ) -> None:
        self._accounts = desk.accounts
        self._links = links
        self._desk = desk
        self._needed = needed
        self._call = call
        self._channel = channel
        self._woken = anyio.Event()
        self._question = _OpenQuestion(channel, self._wake)

    async def refusal(self) -> str | None:
        """Waits; the text if the account is not there."""
        server, principal = self._needed.server, self._needed.principal
        before = await self._accounts.read(server, principal)
        since = before.since if before is not None else None
        try:
            async with self._accounts.watched(server, principal):  # its removal by another hub is news
                while not await self._is_there(since):
                    pending = await self._desk.pending(server, principal)
                    if (outcome := await self._step(pending)) is not None:
                        return outcome
                    self._channel.times.touch()
                    await self._news()
        finally:
            self._question.close()
        self._links.finished(server, principal)  # another hub may have stored it
        self._channel.continuable(None)
        return None

    async def _is_there(self, since: float | None) -> bool:
        account = await self._accounts.read(self._needed.server, self._needed.principal)
        if account is None:
            return False
        if self._needed.names:
            return set(self._needed.names) <= account.values.keys()
        return account.grant is not None and account.since != since

    async def _step(self, pending: tuple[PendingLogin, ...]) -> str | None:
        """Asks what is to be asked now, or takes its answer; a refusal if nothing can be waited for."""
        proven = awaiting(pending, self._needed.server)
        if proven is not None:
            return await self._code(proven)
        if self._question.subject is None:
            return await self._link()
        if not pending:
            return _said(self._needed, "The login was not finished, or it failed.")
        return await self._opened()

    # -- the link

    async def _link(self) -> str | None:
        needed = self._needed
        entry, url = await self._desk.offer(needed.server, needed.principal, needed.names)
        params: JsonObject = {
            "mode": "url", "url": url, "elicitationId": (id_ := str(uuid.uuid4())),
            "message": f'{needed.message} Open the page to connect your account at "{needed.server}".',
        }  # fmt: skip
        if self._lacks(msgspec.json.encode(params)):
            return _said(needed, _LINK.format(url=url, way=_way(needed.server)))
        self._links.note(id_, needed, self._call)
        self._channel.continuable(msgspec.Raw(WAITS))
        self._question.ask(params, params)
        return None

    async def _opened(self) -> str | None:
        answer, params = self._question.answer, self._question.subject
        if isinstance(answer, RpcError):
            assert isinstance(params, dict)
            message = f"{self._needed.message} Open the link to log in, and then call again."
            raise RpcError(message, code=URL_ELICITATION_REQUIRED, data={"elicitations": [params]})
        if answer is None:
            return None
        decided = read_as(msgspec.Raw(bytes(answer)), _Answer)
        if decided is not None and decided.action == "accept":
            return None  # the page is being opened
        await self._desk.withdraw(self._needed.server, self._needed.principal)
        return _said(self._needed, "The login was declined.")

    # -- the code

    async def _code(self, proven: PendingLogin) -> str | None:
        if self._lacks(_ONLY_FORM):
            # who has asked waits on, since the code can be entered elsewhere
            return (
                None
                if self._question.subject is not None
                else _said(self._needed, _CODE.format(way=_way(proven.server)))
            )
        if self._question.subject != proven.state:
            self._ask_code(proven, "")
            return None
        answer = self._question.answer
        if answer is None:
            return None
        decided = None if isinstance(answer, RpcError) else read_as(msgspec.Raw(bytes(answer)), _Answer)
        if decided is None or decided.action != "accept" or decided.content is None:
            await self._desk.withdraw(proven.server, proven.principal)
            return _said(self._needed, "The code was not entered: the login is thrown away.")
        try:
            await self._desk.confirm(proven.server, proven.principal, decided.content.code)
        except Rejected as refused:
            if not refused.members.get("tries_left"):
                raise
            self._ask_code(proven, f"{str(refused).capitalize()} ")
        return None

    def _ask_code(self, proven: PendingLogin, before: str) -> None:
        account = f' "{proven.label}"' if proven.label else ""
        code = {"type": "string", "title": "Code", "description": "Six digits", "minLength": 6, "maxLength": 16}
        message = (
            f'{before}Enter the code that your browser shows. The account{account} at "{proven.server}" will belong to '
            f'"{proven.principal}" in this hub. Enter no code that somebody else gave you.'
        )
        schema = {"type": "object", "properties": {"code": code}, "required": ["code"]}
        self._channel.continuable(msgspec.Raw(WAITS))
        self._question.ask(proven.state, {"message": message, "requestedSchema": schema})

    # -- in between

    def _lacks(self, params: bytes) -> bool:
        """Whether the caller itself cannot be asked. Nobody else is: the account is the caller's."""
        return can_answer(self._call.capabilities, self._call.version, ELICIT, params) is not None

    async def _news(self) -> None:
        desk = self._desk.news
        with anyio.move_on_after(_LOOK):
            async with anyio.create_task_group() as tasks:
                for event in (self._woken, desk):
                    tasks.start_soon(_first, event, tasks.cancel_scope)

    def _wake(self) -> None:
        self._woken.set()
        self._woken = anyio.Event()


async def _first(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


_LINK: Final = (
    "Open this link in your browser and log in; then call the tool again: {url}\nThe link works once, for ten minutes, "
    "and is for you alone: whoever logs in there gives you the account. Its last page shows a code. {way}"
)
_CODE: Final = "A login at it waits for the code that the browser shows. {way} Then call the tool again."


def _way(server: str) -> str:
    return f"Enter the code by: mcp-hub account confirm {server} CODE"


def _said(needed: AccountNeeded, text: str) -> str:
    return f"{needed.message} {text}"
