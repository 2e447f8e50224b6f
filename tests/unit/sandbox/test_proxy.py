"""Connections of a sandboxed server through the proxy: what reaches its hosts, what comes back, what is counted."""

import asyncio
import socket
import ssl
import struct
import urllib.request
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import which

import anyio
import httpx2
import pytest

from mcp_hub.addresses import Address, HostRule
from mcp_hub.sandbox.network.interface import Refusals, loopback_pair
from mcp_hub.sandbox.network.proxy import HostProxy, _ProxyLimits
from rigs.clients.install import node
from tests.unit.sandbox.proxied import NAME, SERVER, answers, certificate, echo, everything, host, rules, sandboxed

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 Connection established\r\n\r\n"


async def test_tunnel_relays_both_directions_and_their_ends() -> None:
    async with echo() as port, sandboxed() as servers:
        async with await servers.connect(rules(port)) as stream:
            await stream.send(f"CONNECT {NAME}:{port} HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\nearly ".encode())
            await stream.send(bytes(500_000))
            await stream.send_eof()
            data = await everything(stream)
        assert data == OK + b"early " + bytes(500_000) + b"<end>"
        traffic = servers.refusals.traffic
        assert (traffic.connections, traffic.sent, traffic.received) == (1, 500_006, 500_011)
        assert servers.refusals.total == 0


async def test_tunnel_to_a_host_that_closes_first_still_takes_data() -> None:
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.write_eof()
        got.extend(await reader.read())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening, sandboxed() as servers:
        port = listening.sockets[0].getsockname()[1]
        async with await servers.connect(rules(port)) as stream:
            await stream.send(f"CONNECT {NAME}:{port} HTTP/1.0\r\n\r\n".encode())
            assert await everything(stream) == OK + b"bye"
            await stream.send(b"late")
            await stream.send_eof()
            with anyio.fail_after(240):
                while bytes(got) != b"late":
                    await anyio.lowlevel.checkpoint()


