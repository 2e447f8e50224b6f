"""Webhooks of events: addresses, secrets, signatures (SEP-3415, standardwebhooks.com)."""

import base64
import hmac
from collections.abc import Sequence
from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.errors import InvalidParams
from mcp_hub.globs import any_matches
from mcp_hub.protocol.shape.webhooks import (
    MOST_TTL,
    USUAL_TTL,
    WINDOW,
    check_delivery,
    delivery_of,
    granted,
    has_challenge,
    message_id,
    message_problem,
    refused_callback,
    secret_key,
    secret_of,
    signed,
    subscription_id,
)
from mcp_hub.types import RawJson

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))
NOW = 1_800_000_000.0


def _nobody(host: str) -> bool:
    return False


def _raw(url: str, secret: str = secret_of(KEY)) -> RawJson:
    return msgspec.Raw(msgspec.json.encode({"mode": "webhook", "url": url, "secret": secret}))


def _sent(keys: Sequence[bytes], body: bytes, id_: str = "e1", at: float = NOW) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in signed(keys, id_, body, at).items()}


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/x",
        "https://2130706433/x",
        "https://0x7f000001/x",
        "https://0x7f.1/x",
        "https://0177.0.0.1/x",
        "https://017700000001/x",
        "https://127.1/x",
        "https://0/x",
        "https://10.1.2.3/x",
        "https://172.16.0.1/x",
        "https://192.168.1.1./x",
        "https://100.64.0.1/x",
        "https://169.254.169.254/latest/meta-data",
        "https://0xa9fea9fe/latest",
        "https://100.100.100.200/x",
        "https://[::1]/x",
        "https://[::]/x",
        "https://[::ffff:127.0.0.1]/x",
        "https://[::ffff:7f00:1]/x",
        "https://[::127.0.0.1]/x",
        "https://[64:ff9b::7f00:1]/x",
        "https://[64:ff9b:1::7f00:1]/x",
        "https://[2002:7f00:1::]/x",
        "https://[2001:0:7f00:1::80ff:fffe]/x",
        "https://[fe80::1]/x",
        "https://[fe80::1%25eth0]/x",
        "https://[fd00::1]/x",
        "https://[fd00:ec2::254]/x",
        "https://[2001:db8::1]/x",
        "https://[ff02::1]/x",
        "https://224.0.0.1/x",
        "https://255.255.255.255/x",
        "https://localhost/x",
        "https://LOCALHOST./x",
        "https://a.localhost/x",
        "https://\uff11\uff12\uff17.0.0.1/x",
        "https://127。0。0。1/x",
        "https://ⓛocalhost/x",
        "https://bücher.example/x",
        "https://%6c%6fcalhost/x",
        "https://user@example.com/x",
        "https://user:pw@example.com/x",
        "https://example.com@127.0.0.1/x",
        "https://example.com\\@127.0.0.1/x",
        "https://example.com#@127.0.0.1/x",
        "https://example.com/x#part",
        "https://example.com:22/x",
        "https://example.com:0/x",
        "https://example.com:6379/x",
        "https://example.com:99999/x",
        "https://example.com:443:80/x",
        "https://example.com:４４３/x",
        "http://example.com/x",
        "ftp://example.com/x",
        "file:///etc/passwd",
        "gopher://example.com/x",
        "javascript:alert(1)",
        "//example.com/x",
        "/x",
        "",
        "https://",
        "https:///x",
        "https://example.com/a b",
        "https://example.com/a\r\nx-injected: 1",
        "https://example.com/\x00",
        "https://example.com/" + "a" * 3000,
        "https://-a.example/x",
        "https://" + "a" * 300 + ".example/x",
        "https://1.2.3.4.5/x",
        "https://09.1.1.1/x",
    ],
)
def test_address_of_no_public_receiver_is_refused(url: str) -> None:
    assert refused_callback(url, _nobody) is not None
    with pytest.raises(InvalidParams, match=r"delivery"):
        check_delivery(delivery_of(_raw(url)), _nobody)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook?mcp_event_subscription=abc",
        "https://example.com./hook",
        "https://example.com:443/hook",
        "https://example.com:8443/hook",
        "https://xn--bcher-kva.example/hook",
        "https://8.8.8.8/hook",
        "https://[2606:4700::1111]/hook",
    ],
)
def test_public_receiver_is_taken(url: str) -> None:
    assert refused_callback(url, _nobody) is None


@pytest.mark.parametrize(
    ("url", "passes"),
    [
        ("http://127.0.0.1:8000/x", True),
        ("http://0x7f.1:8000/x", True),
        ("https://hooks.lan:444/x", True),
        ("http://10.0.0.2/x", False),
        ("http://evil-lan/x", False),
        ("http://169.254.169.254/x", False),
        ("http://user@127.0.0.1:8000/x", False),
    ],
)
def test_operator_allows_hosts_by_name_but_never_metadata(url: str, passes: bool) -> None:
    globs = ["127.0.0.1", "*.lan", "169.254.*"]
    assert (refused_callback(url, lambda host: any_matches(globs, (host,))) is None) is passes


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        base64.b64encode(KEY).decode(),
        "whsec_" + base64.b64encode(KEY[:23]).decode(),
        "whsec_" + base64.b64encode(KEY * 3).decode(),
        "whsec_" + "!" * 40,
        secret_of(KEY) + "\n",
        "whsec_é",
    ],
)
def test_unfit_secret_is_refused(secret: str) -> None:
    with pytest.raises(InvalidParams, match=r"delivery\.secret"):
        secret_key(secret)


