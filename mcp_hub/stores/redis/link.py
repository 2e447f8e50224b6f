"""The configured server, warnings of its settings that may lose streams, and one connection with its queue.

Requests of one pass of the event loop share a pipeline.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import anyio
import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import TimeoutError as TooSlow

from mcp_hub import __version__, aio
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.redis.keys import RedisKeys, quarantined
from mcp_hub.stores.redis.scripts import ALL, SET_ASIDE, digest

log = get_logger(__name__)

ANSWER: Final = 3.0
"""Seconds for the answer to any command but one that waits."""
_STOPPED: Final = 0.1
"""Seconds beyond that for which nobody waits but a process that was stopped meanwhile."""
MOST_JOBS: Final = 16_384
MOST_BYTES: Final = 64 << 20
"""Jobs that wait, and bytes of what they send; more are refused (`busy`)."""
_BATCH: Final = 512
_BATCH_BYTES: Final = 4 << 20
"""Jobs of one pipeline, and the bytes after which no further one joins it."""
_REPLICA_MS: Final = 500
"""Milliseconds that a replica of the server has to confirm."""
_FULL: Final = ("OOM", "MISCONF", "NOREPLICAS")
_OF_SERVER: Final = ("READONLY", "LOADING", "MASTERDOWN", "NOAUTH", "NOPERM", "CLUSTERDOWN", "TRYAGAIN", "BUSY")
"""Beginnings of errors that do not lie with one stream: the server takes no writes at all, or not now."""

WRONG_TYPE: Final = "WRONGTYPE"
_FULL_STREAM: Final = "exhausted the last possible ID"
"""In errors for a key that is not what the hub writes: it is of another type, or its entries have the last id."""

_REFUSALS: Final = (ReadOnlyError, NoPermissionError, ClusterError)

Command = tuple[str | bytes | float, ...]
Reply = Any
Answered = Callable[[list[Reply] | StoreError], None]


class _Job(NamedTuple):
    commands: Sequence[Command]
    callback: Answered
    size: int
    is_vital: bool


def script(text: str, keys: Sequence[str], *arguments: str | bytes | float) -> Command:
    return "EVALSHA", digest(text), len(keys), *keys, *arguments


class Link:
    """`name` is for errors; with `waits_for_replica`, vital jobs wait for a server replica.

    Sets `keys` of a wrong type aside.
    """

    def __init__(
        self, client: Redis, name: str, keys: RedisKeys | None = None, *, waits_for_replica: bool = False
    ) -> None:
        self._client = client
        self._keys = keys
        self._name = name
        self._waits = waits_for_replica
        self._jobs: list[_Job] = []
        self._bytes = 0
        self._bell = aio.Bell()
        self._task: aio.Background | None = None
        self._idle: anyio.Event | None = None
        self.commands = 0
        """Commands that were sent."""

    def start(self) -> None:
        self._task = aio.Background(self._run)

    async def stop(self, seconds: float) -> None:
        """Sends pending jobs within `seconds`. Idempotent."""
        if self._task is None:
            return
        task, self._task = self._task, None
        self._idle = anyio.Event()
        self._bell.ring()
        with anyio.move_on_after(seconds, shield=True):
            await self._idle.wait()
        await task.stop()
        self._refuse(self._take(None), StoreFault("unusable", f"{self._name}: is closed"))

    def submit(self, commands: Sequence[Command], callback: Answered, *, size: int = 0, is_vital: bool = False) -> None:
        """Queues commands of `size` bytes; the callback gets their replies or a `StoreError`. `is_vital` ones may wait
        for a server replica.
        """
        if self._task is None:
            callback(StoreFault("unusable", f"{self._name}: is closed"))
        elif len(self._jobs) >= MOST_JOBS or (self._bytes + size > MOST_BYTES and self._jobs):
            callback(
                StoreFault("busy", f"{self._name}: {len(self._jobs)} requests of {self._bytes} bytes wait already")
            )
        else:
            self._jobs.append(_Job(commands, callback, size, is_vital))
            self._bytes += size
            self._bell.ring()

    async def ask(self, *commands: Command, is_vital: bool = False) -> list[Reply]:
        """Raises `StoreError`."""
        answers: list[list[Reply] | StoreError] = []
        is_answered = aio.Bell()

        def answered(answer: list[Reply] | StoreError) -> None:
            answers.append(answer)
            is_answered.ring()

        self.submit(commands, answered, is_vital=is_vital)
        await is_answered.wait()
        if isinstance(answers[0], StoreError):
            raise answers[0]
        return answers[0]

    # -- sending

    async def _run(self) -> None:
        while True:
            await self._bell.wait()
            while self._jobs:
                jobs = self._take(_BATCH)
                try:
                    answers = await self._answers(jobs)
                except BaseException:
                    self._refuse(jobs, StoreFault("unusable", f"{self._name}: is closed"))
                    raise
                for job, answer in zip(jobs, answers, strict=True):
                    self._tell(job, answer)
            if self._idle is not None:
                self._idle.set()

    def _take(self, limit: int | None) -> list[_Job]:
        count = size = 0
        for job in self._jobs[:limit]:
            if size > _BATCH_BYTES and limit is not None:
                break
            count += 1
            size += job.size
        jobs = self._jobs[:count]
        del self._jobs[:count]
        self._bytes -= size
        return jobs

    def _refuse(self, jobs: Iterable[_Job], fault: StoreFault) -> None:
        for job in jobs:
            self._tell(job, fault)

    def _tell(self, job: _Job, answer: list[Reply] | StoreError) -> None:
        try:
            job.callback(answer)
        except Exception:  # others wait for the rest
            log.exception("store_callback_failed", store=self._name)

    async def _answers(self, jobs: Sequence[_Job]) -> Sequence[list[Reply] | StoreError]:
        commands = [command for job in jobs for command in job.commands]
        waits = self._waits and any(job.is_vital for job in jobs)
        if waits:
            commands.append(("WAIT", 1, _REPLICA_MS))
        try:
            replies = await self._sent_safely(commands)
        except (RedisError, OSError) as error:
            return [faulty(error, self._name)] * len(jobs)
        if waits and not (isinstance(replies[-1], int) and replies[-1]):
            log.warning("store_not_replicated", store=self._name, milliseconds=_REPLICA_MS)
        answers: list[list[Reply] | StoreError] = []
        at = 0
        for job in jobs:
            job_replies = replies[at : at + len(job.commands)]
            at += len(job.commands)
            failed = next((reply for reply in job_replies if isinstance(reply, Exception)), None)
            answers.append(job_replies if failed is None else faulty(failed, self._name))
        return answers

    async def _sent_safely(self, commands: Sequence[Command]) -> list[Reply]:
        began = anyio.current_time()
        try:
            replies = await self._sent(commands)
        except (ConnectionLost, TooSlow, OSError) as error:  # it may have been closed while nothing was sent
            was_stopped = anyio.current_time() - began > ANSWER + _STOPPED
            if isinstance(error, TooSlow) and not was_stopped:
                raise
            replies = await self._sent(commands)
        missing = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            await self._sent([("SCRIPT LOAD", text) for text in ALL])
            for index, reply in zip(missing, await self._sent([commands[index] for index in missing]), strict=True):
                replies[index] = reply
        await self._cure(commands, replies)
        return replies

    async def _cure(self, commands: Sequence[Command], replies: list[Reply]) -> None:
        failed = [index for index, reply in enumerate(replies) if _is_of_key(reply)]
        if failed and self._keys is not None:
            await self._set_aside([key for index in failed for key in _keys_of(commands[index])], _is_full(replies))
            for index, reply in zip(failed, await self._sent([commands[index] for index in failed]), strict=True):
                replies[index] = reply

    async def set_wrong_types_aside(self, keys: Iterable[str]) -> None:
        """Renames keys of a wrong type. Raises `StoreError`."""
        try:
            await self._set_aside(keys, False)
        except (RedisError, OSError) as error:
            raise faulty(error, self._name) from None

    async def _set_aside(self, keys: Iterable[str], is_full: bool) -> None:
        assert self._keys is not None
        every = list(dict.fromkeys(keys))
        expected = [self._keys.type_of(key) for key in every]
        types = ["" if is_full and kind == "stream" else kind for kind in expected]
        commands = [
            script(SET_ASIDE, [key, quarantined(key)], kind, "") for key, kind in zip(every, types, strict=True)
        ]
        await self._sent([("SCRIPT LOAD", SET_ASIDE)])
        for key, kind, reply in zip(every, expected, await self._sent(commands), strict=True):
            if isinstance(reply, bytes) and reply:
                reason = f"it is of type {reply.decode('ascii', 'replace')} instead of {kind}"
                log.warning("record_set_aside", key=key, kept_in=quarantined(key), reason=reason)

    async def _sent(self, commands: Sequence[Command]) -> list[Reply]:
        self.commands += len(commands)
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        replies: list[Reply] = await pipeline.execute(raise_on_error=False)
        return replies


def _is_of_key(reply: Reply) -> bool:
    return isinstance(reply, ResponseError) and (str(reply).startswith(WRONG_TYPE) or _FULL_STREAM in str(reply))


def _is_full(replies: Iterable[Reply]) -> bool:
    return any(isinstance(reply, ResponseError) and _FULL_STREAM in str(reply) for reply in replies)


def _keys_of(command: Command) -> list[str]:
    keys = command[3 : 3 + int(command[2])] if command[0] == "EVALSHA" else command[1:2]
    return [key for key in keys if isinstance(key, str)]


def faulty(error: Exception, name: str) -> StoreError:
    """A client error as `StoreFault`; as `StoreError` if only one stream is affected."""
    if isinstance(error, StoreError):
        return error
    text = str(error) or type(error).__name__
    message = hide(f"{name}: {text}")
    if isinstance(error, OutOfMemoryError) or text.startswith(_FULL):
        return StoreFault("full", message)
    if isinstance(error, ResponseError) and not (isinstance(error, _REFUSALS) or text.startswith(_OF_SERVER)):
        return StoreError(message)
    return StoreFault("unreachable", message)


_CONNECT: Final = 2.0
"""Seconds to connect."""
_SKEW: Final = 2.0
"""Seconds that the server's clock may differ from the hub's."""


class Server(msgspec.Struct, frozen=True):
    """`lease` is in seconds; `acknowledge`: whose copy confirms first and last events."""

    url: str
    prefix: str = "mcp-hub:"
    lease: float = 1.2
    acknowledge: Literal["local", "replica"] = "local"

    @property
    def name(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def waits_for_replica(self) -> bool:
        return self.acknowledge == "replica"

    def client(self, *, waits: bool = False) -> Redis:
        """A lazy client that never retries; `waits`: without a time limit for commands."""
        return Redis.from_url(
            self.url,
            socket_connect_timeout=_CONNECT,
            socket_timeout=None if waits else ANSWER,
            retry=Retry(NoBackoff(), 0),
            client_name=f"mcp-hub-{__version__}",
            protocol=2,
        )


async def probe(link: Link, now: Callable[[], float]) -> float:
    """Logs risky settings; returns the uptime in seconds. Raises `StoreError`."""
    [[seconds, micros]] = await link.ask(("TIME",))
    skew = int(seconds) + int(micros) / 1e6 - now()
    if abs(skew) > _SKEW:
        advice = "Set both clocks by NTP: streams expire by them."
        log.warning("store_clock_differs", seconds=round(skew, 1), advice=advice)
    info = await _info(link)
    policy, appends = info.get("maxmemory_policy", ""), info.get("aof_enabled", "")
    if policy not in ("noeviction", "") and info.get("maxmemory", "0") != "0":
        advice = "Set maxmemory-policy to noeviction: any other policy deletes streams that still run."
        log.warning("store_may_evict", policy=policy, advice=advice)
    if appends == "0":
        advice = "Set appendonly to yes: without it a restart of the server loses streams."
        log.warning("store_not_persistent", advice=advice)
    return float(info.get("uptime_in_seconds", "0") or 0)


async def _info(link: Link) -> Mapping[str, str]:
    """Sections of INFO; empty if this user may not read them."""
    try:
        replies = await link.ask(("INFO", "server"), ("INFO", "memory"), ("INFO", "persistence"))
    except StoreError as error:
        log.warning("store_not_checked", reason=str(error), advice="Allow the command INFO to the hub's user.")
        return {}
    return {key: str(value) for reply in replies if isinstance(reply, dict) for key, value in reply.items()}
