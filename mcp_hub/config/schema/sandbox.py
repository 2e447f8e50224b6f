"""The `sandbox` of a local server: what its process may read, write and reach. docs/sandbox.md describes it.

`mcp_hub.sandbox` applies it. What depends on the machine (paths that do not exist, secret places) is checked there.
"""

import ipaddress
import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from mcp_hub.config.schema.scalars import TextLine
from mcp_hub.config.schema.section import Section, finding

_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_LONGEST: Final = 253
_MOST: Final = 256
_PORTS: Final = (443, 80)


def parse_host(text: str) -> tuple[str, tuple[int, ...], bool]:
    """An entry of `net`: the name or address in its one form, the ports, and whether it names a private network.

    Forms: `api.example.com`, `*.example.com`, `host:8443`, `192.0.2.1`, `::1`, `[::1]:8080`. Raises `ValueError`.
    """
    if "://" in text or "/" in text:
        raise ValueError(
            'expected a host, such as "api.example.com" or "api.example.com:8443", without scheme and path'
        )
    if text.strip() == "*":
        raise ValueError("expected a host. To allow all of them, write net: any")
    host, ports = _split(text.strip())
    if (address := _address(host)) is not None:
        is_private = not address.is_global or address.is_multicast
        return address.compressed, ports, is_private
    name = host.rstrip(".").lower()
    is_wild = name.startswith("*.")
    name = _ascii(name[2:] if is_wild else name)
    return f"*.{name}" if is_wild else name, ports, name == "localhost"


def _split(text: str) -> tuple[str, tuple[int, ...]]:
    """Host and ports. An IPv6 address has brackets where a port follows."""
    if text.startswith("["):
        host, closing, after = text[1:].partition("]")
        if not closing or (after and not after.startswith(":")) or ":" not in host:
            raise ValueError("expected an IPv6 address in brackets, such as [2001:db8::1]:443")
        port = after[1:] if after else None
    elif text.count(":") > 1:
        host, port = text, None
    else:
        host, colon, after = text.partition(":")
        port = after if colon else None
    if port is None:
        return host, _PORTS
    if not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise ValueError("expected a port from 1 to 65535 behind the colon")
    return host, (int(port),)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that is written out, or None for a name. Raises `ValueError` for what only looks like one."""
    if "%" in host:
        raise ValueError("expected an address without a zone (%)")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if ":" in host:
            raise ValueError("expected an IPv6 address, such as 2001:db8::1") from None
        last = host.rstrip(".").rpartition(".")[2].lower()
        if last.isdecimal() or re.fullmatch(r"0x[0-9a-f]*", last):
            raise ValueError("expected an IPv4 address with four decimal numbers, or a name") from None
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _ascii(name: str) -> str:
    if "*" in name:
        raise ValueError('"*" stands for whole names at the beginning only, as in "*.example.com"')
    try:
        ascii_name = name if name.isascii() else name.encode("idna").decode()
    except UnicodeError:
        raise ValueError("expected the name of a host") from None
    if len(ascii_name) > _LONGEST or not all(map(_LABEL.fullmatch, ascii_name.split("."))):
        raise ValueError("expected the name of a host, with letters, digits, - and dots")
    return ascii_name


def _path(text: str) -> str:
    if any(char in text for char in "*?["):
        raise ValueError("globs are not taken: files that come later would be open, too. Name the folder")
    plain = text.rstrip("/")
    if plain in ("", "~"):
        opened = "the whole home folder" if plain else "the whole system"
        raise ValueError(f"opens {opened}. Name the folders that the server needs")
    if not text.startswith(("/", "~/")):
        raise ValueError('expected an absolute path, or one that begins with "~/"')
    if ".." in text.split("/"):
        raise ValueError('expected a path without ".."')
    return text


def _net(value: object) -> object:
    if isinstance(value, list):
        for index, host in enumerate(value):
            try:
                parse_host(host if isinstance(host, str) else "")
            except ValueError as problem:
                raise finding("invalid_value", str(problem), index) from None
        if not value:
            raise finding("out_of_range", "must not be empty. To close the network, write net: none")
    elif value not in ("none", "any"):
        raise finding("invalid_value", 'expected none, any, or a list of hosts, such as ["api.example.com"]')
    return value


_Path = Annotated[TextLine, AfterValidator(_path)]
_Paths = Annotated[list[_Path], Field(max_length=_MOST)]


class SandboxSettings(Section):
    """The rule. `mode: prefer` starts the server without a sandbox where the system has none.

    `read` None: the working directory and the paths among `args`. `write` None: the paths among `args`. System
    folders, the interpreter and a private home folder are always there. `sockets` are Unix sockets by path.
    """

    mode: Literal["off", "on", "prefer"] = "on"
    read: _Paths | None = None
    write: _Paths | None = None
    net: Annotated[Literal["none", "any"] | Annotated[list[str], Field(max_length=_MOST)], BeforeValidator(_net)] = (
        "any"
    )
    sockets: _Paths = []

    @model_validator(mode="before")
    @classmethod
    def _is_word(cls, data: object) -> object:
        """YAML reads bare `on` and `off` as true and false."""
        if isinstance(data, bool):
            return {"mode": "on" if data else "off"}
        if isinstance(data, str):
            if data not in ("off", "on", "prefer"):
                raise finding("invalid_value", "expected off, on, prefer, or a mapping with read, write, net, sockets")
            return {"mode": data}
        if isinstance(data, dict) and isinstance(mode := data.get("mode"), bool):
            return {**data, "mode": "on" if mode else "off"}
        return data
