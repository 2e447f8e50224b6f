"""One webhook: signed POSTs in order, repeated until taken or given up, from a stored cursor.

Every URL comes from a client: its host is resolved once for a message; the connection goes to a checked address. The
cursor is stored after a 2xx, before the next message.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from secrets import token_hex
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx2
import msgspec

from mcp_hub.addresses import Address, address_of, normal_host, refused_target
from mcp_hub.aio import Bell
from mcp_hub.call import StreamInfo
from mcp_hub.calls.feeds.reading import FeedReader, Topic
from mcp_hub.calls.reading.stored import appended
from mcp_hub.clock import wall_time
from mcp_hub.errors import AccountNeeded, Fenced, InvalidParams, RpcError, StartFailed, StoreError
from mcp_hub.globs import any_matches
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, read_as
from mcp_hub.protocol.jsonrpc.rpc_errors import METHOD_NOT_FOUND
from mcp_hub.protocol.shape.occurrences import FORBIDDEN, NOT_FOUND, UNSUPPORTED, callback_failed, delivered, forbidden
from mcp_hub.protocol.shape.webhooks import (
    RECEIVERS,
    SUBSCRIPTION,
    Webhook,
    control_body,
    has_challenge,
    host_of,
    message_id,
    refused_callback,
    signed,
    takes_path,
    terminated_body,
)
from mcp_hub.stores.base import Change, StreamLog
from mcp_hub.types import RawObject
from mcp_hub.wire.bodies import whole_body
from mcp_hub.wire.http_client import USER_AGENT, bad_proxy, pinned, proxy, resolved, tls
from mcp_hub.wire.responses import OVERLOADED, code_of, origin, reason_of, retry_after

log = get_logger(__name__)

_SECONDS: Final = 10.0  # for one message and its answer
_MOST_ANSWER: Final = 4096
"""Bytes of the answer to a challenge, or of an origin's document; of other answers no byte is read."""
_CATEGORIES: Final = {"connection_refused": "connection_refused", "connect_timeout": "timeout"}
"""Failures of a connection in the extension's words; those of a certificate are `tls_error`."""
_UNREACHED: Final = (OSError, ValueError, ImportError, StartFailed, httpx2.HTTPError, httpx2.InvalidURL)
_HEADERS: Final = {"user-agent": USER_AGENT, "accept-encoding": "identity"}
Resolve = Callable[[str], Awaitable[list[Address]]]
_PAUSES: Final = (2.0, 10.0, 60.0, 240.0)
"""Seconds after each failed attempt of a message, more or less by half; then it is given up."""
_LONGEST_PAUSE: Final = 600.0
"""Seconds of a `Retry-After` that are waited."""
_AT_ONCE: Final = 16
"""Occurrences that are read together."""
_LOOK: Final = 30.0
"""Seconds between looks at rights and expiry."""
_STORE: Final = 1.0
"""Seconds between attempts to store, or to begin to read; doubled up to `_LOOK`."""
_ENDED: Final = 60.0
"""Seconds that the row of an ended subscription is kept."""
_OVER: Final = frozenset({NOT_FOUND, FORBIDDEN, UNSUPPORTED, METHOD_NOT_FOUND, InvalidParams.code})
"""Codes after which a subscription cannot be delivered any more."""


class _Outcome(msgspec.Struct, frozen=True):
    """An answer's `status`, 0 for none; `problem` in the extension's words, empty for success.

    `pause`: the seconds that the receiver asks to wait.
    """

    status: int
    problem: str
    pause: float = 0.0
    answer: bytes = b""

    @property
    def is_final(self) -> bool:
        """Whether another attempt is useless: the receiver does not want it, or it is too large."""
        return self.status in (410, 413)


