"""Jobs that are started, followed and finished through whichever hub is there, and what each of them must show."""

import json
import random
import time
import uuid
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import anyio
import httpx2

from mcp_hub.protocol.meta import STREAMS
from rigs.chaos.hubs import Door, Doors, Life
from tests.e2e.client import HttpClient
from tests.e2e.three_hubs import TASKS
from tests.upstreams.messages import modern

PATIENCE = 240.0
"""Seconds in which a job has to come to an end, whatever is killed."""
_LONG = 60.0
"""Seconds that a plain call may take."""
SILENCE = 10.0
"""Seconds without a byte after which a request is given up."""
LATER = (502, 503)
"""Answers of a hub whose store is away, and of a balancer."""
AWAY = "store_unavailable"
_TRAIL = 60
"""Requests of a call that are kept."""
_CAPABILITIES: dict[str, Any] = {"elicitation": {}, "extensions": {TASKS: {}}}
RUNNING = ("working", "input_required")
ENDINGS = ("hub_restarted", "owner_lost")
"""Codes of the ending that another hub writes: of the same user, or another replica."""


@dataclass
class Job:
    """One call: how it was made, who answered that it has begun (None: not known for certain), what was seen of it."""

    steps: int
    is_task: bool
    is_plain: bool = False
    """A request that waits for its response, and has no cursor."""
    stream: str = ""
    owner: Life | None = None
    lines: dict[int, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    reconnects: int = 0
    is_done: bool = False
    answered: str = ""
    """The stream of a plain call that was answered well."""
    talk: str = ""
    messages: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The stream of a session's call, and the messages that its client got, by event."""
    ended: float = 0.0
    """When its ending was seen, by the monotonic clock."""
    refused: str = ""
    """What the last request that did not begin it came to."""
    trail: deque[str] = field(default_factory=lambda: deque(maxlen=_TRAIL))
    """What the last requests of a session's call came to, and what each hub had of it when it was given up."""

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for _, line in sorted(self.lines.items())]


async def run_job(doors: Doors, http: httpx2.AsyncClient, rng: random.Random) -> Job:
    """Starts a job and follows it to its end, over other hubs when one is gone."""
    kind = rng.random()
    job = Job(steps=rng.randint(5, 40), is_task=kind < 0.4, is_plain=kind > 0.8)
    seconds = rng.uniform(0.2, 2.0)
    with anyio.move_on_after(PATIENCE):
        if job.is_plain:
            await _answered(job, seconds, doors.any())
        elif await begun(job, "run_job", {"steps": job.steps, "seconds": seconds}, doors, http):
            await followed(job, doors, http, rng)
            if job.is_task and job.ended:
                await polled(job, doors)
        job.is_done = True
    return job


async def begun(job: Job, tool: str, arguments: dict[str, Any], doors: Doors, http: httpx2.AsyncClient) -> bool:
    """Whether the job was acknowledged. A REST call is repeated under its key until it is; a task only once."""
    if job.is_task:
        return await _begun_as_task(job, tool, arguments, doors.any())
    key = uuid.uuid4().hex
    headers = {"idempotency-key": key, "prefer": "wait=0", "accept": "application/json"}
    attempts = 0
    while True:
        door = doors.any()
        life = door.life
        attempts += 1
        try:
            answer = await http.post(f"{door.url}/v1/tools/{tool}/call", json={"arguments": arguments}, headers=headers)
        except httpx2.HTTPError as problem:
            job.refused = f"{attempts} attempts, {door.url}: {problem!r}"
            await anyio.sleep(0.05)
            continue
        job.refused = f"{attempts} attempts, {door.url}: {answer.status_code} {answer.text[:300]}"
        if answer.status_code == 502 and answer.content:  # it was begun, and its hub killed before it could say so
            job.stream = answer.json()["stream"]
            return True
        if answer.status_code not in (200, 202):
            await anyio.sleep(0.05)
            if answer.status_code not in LATER:
                job.faults.append(f"POST answered {answer.status_code}: {answer.text[:300]}")
                return False
            continue
        job.stream = answer.json()["stream"]
        job.owner = life if attempts == 1 else None
        return True


