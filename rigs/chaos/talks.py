"""Calls that ask questions, and calls of handshake sessions, which move between hubs; and what they must show.

A question is answered at any hub until it is closed. A session drops its response at times, and comes back for the rest
at any hub by the id of the last event.
"""

import json
import random
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio
import httpx2

from mcp_hub.protocol.sse import Cursor
from mcp_hub.types import JsonObject
from rigs.chaos.hubs import Door, Doors
from rigs.chaos.jobs import AWAY, ENDINGS, LATER, PATIENCE, SILENCE, Job, begun, followed, polled, rpc, shown
from tests.e2e.client import HttpClient, SseEvent, SseStream
from tests.upstreams.child import PeerClosed
from tests.upstreams.launch import entry

ASKING: JsonObject = {
    "asking": {
        **entry(era="modern"),
        "prefix": "never",
        "per_tool": {"ask_form": {"task": "always", "orphan": "finish"}},
    }
}
"""The server that asks."""
_BROKEN = (httpx2.HTTPError, PeerClosed, TimeoutError)
_CLOSED = (404, 409)
"""Answers to who answers a question that is not open (any more)."""
_ANSWERS = 25
"""How often a client sends an answer that no hub has taken."""
_DROPS = 0.05
"""Share of events after which a session drops its response."""


async def run_talk(doors: Doors, http: httpx2.AsyncClient, rng: random.Random) -> Job:
    """Runs one call to its end, as a session's or one whose question is answered anywhere."""
    job = Job(steps=0, is_task=False)
    with anyio.move_on_after(PATIENCE):
        if rng.random() < 0.5:
            await _Session(job, doors, rng).run()
        else:
            job.is_task = rng.random() < 0.5
            await _question(job, doors, http, rng)
        job.is_done = True
    if not job.is_done and (stream := job.talk or job.stream):
        job.trail += [await _row(url, stream, http) for url in doors.urls]
    return job


async def _row(url: str, stream: str, http: httpx2.AsyncClient) -> str:
    """What a hub says of a stream."""
    try:
        answer = await http.get(f"{url}/v1/streams/{stream}")
    except httpx2.HTTPError as problem:
        return f"{url} on {stream}: {problem!r}"
    return f"{url} on {stream}: {answer.status_code} {answer.text[:600]}"


# -- a question that is answered at any hub


async def _question(job: Job, doors: Doors, http: httpx2.AsyncClient, rng: random.Random) -> None:
    nonce = uuid.uuid4().hex
    arguments = {"nonce": nonce, "delay": rng.uniform(0, 1)}
    if not await begun(job, "ask_form", arguments, doors, http):
        return
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_answers, job, nonce, doors, http, rng.uniform(0, 1))
        await followed(job, doors, http, rng)
        tasks.cancel_scope.cancel()
    if job.ended:
        job.faults += _misheard(job, nonce)
    if job.is_task and job.ended:
        await polled(job, doors)


async def _answers(job: Job, nonce: str, doors: Doors, http: httpx2.AsyncClient, pause: float) -> None:
    """Answers each question that was seen, wherever it can, until that was seen, too."""
    while True:
        events = job.events
        closed = {event["data"]["key"] for event in events if event["type"] == "input-received"}
        asked = [event["data"]["key"] for event in events if event["type"] == "input-required"]
        for key in [key for key in asked if key not in closed]:
            await anyio.sleep(pause)
            with suppress(*_BROKEN):
                await (_update if job.is_task else _post)(job, key, nonce, doors, http)
        await anyio.sleep(0.05)


async def _post(job: Job, key: str, nonce: str, doors: Doors, http: httpx2.AsyncClient) -> None:
    answer = {"key": key, **_accepted(nonce)}
    response = await http.post(f"{doors.any().url}/v1/streams/{job.stream}/input", json=answer)
    if response.status_code not in (202, *_CLOSED, *LATER):
        job.faults.append(f"an answer was answered {response.status_code}: {response.text[:300]}")


async def _update(job: Job, key: str, nonce: str, doors: Doors, http: httpx2.AsyncClient) -> None:
    params = {"taskId": job.stream, "inputResponses": {key: _accepted(nonce)}}
    await rpc(doors.any(), "tasks/update", params)


def _accepted(nonce: str) -> JsonObject:
    return {"action": "accept", "content": {"answer": nonce}}


def _misheard(job: Job, nonce: str) -> list[str]:
    """What is wrong with the result of a call that has asked."""
    *before, ending = job.events
    kinds = [event["type"] for event in before]
    if ending["type"] != "end" or ending["data"]["outcome"] == "cancelled":
        return []
    faults = [] if kinds.count("input-required") == kinds.count("input-received") > 0 else [f"it was asked as {kinds}"]
    return faults if _is_told(ending["data"]["result"], nonce) else [*faults, f"it was told {ending['data']}"]


def _is_told(result: JsonObject, nonce: str) -> bool:
    """Whether the server has got the answer."""
    with suppress(LookupError, ValueError, TypeError):
        told = json.loads(result["content"][0]["text"])
        return bool(told == {"nonce": nonce, "answers": {"form": {"result": _accepted(nonce)}}})
    return False


# -- a session that moves


