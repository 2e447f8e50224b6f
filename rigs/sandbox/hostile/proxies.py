"""Ways through the hub's proxy to a host that is not in the rule. Without a proxy, which is the control run, each opens
the connection that it asks for.
"""

import contextlib
import os
import socket
from urllib.parse import urlsplit

from rigs.sandbox.hostile.calls import Refused, World, escape, loot

_WAIT = 3.0


def _proxy() -> tuple[str, int] | None:
    """The address of the proxy that the environment names."""
    url = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy")
    parts = urlsplit(url or "")
    return (parts.hostname or "", parts.port or 0) if url else None


def _sent(where: tuple[str, int], *messages: bytes) -> bytes:
    """What the other side says to these, sent one after the other."""
    found = b""
    with socket.create_connection(where, timeout=_WAIT) as stream:
        for message in messages:
            stream.sendall(message)
            with contextlib.suppress(TimeoutError):
                found = stream.recv(65536)
            if b" 200 " not in found[:20]:
                break
    return found


def _request(host: str, target: str = "/") -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("latin-1")


def connected(world: World, host: str, port: int, spelled: str = "") -> str:
    """The canary from this host, by a tunnel if there is a proxy; `spelled` stands for the host there."""
    proxy = _proxy()
    if proxy is None:
        return loot(world, _sent((host, port), _request(host)))
    place = spelled or (f"[{host}]" if ":" in host else host)
    head = f"CONNECT {place}:{port} HTTP/1.1\r\nHost: {place}:{port}\r\n\r\n".encode("latin-1")
    return loot(world, _sent(proxy, head, _request(host)))


def _tunnel(name: str, host: str, port: str = "https", spelled: str = "") -> None:
    """Enters the escape that asks for a tunnel to this host."""

    @escape(f"proxy-{name}")
    def tunnel(world: World) -> str:
        return connected(world, world.get(host, host), int(world[port]), spelled.format(**world))


for _title, _host, _port, _spelled in (
    ("other-name", "evil.test", "https", ""), ("other-name-http", "evil.test", "http", ""),
    ("other-address", "evil-address", "https", ""), ("other-port", "good.example", "ssh", ""),
    ("private-address", "private-address", "http", ""),
    ("private-name", "private.example", "https", ""), ("both-name", "both.example", "https", ""),
    ("metadata", "metadata-address", "http", ""), ("loopback", "127.0.0.1", "https", ""),
    ("localhost", "localhost", "https", ""), ("loopback-short", "127.0.0.1", "https", "127.1"),
    ("loopback-number", "127.0.0.1", "https", "2130706433"), ("loopback-hex", "127.0.0.1", "https", "0x7f000001"),
    ("loopback-octal", "127.0.0.1", "https", "0177.0.0.1"), ("any-address", "127.0.0.1", "https", "0.0.0.0"),
    ("loopback-ipv6", "::1", "https", ""), ("mapped", "private-address", "https", "[::ffff:{private-address}]"),
    ("mapped-name", "mapped.example", "https", ""), ("nat64-name", "private-address", "https", "nat64.example"),
    ("translated", "private-address", "https", "[64:ff9b::{private-address}]"),
    ("trailing-dot", "evil.test", "https", "evil.test."), ("user-part", "evil.test", "https", "good.example@evil.test"),
    ("user-part-behind", "evil.test", "https", "evil.test@good.example"),
    ("null-byte", "evil.test", "https", "evil.test\0.cdn.example"),
    ("percent", "evil.test", "https", "evil.test%00.cdn.example"),
    ("suffix", "cdn.example.evil.test", "https", ""), ("glued", "evilcdn.example", "https", ""),
    ("bare-wildcard", "cdn.example", "https", ""), ("other-server", "other.example", "https", ""),
):  # fmt: skip
    _tunnel(_title, _host, _port, _spelled)