def test_secret_has_24_to_64_bytes() -> None:
    for size in (24, 64):
        assert secret_key(secret_of(bytes(size))) == bytes(size)


def test_signature_has_the_form_of_standard_webhooks() -> None:
    headers = signed([KEY], "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', 1614265330.7)
    text = b'msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}'
    signature = base64.b64encode(hmac.new(KEY, text, sha256).digest()).decode()
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": f"v1,{signature}",
    }


def test_message_passes_with_each_key_of_a_rotation() -> None:
    body = b'{"eventId":"e1"}'
    for signers, readers in (([KEY], [KEY]), ([KEY, OTHER], [OTHER]), ([OTHER], [KEY, OTHER])):
        assert message_problem(readers, _sent(signers, body), body, NOW) is None


def test_forged_message_is_refused() -> None:
    body = b'{"eventId":"e1"}'
    headers = _sent([KEY], body)
    forged: list[tuple[dict[bytes, bytes], bytes]] = [
        (headers, body + b" "),
        (_sent([OTHER], body), body),
        ({**headers, b"webhook-id": b"e2"}, body),
        ({**headers, b"webhook-timestamp": b"%d" % (NOW + 1)}, body),
        ({**headers, b"webhook-signature": b""}, body),
        ({**headers, b"webhook-signature": b"v1,"}, body),
        ({**headers, b"webhook-signature": headers[b"webhook-signature"].replace(b"v1,", b"v1a,")}, body),
        ({**headers, b"webhook-signature": b"v1,x " * 64 + headers[b"webhook-signature"]}, body),
        ({**headers, b"webhook-timestamp": b"-1"}, body),
        ({**headers, b"webhook-timestamp": b"1e9"}, body),
        ({**headers, b"webhook-id": b"a\r\nb"}, body),
        ({}, body),
    ]
    for fields, content in forged:
        assert message_problem([KEY], fields, content, NOW) is not None
    assert message_problem([], headers, body, NOW) is not None


@pytest.mark.parametrize(("skew", "passes"), [(0, True), (-WINDOW, True), (WINDOW, True), (-301, False), (301, False)])
def test_old_and_future_messages_are_refused(skew: int, passes: bool) -> None:
    body = b"{}"
    assert (message_problem([KEY], _sent([KEY], body), body, NOW + skew) is None) is passes


@given(st.text(max_size=600))
def test_header_holds_the_id_of_each_occurrence(event_id: str) -> None:
    id_ = message_id(event_id)
    assert id_.isascii() and id_.isprintable() and id_ == id_.strip() and 0 < len(id_) <= 512
    if event_id.isalnum() and event_id.isascii() and len(event_id) <= 512:
        assert id_ == event_id


def test_id_with_spaces_inside_is_the_one_of_the_message_in_both_roles() -> None:
    body, id_ = b"{}", "build 12 of main"
    assert message_id(id_) == id_
    headers = {name.encode(): value.encode() for name, value in signed([KEY], id_, body, NOW).items()}
    assert message_problem([KEY], headers, body, NOW) is None
    assert message_problem([KEY], {**headers, b"webhook-id": b" " + id_.encode()}, body, NOW) is not None


def test_id_of_a_subscription_depends_on_each_part_of_its_key() -> None:
    key = ("alice", "https://a.example/x", "build.done", b'{"a":1}')
    ids = {subscription_id(*key)}
    for index, value in enumerate(("bob", "https://a.example/y", "build.red", b'{"a":2}')):
        changed = [*key]
        changed[index] = value
        ids.add(subscription_id(*changed))  # type: ignore[arg-type] # one of four
    assert len(ids) == 5
    assert subscription_id("a", "b", "c", b"{}") == subscription_id("a", "b", "c", b"{}")


def test_expiry_is_granted_within_bounds() -> None:
    assert granted(msgspec.UNSET, may_last=True) == USUAL_TTL
    assert granted(None, may_last=True) is None
    assert granted(None, may_last=False) == USUAL_TTL
    assert granted(3_600_000, may_last=True) == 3600
    assert granted(1, may_last=True) == 60
    assert granted(10**15, may_last=True) == MOST_TTL
    assert granted(10**15, may_last=False) == USUAL_TTL


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        (b'{"challenge":"n1"}', True),
        (b'{"challenge":"n1","x":[1]}', True),
        (b'{"challenge":"n2"}', False),
        (b'{"challenge":1}', False),
        (b'"n1"', False),
        (b"n1", False),
        (b"", False),
        (b"[" * 100_000, False),
        (b'{"challenge":"\xff"}', False),
    ],
)
def test_challenge_has_to_come_back(answer: bytes, passes: bool) -> None:
    assert has_challenge(answer, "n1") is passes