async def _answered(job: Job, seconds: float, door: Door) -> None:
    """A plain call: if it is answered well, its stream is noted, which has to have ended so."""
    params = {"name": "run_job", "arguments": {"steps": job.steps, "seconds": seconds}}
    try:
        async with HttpClient(f"{door.url}/mcp", seconds=_LONG) as client:
            answer = await client.request("tools/call", modern(params))
    except (httpx2.HTTPError, TimeoutError):
        return
    message = answer.messages[-1] if answer.messages else {}
    if "result" in message:
        job.answered = message["result"].get("_meta", {}).get(STREAMS, {}).get("stream", "")
    elif "error" in message and message["error"]["data"].get("code") not in (*ENDINGS, AWAY):
        job.faults.append(f"a call was answered {message['error']}")


async def agreed(jobs: Sequence[Job], urls: Sequence[str], http: httpx2.AsyncClient) -> list[str]:
    """Where replicas show other events of a stream than were seen, or another end than a call was told."""
    faults: list[str] = []
    for job, url in product(jobs, urls):
        seen = sorted(job.lines.items())
        if job.stream and job.is_done and (found := await shown(job.stream, url, http)) != seen:
            faults.append(f"{job.stream}: {url} shows {found[-2:]}, seen was {seen[-2:]}")
        if job.answered and (status := await _status(job.answered, url, http)) != "completed":
            faults.append(f"{job.answered}: was answered well, and is {status} at {url}")
    return faults


async def shown(stream: str, url: str, http: httpx2.AsyncClient) -> list[tuple[int, str]]:
    text = await _read(f"{url}/v1/streams/{stream}/events?after=0", http)
    return [(json.loads(line)["seq"], line) for line in text.splitlines() if line.strip() and "seq" in json.loads(line)]


async def _status(stream: str, url: str, http: httpx2.AsyncClient) -> str:
    while True:
        known = json.loads(await _read(f"{url}/v1/streams/{stream}", http))
        status = str(known.get("status"))
        if status not in RUNNING:  # it may be ended where it runs, and not yet here
            return status
        await anyio.sleep(0.05)


async def _read(url: str, http: httpx2.AsyncClient) -> str:
    """What is answered, once the store can be asked."""
    with anyio.fail_after(PATIENCE):
        while True:
            with suppress(httpx2.HTTPError):
                answer = await http.get(url, headers={"accept": "application/x-ndjson, application/json"})
                if answer.status_code not in LATER:
                    return answer.text
            await anyio.sleep(0.05)


async def _begun_as_task(job: Job, tool: str, arguments: dict[str, Any], door: Door) -> bool:
    life = door.life
    job.refused = f"a task at {door.url}"
    try:
        result = await rpc(door, "tools/call", {"name": tool, "arguments": arguments})
    except httpx2.HTTPError:
        return False  # never acknowledged
    code = ((result.get("error") or {}).get("data") or {}).get("code")
    if result.get("status") in LATER or code == AWAY or code in ENDINGS:
        return False
    if result.get("resultType") == "input_required":
        return False  # its store was away, and no other hub could have found the task
    if result.get("resultType") == "complete" and not result["isError"]:
        return False  # the same, until it had ended
    if result.get("resultType") != "task":
        job.faults.append(f"not a task: {result}")
        return False
    job.stream, job.owner = result["taskId"], life
    return True


async def rpc(door: Door, method: str, params: dict[str, Any]) -> dict[str, Any]:
    async with HttpClient(f"{door.url}/mcp", seconds=SILENCE) as client:
        answer = await client.request(method, modern(params, capabilities=_CAPABILITIES))
    message = answer.messages[-1] if answer.messages else {}
    return message.get("result") or {"error": message.get("error"), "status": answer.status}