@dataclass
class _Session:
    """One session and its call."""

    job: Job
    doors: Doors
    rng: random.Random
    nonce: str = field(default_factory=lambda: uuid.uuid4().hex)
    response: JsonObject | None = None
    home: Door | None = None
    door: Door | None = None
    """Where it began, and where its last request went."""
    is_over: bool = False
    is_known: bool = False
    """Whether another hub than that of its beginning has accepted it: before, the store may not have it."""
    last_id: str | None = None
    answers: list[str] = field(default_factory=list)
    """What became of each of its answers."""

    async def run(self) -> None:
        door = self.home = self.doors.any()
        self.job.refused = f"a session at {door.url}"
        async with HttpClient(f"{door.url}/mcp", seconds=SILENCE) as client:
            with suppress(*_BROKEN):
                await client.initialize(capabilities={"elicitation": {}})
            if client.session is None:
                return  # never acknowledged
            await self._call(client)
            if self.rng.random() < 0.7:
                with suppress(*_BROKEN):
                    await self._move(client).delete()

    def _move(self, client: HttpClient) -> HttpClient:
        self.door = self.doors.any()
        client.url = f"{self.door.url}/mcp"
        return client

    @property
    def _is_elsewhere(self) -> bool:
        """Whether the last request surely went to another hub than the first."""
        doors = [door for door in (self.home, self.door) if door is not None and door.life is not None]
        return len({door.url for door in doors}) > 1

    async def _call(self, client: HttpClient) -> None:
        asks = self.rng.random() < 0.5
        job = {"steps": self.rng.randint(5, 40), "seconds": self.rng.uniform(0.2, 2.0)}
        arguments = {"nonce": self.nonce, "delay": self.rng.uniform(0, 1)} if asks else job
        params = {"name": "ask_form" if asks else "run_job", "arguments": arguments, "_meta": {"progressToken": "t"}}
        message = client.message("tools/call", params)
        with suppress(*_BROKEN):
            async with client.stream(message) as stream:
                await self._read(client, stream, message["id"])
        while self.response is None and self.last_id is not None and not self.is_over:
            await self._resume(client, message["id"])
        self._judge(asks=asks)

    async def _resume(self, client: HttpClient, id_: object) -> None:
        self.job.reconnects += 1
        before, began, status = self.last_id, time.monotonic(), "no answer"
        try:
            async with self._move(client).listen(self.last_id) as stream:
                status = str(stream.status)
                self.job.refused = (
                    f"session {client.session}, {self.job.reconnects} reconnects, after {self.last_id}: "
                    f"{stream.status} at {client.url}, is known: {self.is_known}; answers: {self.answers}"
                )
                if stream.status == 404 and not self.is_known:
                    self.is_over = True
                elif stream.status == 200:
                    self.is_known = self.is_known or self._is_elsewhere
                    await self._read(client, stream, id_)
                elif stream.status not in LATER:
                    text = (await stream.rest(SILENCE)).text[:300]
                    self.job.faults.append(f"GET after {self.last_id} answered {stream.status}: {text}")
                    self.is_over = True
        except _BROKEN as problem:
            status += f", then {type(problem).__name__}"
        last = f"after {before} to {self.last_id} at {client.url} in {time.monotonic() - began:.1f} s: {status}"
        self.job.trail.append(f"{datetime.now(UTC):%H:%M:%S} {last}")
        await anyio.sleep(0.05)

    async def _read(self, client: HttpClient, stream: SseStream, id_: object) -> None:
        while self.response is None and (self.rng.random() >= _DROPS or self.last_id is None):
            message = self._note(await stream.next_event(SILENCE))
            if message.get("method") == "elicitation/create":
                await self._answer(client, message["id"])
            elif message.get("id") == id_:
                self.response = message

    def _note(self, event: SseEvent) -> JsonObject:
        """Notes an event's place; its message."""
        if event.id is not None:
            self.last_id, cursor = event.id, Cursor.parse(event.id)
            self.job.talk = cursor.stream
            if event.data and self.job.messages.setdefault(cursor.seq, event.message) != event.message:
                self.job.faults.append(f"message {cursor.seq} is {event.data}, and was {self.job.messages[cursor.seq]}")
        message: JsonObject = event.message if event.data else {}
        return message

    async def _answer(self, client: HttpClient, id_: object) -> None:
        """Any hub may get the answer: the client repeats it until one says that it has it."""
        answer = {"jsonrpc": "2.0", "id": id_, "result": _accepted(self.nonce)}
        for _ in range(_ANSWERS):
            try:
                status = (await client.post(answer)).status
            except _BROKEN as problem:
                self.answers.append(f"{client.url}: {problem!r}")
            else:
                self.answers.append(f"{client.url}: {status}")
                if status == 202:
                    return
            await anyio.sleep(0.2)
            self._move(client)

    def _judge(self, *, asks: bool) -> None:
        message = self.response or {}
        if "result" in message:
            self.job.answered = self.job.talk
            if asks and not _is_told(message["result"], self.nonce):
                self.job.faults.append(f"it was told {message['result']}")
        elif "error" in message and (message["error"].get("data") or {}).get("code") not in (*ENDINGS, AWAY):
            self.job.faults.append(f"a call was answered {message['error']}")


async def talks_agree(jobs: Sequence[Job], urls: Sequence[str], http: httpx2.AsyncClient) -> list[str]:
    """Where a hub shows other events of a session's call than its client got."""
    faults: list[str] = []
    for job in [job for job in jobs if job.messages and job.is_done]:
        for url in urls:
            events = {seq: json.loads(line) for seq, line in await shown(job.talk, url, http)}
            wrong = [seq for seq, message in job.messages.items() if not _is_of(message, events.get(seq))]
            if wrong:
                faults.append(f"{job.talk}: {url} shows {events.get(wrong[0])}, got was {job.messages[wrong[0]]}")
    return faults


def _is_of(message: JsonObject, event: JsonObject | None) -> bool:
    """Whether a message was made of this event."""
    if event is None:
        return False
    kind, data = event["type"], event["data"]
    match message.get("method"):
        case "notifications/progress":
            return bool(kind == "progress" and data["progress"] == message["params"]["progress"])
        case "elicitation/create":
            return bool(kind == "input-required")
        case None:
            is_end = kind == "end" if "result" in message else kind == "error"
            return bool(is_end)
        case _:
            return True
