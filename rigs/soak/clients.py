"""What one client does and what it must be answered: every kind of call over every front, each answer judged."""

import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from rigs.soak.wire import Http, Message, Pipe, Response

VERSION = "2025-11-25"
MODERN = "2026-07-28"
INFO = {"name": "soak", "version": "1"}
ELICITS: Message = {"elicitation": {"form": {}}}
_BOTH = "application/json, text/event-stream"
ANSWER = {"action": "accept", "content": {"name": "Ada"}}
BIG = 60_000
_nonces = itertools.count()


class Wrong(Exception):
    """An answer that breaks a promise."""


@dataclass(frozen=True)
class Job:
    """One call; `is_safe` if its server is never killed, so that nothing but the right answer will do."""

    kind: str
    server: str
    nonce: str
    is_safe: bool

    @property
    def tool(self) -> str:
        names = {"cancel": "slow", "question": "ask_form", "large": "big", "tool error": "tool_error"}
        names |= {"resume": "progress", "detached": "progress"}
        return f"{self.server}_{names.get(self.kind, self.kind)}"

    @property
    def arguments(self) -> Message:
        known: dict[str, Message] = {
            "echo": {"text": self.nonce},
            "progress": {"n": 8, "nonce": self.nonce},
            "resume": {"n": 10, "nonce": self.nonce, "delay": 0.02},
            "detached": {"n": 12, "nonce": self.nonce, "delay": 0.01},
            "large": {"bytes": BIG},
            "error": {"code": -32050, "message": self.nonce},
            "tool error": {"text": self.nonce},
            "cancel": {"seconds": 30, "nonce": self.nonce},
            "question": {"nonce": self.nonce},
        }
        return known[self.kind]

    def judged(self, message: Message) -> str:
        """What a JSON-RPC answer comes to. Raises `Wrong`."""
        if "error" in message:
            return self._judged_error(message["error"])
        result = message.get("result")
        if not isinstance(result, dict) or not isinstance(result.get("content"), list):
            raise Wrong(f"neither result nor error: {str(message)[:300]}")
        self._check(result, "".join(block.get("text", "") for block in result["content"]))
        return "ok"

    def _judged_error(self, error: Any) -> str:
        if not isinstance(error.get("code"), int) or not error.get("message"):
            raise Wrong(f"an error without code or message: {error}")
        if self.kind == "error" and error["message"] == self.nonce:
            return "ok"  # a code that the caller's era has no room for comes as another one
        if self.is_safe:
            raise Wrong(f"{self.tool} of a server that was never killed: {error}")
        return f"error {error['code']}"

    def _check(self, result: Message, text: str) -> None:
        checks: dict[str, Callable[[], bool]] = {
            "echo": lambda: result.get("structuredContent") == {"text": self.nonce},
            "large": lambda: text == "x" * BIG,
            "tool error": lambda: result.get("isError") is True and text == self.nonce,
            "question": lambda: self.nonce in text and "Ada" in text,
            "cancel": lambda: False,
        }
        good = checks.get(self.kind, lambda: bool(json.loads(text)["nonce"] == self.nonce))
        if not good():
            raise Wrong(f"{self.tool} {self.nonce} was answered with {str(result)[:300]}")


class Client:
    """Makes calls one after the other; `kinds` are those that its front has."""

    kinds: tuple[str, ...] = ()

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    async def call(self, job: Job) -> str:
        """Makes the call and tells what came of it. Raises `Wrong`, `Broken`."""
        raise NotImplementedError

    async def leave(self) -> None:
        """The client goes away: politely, or not."""

    async def pause(self) -> None:
        """A moment in which something has begun, or has not."""
        await asyncio.sleep(self.rng.uniform(0, 0.08))


def new_job(kind: str, server: str, is_safe: bool) -> Job:
    return Job(kind, server, f"n{next(_nonces)}", is_safe)


@dataclass
class _Shown:
    """What a stream has shown so far; it is to be `cut` after so many events, 0 for never."""

    cut: int
    events: int = 0
    last: str = ""
    steps: list[float] = field(default_factory=list)
    answers: list[Message] = field(default_factory=list)