class Callbacks:
    """Sends messages. `hosts` returns the globs of hosts that may be in an inner network, at any port, without TLS."""

    def __init__(self, hosts: Callable[[], Collection[str]], resolve: Resolve = resolved) -> None:
        self._hosts = hosts
        self._resolve = resolve

    def is_allowed(self, host: str) -> bool:
        return any_matches(self._hosts(), (host,))

    def to(self, url: str, subscription: str) -> "_Callback":
        return _Callback(self, url, subscription)

    async def verify(self, url: str, key: bytes, subscription: str) -> None:
        """Sends a challenge, which must come back, unless the origin publishes that the URL takes messages. Raises the
        extension's CallbackEndpointError.
        """
        body = control_body("verification", challenge=(challenge := token_hex(32)))
        async with self.to(url, subscription) as callback:
            outcome = await callback.send([key], control_id("verification"), body, is_read=True)
            is_echoed = not outcome.problem and has_challenge(outcome.answer, challenge)
            is_taken = is_echoed or (outcome.status > 0 and await callback.is_published())
        if not is_taken:
            problem = outcome.problem or "challenge_failed"
            log.warning("webhook_not_verified", to=origin(url), reason=problem)
            raise callback_failed(problem)

    async def checked(self, url: str, *, via_proxy: bool) -> str | None:
        """An address of the URL's host that may be reached; None if a proxy resolves it. Raises `ValueError`."""
        if (problem := refused_callback(url, self.is_allowed)) is not None:
            raise ValueError(f"its address is refused: {problem}")
        host = host_of(url)
        private = (host,) if self.is_allowed(host) else ()
        address = address_of(host)
        if via_proxy:
            return None
        addresses = [address] if address is not None else await self._resolve(host)
        problems = [refused_target(each, host, private) for each in addresses]
        allowed = [str(each) for each, problem in zip(addresses, problems, strict=True) if problem is None]
        if not allowed:
            reason = (problems[0] or "").partition(". If that is meant")[0] if problems else "it has no address"
            raise ValueError(f"its host is refused: {reason}. An inner host has to stand in hub.events.webhook_hosts.")
        return allowed[0]


def control_id(kind: str) -> str:
    return f"msg_{kind}_{token_hex(8)}"


class _Callback:
    """One receiver, with its connections; an async context."""

    def __init__(self, callbacks: Callbacks, url: str, subscription: str) -> None:
        self._callbacks = callbacks
        self._url, self._subscription = url, subscription
        self._transport: httpx2.AsyncHTTPTransport | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "_Callback":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def send(self, keys: Sequence[bytes], id_: str, body: bytes, *, is_read: bool = False) -> _Outcome:
        """One attempt. Raises nothing."""
        headers = {**_HEADERS, "content-type": "application/json", SUBSCRIPTION: self._subscription}
        headers |= signed(keys, message_id(id_), body, wall_time())
        return await self._outcome(partial(httpx2.Request, "POST", self._url, headers=headers, content=body), is_read)

    async def is_published(self) -> bool:
        """Whether the origin's document, by TLS, covers the URL. Raises nothing."""
        if (parts := urlsplit(self._url)).scheme != "https":
            return False
        request = partial(httpx2.Request, "GET", f"https://{parts.netloc}{RECEIVERS}", headers=_HEADERS)
        outcome = await self._outcome(request, is_read=True)
        return outcome.status == 200 and takes_path(outcome.answer, parts.path or "/")

    async def _outcome(self, request: Callable[[], httpx2.Request], is_read: bool) -> _Outcome:
        try:
            with anyio.fail_after(_SECONDS):
                return await self._answer(request(), is_read=is_read)
        except _UNREACHED as exc:
            reason = bad_proxy(self._url, exc) if isinstance(exc, ImportError) else reason_of(exc)
            log.info("webhook_not_reached", to=origin(self._url), reason=hide_head(reason, 300))
            is_of_tls = (code := code_of(exc)).startswith("tls")
            return _Outcome(0, "tls_error" if is_of_tls else _CATEGORIES.get(code, "connection_refused"))

    async def _answer(self, request: httpx2.Request, *, is_read: bool) -> _Outcome:
        via = proxy(self._url)
        if normal_host(request.url.raw_host.decode()) != (host := host_of(self._url)) and address_of(host) is None:
            raise ValueError("its host can be read in two ways")
        address = await self._callbacks.checked(self._url, via_proxy=via is not None)
        if self._transport is None:
            self._transport = httpx2.AsyncHTTPTransport(verify=tls(), proxy=via)
            await self._stack.enter_async_context(self._transport)
        response = await self._transport.handle_async_request(request if address is None else pinned(request, address))
        try:
            answer = await whole_body(response, _MOST_ANSWER) if is_read and response.is_success else b""
        finally:
            await response.aclose()
        status = response.status_code
        problem = "" if response.is_success else "http_5xx" if status >= 500 else "http_4xx"
        pause = (retry_after(response) or 0) if status in OVERLOADED else 0
        return _Outcome(status, problem, float(pause), answer)


