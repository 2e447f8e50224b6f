"""Random files of clients: an entry that was set and removed leaves every character as it was."""

import json
import string
import tomllib
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mcp_hub.edit.entries import held_at, put, read_data, remove
from mcp_hub.edit.writing import CannotEdit
from tests.examples import examples

PATH = ("servers", "mcp-hub")
ENTRY = {"command": 'a "b" & ;\n', "args": ["serve", "é"], "timeout": 30}
NAMES = st.text(string.ascii_letters + '-_ "\\é/*#,{}[]:', min_size=1, max_size=6).filter(
    lambda name: name != "mcp-hub"
)
BLANKS = st.sampled_from(["", " ", "\n", "\n  ", "\t", "\r\n", " // c }\n", " /* ], */ ", "\n// x\n\n"])
LEAVES = st.sampled_from(['"x"', '"// \\" }"', "1", "-1.5e3", "true", "null", "[1, 2,]", "[]", "{}"])


@st.composite
def jsonc(draw: st.DrawFn, depth: int = 0, has_servers: bool = True) -> str:
    """An object with blanks, comments and trailing commas wherever they may be."""
    names = draw(st.lists(NAMES, unique=True, max_size=3))
    parts = []
    for name in names:
        is_object = depth < 2 and draw(st.sampled_from(["object", "leaf"])) == "object"
        value: str = draw(jsonc(depth + 1, False)) if is_object else draw(LEAVES)
        parts.append((json.dumps(name, ensure_ascii=False), value))
    if has_servers:
        assume("servers" not in names)
        parts.insert(draw(st.integers(0, len(parts))), ('"servers"', draw(jsonc(1, False))))
    done = [f"{draw(BLANKS)}{name}{draw(BLANKS)}:{draw(BLANKS)}{value}{draw(BLANKS)}" for name, value in parts]
    comma = "," if parts != [] and draw(st.booleans()) else ""
    return f"{{{','.join(done)}{comma}{draw(BLANKS)}}}"


def check(text: str, file: str) -> None:
    try:
        after = put(text, file, PATH, ENTRY)
    except CannotEdit:
        assume(False)
    assert held_at(read_data(after, file), PATH) == ENTRY
    back = remove(after, file, PATH)
    held: Any = held_at(read_data(text, file), PATH[:1])
    if held:
        assert back == text
    assert read_data(back, file) == read_data(text, file) or not held


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(before=BLANKS, text=jsonc(), after=BLANKS, mark=st.sampled_from(["", "\ufeff"]))
def test_json_with_comments_keeps_every_character(before: str, text: str, after: str, mark: str) -> None:
    check(f"{mark}{before}{text}{after}", "mcp.json")


@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(text=jsonc())
def test_every_such_json_can_be_edited(text: str) -> None:
    put(text, "mcp.json", PATH, ENTRY)


TOML_TEXTS = ['"""\n[servers.mcp-hub]\n"\\" ""\n"""', "'''\n# [a]\n'''"]
TOML_VALUES = st.sampled_from(['"x"', "'[servers.mcp-hub]'", *TOML_TEXTS, "[1, # c ]\n  2]", "{a = 1}", "1979-05-27"])
TOML_NAMES = ["[a]", "[servers.one] # c", '[servers."x ] y"]', "[[b.c]]", "[servers.two.env]", "[z]"]
TOML_HEADERS = st.sampled_from(TOML_NAMES)


@st.composite
def toml(draw: st.DrawFn) -> str:
    lines = ["k = 1", "[servers.first]"] if draw(st.booleans()) else ["# c", "[servers.first]"]
    for _ in range(draw(st.integers(0, 5))):
        lines.append(draw(st.one_of(TOML_HEADERS, st.just(""), st.just("# c [x]"))))
        lines += [f"k{number} = {draw(TOML_VALUES)}" for number in range(draw(st.integers(0, 2)))]
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n", "\n# end"]))


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(text=toml(), crlf=st.booleans())
def test_toml_keeps_every_character(text: str, crlf: bool) -> None:
    text = text.replace("\n", "\r\n") if crlf else text
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assume(False)
    check(text, "config.toml")


YAML_BLOCKS = ["|\n      text\n      # no comment", "\n      deep:\n        - 1"]
YAML_VALUES = st.sampled_from(["1", "'x: #'", '"a\\n"', "[1,\n      2]", "{a: 1}", *YAML_BLOCKS, "", "&x 1"])


@st.composite
def yaml_text(draw: st.DrawFn) -> str:
    def entries(indent: str, count: int) -> list[str]:
        lines = []
        for number in range(count):
            lines += draw(st.sampled_from([[], [f"{indent}# c"], [""]]))
            lines.append(f"{indent}k{number}: {draw(YAML_VALUES)}")
        return lines

    lines = [*entries("", draw(st.integers(0, 2))), "servers: # s", *entries("  ", draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        lines += ["# z", "zz: 1"]
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n# end\n"]))


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(text=yaml_text(), crlf=st.booleans())
def test_yaml_keeps_every_character(text: str, crlf: bool) -> None:
    check(text.replace("\n", "\r\n") if crlf else text, "config.yaml")
