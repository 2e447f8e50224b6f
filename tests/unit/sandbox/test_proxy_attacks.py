"""Attempts of a hostile server to reach more than its rule allows through the proxy, or to hold up the hub."""

import asyncio
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream
from msgspec import UNSET

from mcp_hub.addresses import Address, HostRule
from mcp_hub.sandbox.network.dial import Denied, End, HostPort, checked, judge_path
from mcp_hub.sandbox.network.interface import loopback_pair
from mcp_hub.sandbox.network.proxy import _ProxyLimits
from tests.unit.sandbox.proxied import NAME, SERVER, Sandboxed, echo, host, rules, sandboxed

pytestmark = pytest.mark.anyio

CHUNKED = "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
MALFORMED = {
    "two lengths": "POST {url} HTTP/1.1\r\nHost: {name}\r\nContent-Length: 3\r\n{chunked}",
    "coding with a tab behind it": (
        "POST {url} HTTP/1.1\r\nHost: {name}\r\nTransfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n"
    ),
    "length twice": "POST {url} HTTP/1.1\r\nHost: {name}\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "list of lengths": "POST {url} HTTP/1.1\r\nHost: {name}\r\nContent-Length: 3, 3\r\n\r\nabc",
    "signed length": "POST {url} HTTP/1.1\r\nHost: {name}\r\nContent-Length: +3\r\n\r\nabc",
    "hexadecimal length": "POST {url} HTTP/1.1\r\nHost: {name}\r\nContent-Length: 0x3\r\n\r\nabc",
    "huge length": "POST {url} HTTP/1.1\r\nHost: {name}\r\nContent-Length: 99999999999999999\r\n\r\nabc",
    "other coding": "POST {url} HTTP/1.1\r\nHost: {name}\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "disguised coding": "POST {url} HTTP/1.1\r\nHost: {name}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding twice": "POST {url} HTTP/1.1\r\nHost: {name}\r\nTransfer-Encoding: chunked\r\n{chunked}",
    "blank before the colon": "POST {url} HTTP/1.1\r\nHost: {name}\r\nContent-Length : 3\r\n\r\nabc",
    "coding of HTTP/1.0": "POST {url} HTTP/1.0\r\nHost: {name}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "folded header": "GET {url} HTTP/1.1\r\nHost: {name}\r\nX-A: 1\r\n Transfer-Encoding: chunked\r\n\r\n",
    "folded first header": "GET {url} HTTP/1.1\r\n Host: {name}\r\n\r\n",
    "bare line feed": "GET {url} HTTP/1.1\r\nHost: {name}\nX-A: 1\r\n\r\n",
    "bare carriage return": "GET {url} HTTP/1.1\r\nHost: {name}\r\nX-A: 1\rTransfer-Encoding: chunked\r\n\r\n",
    "NUL": "GET {url} HTTP/1.1\r\nHost: {name}\r\nX-A: \0\r\n\r\n",
    "control character": "GET {url} HTTP/1.1\r\nHost: {name}\r\nX-A: \x05\r\n\r\n",
    "header without a name": "GET {url} HTTP/1.1\r\nHost: {name}\r\n: x\r\n\r\n",
    "header without a colon": "GET {url} HTTP/1.1\r\nHost: {name}\r\nhunter2\r\n\r\n",
    "two hosts": "GET {url} HTTP/1.1\r\nHost: {name}\r\nHost: evil.example\r\n\r\n",
    "no host": "GET {url} HTTP/1.1\r\n\r\n",
    "other host": "GET {url} HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "other port": "GET {url} HTTP/1.1\r\nHost: {name}:1\r\n\r\n",
    "host with a user": "GET {url} HTTP/1.1\r\nHost: a@{name}\r\n\r\n",
    "user in the URL": "GET http://{name}@evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "user before the host": "GET http://evil@{name}:{port}/ HTTP/1.1\r\nHost: {name}\r\n\r\n",
    "backslash in the URL": "GET http://{name}\\@evil.example/ HTTP/1.1\r\nHost: {name}\r\n\r\n",
    "https": "GET https://{name}:{port}/ HTTP/1.1\r\nHost: {name}\r\n\r\n",
    "path alone": "GET / HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n",
    "fragment": "GET {url}#x HTTP/1.1\r\nHost: {name}\r\n\r\n",
    "two blanks": "GET  {url} HTTP/1.1\r\nHost: {name}\r\n\r\n",
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2": "GET {url} HTTP/1.2\r\nHost: {name}\r\n\r\n",
    "HTTP/0.9": "GET {url}\r\n\r\n",
    "port 0": "GET http://{name}:0/ HTTP/1.1\r\nHost: {name}\r\n\r\n",
    "port 65536 + 80": "GET http://{name}:65616/ HTTP/1.1\r\nHost: {name}\r\n\r\n",
    "tunnel with a body": "CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\nContent-Length: 3\r\n\r\nabc",
    "tunnel in chunks": "CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n{chunked}",
    "tunnel with a URL": "CONNECT http://{name}:{port}/ HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n",
    "tunnel without a port": "CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n",
    "tunnel with two hosts": "CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}\r\nHost: {name}\r\n\r\n",
    "tunnel with a user": "CONNECT a@{name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n",
    "tunnel with a zone": "CONNECT [fe80::1%25lo]:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n",
    "TLS without the proxy": "\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    "SOCKS": "\x05\x01\0\r\n\r\n",
    "cut off": "GET {url} HTTP/1.1\r\nHost: {name}\r\n",
}
REASONS = {"TLS without the proxy": "uses TLS", "path alone": "does not use the proxy", "https": "CONNECT"}
BODIES = {
    "chunk without a size": b"\r\n\r\n",
    "negative chunk": b"-1\r\n\r\n",
    "chunk with a prefix": b"0x3\r\nabc\r\n0\r\n\r\n",
    "chunk that is longer": b"3\r\nabcd\r\n0\r\n\r\n",
    "chunk with a bare line feed": b"3\nabc\r\n0\r\n\r\n",
    "chunk with a huge size": b"fffffffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "endless chunk line": b"3;" + b"x" * 70_000,
    "endless trailer": b"0\r\nX: " + b"x" * 70_000,
}


