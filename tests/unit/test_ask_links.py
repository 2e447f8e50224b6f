"""Links by a webhook: where they may go, and what is sent."""

import base64
import hashlib
import hmac
import json
from ipaddress import ip_address
from typing import Any

import pytest
from pydantic import ValidationError

from mcp_hub.addresses import refused_target, refused_webhook
from mcp_hub.app.gates import message_of, signed
from mcp_hub.call import Call
from mcp_hub.calls.gates.asking import PendingAsk
from mcp_hub.calls.gates.asking import _Wait as Wait
from mcp_hub.config.schema.hub import HubSettings
from mcp_hub.config.schema.records import AskWebhookSettings
from mcp_hub.types import CallId, Era

SECRET = "0123456789abcdef-secret"
SPELLINGS = """
    http://127.0.0.1/ https://127.0.0.1/ https://127.1/ https://2130706433/ https://0x7f000001/ https://0x7f.1/
    https://0177.0.0.1/ https://017700000001/ https://127.0.0.1./ https://[::1]/ https://[::ffff:127.0.0.1]/
    https://[::ffff:7f00:1]/ https://[0:0:0:0:0:ffff:127.0.0.1]/ https://[::127.0.0.1]/ https://[64:ff9b::7f00:1]/
    https://[2002:7f00:1::]/ https://0.0.0.0/ https://0/ https://[::]/ https://10.0.0.1/ https://172.16.0.1/
    https://192.168.1.1/ https://100.64.0.1/ https://169.254.169.254/latest https://[fe80::1]/ https://[fe80::1%25eth0]/
    https://[fd00:ec2::254]/ https://[fc00::1]/ https://100.100.100.200/ https://168.63.129.16/ https://224.0.0.1/
    https://localhost/ https://LOCALHOST/ https://localhost./ https://a.localhost/ http://hooks.example.com/
    https://user:pw@hooks.example.com/ https://hooks.example.com@127.0.0.1/ https://127.0.0.1:443/ ftp://hooks.example.com/
    file:///etc/passwd gopher://127.0.0.1/ https:///path https://hooks.example.com:0/ https://hooks.example.com/#x
    https://127.0.0.1%2f.example.com/ https://①②⑦.⓪.⓪.①/ https://hooks.example.com\\@127.0.0.1/ //hooks.example.com/
    javascript:alert(1) https://[::ffff:a00:1]/ https://[2001:db8::1]/ https://198.18.0.1/ https://255.255.255.255/
""".split()


@pytest.mark.parametrize("url", SPELLINGS)
def test_inner_address_is_refused_in_every_spelling(url: str) -> None:
    assert refused_webhook(url, ()) is not None
    with pytest.raises(ValidationError):
        AskWebhookSettings(url=url, secret=SECRET)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["https://hooks.example.com/T/B/x", "https://1.1.1.1/", "https://[2606:4700::1111]/x"])
def test_public_place_is_fine(url: str) -> None:
    assert refused_webhook(url, ()) is None


def test_private_place_has_to_be_named() -> None:
    assert refused_webhook("http://192.168.1.7:8080/topic", ["192.168.1.7"]) is None
    assert refused_webhook("http://ntfy.lan/topic", ["ntfy.lan"]) is None
    assert refused_webhook("http://192.168.1.8/", ["192.168.1.7"]) is not None
    assert refused_webhook("https://169.254.169.254/", ["169.254.169.254"]) is not None, "metadata is never meant"


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.1.1", "::1", "::ffff:10.0.0.1", "169.254.169.254", "fe80::1"])
def test_name_that_leads_inside_is_refused_when_it_is_resolved(address: str) -> None:
    assert refused_target(ip_address(address), "hooks.example.com", ()) is not None
    assert refused_target(ip_address("1.1.1.1"), "hooks.example.com", ()) is None


def pending(arguments: bytes = b'{"text":"hello"}') -> PendingAsk:
    import msgspec

    params = {"name": msgspec.Raw(b'"delete"'), "arguments": msgspec.Raw(arguments)}
    call = Call(CallId("c1"), "notes", "tools/call", params, {}, "s", 'al"ice', Era.HANDSHAKE, {})
    wait = Wait(until=1e9, rule="r", definition="d", always=True, by_person=False)
    return PendingAsk(call, wait, "c1.ticket", lambda: None)


def webhook(**more: Any) -> AskWebhookSettings:
    return AskWebhookSettings.model_validate({"url": "https://hooks.example.com/x", "secret": SECRET, **more})


def test_message_has_no_arguments_unless_they_are_meant() -> None:
    body, kind = message_of(webhook(), pending(), "https://hub/ask#t")
    sent = json.loads(body)
    assert kind == "application/json" and b"hello" not in body
    assert (sent["link"], sent["server"], sent["tool"]) == ("https://hub/ask#t", "notes", "delete")
    body, _ = message_of(webhook(arguments="full"), pending(), "l")
    assert "hello" in json.loads(body)["arguments"]


@pytest.mark.parametrize(
    ("template", "expected", "kind"),
    [
        (
            "{{text}} {{ link }} {{arguments}}{{nothing}}",
            'Call delete of notes? Asked for al"ice. L {{nothing}}',
            "text/plain",
        ),
        ({"chat_id": 7, "text": "{{link}}"}, {"chat_id": 7, "text": "L"}, "application/json"),
        ({"blocks": [{"text": "{{principal}}"}]}, {"blocks": [{"text": 'al"ice'}]}, "application/json"),
    ],
)
def test_template(template: Any, expected: Any, kind: str) -> None:
    body, media = message_of(webhook(body=template), pending(), "L")
    assert media.startswith(kind)
    assert (body.decode() if isinstance(expected, str) else json.loads(body)) == expected


def test_value_is_not_a_template_again() -> None:
    body, _ = message_of(webhook(arguments="full", body="{{arguments}}"), pending(b'{"a":"{{link}}"}'), "LINK")
    assert body == b'{"a":"{{link}}"}'


@pytest.mark.parametrize("secret", [SECRET, "whsec_" + base64.b64encode(b"key of 24 bytes or more.").decode()])
def test_signature(secret: str) -> None:
    key = base64.b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
    headers = signed(secret, "c1", b"body", 1000.5)
    expected = base64.b64encode(hmac.new(key, b"c1.1000.body", hashlib.sha256).digest()).decode()
    assert headers == {"webhook-id": "c1", "webhook-timestamp": "1000", "webhook-signature": f"v1,{expected}"}


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"secret": "short"}, "secret"),
        ({"secret": "whsec_not base64 at all"}, "Base64"),
        ({"private": ["127.1"]}, "127.0.0.1"),
        ({"body": []}, "mapping"),
        ({"headers": {"content-type": "x"}}, "set by the hub"),
    ],
)
def test_mistake_is_named(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        webhook(**more)


def test_links_need_a_public_address() -> None:
    with pytest.raises(ValidationError, match="public_url"):
        HubSettings.model_validate({"ask_webhook": {"url": "https://hooks.example.com/x", "secret": SECRET}})
