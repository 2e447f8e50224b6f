"""Fuzz target of configuration files: any text is settings or an error that is fit to print, in bounded time."""

import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from mcp_hub import masking
from mcp_hub.config.load.load import load, parse
from mcp_hub.config.schema.fields import parse_duration, parse_size
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError
from rigs.fuzz.mutate import json_bytes, mutated, mutated_json
from rigs.fuzz.target import Target, from_corpus, seeded

SECRET = "s3cr3t-from-outside"
ENV = {"A": SECRET, "HOME": "/home/nobody", "OFF": "false", "N": "3"}
NAMES = ("s.yaml", "s.json", "s.json5", "s")
_ROOT = Path(__file__).parents[2]
_SHIPPED = (_ROOT / "servers.yaml").read_bytes()
_BOMB = b"a: &a [x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%b]\n" % (name, name, b", ".join([b"*%c" % (name - 1)] * 9)) for name in range(ord("b"), ord("j"))
)
FULL = {
    "hub": {
        "prefix": "always",
        "http": {"host": "127.0.0.1", "port": 1, "allowed_origins": ["https://a.example"], "max_body": "1MB"},
        "tokens": [{"token": "${A}", "principal": "p", "profile": "r"}],
        "limits": {"running_calls": 10},
        "store": {"type": "sqlite", "path": "~/s", "retention": "24h"},
        "clients": {"c": {"soft_deadline": "50s", "matches": ["C*"]}},
    },
    "defaults": {"timeout": "30m"},
    "profiles": {"r": {"servers": ["a"], "tools": {"deny": ["x_*"]}, "budget": 100}},
    "servers": {
        "a": {"command": "x", "args": ["${N:-1}", "$${"], "env": {"K": "${A}"}, "cwd": "~/x", "rename": {"a": "b"}},
        "b": {
            "url": "https://${A}@example.com/mcp",
            "bearer": "${env:A}",
            "headers": {"X-Y": "${A}"},
            "enabled": "${OFF}",
        },
        "c": {"local": "a.b:c", "per_tool": {"t": {"task": "always", "timeout": "2s"}}, "tools": {"allow": ["*"]}},
    },
}
CORPUS = (
    _SHIPPED,
    re.sub(rb"(?m)^(\s*)# (?=[\w-]+:|- )", rb"\1", _SHIPPED),
    _BOMB,
    json_bytes(FULL),
    json.dumps(FULL, indent=1).encode(),
    b"// c\n{mcpServers: {'a': {command: 'x', args: ['y',], /* z */ env: {A: \"\\u0041\",},},},}",
    b"x: &x {command: a}\nservers:\n  a: *x\n  b: {<<: *x, args: [1, 0x10, 1e3, 1_0, .inf, 2024-01-01, ~, yes]}\n"
    b"  ? c\n  : *x\n",
    b"a: &a\n  <<: *a\nservers: !!python/object:os.system {a: !x b}\n--- \n%YAML 1.2\n...\n|+2\n",
    b"\xef\xbb\xbfservers: {a: {command: '${file:x}', args: [\"${keyring:a/b}\", '${A:-${B}}']}}\r\n",
)
_KEYS = sorted(set(re.findall(r'"([a-z_]{2,30})": \{', json.dumps(Settings.model_json_schema()))))
WORDS = (
    *(b"&a ", b"*a", b"<<: *a", b"!!binary ", b"!!set ", b"? ", b": ", b"- ", b"|\n", b">-\n", b"'", b'"'),
    b"#",
    b"---\n",
    *(b"{", b"}", b"[", b"]", b",", b"${A}", b"${B}", b"${A:-", b"$${", b"${file:x}", b"~/x", b"30m", b"1MB", b"auto"),
    *(b"//", b"/*", b"*/", b"\\u", b"\\ud800", b"0x", b"1e999", b"[" * 60, b"{a: " * 60, b"- " * 60, b"\x85"),
    b"\xc2\x85",
    *(f"{key}: ".encode() for key in _KEYS),
)
_NO_PLACE = re.compile(r"is empty|larger than|nested deeper|control character|not UTF-8|cannot be read|not valid JSON")

_mutated_text = from_corpus(CORPUS, WORDS)


def make_config(rng: Random) -> bytes:
    if rng.random() < 0.5:
        tree = json_bytes(mutated_json(FULL, _KEYS, rng))
        return tree if rng.random() < 0.7 else mutated(tree, WORDS, CORPUS, rng)
    if rng.random() < 0.005:
        return rng.choice((b"[", b"- ", b"{a: ", b"'", b"&a [*a,", b"!", b"? ")) * rng.choice((100, 10_000, 100_000))
    return _mutated_text(rng)


def check_config(data: bytes) -> None:
    rng = seeded(data)
    name = rng.choice(NAMES)
    text = data.decode("utf-8", rng.choice(("replace", "surrogateescape")))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        base = Path(folder)
        try:
            if rng.random() < 0.2:
                (base / name).write_bytes(data)
                os.chmod(base / name, 0o600)
                name = str(base / name)
                loaded = load(Path(name), ENV)
            else:
                loaded = parse(text, name, ENV, base)
        except ConfigError as error:
            _check_refusal(str(error), name)
        else:
            for warning in (*loaded.warnings, *loaded.notes):
                _check_line(str(warning), name)
            assert SECRET not in repr(loaded)
            masking.learn(loaded.secrets)
            assert SECRET not in repr(loaded.settings)
        finally:
            masking.forget()
    _check_quantity(text[:100])


def _check_refusal(message: str, name: str) -> None:
    lines = message.split("\n")
    for line in lines:
        _check_line(line, name)
        assert (
            re.match(re.escape(name) + r":\d+", line)
            or _NO_PLACE.search(line)
            or name.endswith((".json", ".json5", "s"))
        )


def _check_line(line: str, name: str) -> None:
    assert line.startswith(f"{name}:"), line
    assert line.removeprefix(name).isprintable() and SECRET not in line, line
    line.encode()


def _check_quantity(text: str) -> None:
    """A text is read as a duration or a size, or refused with a reason."""
    kinds: list[Callable[[str], float]] = [parse_duration, parse_size]
    for parse_one in kinds:
        try:
            assert parse_one(text) >= 0
        except ValueError as problem:
            assert str(problem)


CONFIG_TARGETS = (Target("config", make_config, check_config),)