class HandshakeHttp(Client):
    """With a session, whose streams are resumed; a session lasts for some dozens of calls."""

    kinds = ("echo", "progress", "large", "error", "tool error", "cancel", "question", "resume")

    def __init__(self, port: int, rng: Random) -> None:
        super().__init__(rng)
        self._http, self._other = Http(port), Http(port)
        self._session = ""
        self._left = 0
        self._ids = itertools.count(1)

    async def call(self, job: Job) -> str:
        if self._left <= 0:
            await self._begin()
        self._left -= 1
        id_ = next(self._ids)
        params: Message = {"name": job.tool, "arguments": job.arguments}
        if job.kind in ("progress", "resume"):
            params["_meta"] = {"progressToken": id_}
        asking = asyncio.ensure_future(self._post({"id": id_, "method": "tools/call", "params": params}))
        if job.kind == "cancel":  # before anything has come: a quiet call has no answer to be read yet
            await self.pause()
            await self._told({"method": "notifications/cancelled", "params": {"requestId": id_}})
        answer = await asking
        if answer.status != 200 or not answer.is_stream:
            return job.judged(await answer.json())
        return await self._streamed(job, id_, answer)

    async def _streamed(self, job: Job, id_: int, answer: Response) -> str:
        """The answer on an event stream, which is broken off and resumed if that is what the job is about."""
        shown = _Shown(cut=self.rng.randint(1, 6) if job.kind == "resume" else 0)
        while await self._read(answer, shown):
            self._http.drop()
            answer = await self._ask("GET", None, last_event_id=shown.last)
            shown.cut = 0
            if answer.status != 200:
                raise Wrong(f"resuming after {shown.last}: {answer.status} {await answer.json()}")
        if shown.steps != sorted(set(shown.steps)):
            raise Wrong(f"progress came as {shown.steps}")
        if not shown.answers and job.kind == "cancel":
            return "cancelled"
        if [message["id"] for message in shown.answers] != [id_]:
            raise Wrong(f"{job.tool}: answered with {str(shown.answers)[:300]}")
        return job.judged(shown.answers[0])

    async def _read(self, answer: Response, shown: "_Shown") -> bool:
        """Reads to the end, or breaks off where it is to be cut; whether it did."""
        async for event in answer.events():
            shown.last = event.id or shown.last
            message = event.message if event.data else {}
            if "id" in message and "method" in message:
                await self._told({"id": message["id"], "result": ANSWER})
            elif message.get("method") == "notifications/progress":
                shown.steps.append(message["params"]["progress"])
            elif "id" in message:
                shown.answers.append(message)
            shown.events += 1
            if shown.events == shown.cut and shown.last and not shown.answers:
                return True
        return False

    async def leave(self) -> None:
        """One session in ten is just not heard of again."""
        if self._session and self.rng.random() < 0.9:
            await (await self._ask("DELETE", None)).json()
        self._http.drop()
        self._other.drop()
        self._session, self._left = "", 0

    async def _begin(self) -> None:
        await self.leave()
        params = {"protocolVersion": VERSION, "capabilities": ELICITS, "clientInfo": INFO}
        answer = await self._post({"id": next(self._ids), "method": "initialize", "params": params})
        self._session = answer.headers.get("mcp-session-id", "")
        if answer.is_stream:
            [event async for event in answer.events()]
        else:
            await answer.json()
        if answer.status != 200 or not self._session:
            raise Wrong(f"no session: {answer.status}")
        await self._told({"method": "notifications/initialized"})
        self._left = self.rng.randint(5, 80)

    async def _post(self, message: Message) -> Response:
        return await self._ask("POST", {"jsonrpc": "2.0", **message})

    async def _told(self, message: Message) -> None:
        """On a second connection, since the first one may carry a stream."""
        headers = {"accept": _BOTH, "mcp_session_id": self._session, "mcp_protocol_version": VERSION}
        answer = await self._other.ask("POST", "/mcp", {"jsonrpc": "2.0", **message}, **headers)
        body = await answer.json()
        if answer.status not in (200, 202) and "result" not in message:
            raise Wrong(f"{message['method']} was met with {answer.status} {body}")

    async def _ask(self, method: str, body: Message | None, **more: str) -> Response:
        headers = {"accept": "text/event-stream" if method == "GET" else _BOTH, "mcp_protocol_version": VERSION, **more}
        if self._session:
            headers["mcp_session_id"] = self._session
        return await self._http.ask(method, "/mcp", body, **headers)


class ModernHttp(Client):
    """Without a session; a call is cancelled by closing its response."""

    kinds = ("echo", "progress", "large", "error", "tool error", "cancel", "question")

    def __init__(self, port: int, rng: Random) -> None:
        super().__init__(rng)
        self._http = Http(port)

    async def call(self, job: Job) -> str:
        params: Message = {"name": job.tool, "arguments": job.arguments}
        for _ in range(4):
            asking = asyncio.ensure_future(self._asked(job, params))
            if job.kind == "cancel":
                await self.pause()
                if not asking.done():
                    asking.cancel()
                    await asyncio.wait([asking])
                    self._http.drop()
                    return "cancelled"
            message = await asking
            result = message.get("result", {})
            if result.get("resultType") != "input_required":
                return job.judged(message)
            answers = dict.fromkeys(result.get("inputRequests", {}), ANSWER)
            params |= {"inputResponses": answers}
            if "requestState" in result:
                params["requestState"] = result["requestState"]
        raise Wrong(f"{job.tool} asks again and again")

    async def _asked(self, job: Job, params: Message) -> Message:
        meta: Message = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": INFO,
            "io.modelcontextprotocol/clientCapabilities": ELICITS,
        }
        if job.kind == "progress":
            meta["progressToken"] = job.nonce
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": meta}}
        headers = {"accept": _BOTH, "mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": job.tool}
        answer = await self._http.ask("POST", "/mcp", body, **headers)
        if not answer.is_stream:
            return await answer.json()
        messages = [event.message async for event in answer.events() if event.data]
        answers = [message for message in messages if "method" not in message]
        if len(answers) != 1 or messages[-1] is not answers[0]:
            raise Wrong(f"{job.tool}: {len(answers)} answers among {len(messages)} messages")
        return answers[0]

    async def leave(self) -> None:
        self._http.drop()


