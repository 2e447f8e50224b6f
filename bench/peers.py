"""Relays of others from the package indexes: what is installed, and how each is started.

`python -m bench.peers` (`make bench` runs it) installs them, each into an environment of its own under
`.venv/clients`. One that cannot be installed is named, and is "not measured" later.
"""

import secrets
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rigs.clients.install import SIDE, NotInstalled, node, node_package, node_version, python_version, python_with


@dataclass(frozen=True)
class Peer:
    """One of them. `options` are made of the command of the first upstream, the port and the configuration."""

    requirement: str
    program: str
    """A module of Python with `python -m`, or a file of the npm package."""
    options: Callable[[list[str], int, Path], list[str]]
    env: Callable[[], dict[str, str]] = dict
    has_many: bool = False
    """Whether it takes more than one upstream, as `mcpServers` of the configuration."""
    is_sse: bool = False
    """Whether it speaks HTTP+SSE instead of Streamable HTTP."""
    node: tuple[str, ...] = ()
    """Options of Node.js."""

    @property
    def is_npm(self) -> bool:
        return "==" not in self.requirement

    @property
    def package(self) -> str:
        return self.requirement.rpartition("@" if self.is_npm else "==")[0].rstrip("=")

    @property
    def folder(self) -> Path:
        return SIDE / f"bench-{self.package}"

    @property
    def is_there(self) -> bool:
        """Whether this version of it is installed."""
        mark = self.folder / ".installed"
        return mark.exists() and mark.read_text() == self.requirement


def _supergateway(upstream: list[str], port: int, _: Path) -> list[str]:
    # stateful: else it starts the upstream anew for every request
    http = ["--outputTransport", "streamableHttp", "--stateful", "--port", str(port)]
    return ["--stdio", shlex.join(upstream), *http, "--logLevel", "none"]


def _mcp_proxy(upstream: list[str], port: int, _: Path) -> list[str]:
    return ["--port", str(port), "--log-level", "ERROR", "--", *upstream]


def _translate(upstream: list[str], port: int, _: Path) -> list[str]:
    http = ["--expose-streamable-http", "--port", str(port)]
    return ["--stdio", shlex.join(upstream), *http, "--logLevel", "error"]


def _npm_hub(_: list[str], port: int, config: Path) -> list[str]:
    return ["--port", str(port), "--config", str(config)]


def _keys() -> dict[str, str]:
    """ContextForge does not start without; nothing is kept under them."""
    return {"JWT_SECRET_KEY": secrets.token_urlsafe(48), "AUTH_ENCRYPTION_SECRET": secrets.token_urlsafe(48)}


# it asks the network for a catalog of servers at each start, with curl when that fails: neither is to be had
_OFFLINE = "data:text/javascript,globalThis.fetch=()=>Promise.reject(new Error('not here'))"

PEERS = {
    "supergateway": Peer("supergateway@4.0.0", "dist/index.js", _supergateway),
    "mcp-proxy": Peer("mcp-proxy==0.13.0", "mcp_proxy", _mcp_proxy),
    "contextforge": Peer("mcp-contextforge-gateway==1.0.7.post20260921", "mcpgateway.translate", _translate, _keys),
    "npm-mcp-hub": Peer(
        "mcp-hub@4.2.1",
        "dist/cli.js",
        _npm_hub,
        env=lambda: {"PATH": ""},
        has_many=True,
        is_sse=True,
        node=("--import", _OFFLINE),
    ),
}


def command(name: str, upstream: list[str], port: int, config: Path) -> list[str]:
    """The argument list of a peer over HTTP before this upstream, or before those of the configuration.

    Raises: `NotInstalled`.
    """
    peer = PEERS[name]
    if not peer.is_there:
        raise NotInstalled(f"{peer.requirement} is not installed (`make bench` does so, or `python -m bench.peers`)")
    if peer.is_npm:
        head = [str(node()), *peer.node, str(peer.folder / "node_modules" / peer.package / peer.program)]
    else:
        head = [str(peer.folder / "bin" / "python"), "-m", peer.program]
    return [*head, *peer.options(upstream, port, config)]


def environment(name: str) -> dict[str, str]:
    """What a peer needs beside ours; empty for other relays."""
    return PEERS[name].env() if name in PEERS else {}


@cache
def installed(name: str) -> str:
    """Installs a peer unless it is there; its name and version. Raises: `NotInstalled`."""
    peer = PEERS[name]
    if peer.is_npm:
        return node_version(node_package(peer.requirement, peer.folder.name))
    return python_version(python_with(peer.requirement, peer.folder.name), peer.package)


def versions(names: list[str]) -> str:
    """Those of them that are there, in one line."""
    return ", ".join(peer.requirement for name, peer in PEERS.items() if name in names and peer.is_there)


def main() -> None:
    for name in PEERS:
        try:
            print(installed(name))
        except (NotInstalled, OSError) as problem:
            print(f"not installed: {name}: {problem}", file=sys.stderr)


if __name__ == "__main__":
    main()
