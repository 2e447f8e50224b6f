"""A `server.json` of the MCP registry as an entry: the exact command line of each kind of package, and remotes."""

from typing import Any

import pytest

from mcp_hub.cli.registry.server_json import entry_of, parse_server_json
from mcp_hub.errors import ConfigError

STDIO = {"transport": {"type": "stdio"}}
KEY = {"name": "API_KEY", "isRequired": True, "isSecret": True}


def entry(document: object, given: dict[str, str] | None = None, *, is_remote: bool = False) -> object:
    import msgspec

    detail = parse_server_json(msgspec.json.encode(document), "s.json")
    return entry_of(detail, given or {}, is_remote=is_remote)


def package(kind: str, identifier: str, **more: Any) -> object:
    return {"name": "io.x/y", "packages": [{"registryType": kind, "identifier": identifier, **STDIO, **more}]}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (package("npm", "@a/b", version="1.0.0"), {"command": "npx", "args": ["-y", "@a/b@1.0.0"]}),
        (package("pypi", "b", version="2.1", runtimeHint="uvx"), {"command": "uvx", "args": ["b==2.1"]}),
        (
            package("oci", "ghcr.io/a/b", version="3", environmentVariables=[KEY]),
            {"command": "docker", "args": ["run", "-i", "--rm", "-e", "API_KEY", "ghcr.io/a/b:3"],
             "env": {"API_KEY": "${API_KEY}"}},
        ),
        (
            package("oci", "a/b:1", runtimeHint="podman", runtimeArguments=[
                {"type": "named", "name": "--mount", "value": "src={path},dst=/w",
                 "variables": {"path": {"default": "/home"}}}]),
            {"command": "podman", "args": ["run", "-i", "--rm", "--mount", "src=/home,dst=/w", "a/b:1"]},
        ),
        (
            package("npm", "b", packageArguments=[
                {"type": "positional", "valueHint": "folder", "isRequired": True},
                {"type": "named", "name": "--port", "default": "80"},
                {"type": "named", "name": "--quiet", "format": "boolean", "value": "true"},
                {"type": "named", "name": "--loud", "format": "boolean", "default": "false"},
                {"type": "named", "name": "--key", "value": "{token}", "variables": {"token": {"isSecret": True}}}]),
            {"command": "npx", "args": ["-y", "b", "/tmp", "--port", "80", "--quiet", "--key", "${TOKEN}"]},
        ),
    ],
)  # fmt: skip
def test_package_is_an_exact_command_line(document: object, expected: object) -> None:
    assert entry(document, {"folder": "/tmp"}) == expected


def test_remote_is_a_url_with_headers() -> None:
    remote = {
        "type": "streamable-http",
        "url": "https://{region}.x.example/mcp",
        "headers": [{"name": "X-Api-Key", "isSecret": True}],
        "variables": {"region": {"default": "eu"}},
    }
    expected = {"url": "https://eu.x.example/mcp", "headers": {"X-Api-Key": "${X_API_KEY}"}}
    assert entry({"name": "a/b", "remotes": [remote]}) == expected
    assert entry({**package("npm", "b"), "remotes": [remote]}, is_remote=True) == expected  # type: ignore[dict-item]
    us = entry({"name": "a/b", "remotes": [{**remote, "type": "sse"}]}, {"region": "us", "X-Api-Key": "k"})
    assert us == {"url": "https://us.x.example/mcp", "type": "sse", "headers": {"X-Api-Key": "k"}}


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ([], "invalid_server_json"),
        ({"name": "x"}, "unsupported_package"),
        (package("mcpb", "https://x/y.mcpb"), "unsupported_package"),
        (package("npm", "b", runtimeHint="bash"), "unsupported_package"),
        (package("npm", "--eval=1"), "invalid_server_json"),
        (package("npm", "b c"), "invalid_server_json"),
        (package("npm", "b", version="1 --x"), "invalid_server_json"),
        (package("npm", "b", packageArguments=[{"name": "p", "isRequired": True}]), "missing_parameter"),
    ],
)  # fmt: skip
def test_document_that_is_not_to_be_run_is_refused(document: object, code: str) -> None:
    with pytest.raises(ConfigError) as refused:
        entry(document)
    assert refused.value.code == code


def test_text_of_a_stranger_is_never_looked_up() -> None:
    own = {"name": "A", "default": "${HOME}"}
    assert entry(package("npm", "b", environmentVariables=[own])) == {
        "command": "npx", "args": ["-y", "b"], "env": {"A": "$${HOME}"},
    }  # fmt: skip
