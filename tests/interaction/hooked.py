"""A receiver of webhooks on 127.0.0.1, which verifies by the standard library alone, and clients that subscribe it."""

import base64
import hmac
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.tls import TLSStream

from tests.interaction.fronts import Peer, Seen
from tests.upstreams.child import WAIT

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@dataclass
class Post:
    """One request: its path, headers in lower case, and body."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.body)
        return decoded

    def is_signed(self, key: bytes = KEY) -> bool:
        id_, at = self.headers["webhook-id"], self.headers["webhook-timestamp"]
        assert abs(time.time() - int(at)) < 300
        text = f"{id_}.{at}.".encode() + self.body
        signature = "v1," + base64.b64encode(hmac.new(key, text, sha256).digest()).decode()
        return signature in self.headers["webhook-signature"].split(" ")


Answer = tuple[int, Mapping[str, str], bytes]
Respond = Callable[[Post], Awaitable[Answer | None]]


async def taken(post: Post) -> Answer:
    """Echoes challenges, takes everything else."""
    if post.json.get("type") == "verification":
        return 200, {"content-type": "application/json"}, json.dumps({"challenge": post.json["challenge"]}).encode()
    return 204, {}, b""


@dataclass
class Receiver:
    """What has arrived. `respond` may be replaced; None from it: no answer, the connection stays open."""

    port: int
    respond: Respond = taken
    posts: list[Post] = field(default_factory=list)
    raw: Callable[[ByteStream, Post], Awaitable[bool]] | None = None
    """Answers by itself; whether it has."""
    tls: ssl.SSLContext | None = None

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        return f"http{'s' if self.tls else ''}://{host}:{self.port}{path}"

    def of(self, kind: str | None = None, path: str | None = None) -> list[Post]:
        """Control bodies of one kind; None: occurrences."""
        posts = [post for post in list(self.posts) if post.body]
        return [post for post in posts if post.json.get("type") == kind and path in (None, post.path)]

    @property
    def numbers(self) -> list[int]:
        return [post.json["data"]["n"] for post in self.of()]

    async def until(self, done: Callable[[], bool]) -> None:
        with anyio.fail_after(WAIT):
            while not done():  # noqa: ASYNC110 - of the hub's process
                await anyio.sleep(0.02)

    async def accept(self, stream: SocketStream) -> None:
        if self.tls is None:
            return await self.serve(stream)
        async with stream:
            with suppress(ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream):
                await self.serve(
                    await TLSStream.wrap(stream, server_side=True, ssl_context=self.tls, standard_compatible=False)
                )

    async def serve(self, stream: ByteStream) -> None:
        async with stream:
            buffer = b""
            try:
                while True:
                    while b"\r\n\r\n" not in buffer:
                        buffer += await stream.receive()
                    head, _, buffer = buffer.partition(b"\r\n\r\n")
                    first, *lines = head.decode("latin-1").split("\r\n")
                    headers = {
                        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
                    }
                    size = int(headers.get("content-length", 0))
                    while len(buffer) < size:
                        buffer += await stream.receive()
                    post = Post(first.split(" ")[1], headers, buffer[:size])
                    buffer = buffer[size:]
                    self.posts.append(post)
                    if self.raw is not None and await self.raw(stream, post):
                        return
                    answer = await self.respond(post)
                    if answer is None:
                        await anyio.sleep_forever()
                    assert answer is not None
                    status, more, body = answer
                    text = "".join(f"{name}: {value}\r\n" for name, value in more.items())
                    top = f"HTTP/1.1 {status} X\r\n{text}content-length: {len(body)}\r\n\r\n"
                    await stream.send(top.encode("latin-1") + body)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    receiver = Receiver(listener.listeners[0].extra(SocketAttribute.local_port), tls=tls)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, receiver.accept)
        yield receiver
        tasks.cancel_scope.cancel()


def delivery(url: str, secret: str = SECRET) -> dict[str, str]:
    return {"mode": "webhook", "url": url, "secret": secret}


async def subscribe(peer: Peer, name: str, url: str, *, secret: str = SECRET, **more: Any) -> Seen:
    return await peer.request("events/subscribe", {"name": name, "delivery": delivery(url, secret), **more})


async def unsubscribe(peer: Peer, name: str, url: str, **more: Any) -> Seen:
    return await peer.request("events/unsubscribe", {"name": name, "delivery": {"url": url}, **more})