async def test_requests_of_a_connection_are_judged_and_relayed_each_on_its_own() -> None:
    async with (
        host() as near,
        host(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n") as far,
    ):
        hosts = [*rules(near.port), HostRule("b.example", (far.port,)), HostRule("127.0.0.1", (far.port,))]
        async with sandboxed() as servers:
            data = await servers.sent(
                hosts,
                f"POST http://{NAME}:{near.port}/a?b=c HTTP/1.1\r\nHost: {NAME}:{near.port}\r\nContent-Length: 3\r\n"
                f"Proxy-Authorization: Basic eDp5\r\nConnection: X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\nX-End: 2\r\n"
                f"Upgrade: h2c\r\nProxy-Connection: keep-alive\r\nKeep-Alive: 5\r\n\r\nxyz"
                f"GET http://B.example.:{far.port} HTTP/1.1\r\nHost: b.example:{far.port}\r\n\r\n"
                f"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"
                f"GET http://{NAME}:{near.port}/never HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode(),
            )
        first = f"POST /a?b=c HTTP/1.1\r\nHost: {NAME}:{near.port}\r\nContent-Length: 3\r\nX-End: 2\r\n"
        assert near.requests == [f"{first}Connection: close\r\n\r\nxyz".encode()]
        assert far.requests == [f"GET / HTTP/1.1\r\nHost: b.example:{far.port}\r\nConnection: close\r\n\r\n".encode()]
        parts = data.split(b"HTTP/1.1 ")
        assert [part[:3] for part in parts[1:]] == [b"200", b"200", b"403"]
        assert parts[2].endswith(b"3\r\nabc\r\n0\r\n\r\n")


async def test_body_of_a_request_is_relayed_in_chunks_and_an_interim_answer_with_it() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    answer = hints + b"HTTP/1.1 201 Made\r\nConnection: X-A\r\nX-A: 1\r\nX-B: 2\r\n\r\nbody"
    async with host(answer) as far, sandboxed() as servers:
        head = f"PUT http://{NAME}:{far.port}/ HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n\r\n"
        data = await servers.sent(
            rules(far.port), head.encode() + b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: 1\r\n\r\n"
        )
        (request,) = far.requests
        assert request.partition(b"\r\n\r\n")[2] == b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        early, _, final = data.partition(b"\r\n\r\n")
        assert early.startswith(b"HTTP/1.1 103 ")
        assert final.startswith(b"HTTP/1.1 201 Made\r\nX-B: 2\r\n")
        assert final.endswith(b"4\r\nbody\r\n0\r\n\r\n")
        assert b"X-A" not in data
        head = f"GET http://{NAME}:{far.port}/ HTTP/1.0\r\n\r\n"
        old = await servers.sent(rules(far.port), head.encode())
        assert old.startswith(b"HTTP/1.1 201 Made")  # an interim answer is not for HTTP/1.0, nor are chunks
        assert old.endswith(b"\r\n\r\nbody")


async def test_request_that_waits_for_an_interim_answer_gets_that_of_its_host() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" if b"Expect: 100-continue" in head else b"")
        body = await reader.readexactly(3)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + body)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener, sandboxed() as servers:
        port = listener.sockets[0].getsockname()[1]
        head = (
            f"PUT http://{NAME}:{port}/ HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        )
        async with await servers.connect(rules(port)) as stream:
            await stream.send(head.encode())
            assert (await stream.receive()).startswith(b"HTTP/1.1 100 ")
            await stream.send(b"abc")
            await stream.send_eof()
            assert (await everything(stream)).endswith(b"\r\n\r\nabc")


async def test_answer_that_breaks_off_does_not_look_complete() -> None:
    async with host(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf") as far, sandboxed() as servers:
        async with await servers.connect(rules(far.port)) as stream:
            await stream.send(f"GET http://{NAME}:{far.port}/ HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
            with pytest.raises(anyio.BrokenResourceError):
                while True:
                    await stream.receive()


@pytest.mark.parametrize(
    ("length", "body"), [("Content-Length: 9", b"abc"), ("Transfer-Encoding: chunked", b"3\r\nabc\r\n")]
)
async def test_request_that_breaks_off_does_not_look_complete(length: str, body: bytes) -> None:
    async with host() as far, sandboxed() as servers:
        head = f"POST http://{NAME}:{far.port}/ HTTP/1.1\r\nHost: {NAME}\r\n{length}\r\n\r\n"
        assert await servers.sent(rules(far.port), head.encode() + body) == b""
        while not far.requests:
            await anyio.lowlevel.checkpoint()
        assert far.requests[0].endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n"])
async def test_answer_that_is_not_http_is_a_bad_gateway(answer: bytes) -> None:
    async with host(answer) as far, sandboxed() as servers:
        request = f"GET http://{NAME}:{far.port}/ HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode()
        assert (await servers.sent(rules(far.port), request)).startswith(b"HTTP/1.1 502 ")


async def test_programs_reach_their_host_and_no_other(tmp_path: Path) -> None:
    context, file = certificate(tmp_path)
    trusted = ssl.create_default_context(cafile=str(file))
    async with host(context=context) as far, host() as plain, sandboxed() as servers:
        url, evil = f"https://{NAME}:{far.port}/", f"https://evil.example:{far.port}/"
        hosts = [*rules(far.port), *rules(plain.port)]
        async with servers.listening(hosts) as proxy:
            async with httpx2.AsyncClient(proxy=proxy, verify=trusted, trust_env=False) as client:
                assert (await client.get(url)).text == "hi"
                assert (await client.get(f"http://{NAME}:{plain.port}/x")).text == "hi"
                with pytest.raises(httpx2.ProxyError, match=r"403 Forbidden.*evil\.example:\d+"):
                    await client.get(evil)
            handlers = (
                urllib.request.ProxyHandler({"https": proxy, "http": proxy}),
                urllib.request.HTTPSHandler(context=trusted),
            )
            opener = urllib.request.build_opener(*handlers)
            for address in (url, f"http://{NAME}:{plain.port}/y"):
                response = await anyio.to_thread.run_sync(partial(opener.open, address, timeout=240))
                assert response.read() == b"hi"
                response.close()
            with pytest.raises(OSError, match=r"403 Forbidden.*evil\.example"):
                await anyio.to_thread.run_sync(lambda: opener.open(evil, timeout=10))
        assert len(far.requests) == 2
        assert [entry.target for entry in servers.refusals.latest()] == [f"evil.example:{far.port}"]
        assert servers.refusals.latest()[0].count == 2


FETCH = "fetch(process.argv[1]).then(r => r.text()).then(console.log, e => console.log(String(e.cause ?? e)))"
GET = (
    "require('https').get(process.argv[1], r => r.on('data', d => console.log(String(d))))"
    ".on('error', e => console.log(String(e)))"
)


@pytest.mark.processes
@pytest.mark.parametrize("program", ["fetch", "https", "curl"])
async def test_programs_of_other_languages_reach_their_host_and_no_other(program: str, tmp_path: Path) -> None:
    if program == "curl" and which("curl") is None:
        pytest.skip("curl is not installed")
    context, file = certificate(tmp_path)
    async with host(context=context) as far, sandboxed() as servers, servers.listening(rules(far.port)) as proxy:
        start = (
            ["curl", "-sS", "--max-time", "20"]
            if program == "curl"
            else [str(node()), "-e", FETCH if program == "fetch" else GET]
        )
        trust = {"NODE_EXTRA_CA_CERTS": str(file), "CURL_CA_BUNDLE": str(file)}
        env = {**trust, "NODE_USE_ENV_PROXY": "1", "HTTPS_PROXY": proxy, "HTTP_PROXY": proxy, "https_proxy": proxy}
        texts = []
        for name in (NAME, "evil.example"):
            done = await anyio.run_process([*start, f"https://{name}:{far.port}/"], env=env, check=False)
            texts.append((done.stdout + done.stderr).decode())
        assert texts[0].strip() == "hi"
        assert "hi" not in texts[1]
        assert program != "curl" or "403" in texts[1]
        assert len(far.requests) == 1
        assert [entry.target for entry in servers.refusals.latest()] == [f"evil.example:{far.port}"]


async def test_refusal_names_the_line_that_allows_the_host() -> None:
    async with sandboxed() as servers:
        data = await servers.sent(rules(443), b"CONNECT x.example:8443 HTTP/1.1\r\nHost: x.example:8443\r\n\r\n")
        head, _, body = data.partition(b"\r\n\r\n")
        assert head.startswith(b'HTTP/1.1 403 Forbidden (mcp-hub sandbox: add "x.example:8443" to net)\r\n')
        assert b"\r\nProxy-Status: mcp-hub; error=http_request_denied\r\n" in head
        assert f"servers.{SERVER}.sandbox.net" in body.decode()
        assert '\n  - "x.example:8443"\n' in body.decode()
        data = await servers.sent(rules(443), f"GET http://{NAME}:443/ HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
        assert b"403" not in data.partition(b"\r\n")[0]  # allowed; nothing listens there
        data = await servers.sent(rules(443), f"HEAD http://{NAME}/ HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
        assert b"port 80 is not in its rule" in (servers.refusals.latest()[0].reason.encode())
        assert data.endswith(b"\r\n\r\n")  # an answer to HEAD does not have a body


async def test_hub_behind_a_proxy_goes_through_it_by_name(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def parent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head)
        status = b"407 No" if b"no.example" in head else b"200 OK"
        plain = b"Content-Length: 2\r\n\r\nhi" if head.startswith(b"GET") else b"\r\nfirst"
        writer.write(b"HTTP/1.1 " + status + b"\r\n" + plain)
        writer.write(await reader.read() if head.startswith(b"CONNECT") else b"")
        writer.close()

    async with await asyncio.start_server(parent, "127.0.0.1", 0) as listening:
        url = f"http://us%65r:pw@127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        hosts = [HostRule(NAME), HostRule("no.example"), HostRule("in.example"), HostRule("127.0.0.1", (1,))]
        async with sandboxed(answers("10.0.0.1"), via=lambda target: url) as servers:
            inner = await servers.sent(hosts, b"CONNECT in.example:443 HTTP/1.1\r\nHost: in.example:443\r\n\r\n")
            assert inner.startswith(b"HTTP/1.1 403 ")  # it leads into the network of the hub
        assert seen == []
        async with sandboxed(answers(), via=lambda target: url) as servers:  # names that only the proxy can resolve
            data = await servers.sent(hosts, f"CONNECT {NAME}:443 HTTP/1.1\r\nHost: {NAME}:443\r\n\r\nmore".encode())
            assert data == OK + b"firstmore"
            data = await servers.sent(hosts, f"GET http://{NAME}/p HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
            assert data.endswith(b"hi")
            refused = await servers.sent(hosts, b"CONNECT no.example:443 HTTP/1.1\r\nHost: no.example:443\r\n\r\n")
            assert refused.startswith(b"HTTP/1.1 502 ")
            assert b"(407)" in refused
        login = b"Proxy-Authorization: Basic dXNlcjpwdw==\r\n"
        assert [head.partition(b"\r\n")[0] for head in seen[:2]] == [
            f"CONNECT {NAME}:443 HTTP/1.1".encode(), f"GET http://{NAME}/p HTTP/1.1".encode(),
        ]  # fmt: skip
        assert all(login in head for head in seen)
        async with sandboxed(via=lambda target: "socks5://user:pw@127.0.0.1:1") as servers:
            data = await servers.sent(hosts, f"CONNECT {NAME}:443 HTTP/1.1\r\nHost: {NAME}:443\r\n\r\n".encode())
            assert data.startswith(b"HTTP/1.1 502 ")
            assert b"pw" not in data


async def test_connections_of_a_server_are_limited_and_leave_room_for_others() -> None:
    async with echo() as port, sandboxed(limits=_ProxyLimits(connections=2)) as servers:
        request = f"CONNECT {NAME}:{port} HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n".encode()
        first, second = await servers.connect(rules(port)), await servers.connect(rules(port))
        async with first, second:
            for stream in (first, second):
                await stream.send(request)
                assert await stream.receive() == OK
            async with await servers.connect(rules(port)) as third:
                assert await everything(third) == b""
            assert servers.refusals.latest()[0].kind == "rate"
            assert servers.refusals.traffic.open == 2
            async with await servers.connect(rules(port), "other") as stream:
                await stream.send(request)
                assert await stream.receive() == OK
        with anyio.fail_after(240):
            while servers.refusals.traffic.open:
                await anyio.lowlevel.checkpoint()
        async with await servers.connect(rules(port)) as stream:
            await stream.send(request)
            assert await stream.receive() == OK


async def test_silent_peers_are_disconnected() -> None:
    limits = _ProxyLimits(request=0.1, waiting=0.1, idle=0.1, half_closed=0.1)
    async with echo() as port, sandboxed(limits=limits) as servers:
        async with await servers.connect(rules(port)) as stream:
            assert await everything(stream) == b""
        async with await servers.connect(rules(port)) as stream:
            await stream.send(b"GET http://a.example/ HTTP/1.1\r\nHost: a")
            assert (await everything(stream)).startswith(b"HTTP/1.1 408 ")
        async with await servers.connect(rules(port)) as stream:
            await stream.send(f"CONNECT {NAME}:{port} HTTP/1.0\r\n\r\n".encode())
            assert await everything(stream) == OK
        async with await servers.connect(rules(port)) as stream:
            await stream.send(
                f"POST http://{NAME}:{port}/ HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 9\r\n\r\n".encode()
            )
            assert (await everything(stream))[:12] in (b"HTTP/1.1 502", b"HTTP/1.1 504")
        while servers.refusals.traffic.open:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("request_line", ["CONNECT {name}:{port} HTTP/1.0", "GET http://{name}:{port}/ HTTP/1.0"])
async def test_connection_that_its_server_has_closed_ends_without_traffic(request_line: str) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    with silent:
        port = silent.getsockname()[1]
        async with sandboxed(limits=_ProxyLimits(half_closed=0.05)) as servers:
            async with await servers.connect(rules(port)) as stream:
                await stream.send(request_line.format(name=NAME, port=port).encode() + b"\r\n\r\n")
                await stream.send_eof()
                assert (await everything(stream))[:12] in (b"HTTP/1.1 200", b"HTTP/1.1 504")


async def test_addresses_are_tried_in_turn_and_failures_have_their_status() -> None:
    async with echo() as port:
        tried = ("::1", "127.0.0.2", "127.0.0.1")  # nothing listens at the first two
        hosts = [HostRule(name, (port,)) for name in (NAME, *tried)]
        request = f"CONNECT {NAME}:{port} HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n".encode()
        async with sandboxed(answers(*tried)) as servers:
            assert await servers.sent(hosts, request) == OK + b"<end>"
        async with sandboxed(answers(*tried[:2])) as servers:
            assert (await servers.sent(hosts, request)).startswith(b"HTTP/1.1 502 ")
        async with sandboxed(answers()) as servers:
            assert (await servers.sent(hosts, request)).startswith(b"HTTP/1.1 502 ")

    async def never(host: str) -> list[Address]:
        await anyio.sleep_forever()
        return []

    async with sandboxed(never, limits=_ProxyLimits(lookup=0.05)) as servers:
        assert (await servers.sent(hosts, request)).startswith(b"HTTP/1.1 504 ")
        assert servers.refusals.total == 0  # a failure is not a refusal


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True}), ("asyncio", {"use_uvloop": False})])
async def test_connections_that_are_reset_end_without_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as listening, sandboxed() as servers:
        port = listening.sockets[0].getsockname()[1]
        tunnel, plain = "CONNECT {}:{} HTTP/1.0\r\n\r\nx", "GET http://{}:{}/ HTTP/1.0\r\n\r\n"
        for request, is_open in ((tunnel, True), (tunnel, False), (plain, False)):
            near, far = loopback_pair()
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            servers.proxy.serve(far, SERVER, rules(port), servers.refusals)
            near.send(request.format(NAME, port).encode())
            if not is_open:
                near.close()
            while servers.refusals.traffic.open:
                await anyio.lowlevel.checkpoint()
            near.close()
        assert "sandbox_connection_failed" not in capsys.readouterr().out


async def test_proxy_that_does_not_run_any_more_has_closed_all_connections() -> None:
    pairs = [loopback_pair() for _ in range(4)]
    proxy, refusals = HostProxy(resolve=answers("127.0.0.1")), Refusals()
    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(proxy.run)
            await anyio.lowlevel.checkpoint()
            proxy.serve(pairs[0][1], SERVER, rules(1), refusals)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()  # it waits for a request
            proxy.serve(pairs[1][1], SERVER, rules(1), refusals)
            await anyio.lowlevel.checkpoint()  # it has a task
            tasks.cancel_scope.cancel()
            proxy.serve(pairs[2][1], SERVER, rules(1), refusals)
            assert refusals.traffic.open == 3
    proxy.serve(pairs[3][1], SERVER, rules(1), refusals)
    assert (refusals.traffic.open, refusals.traffic.connections) == (0, 3)
    for near, far in pairs:
        with near:
            assert far.fileno() == -1
            near.settimeout(10)
            with suppress(ConnectionResetError):
                assert near.recv(1) == b""
