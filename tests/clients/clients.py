"""The client libraries under test: how each is driven, what it speaks, and what it has no way to do."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clients.install import ROOT, node, node_package, python_with

__all__ = ["CLIENTS", "ERAS", "HANDSHAKE_VERSION", "MODERN_VERSION", "STEPS", "Client"]

DRIVERS = Path(__file__).parent / "drivers"
HANDSHAKE_VERSION, MODERN_VERSION = "2025-11-25", "2026-07-28"
ERAS = ("handshake", "modern")

STEPS = (
    *("connect", "list", "call", "progress", "cancel", "large", "error", "elicit", "sample", "roots"),
    *("reconnect", "restart", "resume"),
)
PIPE_LACKS = frozenset({"restart", "resume"})
FRONT_LACKS = {
    "stdio": PIPE_LACKS,
    "http": frozenset[str](),
    "direct": PIPE_LACKS,
    "direct-http": frozenset({"list", "elicit", "sample", "roots", "restart"}),
}
ONE_SHOT = frozenset({"progress", "cancel", "elicit", "sample", "roots", "reconnect", "resume"})


@dataclass(frozen=True)
class Client:
    """One library in one mode; `argv` installs what it needs, and may raise `NotInstalled`."""

    name: str
    argv: Callable[[], list[str]]
    package: str
    mode: str = "legacy"
    version: str = HANDSHAKE_VERSION
    lacks: frozenset[str] = frozenset()
    fronts: tuple[str, ...] = ("stdio", "http")
    has_large_integers: bool = True
    bridge: Callable[[str], dict[str, Any]] | None = None
    """What it runs to reach a URL, where it cannot do that itself."""
    extras: Callable[[], Mapping[str, Any]] = field(default=dict)
    """What its driver wants to know besides."""

    def steps(self, front: str) -> list[str]:
        """What it can do where it is put; `direct` and `direct-http` as in `rig.arranged`."""
        lacks = self.lacks | FRONT_LACKS[front]
        if self.version == MODERN_VERSION:
            lacks |= {"resume"}  # closing a stream is the cancellation there
        return [step for step in STEPS if step not in lacks]


def python_driver(module: str, python: Callable[[], Path]) -> Callable[[], list[str]]:
    return lambda: [str(python()), "-m", f"tests.clients.drivers.{module}"]


def node_driver(file: str, package: str, folder: str) -> Callable[[], list[str]]:
    return lambda: [str(node()), str(DRIVERS / file), str(node_package(package, folder))]


def fastmcp_python() -> Path:
    """The one that `make bench` uses, where it is there."""
    bench = ROOT / ".venv" / "bench"
    return bench / "bin" / "python" if (bench / ".installed").exists() else python_with("fastmcp>=4.1,<5", "fastmcp")


def mcp_remote(protocol: str) -> Callable[[str], dict[str, Any]]:
    def bridge(url: str) -> dict[str, Any]:
        script = node_package("mcp-remote@0", "mcp-remote") / "node_modules" / "mcp-remote" / "dist" / "proxy.js"
        options = ["--allow-http", "--transport", "http-only", "--protocol", protocol]
        return {"command": str(node()), "args": [str(script), url, *options], "env": {}}

    return bridge


def inspector() -> dict[str, Any]:
    package = node_package("@modelcontextprotocol/inspector@2", "inspector") / "node_modules" / "@modelcontextprotocol"
    return {"inspector": [str(node()), str(package / "inspector" / "clients" / "launcher" / "build" / "index.js")]}


def own_python() -> Path:
    return Path(sys.executable)


MCP_1 = python_driver("mcp_v1", lambda: python_with("mcp>=1,<2", "mcp-1"))
MCP_2 = python_driver("mcp_v2", own_python)
FASTMCP = python_driver("fastmcp_client", fastmcp_python)
SDK_1 = node_driver("sdk_v1.mjs", "@modelcontextprotocol/sdk@1", "sdk-1")
CLIENT_2 = node_driver("client_v2.mjs", "@modelcontextprotocol/client@2", "client-2")
INSPECTOR = python_driver("inspector", own_python)

_ALL = (
    Client("python-mcp-1", MCP_1, "mcp 1.x"),
    Client("python-mcp-2-legacy", MCP_2, "mcp 2.x"),
    Client("python-mcp-2-auto", MCP_2, "mcp 2.x", "auto", MODERN_VERSION),
    Client("python-mcp-2-pinned", MCP_2, "mcp 2.x", MODERN_VERSION, MODERN_VERSION),
    Client("fastmcp-legacy", FASTMCP, "fastmcp"),
    Client("fastmcp-auto", FASTMCP, "fastmcp", "auto", MODERN_VERSION),
    Client("typescript-sdk-1", SDK_1, "sdk 1.x", has_large_integers=False),
    Client("typescript-client-2", CLIENT_2, "client 2.x", has_large_integers=False),
    Client("typescript-client-2-auto", CLIENT_2, "client 2.x", "auto", MODERN_VERSION, has_large_integers=False),
    Client(
        "inspector", INSPECTOR, "inspector", lacks=ONE_SHOT, has_large_integers=False, extras=inspector
    ),
    Client(
        *("inspector-modern", INSPECTOR, "inspector", "modern", MODERN_VERSION),
        lacks=ONE_SHOT,
        has_large_integers=False,
        extras=inspector,
    ),
    Client("mcp-remote", MCP_2, "mcp-remote", fronts=("http",), bridge=mcp_remote("legacy"), has_large_integers=False),
    Client(
        *("mcp-remote-auto", MCP_2, "mcp-remote"),
        # a client of the handshake era is bridged to the modern one
        lacks=frozenset({"resume"}),
        fronts=("http",),
        bridge=mcp_remote("auto"),
        has_large_integers=False,
    ),
)
CLIENTS = {client.name: client for client in _ALL}
