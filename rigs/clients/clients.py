"""The client libraries under test: how each is driven, what it speaks, and what it has no way to do."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rigs.clients.install import ROOT, node, node_package, node_version, python_version, python_with

DRIVERS = Path(__file__).parent / "drivers"
HANDSHAKE_VERSION, MODERN_VERSION = "2025-11-25", "2026-07-28"

STEPS = (
    *("connect", "list", "call", "progress", "large", "error", "elicit", "sample", "roots", "cancel"),
    *("reconnect", "restart", "resume"),
)
PIPE_LACKS = frozenset({"restart", "resume"})
FRONT_LACKS = {
    "stdio": PIPE_LACKS,
    "attached": PIPE_LACKS,
    "http": frozenset[str](),
    "direct": PIPE_LACKS,
    "direct-http": frozenset({"list", "elicit", "sample", "roots", "restart"}),
}


@dataclass(frozen=True)
class Library:
    """What is installed: the command of its driver, and its name and version. Both may raise `NotInstalled`."""

    argv: Callable[[], list[str]]
    version: Callable[[], str]


@dataclass(frozen=True)
class Client:
    """One library in one mode."""

    name: str
    library: Library
    mode: str = "legacy"
    version: str = HANDSHAKE_VERSION
    """The revision that it agrees on with a server that has them all."""
    lacks: frozenset[str] = frozenset()
    """Steps that it has no way to take."""
    has_large_integers: bool = False
    bridge: Callable[[str], dict[str, Any]] | None = None
    """What to run to reach a URL, for one that is between a client on stdio and HTTP."""
    extras: Callable[[], Mapping[str, Any]] = field(default=dict)
    """What its driver wants to know besides."""

    @property
    def fronts(self) -> tuple[str, ...]:
        return ("stdio", "attached", "http") if self.bridge is None else ("http",)

    def steps(self, front: str) -> list[str]:
        """What it can do where it is put; `direct` and `direct-http` as in `rig.arranged`."""
        lacks = self.lacks | FRONT_LACKS[front]
        if self.version == MODERN_VERSION:
            lacks |= {"resume"}  # closing a stream is the cancellation there
        return [step for step in STEPS if step not in lacks]


def python_library(module: str, package: str, python: Callable[[], Path]) -> Library:
    return Library(
        lambda: [str(python()), "-m", f"rigs.clients.drivers.{module}"], lambda: python_version(python(), package)
    )


def node_library(file: str, requirement: str, folder_name: str = "") -> Library:
    return Library(
        lambda: [str(node()), str(DRIVERS / file), str(node_package(requirement, folder_name))],
        lambda: node_version(node_package(requirement, folder_name)),
    )


def fastmcp_python() -> Path:
    """The one that `make bench` uses, where it is there."""
    bench = ROOT / ".venv" / "bench"
    return bench / "bin" / "python" if (bench / ".installed").exists() else python_with("fastmcp>=4.1,<5", "fastmcp")


def own_python() -> Path:
    return Path(sys.executable)


def mcp_remote(protocol: str) -> Callable[[str], dict[str, Any]]:
    def bridge(url: str) -> dict[str, Any]:
        script = node_package(MCP_REMOTE) / "dist" / "proxy.js"
        options = ["--allow-http", "--transport", "http-only", "--protocol", protocol]
        return {"command": str(node()), "args": [str(script), url, *options], "env": {}}

    return bridge


def inspector_command() -> dict[str, Any]:
    script = node_package(INSPECTOR) / "clients" / "launcher" / "build" / "index.js"
    return {"inspector": [str(node()), str(script)]}


MCP_REMOTE, INSPECTOR = "mcp-remote@0", "@modelcontextprotocol/inspector@2"
mcp_1 = python_library("mcp_v1", "mcp", lambda: python_with("mcp>=1,<2", "mcp-1"))
mcp_2 = python_library("mcp_v2", "mcp", own_python)
fastmcp = python_library("fastmcp_client", "fastmcp", fastmcp_python)
sdk_1 = node_library("sdk_v1.mjs", "@modelcontextprotocol/sdk@1")
client_2 = node_library("client_v2.mjs", "@modelcontextprotocol/client@2")
ai_sdk = node_library("ai_sdk.mjs", "@ai-sdk/mcp@2", "ai-sdk-2")
pydantic_ai = python_library(
    "pydantic_ai_client", "pydantic-ai-slim", lambda: python_with("pydantic-ai-slim[mcp]>=2,<3", "pydantic-ai")
)
langchain = python_library(
    "langchain_client",
    "langchain-mcp-adapters",
    lambda: python_with("langchain-mcp-adapters>=0.3,<1", "langchain"),
)
openai_agents = python_library(
    "openai_agents_client", "openai-agents", lambda: python_with("openai-agents>=0.24,<1", "openai-agents")
)
inspector = Library(python_library("inspector", "", own_python).argv, lambda: node_version(node_package(INSPECTOR)))
# driven by the one client on stdio that has no fault of its own there
remote = Library(mcp_2.argv, lambda: node_version(node_package(MCP_REMOTE)))

# every run of it is one request on a session of its own
ONE_SHOT = frozenset({"progress", "cancel", "elicit", "sample", "roots", "reconnect", "restart", "resume"})
# a stream that it bridges from one era to the other cannot be resumed either
NO_RESUME = frozenset({"resume"})

_ALL = (
    Client("python-mcp-1", mcp_1, has_large_integers=True),
    Client("python-mcp-2-legacy", mcp_2, has_large_integers=True),
    Client("python-mcp-2-auto", mcp_2, "auto", MODERN_VERSION, has_large_integers=True),
    Client("python-mcp-2-pinned", mcp_2, MODERN_VERSION, MODERN_VERSION, has_large_integers=True),
    Client("fastmcp-legacy", fastmcp, has_large_integers=True),
    Client("fastmcp-auto", fastmcp, "auto", MODERN_VERSION, has_large_integers=True),
    Client("typescript-sdk-1", sdk_1),
    Client("typescript-client-2-legacy", client_2),
    Client("typescript-client-2-auto", client_2, "auto", MODERN_VERSION),
    Client("inspector-legacy", inspector, lacks=ONE_SHOT, extras=inspector_command),
    Client("inspector-modern", inspector, "modern", MODERN_VERSION, lacks=ONE_SHOT, extras=inspector_command),
    Client("mcp-remote-legacy", remote, bridge=mcp_remote("legacy")),
    Client("mcp-remote-auto", remote, lacks=NO_RESUME, bridge=mcp_remote("auto")),
)
CLIENTS = {client.name: client for client in _ALL}