Rights = Callable[[Webhook], tuple[Topic, Sequence[str]] | None]
"""Topic and modes of a subscription whose principal may have it; None while that is not known. Raises `RpcError`."""
Open = Callable[[Topic, Sequence[str], Webhook], Awaitable[FeedReader]]
"""A reader behind the subscription's cursor. Raises `RpcError`, `StoreError`."""


class Deliverer(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that all subscriptions of a hub share. `keys` that sign now, if any; `counts` by outcome and server."""

    log: StreamLog
    callbacks: Callbacks
    rights: Rights
    open: Open
    keys: Callable[[Webhook], list[bytes]]
    counts: Counter[tuple[str, str]]


class WebhookDelivery:
    """Delivers one subscription. `reader` is behind the record's cursor."""

    def __init__(self, deliverer: Deliverer, row: StreamInfo, webhook: Webhook, reader: FeedReader | None) -> None:
        self.row = row
        self.webhook = webhook
        self.scope = anyio.CancelScope()
        self.bell = Bell()
        self._deliverer = deliverer
        self._reader = reader
        self._turn = anyio.Lock()
        self._pause = _STORE

    async def run(self) -> None:
        """Delivers until the subscription is over. Raises `Fenced` if another hub has it."""
        async with self._deliverer.callbacks.to(self.webhook.url, self.webhook.id) as callback:
            try:
                while await self._step(callback):
                    pass
            finally:
                self._close()

    async def change(self, change: Callable[[Webhook], Webhook]) -> None:
        """Stores a changed record, however long the store is away. Raises `Fenced`."""
        pause = _STORE
        while True:
            try:
                async with self._turn:
                    webhook = change(self.webhook)
                    changed = Change(wall_time(), continuation=msgspec.json.encode(webhook))
                    await appended(self._deliverer.log, self.row, (), changed)
                    self.webhook = webhook
                    return
            except Fenced:
                raise
            except StoreError as problem:
                log.warning("webhook_not_stored", webhook=self.webhook.id, reason=str(problem))
                await anyio.sleep(pause)
                pause = min(2 * pause, _LOOK)

    async def end(self) -> None:
        """Ends the row, and the delivery. Raises `StoreError`."""
        async with self._turn:
            ending = Change(wall_time(), "completed", ttl=_ENDED, frees_key=True)
            await appended(self._deliverer.log, self.row, (), ending)
        self.scope.cancel()

    # -- steps ------------------------------------------------------------------------------------------------------

    async def _step(self, callback: _Callback) -> bool:
        """Whether there is another one."""
        if self._is_expired():
            log.info("webhook_expired", webhook=self.webhook.id, to=origin(self.webhook.url))
            await self.end()
            return False
        try:
            granted = self._deliverer.rights(self.webhook)
            if not self.webhook.is_active:
                self._close()
                await self._wait(None)
                return True
            if granted is None or not self._may_send():  # the server has listed nothing yet, or no key signs
                return await self._again()
            if self._reader is None:
                self._reader = await self._deliverer.open(*granted, self.webhook)
            return await self._delivered(callback, self._reader)
        except AccountNeeded as error:
            return await self._terminate(callback, forbidden(error.message))
        except Fenced:
            raise
        except (RpcError, StoreError) as error:
            if isinstance(error, RpcError) and error.code in _OVER:
                return await self._terminate(callback, error)
            return await self._again()

    async def _again(self) -> bool:
        self._close()
        await self.bell.wait(self._pause)
        self._pause = min(2 * self._pause, _LOOK)
        return True

    async def _delivered(self, callback: _Callback, reader: FeedReader) -> bool:
        occurrences, is_truncated = await reader.read(_AT_ONCE)
        self._pause = _STORE
        if is_truncated:
            behind = self.webhook.cursor if occurrences else reader.cursor
            if not await self._send(callback, control_id("gap"), control_body("gap", cursor=behind), behind):
                return True
        for occurrence, cursor in occurrences:
            if not await self._send_occurrence(callback, occurrence, cursor):
                return True
        if occurrences:
            return True
        if isinstance(reader.problem, AccountNeeded):
            raise reader.problem
        if reader.ended is not None:
            return await self._terminate(callback, reader.ended)
        if not reader.is_open:
            self._close()
        await self._wait(reader)
        return True

    async def _send_occurrence(self, callback: _Callback, occurrence: RawObject, cursor: str) -> bool:
        id_ = read_as(occurrence["eventId"], str) or ""
        return await self._send(callback, id_, object_bytes(delivered(occurrence, self.webhook.name, cursor)), cursor)

    async def _send(self, callback: _Callback, id_: str, body: bytes, cursor: str) -> bool:
        """Whether the message was taken or given up; else it is read again."""
        counts, server, pauses, due = self._deliverer.counts, self.webhook.server, list(_PAUSES), 0.0
        while True:
            if not self._may_send():
                self._close()
                return False
            outcome = await callback.send(self._deliverer.keys(self.webhook), id_, body)
            wall, answered = wall_time(), anyio.current_time()
            if not outcome.problem:
                counts["delivered", server] += 1
                await self.change(partial(Webhook.taken, cursor=cursor, at=wall))
                return True
            counts["failed", server] += 1
            self.webhook = self.webhook.failed(outcome.problem, wall)
            if outcome.is_final or (answered >= due and not pauses):
                break
            if answered >= due:  # else a refresh has brought this attempt forward
                due = answered + max(pauses.pop(0) * random.uniform(0.5, 1.5), min(outcome.pause, _LONGEST_PAUSE))
            await self.bell.wait(due - answered)
        counts["given_up", server] += 1
        log.warning(
            "webhook_given_up", webhook=self.webhook.id, to=origin(self.webhook.url), message=hide_head(id_, 100),
            reason=outcome.problem, status=outcome.status,
        )  # fmt: skip
        await self.change(partial(Webhook.gave_up, cursor=cursor))
        return self.webhook.is_active

    async def _terminate(self, callback: _Callback, error: RpcError) -> bool:
        """Says that the subscription is over, and ends it."""
        self._close()
        self._deliverer.counts["terminated", self.webhook.server] += 1
        log.info("webhook_terminated", webhook=self.webhook.id, to=origin(self.webhook.url), code=error.code)
        id_, body = control_id("terminated"), terminated_body(error)
        for pause in (*_PAUSES[:2], None) if self._deliverer.keys(self.webhook) else ():
            outcome = await callback.send(self._deliverer.keys(self.webhook), id_, body)
            if not outcome.problem or outcome.is_final or pause is None:
                break
            await self.bell.wait(pause)
        await self.end()
        return False

    # -- waits ------------------------------------------------------------------------------------------------------

    def _is_expired(self) -> bool:
        return self.webhook.expires is not None and wall_time() >= self.webhook.expires

    def _may_send(self) -> bool:
        with suppress(RpcError):
            has_rights = not self._is_expired() and self._deliverer.rights(self.webhook) is not None
            return has_rights and bool(self._deliverer.keys(self.webhook))
        return False

    async def _wait(self, reader: FeedReader | None) -> None:
        """Waits for news of the feed, a change of the subscription, or the next look."""
        seconds = _LOOK if self.webhook.expires is None else self.webhook.expires - wall_time()
        with anyio.move_on_after(max(0.0, min(seconds, _LOOK))):
            async with anyio.create_task_group() as tasks:

                async def until_rung() -> None:
                    await self.bell.wait()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(until_rung)
                if reader is None:
                    await anyio.sleep_forever()
                else:
                    await reader.wait()
                    tasks.cancel_scope.cancel()

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