@pytest.mark.parametrize("form", MALFORMED)
async def test_request_that_may_be_read_in_two_ways_is_refused(form: str) -> None:
    async with host() as far, sandboxed() as servers:
        url = f"http://{NAME}:{far.port}/"
        text = MALFORMED[form].format(url=url, name=NAME, port=far.port, chunked=CHUNKED)
        request = text.encode("latin-1")
        data = await servers.sent(rules(far.port), request + b"GET / HTTP/1.1\r\n\r\n" * (form != "cut off"))
        assert data.startswith(b"HTTP/1.1 400 ")
        assert data.count(b"HTTP/1.1 ") == 1
        assert servers.refusals.total == 1
        assert REASONS.get(form, "") in servers.refusals.latest()[0].reason
        assert far.requests == []
        assert "hunter2" not in f"{data!r} {servers.refusals.latest()}"


@pytest.mark.parametrize("form", BODIES)
async def test_body_that_may_be_read_in_two_ways_is_refused(form: str) -> None:
    async with host() as far, sandboxed() as servers:
        head = f"POST http://{NAME}:{far.port}/ HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n\r\n"
        async with await servers.connect(rules(far.port)) as stream:
            await stream.send(head.encode() + BODIES[form])
            data = await stream.receive()
        assert data.startswith(b"HTTP/1.1 400 ")
        assert not any(request.endswith(b"0\r\n\r\n") for request in far.requests)


async def test_request_hidden_in_a_body_stays_a_body() -> None:
    inner = f"GET http://{NAME}/hidden HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode()
    async with host() as far, sandboxed() as servers:
        head = f"POST http://{NAME}:{far.port}/ HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {len(inner)}\r\n\r\n"
        data = await servers.sent(rules(far.port), head.encode() + inner)
        assert data.count(b"HTTP/1.1 ") == 1
        assert [request.partition(b"\r\n\r\n")[2] for request in far.requests] == [inner]