async def followed(job: Job, doors: Doors, http: httpx2.AsyncClient, rng: random.Random) -> None:
    """Reads the stream to its end, each time from the last event that was seen; at times turns away unasked."""
    while True:
        door = doors.any()
        cursor = max(job.lines, default=0)
        url = f"{door.url}/v1/streams/{job.stream}/events?after={cursor}&wait=5"
        try:
            async with http.stream("GET", url, headers={"accept": "application/x-ndjson"}) as answer:
                if answer.status_code != 200:
                    text = (await answer.aread()).decode()
                    if answer.status_code not in LATER:
                        job.faults.append(f"GET after {cursor} answered {answer.status_code}: {text[:300]}")
                        return
                    await anyio.sleep(0.05)
                    continue
                async for line in answer.aiter_lines():
                    if _take(job, line):
                        return
                    if rng.random() < 0.02:
                        break
        except httpx2.HTTPError:
            pass
        job.reconnects += 1
        await anyio.sleep(0.01)


def _take(job: Job, line: str) -> bool:
    """Notes one line; whether it is the ending."""
    if not line.strip():
        return False
    event = json.loads(line)
    if "seq" not in event:
        return False
    expected = max(job.lines, default=0) + 1
    if event["seq"] != expected:
        job.faults.append(f"event {event['seq']} where {expected} was due")
    job.lines[event["seq"]] = line
    if event["type"] not in ("end", "error"):
        return False
    job.ended = time.monotonic()
    return True


async def polled(job: Job, doors: Doors) -> None:
    """The task of an ended stream, from any hub: it has to agree."""
    while True:
        try:
            task = await rpc(doors.any(), "tasks/get", {"taskId": job.stream})
            if task.get("status") not in (*LATER, *RUNNING):  # it may be ended where it runs, and not yet elsewhere
                break
        except (httpx2.HTTPError, ValueError):
            pass
        await anyio.sleep(0.05)
    expected = "completed" if job.events[-1]["type"] == "end" else "failed"
    if task.get("status") != expected:
        job.faults.append(f"the task is {task}, its stream ended with {job.events[-1]['type']}")


def check(job: Job) -> list[str]:
    """What is wrong with a job that is over."""
    faults = list(job.faults)
    if not job.is_done:
        last = "plain" if job.is_plain else job.refused
        return [*faults, "\n    ".join((f"no end within {PATIENCE:g} s ({last})", *job.trail))]
    if not job.stream:
        return faults
    events = job.events
    endings = [event for event in events if event["type"] in ("end", "error")]
    if len(endings) != 1 or events[-1] is not endings[0]:
        faults.append(f"{len(endings)} endings")
        return faults
    if [event["seq"] for event in events] != list(range(1, len(events) + 1)):
        faults.append("gaps or repeats")
    said = "".join(block["text"] for event in events if event["type"] == "delta" for block in event["data"]["content"])
    whole = "".join(f"step {step} done\n" for step in range(1, job.steps + 1))
    if endings[0]["type"] == "end" and (endings[0]["data"]["outcome"] != "ok" or said != whole):
        faults.append(f"ended well, but said {said!r}")
    if endings[0]["type"] == "error":
        faults += _ended_early(job, endings[0]["data"], said, whole)
    return faults


def _ended_early(job: Job, data: dict[str, Any], said: str, whole: str) -> list[str]:
    if data["code"] == AWAY and "outcome" not in data:  # the call was not sent
        return [f"was not sent, but said {said!r}"] if said else []
    faults: list[str] = []
    if data["code"] not in ENDINGS or data.get("outcome") != "unknown":
        faults.append(f"ended with {data}")
    if job.owner is not None and not job.owner.is_killed:
        faults.append("ended by another hub while its own was alive")
    if not whole.startswith(said):
        faults.append(f"ended by a kill, but said {said!r}")
    return faults
