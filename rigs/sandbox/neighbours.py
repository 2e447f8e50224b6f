"""Programs of the user beside a sandboxed server: one with a secret, and services that answer with canaries.

`python neighbours.py victim|services|far SPEC` runs until its input ends; `SPEC` is a file with the world as JSON. It
prints one line of JSON, what others need to know, once it is up. Only the standard library, nothing of the hub.
"""

import ctypes
import json
import mmap
import os
import platform
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_REPLY = "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{body}"
_FASTOPEN, _FREEBIND = 23, 78


def victim(spec: dict[str, str]) -> dict[str, str]:
    """A process that holds the canary in its environment, memory, descriptors, mappings and objects of the kernel."""
    journal = os.open(spec["signals"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in (signal.SIGUSR1, signal.SIGIO):
        signal.signal(number, lambda received, frame: os.write(journal, b"x") and None)
    secret = ctypes.create_string_buffer(spec["canary"].encode())
    key = os.open(spec["ssh-key"], os.O_RDONLY)
    mapped = mmap.mmap(key, 0, prot=mmap.PROT_READ)
    _alive.extend([secret, mapped])
    size = len(spec["canary"]) + 1
    facts = {"victim": os.getpid(), "victim-fd": key, "secret-address": ctypes.addressof(secret), "secret-size": size}
    return {name: str(fact) for name, fact in {**facts, **_kernel_objects(spec["canary"])}.items()}


_alive: list[Any] = []
"""What lives as long as the process."""


def _kernel_objects(canary: str) -> dict[str, int | str]:
    """System V memory, messages and semaphores, a message queue by name, and a key of the kernel."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    number = 0x6D637068
    segment = libc.shmget(number, 4096, 0o1600)
    ctypes.memmove(libc.shmat(segment, None, 0), canary.encode(), len(canary))
    queue = libc.msgget(number, 0o1600)
    libc.msgsnd(queue, struct.pack("q", 1) + canary.encode(), len(canary), 0)
    semaphore = libc.semget(number, 1, 0o1600)
    add, control, opened = (248, 250, 240) if platform.machine() == "x86_64" else (217, 219, 180)
    key = libc.syscall(add, b"user", b"mcp-hub-rig", canary.encode(), len(canary), -4)
    libc.syscall(control, 5, key, 0x3F3F0000)
    libc.syscall(opened, b"mcp-hub-rig", os.O_CREAT | os.O_RDWR, 0o600, None)
    return {
        "shm-id": segment, "shm-key": number, "queue-id": queue, "semaphore-id": semaphore, "key": key,
        "key-name": "mcp-hub-rig", "posix-queue": "mcp-hub-rig",
    }  # fmt: skip


def far(spec: dict[str, str]) -> dict[str, str]:
    """Ports on all addresses, with a canary."""
    for title in ("port", "http", "https", "ssh", "dns", "proxy-port"):
        _served(_tcp(int(spec[title])), lambda stream: _web(spec, stream))
    for host in ("::ffff:" + spec["evil-address"], spec["evil-address6"]):
        _looped(_udp(int(spec["port"]), host), lambda message: f"canary={spec['canary']}".encode())
    return {"process": str(os.getpid())}


def services(spec: dict[str, str]) -> dict[str, str]:
    """The ports, a name server, and sockets of the file system and beside it."""
    far(spec)
    names = _Names(spec)
    _looped(_udp(int(spec["dns"])), names.answer)
    for title in ("docker", "agent", "bus", "display", "hub-socket"):
        special = {"agent": "good-canary", "docker": "docker-canary"}.get(title, "canary")
        text = f"{spec['canary']} {spec[special]}"
        _served(_unix(spec[title], socket.SOCK_STREAM), _saying(text))
    _served(_unix("\0" + spec["abstract"], socket.SOCK_STREAM), _saying(spec["canary"]))
    for name in (spec["datagrams"], "\0" + spec["abstract-datagrams"]):
        _looped(_unix(name, socket.SOCK_DGRAM), lambda message: b"")
    _alive.append(os.open(spec["fifo"], os.O_RDONLY | os.O_NONBLOCK))
    return {}


def _tcp(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.setsockopt(socket.IPPROTO_TCP, _FASTOPEN, 16)
    listener.bind(("::", port))
    listener.listen(64)
    return listener


def _udp(port: int, host: str = "::") -> socket.socket:
    """A socket that may be bound before its address is there."""
    bound = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    bound.setsockopt(socket.IPPROTO_IPV6, _FREEBIND, 1)
    bound.bind((host, port))
    return bound


def _unix(name: str, kind: int) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, kind)
    bound.bind(name)
    if kind == socket.SOCK_STREAM:
        bound.listen(16)
    return bound


def _served(listener: socket.socket, answer: Callable[[socket.socket], None]) -> None:
    """Answers each connection in a thread of its own."""

    def one(stream: socket.socket) -> None:
        with stream:
            stream.settimeout(3)
            try:
                answer(stream)
            except OSError:
                return

    def run() -> None:
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=one, args=(stream,), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()


def _looped(bound: socket.socket, answer: Callable[[bytes], bytes]) -> None:
    """Answers each datagram."""

    def run() -> None:
        while True:
            message, where = bound.recvfrom(4096)
            reply = answer(message)
            if reply and where:
                bound.sendto(reply, where)

    threading.Thread(target=run, daemon=True).start()


def _saying(text: str) -> Callable[[socket.socket], None]:
    def answer(stream: socket.socket) -> None:
        if stream.recv(4096):
            stream.sendall(text.encode())

    return answer


def _web(spec: dict[str, str], stream: socket.socket) -> None:
    """Says which host was asked; the canary comes from every address and port but those of the allowed host.

    A connection stays open for more requests, unless one says otherwise or is not of HTTP.
    """
    while request := stream.recv(8192).decode("latin-1"):
        _reply(spec, stream, request)
        if "connection: close" in request.lower() or "HTTP/1.1" not in request:
            return


def _reply(spec: dict[str, str], stream: socket.socket, request: str) -> None:
    local, port = stream.getsockname()[:2]
    local = local.removeprefix("::ffff:")
    hosts = [line[5:].strip() for line in request.split("\r\n") if line.lower().startswith("host:")]
    is_good = local == spec["good-address"] and str(port) in (spec["http"], spec["https"])
    parts = [f"canary={spec['good-canary' if is_good else 'canary']}"]
    if local == spec["private-address"]:
        parts.append(f"private={spec['private-canary']}")
    if local == spec["evil-address"]:
        parts.append(f"evil={spec['evil-canary']}")
    body = " ".join([*parts, *(f"host={host}" for host in hosts)])
    stream.sendall(_REPLY.format(size=len(body), body=body).encode("latin-1"))


class _Names:
    """A name server: the names of the world, and one whose answer alternates."""

    def __init__(self, spec: dict[str, str]) -> None:
        good, evil, private = spec["good-address"], spec["evil-address"], spec["private-address"]
        self._addresses: dict[str, list[str]] = {
            "good.example": [good], "evil.test": [evil], "cdn.example.evil.test": [evil], "evilcdn.example": [evil],
            "cdn.example": [evil], "other.example": [evil], "private.example": [private],
            "both.example": [private, good],
            "mapped.example": [f"::ffff:{private}"], "nat64.example": [f"64:ff9b::{private}"],
        }  # fmt: skip
        self._turns = [good, private]

    def answer(self, question: bytes) -> bytes:
        """The reply to a question; a name that does not exist gets the error of that kind."""
        labels, at = [], 12
        while size := question[at]:
            labels.append(question[at + 1 : at + 1 + size].decode("latin-1"))
            at += 1 + size
        kind, name = question[at + 2], ".".join(labels).lower()
        found = self._addresses.get(name, [])
        if name == "rebind.example":
            found = self._turns[:1]
            if kind == 1:
                self._turns.reverse()
        known = bool(found) or name == "secret.evil.test"
        records = [
            b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(packed)) + packed
            for packed in map(_packed, found)
            if len(packed) == (4 if kind == 1 else 16)
        ]
        head = question[:2] + struct.pack("!5H", 0x8180 if known else 0x8183, 1, len(records), 0, 0)
        return head + question[12 : at + 5] + b"".join(records)


def _packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def main() -> None:
    """Starts what it was asked for, says so, and waits for the end of its input."""
    spec: dict[str, str] = json.loads(Path(sys.argv[2]).read_text("utf-8"))
    facts = {"victim": victim, "services": services, "far": far}[sys.argv[1]](spec)
    print(json.dumps(facts), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
