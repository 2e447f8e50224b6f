"""Hosts and addresses: their normal form, rules for hosts, and special networks. Resolves no names."""

import socket
from collections.abc import Collection, Iterator
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

import msgspec

from mcp_hub.globs import late

Address = IPv4Address | IPv6Address

THIS_MACHINE: Final = "it is an address of this machine, but the server is elsewhere"
USUAL_PORTS: Final = (443, 80)
"""Ports of a rule without one."""
_METADATA: Final = frozenset(("100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254"))
"""Cloud services outside of the link-local range."""
_LAST_32_BITS: Final = [IPv6Network(text) for text in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48")]
"""IPv4-compatible and NAT64 addresses."""
_NAT64: Final = IPv6Network("64:ff9b::/96")
_GLOBAL: Final = IPv6Network("2000::/3")
"""The only public IPv6 addresses (IANA)."""
_ISATAP: Final = (0x00005EFE, 0x02005EFE)
"""Bits 64 to 95 before an IPv4 address (RFC 5214 §6.1)."""
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
"""IANA's special-purpose addresses (RFC 6890)."""
_LABEL: Final = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = late(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")
_NUMBER: Final = late(r"(\d+|0x[0-9a-f]*)\Z")
"""The last part of an address in some notation (WHATWG URL §3.6)."""
_DEVIATIONS: Final = "ßς\u200c\u200d"
"""Characters that IDNA standards encode differently (UTS 46 §1.1)."""
_PORT: Final = late(r"[0-9]{1,5}")


class HostRule(msgspec.Struct, frozen=True):
    """Hosts and ports for a server: a normal name or address, or `*.` and a name for those below.

    `is_private`: the name may resolve to private addresses.
    """

    host: str
    ports: tuple[int, ...] = USUAL_PORTS
    is_private: bool = False

    @property
    def entries(self) -> tuple[str, ...]:
        """Equivalent entries of `net`."""
        ports = (None,) if self.ports == USUAL_PORTS else self.ports
        return tuple(authority_of(self.host, port) for port in ports)

    def matches(self, host: str, port: int) -> bool:
        """`host` must be normal (`normal_host`)."""
        if port not in self.ports:
            return False
        if self.host.startswith("*."):
            return len(host) > len(self.host) - 1 and host.endswith(self.host[1:])
        return host == self.host


def host_rule(text: str) -> HostRule:
    """Parses `HOST`, `*.HOST`, `HOST:PORT` or an address. Raises `ValueError`."""
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
    """A host in lower case, ASCII, without final dot or brackets, or None. Numbers (`0x7f.1`) become addresses."""
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
    """Host and port as URLs have them: IPv6 in brackets."""
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def special_kind(address: Address) -> str | None:
    """The kind of a non-public address (`a private address`), also inside an IPv6 one; else None.

    RFC 6052's NAT64 prefix counts as the IPv4 address in it.
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
    """The reason to refuse a connection for a login, or None.

    Refused: link-local, cloud metadata, and loopback unless `is_near`; also inside IPv6.
    """
    forms: list[Address] = [address]
    if isinstance(address, IPv6Address):
        forms += _embedded(address)
    if any(form.is_link_local or form.is_unspecified or form.is_multicast or str(form) in _METADATA for form in forms):
        return "it is not the address of a server on the network"
    return THIS_MACHINE if not is_near and any(form.is_loopback for form in forms) else None


def is_this_machine(host: str) -> bool:
    """Whether a host, as `urlsplit` gives it, is loopback."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def address_of(host: str) -> Address | None:
    """The address that a host is, in any notation; None for a name."""
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
    """A rule's host. Raises `ValueError`, also for uncommon notations."""
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
    if host.isascii():
        return host
    if any(char in _DEVIATIONS for char in host):
        raise ValueError("holds a character that programs encode differently. Write the name as xn--…")
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        raise ValueError("is not a host name. Write the name as xn--…") from None


def _ipv6(text: str) -> str | None:
    try:
        address = IPv6Address(text)
    except ValueError:
        return None
    return None if address.scope_id else str(address)


def _is_printable(text: str) -> bool:
    return text.isprintable() and not any(char.isspace() for char in text)


@cache
def _networks() -> list[tuple[IPv4Network | IPv6Network, str]]:
    return [(ip_network(text), kind) for text, kind in _KINDS.items()]


def _embedded(address: IPv6Address) -> list[IPv4Address]:
    """IPv4 addresses that an IPv6 address leads to (RFC 4291 §2.5.5, 6052, 8215, 3056, 4380)."""
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _LAST_32_BITS) and not (address.is_loopback or address.is_unspecified):
        inner.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in inner if each is not None]


def _isatap(address: IPv6Address) -> Iterator[IPv4Address]:
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def is_cleartext(url: str) -> bool:
    """Whether a URL is plain HTTP to another machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_this_machine(parts.hostname or "")


def origin_parts(url: str) -> tuple[str, str, str]:
    """Scheme, host and path; empty if not a URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.path
    except ValueError:
        return "", "", ""


def refused_place(url: str, *, is_near: bool) -> str | None:
    """The reason to refuse a URL from a server, for hub and browser; None if allowed.

    Allowed are https, and http to this machine, which needs `is_near`: the server runs here.
    """
    if (problem := _not_a_place(url)) is not None:
        return problem
    parts = urlsplit(url)
    host = (parts.hostname or "").removesuffix(".")
    if (address := address_of(host)) is not None:
        problem = refused_address(address, is_near=is_near)
    else:
        is_here = f".{host}".endswith(".localhost")
        problem = THIS_MACHINE if is_here and not is_near else None
    if problem is not None or parts.scheme == "https" or is_this_machine(host):
        return problem
    return "it is http://, which others on the network can read and change"


def refused_webhook(url: str, private: Collection[str]) -> str | None:
    """The reason not to send messages to a URL, or None. `private`: hosts and addresses of inner networks, normal."""
    if (problem := _not_a_place(url)) is not None:
        return problem
    parts = urlsplit(url)
    if parts.fragment:
        return "it has a fragment, which is not sent"
    host = normal_host(parts.hostname or "") or normal_host(f"[{parts.hostname}]") or ""
    if not host:
        return "it does not hold a host name or an address"
    address = address_of(host)
    problem = None if address is None else refused_target(address, host, private)
    if problem is None and parts.scheme == "http" and host not in private:
        return "it is http://, which others on the network can read and change"
    if problem is None and address is None and f".{host}".endswith(".localhost") and host not in private:
        return f"it leads to this machine. If that is meant, add {host} to private"
    return problem


def refused_target(address: Address, host: str, private: Collection[str]) -> str | None:
    """The reason not to send messages to an address of a normal host, or None."""
    kind = special_kind(address)
    if kind is None:
        return None
    if refused_address(address, is_near=True) is not None:
        return f"it leads to {kind}"
    if str(address) in private or host in private:
        return None
    return f"it leads to {kind}. If that is meant, add {host} to private"


def _not_a_place(url: str) -> str | None:
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
    return None
