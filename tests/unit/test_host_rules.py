"""Rules for hosts, the one spelling of a host, and which addresses are not servers on the internet."""

from ipaddress import ip_address

import pytest

from mcp_hub.addresses import HostRule, authority_of, host_rule, normal_host, special_kind

RULES = {
    "api.example.com": ("api.example.com", 443),
    "API.Example.COM.": ("api.example.com", 443),
    "*.CDN.example.com": ("*.cdn.example.com", 443),
    "api.example.com:8443": ("api.example.com", 8443),
    "*.example.com:80": ("*.example.com", 80),
    "bücher.example": ("xn--bcher-kva.example", 443),
    "*.BÜCHER.example:99": ("*.xn--bcher-kva.example", 99),
    "日本語。jp": ("xn--wgv71a119e.jp", 443),
    "xn--bcher-kva.example": ("xn--bcher-kva.example", 443),
    "my_host": ("my_host", 443),
    "localhost:3000": ("localhost", 3000),
    "10.0.0.5": ("10.0.0.5", 443),
    "10.0.0.5:8080": ("10.0.0.5", 8080),
    "::1": ("::1", 443),
    "[::1]": ("::1", 443),
    "[2001:DB8:0::1]:8443": ("2001:db8::1", 8443),
}
REFUSED = {
    "": "empty",
    "*": "every host",
    "*:443": "every host",
    "*.*": "every host",
    "**": "every host",
    "https://api.example.com": "URL",
    "api.example.com/path": "'/'",
    "10.0.0.0/8": "'/'",
    "user@example.com": "'@'",
    "example.com?x": "'?'",
    "exa%6dple.com": "'%'",
    "fe80::1%eth0": "'%'",
    "api.*.example.com": "elsewhere",
    "a*.example.com": "elsewhere",
    "*example.com": "elsewhere",
    "*.*.example.com": "elsewhere",
    "*.": "every host",
    ".": "not a host",
    "example.*": "elsewhere",
    "*.com": "at least two parts",
    "*.10.0.0.1": "address",
    "a b.example": "blanks",
    "a\u200bb.example": "blanks",
    "a\n.example": "blanks",
    "a..example": "not a host",
    "-a.example": "not a host",
    ".example.com": "not a host",
    f"{'a' * 64}.example": "not a host",
    f"{'a.' * 127}example": "not a host",
    "1.2.3.4.5": "not a host",
    "straße.example": "xn--",
    "127.1": "Write 127.0.0.1",
    "0x7f.0.0.1": "Write 127.0.0.1",
    "017.0.0.1": "Write 15.0.0.1",
    "2130706433": "Write 127.0.0.1",
    "example.com:": "port",
    "example.com:0": "port",
    "example.com:65536": "port",
    "example.com:https": "port",
    "example.com:١": "port",
    "a:b:443": "brackets",
    "[example.com]:443": "IPv6",
    "[10.0.0.1]": "IPv6",
}


@pytest.mark.parametrize("text", RULES)
def test_rule_has_one_spelling_of_each_host(text: str) -> None:
    host, port = RULES[text]
    rule = host_rule(text)
    assert rule.host == host
    assert rule.ports == ((443, 80) if port == 443 else (port,))
    assert host_rule(rule.host if rule.host.startswith("*") else authority_of(rule.host)).host == host


@pytest.mark.parametrize("text", REFUSED)
def test_rule_that_is_not_a_host_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        host_rule(text)
    assert REFUSED[text] in str(caught.value)


def test_rule_matches_its_host_and_ports_alone() -> None:
    rule = host_rule("*.example.com")
    assert [rule.matches(host, 443) for host in ("a.example.com", "a.b.example.com")] == [True, True]
    others = ("example.com", ".example.com", "badexample.com", "a.example.com.evil.org", "a.example.co", "::1")
    assert not any(rule.matches(host, 443) for host in others)
    assert rule.matches("a.example.com", 80)
    assert not rule.matches("a.example.com", 8080)
    assert host_rule("a.example:8080").matches("a.example", 8080)
    assert not host_rule("a.example:8080").matches("a.example", 443)
    assert not HostRule("a.example").matches("b.a.example", 443)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("A.Example.", "a.example"),
        *((text, None) for text in ("a.example..", "::1", "[fe80::1%25eth0]", "1.2.3.256", "a.0x10", "a b", "", ".")),
        ("[::FFFF:10.0.0.1]", str(ip_address("::ffff:a00:1"))),
        *((text, "127.0.0.1") for text in ("0x7f.1", "2130706433", "0177.0.0.01", "127.0.0.1.")),
        *((text, None) for text in ("bücher.example", "a.example\0", "a.example\n")),
    ],
)
def test_host_of_a_request_has_one_spelling(text: str, host: str | None) -> None:
    assert normal_host(text) == host


SPECIAL = """
0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 168.63.129.16 169.254.169.254 172.16.0.1
172.31.255.255 192.0.0.192 192.0.2.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.250 240.0.0.1
255.255.255.255 :: ::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1 2001:db8::1 100::1 4000::1 3fff::1
::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:168.63.129.16 ::127.0.0.1 ::8.8.8.8 ::ffff:0:10.0.0.1
64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::808:808 2002:7f00:1:: 2002:a00:1::1 2002:a9fe:a9fe::1
2001:0:808:808:0:0:f5ff:fffe 2001:0:a00:1::f7f7:f7f7 2606:4700::5efe:10.0.0.1 2606:4700::200:5efe:127.0.0.1
""".split()
PUBLIC = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.1 126.255.255.255 128.0.0.1 169.253.255.255 172.15.0.1
172.32.0.1 192.167.1.1 192.169.1.1 198.17.0.1 198.20.0.1 223.255.255.255 2606:4700::1111 2a00:1450:4001::1
::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1 2001:0:808:808:0:0:f7f7:f7f7 2001:4860:4860::8888
""".split()


@pytest.mark.parametrize("text", SPECIAL)
def test_address_that_is_not_on_the_internet_has_a_kind(text: str) -> None:
    assert special_kind(ip_address(text)) is not None


@pytest.mark.parametrize("text", PUBLIC)
def test_address_on_the_internet_is_not_special(text: str) -> None:
    assert special_kind(ip_address(text)) is None