def _reached(name: str, port: str) -> None:
    """Enters the escape that asks for a tunnel to a program of the hub; the tunnel alone counts."""

    @escape(f"proxy-{name}")
    def reached(world: World) -> str:
        proxy = _proxy()
        if proxy is None:
            socket.create_connection(("127.0.0.1", int(world[port])), timeout=_WAIT).close()
            return "connected"
        head = f"CONNECT 127.0.0.1:{world[port]} HTTP/1.1\r\nHost: 127.0.0.1:{world[port]}\r\n\r\n"
        found = _sent(proxy, head.encode())
        if b" 200 " not in found[:20]:
            raise Refused(found[:40].decode("latin-1"))
        return "connected"


_reached("hub", "hub-port")
_reached("itself", "proxy-port")


@escape("show-proxy")
def show(world: World) -> str:
    """No escape: the proxy that the environment names."""
    return os.environ.get("HTTPS_PROXY", "")


@escape("proxy-rebinding")
def rebinding(world: World) -> str:
    """A name in the rule whose answer alternates between a public and a private address, which alone counts."""
    for _ in range(6):
        with contextlib.suppress(Refused, OSError):
            found = connected({**world, "canary": world["private-canary"]}, "rebind.example", int(world["https"]))
            return f"{found}, from the private address"
    raise Refused("the private address never answered")


@escape("proxy-absolute")
def absolute(world: World) -> str:
    """A plain request, without a tunnel."""
    where = _proxy() or ("evil.test", int(world["http"]))
    return loot(world, _sent(where, _request("evil.test", "http://evil.test/")))


@escape("proxy-host-header")
def host_header(world: World) -> str:
    """A host of the rule in the address, another in the header: which host the far side takes it for."""
    where = _proxy() or ("good.example", int(world["http"]))
    found = _sent(where, _request("evil.test", "http://good.example/" if _proxy() else "/"))
    if b"host=evil.test" not in found:
        raise Refused("the other host was not asked")
    return "another host was asked for"


@escape("proxy-second-request")
def second_request(world: World) -> str:
    """A second request on the same connection, for another host."""
    where = _proxy()
    if where is None:
        return loot(world, _sent(("evil.test", int(world["http"])), _request("evil.test")))
    first = b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n"
    found = _sent(where, first, _request("evil.test", "http://evil.test/"))
    return loot({**world, "canary": world["evil-canary"]}, found)


@escape("proxy-pipelined")
def pipelined(world: World) -> str:
    """Both requests in one packet."""
    where = _proxy()
    if where is None:
        return loot(world, _sent(("evil.test", int(world["http"])), _request("evil.test")))
    first = b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n"
    found = b""
    with socket.create_connection(where, timeout=_WAIT) as stream:
        stream.sendall(first + _request("evil.test", "http://evil.test/"))
        with contextlib.suppress(TimeoutError):
            while part := stream.recv(65536):
                found += part
    return loot({**world, "canary": world["evil-canary"]}, found)


@escape("proxy-two-hosts")
def two_hosts(world: World) -> str:
    """Two Host headers."""
    where = _proxy()
    if where is None:
        return loot(world, _sent(("evil.test", int(world["http"])), _request("evil.test")))
    head = b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nHost: evil.test\r\nConnection: close\r\n\r\n"
    found = _sent(where, head)
    if b"host=evil.test" not in found:
        raise Refused("the other host was not asked")
    return "another host was asked for"


@escape("proxy-body-as-request")
def smuggled(world: World) -> str:
    """A body whose length is said in two ways."""
    where = _proxy()
    if where is None:
        return loot(world, _sent(("evil.test", int(world["http"])), _request("evil.test")))
    inner = _request("evil.test", "http://evil.test/")
    head = (
        b"POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    return loot({**world, "canary": world["evil-canary"]}, _sent(where, head + inner))


@escape("allowed-host")
def allowed(world: World) -> str:
    """No escape: the host of the rule, which has to answer."""
    return connected({**world, "canary": world["good-canary"]}, "good.example", int(world["https"]))