@pytest.mark.parametrize("size", [33_000, 3_000_000])
async def test_head_without_end_is_refused_at_its_limit(size: int) -> None:
    async with sandboxed() as servers:
        async with await servers.connect(rules(80)) as stream:
            with anyio.move_on_after(10):
                await stream.send(b"GET http://a.example/ HTTP/1.1\r\nX: " + b"x" * min(size, 900_000))
            assert (await stream.receive()).startswith(b"HTTP/1.1 431 ")
        many = b"".join(b"X-%d: 1\r\n" % number for number in range(200))
        data = await servers.sent(rules(80), b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n" + many + b"\r\n")
        assert data.startswith(b"HTTP/1.1 431 ")


class Rebinding:
    """A name server that leads to the internet first, and to this machine from then on."""

    def __init__(self, first: str) -> None:
        self.first = first
        self.lookups = 0

    async def resolve(self, host: str) -> Sequence[Address]:
        self.lookups += 1
        return [ip_address(self.first if self.lookups == 1 else "127.0.0.1")]


async def test_name_is_resolved_once_and_never_leads_into_the_network_of_the_hub() -> None:
    async with echo() as port:
        request = f"CONNECT {NAME}:{port} HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n".encode()
        names = Rebinding("127.0.0.1")
        async with sandboxed(names.resolve) as servers:
            assert b"<end>" in await servers.sent(rules(port), request)
            assert names.lookups == 1
            data = await servers.sent([HostRule(NAME, (port,))], request)  # now to this machine, which no rule names
            assert data.startswith(b"HTTP/1.1 403 ")
            assert names.lookups == 2
            assert b"127.0.0.1, a loopback address" in data
            assert f'  - "127.0.0.1:{port}"'.encode() in data
            refusal = servers.refusals.latest()[0]
            assert (refusal.kind, refusal.target) == ("address", f"{NAME}:{port}")


SPECIAL = "127.0.0.1 10.0.0.1 169.254.169.254 ::1 fd00::1 ::ffff:127.0.0.1 64:ff9b::7f00:1 0.0.0.0".split()


@pytest.mark.parametrize("address", SPECIAL)
async def test_address_outside_of_the_internet_is_reached_only_if_it_is_named(address: str) -> None:
    target, place = HostPort("https", NAME, 443), ip_address(address)
    with pytest.raises(Denied, match="leads to"):
        checked(target, [place], [HostRule(NAME)])
    with pytest.raises(Denied, match="leads to"):
        checked(target, [place], [HostRule(NAME), HostRule(str(place), (80,))])
    assert checked(target, [place, ip_address("1.1.1.1")], [HostRule(NAME)]) == [ip_address("1.1.1.1")]
    assert checked(target, [place], [HostRule(NAME), HostRule(str(place))]) == [place]
    async with sandboxed() as servers:  # as a host of its own, in every notation
        for host_text in {address if ":" not in address else f"[{address}]", "0x7f.1", "2130706433", "localhost"}:
            data = await servers.sent([HostRule(NAME)], f"CONNECT {host_text}:443 HTTP/1.0\r\n\r\n".encode())
            assert data.startswith(b"HTTP/1.1 403 ")


def test_index_of_the_users_own_settings_may_have_a_private_address() -> None:
    index = HostRule("pypi.corp.example", (443,), is_private=True)
    place = ip_address("10.0.0.1")
    assert checked(HostPort("https", index.host, 443), [place], [index]) == [place]
    for target in (HostPort("https", NAME, 443), HostPort("https", index.host, 80)):
        with pytest.raises(Denied):
            checked(target, [place], [index, HostRule(NAME)])


def test_localhost_of_a_rule_leads_to_this_machine_alone() -> None:
    target, named = HostPort("http", "localhost", 80), [HostRule("localhost")]
    assert checked(target, [ip_address("::1"), ip_address("10.0.0.1")], named) == [ip_address("::1")]
    with pytest.raises(Denied):
        checked(target, [ip_address("10.0.0.1")], named)


def test_public_address_of_this_machine_is_reached_only_if_it_is_named() -> None:
    target, address = HostPort("https", NAME, 443), ip_address("1.1.1.1")
    judge_path("10.0.0.5", address, target, [HostRule(NAME)])
    judge_path("1.1.1.1", address, target, [HostRule(NAME), HostRule("1.1.1.1")])
    with pytest.raises(Denied, match="an address of this machine"):
        judge_path("1.1.1.1", address, target, [HostRule(NAME)])


def listening() -> set[str]:
    """The ports at which this process listens."""
    inodes = {f"socket:[{line.split()[9]}]": line.split()[1] for line in _lines() if line.split()[3] == "0A"}
    links = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(link.readlink()))
        except OSError:
            continue
    return {inodes[link] for link in links if link in inodes}


def _lines() -> list[str]:
    return [line for name in ("tcp", "tcp6") for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]]


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="needs /proc")
async def test_proxy_listens_nowhere_so_that_no_other_program_can_use_it() -> None:
    before = listening()
    async with sandboxed() as servers, await servers.connect(rules(1)) as stream:
        assert listening() == before
        with socket.socket() as stranger:  # at the address that the server's end is connected to
            stranger.settimeout(10)
            with pytest.raises(OSError, match=r"refused"):
                stranger.connect(stream.extra(anyio.abc.SocketAttribute.remote_address))


strangers: list[socket.socket] = []
is_watched: list[bool] = []


def connect_first(event: str, arguments: tuple[object, ...]) -> None:
    """A program that connects to an address in the moment before somebody else does."""
    if event == "socket.connect" and is_watched:
        is_watched.clear()
        strangers.append(socket.create_connection(arguments[1]))  # type: ignore[arg-type]  # it is an address


def test_stranger_that_connects_in_time_gets_no_end_of_a_pair() -> None:
    sys.addaudithook(connect_first)  # stays, and does nothing without `is_watched`
    is_watched.append(True)
    near, far = loopback_pair()
    with near, far, strangers.pop() as stranger:
        assert far.getpeername() == near.getsockname()
        stranger.settimeout(10)
        assert stranger.recv(1) == b""


