"""What is secret of a configuration, where it may come from, and what `check` has to say of it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_hub import masking
from mcp_hub.config.load.interpolate import Unresolved, resolve
from mcp_hub.config.load.load import Loaded, load, parse
from mcp_hub.errors import ConfigError
from mcp_hub.masking import MASK, Mask
from tests.unit.config.faults import shown, shown_all

ENV = {"TOKEN": "s3cr3t-token", "HOME": "/home/alice", "MODE": "fast"}


def loaded(text: str, base: Path = Path("/base")) -> Loaded:
    return parse(text, "s", ENV, base)


def test_names_decide_what_is_secret_of_env_urls_and_headers() -> None:
    found = loaded(
        "servers:\n"
        "  a: {command: x, env: {API_KEY: literal-key, DB_PASSWORD: literal-pass, REGION: europe-west, TOKEN: abc}}\n"
        "  b: {url: 'https://x.example/mcp?api_key=literal-query&region=europe-west&sig=literal-sig'}\n"
    )
    assert found.secrets == {"literal-key", "literal-pass", "abc", "literal-query", "literal-sig"}
    found = loaded("servers: {a: {command: x, pass_env: [TOKEN, HOME, MODE, MISSING]}}")
    assert found.secrets == {"s3cr3t-token"}
    assert found.settings.servers["a"].pass_env == ["TOKEN", "HOME", "MODE", "MISSING"]
    headers = {
        "X-Tenant": "tenant-17-berlin",
        "Accept-Language": "de-CH, fr",
        "X-Key": "abcd",
        "X-Mode": "production-eu",
    }
    server = {"url": "https://x.example/mcp", "headers": headers, "bearer": "zyxw"}
    assert loaded(json.dumps({"servers": {"a": server}})).secrets == {"abcd", "zyxw"}


@pytest.mark.parametrize("entry", ["{url: 'https://x.example', pass_env: [A]}", "{command: x, pass_env: ['A=b']}"])
def test_pass_env_is_a_list_of_names_for_a_command(entry: str) -> None:
    with pytest.raises(ConfigError, match="pass_env"):
        loaded(f"servers: {{a: {entry}}}")


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("DB", "postgres://u:PW12@h/db", "role of PW12 at h/db"),
        ("DB", "postgres://u:p%40s/s12@h/db", "bad password p@s/s12"),
        ("DB", "redis://:hunter@localhost:6379/0", "denied: hunter"),
        ("DB", "root:pw1234@tcp(127.0.0.1:3306)/db", "pw1234"),
        ("DB", "amqp://a:bbbb@h amqp://c:dddd@h", "dddd"),
        ("DB", "postgres://h/db?sslmode=require&sslpassword=xy12", "?sslpassword=xy12"),
        ("DB", "Server=tcp:h;User Id=sa;Password=Pa5,s$w;Encrypt=true", "Pa5,s$w"),
        ("DB", "host=h password=hunter dbname=x", "login with hunter"),
        ("SENTRY", "https://abcdef12@sentry.example/1", "abcdef12"),
        ("HOOK", "https://hooks.example/services/T0/B0/xyz", "POST https://hooks.example/services/T0/B0/xyz"),
        ("WHATEVER", "Hunter2!hunter2", "Hunter2!hunter2"),
        ("API_KEY", "abcd", "abcd"),
        ("PASSWORD", "hunter", "hunter"),
        ("OPENAPI_HEADERS", '{"Authorization": "Bearer ntn_1234", "Version": "2022-06-28"}', "ntn_1234"),
        ("SENT", "Basic dXNlcjpodW50ZXI=", "user hunter"),
        ("LOGIN", "admin:12345", "admin:12345"),
        ("DB_PW", "hunter", "hunter"),
    ],
)
def test_a_value_that_is_or_holds_a_secret_is_masked_and_so_are_the_secrets_within_it(
    name: str, value: str, shown: str
) -> None:
    mask = Mask(with_env(name, value))
    assert mask(f"<{value}>") == f"<{MASK}>" and MASK in mask(shown)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MODE", "production"),
        ("TOOLSETS", "repos,issues"),
        ("PORT", "127.0.0.1:8080"),
        ("SINCE", "2026-01-31"),
        ("ROOT", "/home/alice/my data"),
        ("ROOT", "C:\\Users\\alice"),
        ("OPTIONS", "--max-old-space-size=4096"),
        ("SERVER", "https://gitlab.example.com"),
        ("SERVER", "https://api.example.com/v1"),
        ("SERVER", "http://localhost:11434/"),
        ("SERVER", "localhost:5432"),
        ("SERVER", "db-1.internal.example.com:5432"),
        ("HOSTS", "*.example.com"),
        ("DATABASE", "sqlite:///data/file.sqlite"),
        ("VERSION", "v1.2.3"),
        ("SINCE", "2024-11-05T10:00:00Z"),
        ("OPTIONS", "--verbose --debug"),
        ("SHORT", "a1b2c"),
        ("AWS_REGION", "europe-west-1"),
        ("LC_ALL", "en_US.UTF-8"),
        ("MAX_TOKENS", "4096"),
        ("AUTH_ENABLED", "true"),
        ("AUTH_TYPE", "oauth"),
        ("PASSWORD_FILE", "/run/secrets/db"),
        ("GIT_AUTHOR_NAME", "Alice"),
        ("API_KEY", "0"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/alice/sa.json"),
        ("MODE", "production-eu"),
        ("OWNER", "some-team"),
        ("EMAIL", "alice@example.com"),
        ("NAME", "Hello World"),
        ("MEMORY_FILE_PATH", "data/mem.json"),
        ("WHATEVER", "hunter2hunter2"),
    ],
)
def test_settings_stay_readable(name: str, value: str) -> None:
    assert with_env(name, value) == set()


def with_env(name: str, value: str) -> frozenset[str]:
    """The secrets of a server with one variable."""
    return loaded(json.dumps({"servers": {"a": {"command": "x", "env": {name: value}}}})).secrets


def test_what_came_from_outside_is_secret_wherever_it_stands() -> None:
    env = {"DATABASE": "postgres://u:PW12@h/db"}
    found = parse("servers: {a: {command: x, args: ['${DATABASE}']}}", "s", env, Path("/base"))
    assert found.secrets == {"postgres://u:PW12@h/db", "PW12"}
    found = loaded("servers: {b: {url: 'https://x.example/${TOKEN}/mcp'}}")
    assert found.secrets == {"s3cr3t-token"} and "s3cr3t" not in repr(found)


def test_paths_flags_and_public_names_from_outside_stay_readable() -> None:
    env = {
        "PROJECTS": "/srv/projects",
        "MODE": "disabled",
        "AWS_REGION": "eu-west-1",
        "KEY": "/srv/key",
        "OWNER": "some-team",
        "WORD": "hunt3rX9!z",
        "TOKEN": "hunter",
    }
    text = ", ".join(f"${{{name}}}" for name in env)
    found = parse(f"servers: {{a: {{command: x, args: ['{text}', '${{PROJECTS}}']}}}}", "s", env, Path("/base"))
    assert found.secrets == {"hunt3rX9!z", "hunter"}
    assert [said.split(" ")[1] for said in map(shown, found.notes)] == ["servers.a.args[0]"]


def test_a_file_that_is_loaded_makes_its_secrets_known_and_shows_none(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    path.write_text("servers: {a: {command: x, env: {KEY: '${TOKEN}'}}}")
    load(path, ENV)
    assert masking.hide("a s3cr3t-token b") == "a *** b"
    path = tmp_path / "servers.yaml"
    path.write_text("servers: {a: {command: x, description: 'of ${TOKEN}', rename: {x: '${TOKEN}'}}}")
    found = load(path, ENV)
    assert "s3cr3t" not in f"{found!r} {found.settings!r} {found.settings}"
    assert "'of ***'" in repr(found.settings)


def test_secrets_in_arguments_and_guessable_tokens_are_notes_for_check() -> None:
    found = loaded("servers:\n  a:\n    command: x\n    args: ['${HOME}/w', '--key=${TOKEN}', '${MODE}', -v]\n")
    (note,) = found.notes
    assert shown(note) == "s:4: servers.a.args[1] [secret_in_arguments]"
    assert found.warnings == () and "s3cr3t" not in str(note)
    args = [f"API_KEY=hunter{number}" for number in range(12)]
    found = loaded(json.dumps({"servers": {"a": {"command": "x", "args": args}}}))
    assert [shown(note).split(" ")[1] for note in found.notes] == [f"servers.a.args[{index}]" for index in range(12)]
    found = loaded("hub: {tokens: [{token: tooshort, principal: a}, {token: 0123456789abcdef, principal: b}]}")
    assert shown_all(found.notes) == ["s:1: hub.tokens[0].token [guessable_token]"]


@pytest.mark.parametrize(
    ("args", "secret"),
    [
        (["x", "--api-key", "hunter"], "hunter"),
        (["x", "--token=hunter"], "hunter"),
        (["-e", "GITHUB_TOKEN=hunter"], "hunter"),
        (["--header", "Authorization: Bearer xyz1"], "xyz1"),
        (["x", "postgresql://u:pw12@h/db"], "pw12"),
        (["x", "https://mcp.example/sse?api_key=abc123"], "abc123"),
        (["x", "sk-abcdefghijklmnop1234"], "sk-abcdefghijklmnop1234"),
        (["x", "-token", "hunter"], "hunter"),
        (["-u", "root", "-p", "hunter"], "hunter"),
        (["--user", "root:hunter"], "hunter"),
        (["-H", "X-Api-Key: hunter"], "hunter"),
        (["-H", "Cookie: theme=dark; sid=hunter22"], "hunter22"),
        (["-e", "MAIL_PASSWORD=abcd efgh ijkl mnop"], "efgh ijkl"),
        (["--db", "Server=tcp:h;User Id=sa;Password=a&b c;Encrypt=true"], "a&b c"),
        (["--config", '{"apiKey": "hunter"}'], "hunter"),
        (["https://mcp.example/s/aB3dE6gH9jK2mN5pQ8rS1tU4/mcp"], "aB3dE6gH9jK2mN5pQ8rS1tU4"),
    ],
)
def test_a_secret_that_the_file_gives_as_an_argument_is_masked_and_a_note_for_check(
    args: list[str], secret: str
) -> None:
    found = loaded(json.dumps({"servers": {"a": {"command": "x", "args": args}}}))
    (note,) = found.notes
    place = next(index for index, text in enumerate(args) if secret in text)
    assert shown(note) == f"s:1: servers.a.args[{place}] [secret_in_arguments]"
    assert secret not in Mask(found.secrets)(" ".join(args))


@pytest.mark.parametrize(
    "args",
    [
        ["-y", "@modelcontextprotocol/server-filesystem@2025.1.14", "/home/x"],
        ["run", "-i", "--rm", "-v", "/a:/b:ro", "mcp/time:latest@sha256:0123456789abcdef"],
        ["--from", "git+https://github.example/a/b.git@0123456789abcdef0123456789abcdef01234567", "b"],
        ["--key", "/etc/ssl/key.pem", "--max-tokens", "4096", "--author", "Joe Smith", "--token-file", "t.txt"],
        ["http://localhost:4873/@scope/package"],
        ["-y", "npm:left-pad@1.0.0", "--user", "jane", "-p", "8080", "--model", "gpt-4o-mini", "--auth", "none"],
        [
            "run",
            "-p",
            "8080:80",
            "--project-ref=abcdefghijklmnopqrst",
            "--uuid",
            "550e8400-e29b-41d4-a716-446655440000",
        ],
    ],
)
def test_usual_arguments_are_not_secret(args: list[str]) -> None:
    found = loaded(json.dumps({"servers": {"a": {"command": "x", "args": args}}}))
    assert found.notes == () and found.secrets == set()


def test_a_variable_that_is_not_set_is_named_with_its_place_and_no_value() -> None:
    with pytest.raises(ConfigError) as caught:
        loaded("servers: {a: {command: x, env: {A: '${TOKEN}${GONE}'}}}")
    assert shown_all(caught) == ["s:1: servers.a.env.A [variable_not_set]"] and "GONE" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_an_argument_has_no_nul_and_may_have_several_lines() -> None:
    with pytest.raises(ConfigError, match=r"servers\.a\.args\[0\]: .*\[invalid_value\]$"):
        loaded('servers: {a: {command: x, args: ["a\\0b"]}}')
    assert loaded('servers: {a: {command: sh, args: [-c, "a\\nb"]}}').settings.servers["a"].args == ["-c", "a\nb"]


def keyring(get: Callable[[str, str], Any]) -> SimpleNamespace:
    return SimpleNamespace(get_password=get)


def test_an_entry_of_the_keyring_is_filled_in_and_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {("mcp-hub", "github"): "from-keyring", ("https://x/y", "me"): "another-one"}
    monkeypatch.setitem(sys.modules, "keyring", keyring(lambda service, name: entries.get((service, name))))
    assert resolve("a ${keyring:mcp-hub/github}", {}, Path("/"))[:2] == ("a from-keyring", frozenset({"from-keyring"}))
    assert resolve("${keyring:https://x/y/me}", {}, Path("/"))[0] == "another-one"
    with pytest.raises(Unresolved, match="no mcp-hub/gone. Store it with: keyring set mcp-hub gone"):
        resolve("${keyring:mcp-hub/gone}", {}, Path("/"))


@pytest.mark.parametrize("text", ["${keyring:}", "${keyring:x}", "${keyring:/x}", "${keyring:x/}"])
def test_an_entry_needs_service_and_name(text: str) -> None:
    with pytest.raises(Unresolved, match=r"expected \$\{keyring:service/name\}"):
        resolve(text, {}, Path("/"))


def test_keyring_that_is_missing_or_fails_says_how_and_nothing_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(Unresolved, match=r"pip install .*\[keyring\]"):
        resolve("${keyring:a/b}", {}, Path("/"))

    def locked(service: str, name: str) -> str:
        raise RuntimeError("the password is s3cr3t")

    monkeypatch.setitem(sys.modules, "keyring", keyring(locked))
    with pytest.raises(Unresolved) as caught:
        resolve("${keyring:a/b}", {}, Path("/"))
    assert str(caught.value) == "the keyring cannot be read: RuntimeError"


@pytest.mark.parametrize(
    ("command", "args", "places"),
    [
        ("sh", ["-c", "ls ${client.cwd}"], [1]),
        ("/bin/bash", ["--norc", "-lc", "cd '${client.root}' && x", "${client.cwd}"], [2]),
        ("docker", ["run", "-v", "${client.cwd}:/w", "image", "sh", "-c", "x /w"], []),
        ("docker", ["exec", "c", "/bin/ash", "-ec", "x ${client.cwd}"], [4]),
        ("cmd.exe", ["/d", "/C", "x", "${client.cwd}"], [3]),
        ("pwsh", ["-NoLogo", "-Command", "x", "'${client.cwd}'"], [3]),
        ("python3.12", ["-c", "open('${client.root}/x')"], [1]),
        ("node", ["--eval=run('${client.root}')"], [0]),
        ("npx", ["-y", "-c", "x ${client.cwd}"], [2]),
        ("sh", ["-c", 'ls "$1"', "sh", "${client.cwd}"], []),
        ("sh", ["-c", "ls $${client.cwd}"], []),
        ("sh", ["${client.cwd}/start.sh"], []),
        ("uvx", ["mcp-server-git", "-c", "${client.cwd}"], []),
    ],
)
def test_folder_of_a_client_in_code_is_a_warning(command: str, args: list[str], places: list[int]) -> None:
    entry = {"command": command, "args": args, "env": {"HERE": "${client.cwd}"}}
    found = loaded(json.dumps({"servers": {"a": entry}}))
    assert [shown(one) for one in found.warnings] == [
        f"s:1: servers.a.args[{index}] [client_in_code]" for index in places
    ]
