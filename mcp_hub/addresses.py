"""Hosts and addresses: their one spelling, rules that list hosts, and networks that are not the internet.

Nothing here resolves a name. An IPv4 address within an IPv6 one (mapped, 6to4, Teredo, NAT64, ISATAP) is judged, too.
"""

import re
import socket
from collections.abc import Iterator
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

import msgspec

Address = IPv4Address | IPv6Address

THIS_MACHINE: Final = "it is an address of this machine, but the server is elsewhere"
USUAL_PORTS: Final = (443, 80)
"""The ports of a rule that names none."""
_METADATA: Final = frozenset(("100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254"))
"""Services of clouds for their machines alone, outside of the link-local range."""
_LAST_32_BITS: Final = [IPv6Network(text) for text in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48")]
"""Compatible and translated (NAT64) IPv4 addresses."""
_NAT64: Final = IPv6Network("64:ff9b::/96")
_GLOBAL: Final = IPv6Network("2000::/3")
"""The only IPv6 addresses that IANA has assigned to the internet; the others are local or reserved."""
_ISATAP: Final = (0x00005EFE, 0x02005EFE)
"""Bits 64 to 95 of an address that has an IPv4 address in its last 32 (RFC 5214 §6.1)."""
_KINDS: Final[dict[str, str]] = {
    "0.0.0.0/8": "an unspecified address",
    "10.0.0.0/8": "a private address",
    "100.64.0.0/10": "an address of the provider's inner network",
    "127.0.0.0/8": "a loopback address",
    "169.254.0.0/16": "a link-local address",
    "172.16.0.0/12": "a private address",
    "192.0.0.0/24": "a reserved address",
    "192.0.2.0/24": "a reserved address",
    "192.88.99.0/24": "a reserved address",
    "192.168.0.0/16": "a private address",
    "198.18.0.0/15": "a private address",
    "198.51.100.0/24": "a reserved address",
    "203.0.113.0/24": "a reserved address",
    "224.0.0.0/4": "a multicast address",
    "240.0.0.0/4": "a reserved address",
    "::1/128": "a loopback address",
    "::/128": "an unspecified address",
    "fc00::/7": "a private address",
    "fe80::/9": "a link-local address",
    "ff00::/8": "a multicast address",
    "2001:2::/48": "a private address",
    "2001:10::/28": "a reserved address",
    "2001:20::/28": "a reserved address",
    "2001:db8::/32": "a reserved address",
    "3fff::/20": "a reserved address",
}
"""IANA's registries of special-purpose addresses (RFC 6890), which Python's own tables follow by version."""
_LABEL: Final = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")
_NUMBER: Final = re.compile(r"(\d+|0x[0-9a-f]*)\Z")
"""The last part of a host that is an address in some notation, never a name (WHATWG URL §3.6)."""
_DEVIATIONS: Final = "ßς\u200c\u200d"
"""Characters that the two standards for names beyond ASCII encode differently (UTS 46 §1.1)."""
_PORT: Final = re.compile(r"[0-9]{1,5}")


class HostRule(msgspec.Struct, frozen=True):
    """Hosts and ports that a server may reach.

    `host` is a name in lower case and ASCII without a dot at its end, `*.` and such a name for all names below it
    (not itself), or an address in its shortest form without brackets. `is_private`: the name may lead to a private
    address that no rule names, since the user's own settings name it.
    """

    host: str
    ports: tuple[int, ...] = USUAL_PORTS
    is_private: bool = False

    @property
    def entries(self) -> tuple[str, ...]:
        """The entries of `net` that allow the same: one for the usual ports, else one for each port."""
        ports = (None,) if self.ports == USUAL_PORTS else self.ports
        return tuple(authority_of(self.host, port) for port in ports)

    def matches(self, host: str, port: int) -> bool:
        """Whether it allows a host, in the form of `normal_host`, and a port."""
        if port not in self.ports:
            return False
        if self.host.startswith("*."):
            return len(host) > len(self.host) - 1 and host.endswith(self.host[1:])
        return host == self.host


def host_rule(text: str) -> HostRule:
    """The rule for `HOST`, `*.HOST`, `HOST:PORT` or an address, as `servers.yaml` has it.

    Raises `ValueError` with the reason; it repeats at most the part that is wrong.
    """
    if (problem := _why_not_host(text)) is not None:
        raise ValueError(problem)
    host, port = _split(text)
    ports = USUAL_PORTS if port is None else (port,)
    if "*" not in host:
        return HostRule(_ruled(host), ports)
    if not host.startswith("*.") or "*" in host[2:] or not host[2:]:
        raise ValueError('has "*" elsewhere than in front. Write "*.example.com", or name each host')
    below = _ruled(host[2:])
    if address_of(below) is not None:
        raise ValueError('has "*" before an address. Name each address')
    if "." not in below:
        raise ValueError(f'allows every host below ".{below}". Write at least two parts: "*.example.{below}"')
    return HostRule(f"*.{below}", ports)


def normal_host(text: str) -> str | None:
    """The one spelling of a host: lower case, ASCII, no dot at its end; an address in its shortest form, no brackets.

    Notations of addresses that systems read (`0x7f.1`, `2130706433`) are addresses. None for what is not a host.
    """
    if text.startswith("[") and text.endswith("]"):
        return _ipv6(text[1:-1])
    host = text.removesuffix(".").lower()
    if not _NAME.fullmatch(host):
        return None
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        address = address_of(host)
        return None if address is None else str(address)
    return host


def authority_of(host: str, port: int | None = None) -> str:
    """A host in its one spelling as URLs and rules write it: IPv6 in brackets, with the port unless that is None."""
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def special_kind(address: Address) -> str | None:
    """The kind of an address that is not a server's on the internet (`a private address`); None for all others.

    Cloud metadata, and every IPv4 address within an IPv6 one, count. NAT64's well-known prefix (RFC 6052) alone is as
    good as the IPv4 address in it.
    """
    if str(address) in _METADATA:
        return "an address of cloud metadata"
    kind = next((kind for network, kind in _networks() if address in network), None)
    if kind is not None or isinstance(address, IPv4Address):
        return kind
    inner = [*_embedded(address), *_isatap(address)]
    if (kind := next(filter(None, map(special_kind, inner)), None)) is not None:
        return f"{kind} within an IPv6 address"
    is_global = address in _GLOBAL or address in _NAT64 or address.ipv4_mapped is not None
    return None if is_global else "a reserved address"


def refused_address(address: Address, *, is_near: bool) -> str | None:
    """The reason why no connection for a login may go there, whatever the name was; None if it may.

    Refused are link-local addresses and others of cloud metadata, and this machine unless `is_near`; all of them also
    as an IPv4 address within an IPv6 one.
    """
    forms: list[Address] = [address]
    if isinstance(address, IPv6Address):
        forms += _embedded(address)
    if any(form.is_link_local or form.is_unspecified or form.is_multicast or str(form) in _METADATA for form in forms):
        return "it is not the address of a server on the network"
    return THIS_MACHINE if not is_near and any(form.is_loopback for form in forms) else None


def is_this_machine(host: str) -> bool:
    """Whether this names the loopback interface; `host` as `urlsplit` gives it."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def address_of(host: str) -> Address | None:
    """The address that a host is, also in the short, octal and hexadecimal forms that systems read; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None


def _why_not_host(text: str) -> str | None:
    if not text:
        return "is empty. Write a host, for example api.example.com"
    if "*" in text and not text.partition(":")[0].strip("*."):
        return "allows every host. Write net: any, or name the hosts"
    if "://" in text:
        return "is a URL. Write its host alone, for example api.example.com or api.example.com:8443"
    if (char := next((char for char in "/?#@\\%" if char in text), None)) is not None:
        return f"holds {char!r}. Write the host alone"
    return None if _is_printable(text) else "holds blanks or invisible characters. Write the host alone"


def _split(text: str) -> tuple[str, int | None]:
    """Host and port of a rule; an IPv6 address needs brackets only before a port."""
    if ":" not in text or _ipv6(text) is not None:
        return text, None
    host, _, port = text.rpartition(":")
    if host.startswith("[") and not host.endswith("]") or ":" in host and not host.startswith("["):
        if text.startswith("[") and text.endswith("]"):
            return text, None
        raise ValueError("is not HOST:PORT. An IPv6 address before a port needs brackets: [2001:db8::1]:443")
    if not _PORT.fullmatch(port) or not 0 < int(port) <= 65535:
        raise ValueError("has a port that is not a number from 1 to 65535")
    return host, int(port)


def _ruled(host: str) -> str:
    """The one spelling of the host of a rule. Raises `ValueError`: notations of addresses that people misread, too."""
    if ":" in host or host.startswith("["):
        address = _ipv6(host.removeprefix("[").removesuffix("]"))
        if address is None:
            raise ValueError("is not an IPv6 address")
        return address
    normal = normal_host(_ascii(host))
    if normal is None:
        raise ValueError("is not a host name or an address")
    if address_of(normal) is not None and normal != host.removesuffix("."):
        raise ValueError(f"is an address in an uncommon notation. Write {normal}")
    return normal


def _ascii(host: str) -> str:
    """A name beyond ASCII as the domain name system has it (`xn--…`)."""
    if host.isascii():
        return host
    if any(char in _DEVIATIONS for char in host):
        raise ValueError("holds a character that programs encode differently. Write the name as xn--…")
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        raise ValueError("is not a host name. Write the name as xn--…") from None


def _ipv6(text: str) -> str | None:
    """The shortest form of an IPv6 address without a zone; None for anything else."""
    try:
        address = IPv6Address(text)
    except ValueError:
        return None
    return None if address.scope_id else str(address)


def _is_printable(text: str) -> bool:
    return text.isprintable() and not any(char.isspace() for char in text)


@cache
def _networks() -> list[tuple[IPv4Network | IPv6Network, str]]:
    """Made with the first connection: every command loads this module."""
    return [(ip_network(text), kind) for text, kind in _KINDS.items()]


def _embedded(address: IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that packets to it may go to: RFC 4291 §2.5.5, RFC 6052, RFC 8215, RFC 3056, RFC 4380."""
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _LAST_32_BITS) and not (address.is_loopback or address.is_unspecified):
        inner.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in inner if each is not None]


def _isatap(address: IPv6Address) -> Iterator[IPv4Address]:
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def is_cleartext(url: str) -> bool:
    """Whether others on the network can read what is sent there."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_this_machine(parts.hostname or "")


def origin_parts(url: str) -> tuple[str, str, str]:
    """Scheme, host and path, all empty for a text that is not a URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.path
    except ValueError:
        return "", "", ""


def refused_place(url: str, *, is_near: bool) -> str | None:
    """The reason why neither the hub nor a browser may go to a URL that a server has named; None if they may.

    Allowed are https, and http on this machine. This machine is allowed only if the server itself is here (`is_near`),
    so that a server elsewhere cannot reach local services. Names are not resolved here: see `refused_address`.
    """
    if not url.isascii() or not url.isprintable() or any(char in url for char in ' "<>\\^`{|}'):
        return "it holds characters that a URL cannot have"
    try:
        parts = urlsplit(url)
        host, has_place = (parts.hostname or "").removesuffix("."), parts.port != 0
    except ValueError:
        return "it is not a URL"
    if parts.scheme not in ("http", "https") or not host or not has_place:
        return "it is not https://"
    if "@" in parts.netloc:
        return "it holds a user or a password"
    if "%" in host:  # browsers decode it; in an address it is a zone, which only this machine knows
        return "it holds characters that a host cannot have"
    if (address := address_of(host)) is not None:
        problem = refused_address(address, is_near=is_near)
    else:
        is_here = f".{host}".endswith(".localhost")
        problem = THIS_MACHINE if is_here and not is_near else None
    if problem is not None or parts.scheme == "https" or is_this_machine(host):
        return problem
    return "it is http://, which others on the network can read and change"
