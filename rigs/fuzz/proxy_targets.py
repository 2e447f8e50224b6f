"""Fuzz target of the proxy of sandboxed servers: heads of requests, compared with another parser."""

import httptools

from mcp_hub.addresses import authority_of, normal_host
from mcp_hub.sandbox.network.dial import Denied
from mcp_hub.sandbox.network.requests import parse_head
from rigs.fuzz.target import Target, from_corpus

_PLAIN = b"http://a.example:8080/p?q HTTP/1.1\r\nHost: a.example:8080\r\n"
REQUESTS = (
    b"GET " + _PLAIN + b"Accept: */*\r\nConnection: close\r\n\r\n",
    b"POST " + _PLAIN + b"Content-Length: 3\r\n\r\nabc",
    b"PUT " + _PLAIN + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\nProxy-Connection: keep-alive\r\n\r\n\x16\x03",
    b"OPTIONS http://A.Example. HTTP/1.0\r\nhost: a.example\r\n\r\n",
)
REQUEST_WORDS = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\r\n ",
        b"\r\n\t",
        b"\0",
        b" ",
        b":",
        b",",
        b"@",
        b"%00",
        b"//",
        b"*",
        b"HTTP/1.0",
        b"chunked",
    ),
    *(
        b"Content-Length: 1\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Host: b.example\r\n",
        b"Content-Length : 1",
        b"+1",
        b"\xff",
    ),
)


def check_proxy_request(data: bytes) -> None:
    """A head that is taken is read by another parser in one way, the same."""
    raw, end, _ = data.partition(b"\r\n\r\n")
    try:
        head = parse_head(raw + end)
    except Denied as denied:
        assert denied.status in (400, 431) and denied.reason
        return
    assert end, "a head without an end was taken"
    reader = _RequestReader()
    if not reader.read(raw + end):
        return
    assert reader.url == head.request.target and reader.headers == list(head.request.headers)
    names = [name for name, _ in reader.headers]
    assert sum(names.count(name) for name in (b"content-length", b"transfer-encoding")) <= 1
    assert names.count(b"host") <= 1
    assert normal_host(authority_of(head.target.host)) == head.target.host and 0 < head.target.port < 65536
    if not head.is_tunnel:
        assert head.path[:1] in (b"/".decode(), "*") and head.target.host.encode() in reader.url.lower().replace(
            b".:", b":"
        )


class _RequestReader:
    """A request as httptools reads it."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def read(self, data: bytes) -> bool:
        """False for a method that it does not have. Raises for what is not a request."""
        try:
            httptools.HttpRequestParser(self).feed_data(data)
        except httptools.HttpParserUpgrade:
            return True
        except httptools.HttpParserInvalidMethodError:
            return False
        return True

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name, value = name.lower(), value.strip(b" \t")
        self.headers.append((name, value.lower() if name == b"transfer-encoding" else value))


PROXY_TARGETS = (Target("proxy", from_corpus(REQUESTS, REQUEST_WORDS), check_proxy_request),)