async def test_server_has_its_own_rule_whatever_others_have() -> None:
    async with host() as far, sandboxed() as servers:
        request = f"GET http://{NAME}:{far.port}/ HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode()
        assert (await servers.sent(rules(far.port), request)).startswith(b"HTTP/1.1 200 ")
        second = Sandboxed(servers.proxy)
        assert (await second.sent(rules(far.port, "b.example"), request)).startswith(b"HTTP/1.1 403 ")
        assert (servers.refusals.total, second.refusals.total) == (0, 1)
        assert second.refusals.traffic.sent == 0


async def test_slow_names_of_one_server_hold_up_no_other() -> None:
    lookups = 0

    async def resolve(host: str) -> Sequence[Address]:
        nonlocal lookups
        if host.startswith("slow"):
            lookups += 1
            await anyio.sleep_forever()
        return [ip_address("127.0.0.1")]

    async with echo() as port, sandboxed(resolve) as servers:
        hosts = rules(port, "*.example.com")
        slow = [await servers.connect(hosts, "hostile") for _ in range(20)]
        for number, stream in enumerate(slow):
            await stream.send(f"CONNECT slow{number}.example.com:{port} HTTP/1.0\r\n\r\n".encode())
        async with await servers.connect(hosts, SERVER) as stream:
            await stream.send(f"CONNECT {NAME}:{port} HTTP/1.0\r\n\r\n".encode())
            assert (await stream.receive()).startswith(b"HTTP/1.1 200 ")
        assert lookups <= 4
        for stream in slow:
            await stream.aclose()


async def test_refused_upload_gets_its_answer_and_is_not_read_to_its_end() -> None:
    async with sandboxed() as servers, await servers.connect(rules(80)) as stream:
        head = b"POST http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 9999999999\r\n\r\n"
        await stream.send(head)
        assert (await stream.receive()).startswith(b"HTTP/1.1 403 ")
        sent = 0
        with pytest.raises((anyio.BrokenResourceError, anyio.ClosedResourceError)):
            while sent < 1 << 28:
                await stream.send(bytes(1 << 16))
                sent += 1 << 16
        assert 1 << 19 < sent < 1 << 26
        assert servers.refusals.traffic.sent == 0


async def test_refusals_are_bounded_escaped_and_logged_rarely(capsys: pytest.CaptureFixture[str]) -> None:
    async with sandboxed() as servers:
        for number in range(150):
            await servers.sent(rules(80), f"CONNECT h{number}.example:443 HTTP/1.0\r\n\r\n".encode())
        assert servers.refusals.total == 150
        assert len(servers.refusals.latest()) == 64
        assert capsys.readouterr().out.count("sandbox_refused") == 65  # the first 64, and the 128th
        await servers.sent(rules(80), b"GET / HTTP/1.1\r\nHost: \x1b[31m\xff\r\n\r\n")
        assert all(entry.target.isprintable() and entry.target.isascii() for entry in servers.refusals.latest())
        for entry in ("/run/agent", "/run/${X:-docker}.sock", "/run/\u202e"):
            servers.refusals.note("socket", entry, "", entry)
        assert [refused.entry for refused in servers.refusals.latest()[:3]] == [UNSET, UNSET, "/run/agent"]


async def test_unread_answer_is_not_collected() -> None:
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while sent < 1 << 28:
                writer.write(bytes(1 << 16))
                await writer.drain()
                sent += 1 << 16
        except OSError:
            return
        finally:
            writer.close()

    near, far = loopback_pair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    async with (
        await asyncio.start_server(pour, "127.0.0.1", 0) as listener,
        sandboxed(limits=_ProxyLimits(idle=0.2)) as servers,
    ):
        port = listener.sockets[0].getsockname()[1]
        servers.proxy.serve(far, SERVER, rules(port), servers.refusals)
        near.send(f"GET http://{NAME}:{port}/ HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
        while servers.refusals.traffic.open:  # until it counts as idle
            await anyio.lowlevel.checkpoint()
        assert sent < 1 << 27
        near.close()


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True}), ("asyncio", {"use_uvloop": False})])
async def test_one_direction_of_a_connection_that_was_reset_ends_without_a_failure() -> None:
    near, far = loopback_pair()
    end = End(await SocketStream.from_socket(far))
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()
    with anyio.fail_after(240), pytest.raises(anyio.BrokenResourceError):
        while True:
            await end.send(b"x")
    with suppress(OSError, anyio.BrokenResourceError):  # what the relay expects of either loop
        await end.send_eof()
    await end.aclose()
