"""Hosts and requests of strangers: every text is judged, in one spelling, and nothing else ever happens."""

from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.addresses import authority_of, host_rule, normal_host
from mcp_hub.sandbox.network.dial import Denied
from mcp_hub.sandbox.network.requests import parse_head

PIECES = (" ", *"* . : 443 a B example com [ ] ::1 127.0.0.1 0x7f @ % ß ü -".split())
HOSTS = st.one_of(st.text(max_size=30), st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
HEADS = [
    "Host: a.example",
    "Content-Length: 1",
    "Transfer-Encoding: chunked",
    " folded",
    "X: \r",
    "X\n",
    ": x",
    "Connection: x",
]
LINES = ["GET http://a.example/ HTTP/1.1", "CONNECT a.example:443 HTTP/1.1", "GET / HTTP/1.0", "PRI * HTTP/2.0"]
TEXTS = st.builds(
    lambda line, headers: "\r\n".join([line, *headers]).encode(),
    st.sampled_from(LINES),
    st.lists(st.sampled_from(HEADS), max_size=5),
)
REQUESTS = st.one_of(st.binary(max_size=80), TEXTS)


@given(HOSTS)
def test_host_of_a_rule_is_in_its_one_spelling_or_refused(text: str) -> None:
    try:
        rule = host_rule(text)
    except ValueError as exc:
        assert str(exc)
        return
    name = rule.host.removeprefix("*.")
    assert normal_host(authority_of(name)) == name
    assert rule.host.isascii()
    assert "*" not in name
    assert all(0 < port < 65536 for port in rule.ports)


@given(HOSTS)
def test_spelling_of_a_host_does_not_change_again(text: str) -> None:
    host = normal_host(text)
    assert host is None or normal_host(authority_of(host)) == host


@given(REQUESTS)
def test_head_is_a_request_with_one_target_or_refused(head: bytes) -> None:
    try:
        request = parse_head(head + b"\r\n\r\n")
    except Denied as denied:
        assert denied.status in (400, 431)
        return
    assert normal_host(authority_of(request.target.host)) == request.target.host
    assert request.path.startswith(("/", "*")) != request.is_tunnel