class Rest(Client):
    """Calls that are waited for, and detached ones that are followed, left and followed again."""

    kinds = ("echo", "progress", "large", "tool error", "cancel", "detached")

    def __init__(self, port: int, rng: Random) -> None:
        super().__init__(rng)
        self._http = Http(port)

    async def call(self, job: Job) -> str:
        is_detached = job.kind in ("detached", "cancel")
        prefer = {"prefer": "wait=0"} if is_detached else {}
        path = f"/v1/tools/{job.tool}/call"
        answer = await self._http.ask("POST", path, {"arguments": job.arguments}, accept="application/json", **prefer)
        body = await answer.json()
        if answer.status == 200 and "result" in body:
            return job.judged(body)
        if answer.status != 202 or not is_detached:
            return self._refused(job, answer.status, body)
        if job.kind == "cancel":
            await self.pause()
            gone = await self._http.ask("DELETE", f"/v1/streams/{body['stream']}")
            await gone.json()
            if gone.status not in (200, 202):
                raise Wrong(f"DELETE was met with {gone.status}")
        return await self._followed(job, body["stream"])

    @staticmethod
    def _refused(job: Job, status: int, body: Message) -> str:
        if job.is_safe or not body.get("code"):
            raise Wrong(f"{job.tool}: {status} {str(body)[:300]}")
        return f"error {body['code']}"

    async def _followed(self, job: Job, stream: str) -> str:
        """To its end, from wherever the connection was lost: every event once and in order."""
        seqs, ending = list[int](), None
        while ending is None:
            after = seqs[-1] if seqs else 0
            path = f"/v1/streams/{stream}/events?after={after}&wait=20"
            answer = await self._http.ask("GET", path, accept="text/event-stream")
            if answer.status != 200:
                raise Wrong(f"{path} was met with {answer.status} {await answer.json()}")
            cut = self.rng.randint(1, 20)
            async for event in answer.events():
                if not event.id:
                    continue
                line = event.message
                seqs.append(line["seq"])
                if line["type"] in ("end", "error"):
                    ending = line
                if (cut := cut - 1) == 0:
                    break
            if not answer.is_whole:
                self._http.drop()
        if seqs != list(range(1, len(seqs) + 1)):
            raise Wrong(f"{stream}: events came as {seqs}")
        return self._ended(job, ending["type"], ending["data"])

    @staticmethod
    def _ended(job: Job, type_: str, data: Message) -> str:
        if type_ == "end" and data["outcome"] == "cancelled" and job.kind == "cancel":
            return "cancelled"
        if type_ == "end":
            return job.judged({"result": data.get("result")})
        if job.is_safe or not data.get("code"):
            raise Wrong(f"{job.tool} ended with {str(data)[:300]}")
        return f"error {data['code']}"

    async def leave(self) -> None:
        self._http.drop()


async def initialize(pipe: Pipe) -> None:
    """The handshake on a pipe; questions are answered as they come."""
    pipe.answering(lambda question: pipe.send({"id": question["id"], "result": ANSWER}))
    params = {"protocolVersion": VERSION, "capabilities": ELICITS, "clientInfo": INFO}
    await pipe.ask("initialize", params).answer
    pipe.send({"method": "notifications/initialized"})


class Stdio(Client):
    """One of many callers on one pipe."""

    kinds = ("echo", "progress", "large", "error", "tool error", "cancel", "question")

    def __init__(self, pipe: Pipe, rng: Random) -> None:
        super().__init__(rng)
        self._pipe = pipe

    async def call(self, job: Job) -> str:
        steps: list[float] = []
        on_progress = (lambda params: steps.append(params["progress"])) if job.kind == "progress" else None
        asked = self._pipe.ask("tools/call", {"name": job.tool, "arguments": job.arguments}, on_progress)
        if job.kind == "cancel":
            await self.pause()
            if not asked.answer.done():
                self._pipe.forget(asked.id)
                self._pipe.send({"method": "notifications/cancelled", "params": {"requestId": asked.id}})
                return "cancelled"
        message = await asked.answer
        if steps != sorted(set(steps)):
            raise Wrong(f"progress came as {steps}")
        return job.judged(message)
