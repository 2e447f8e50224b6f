"""The text of a script before it runs."""

import ast
import builtins
import warnings
from contextlib import suppress
from time import process_time

import pytest

from mcp_hub import masking
from mcp_hub.code.source import (
    DECLARATIONS,
    MOST_BYTES,
    PRELUDE,
    RESERVED,
    cleaned,
    line_at,
    line_of,
    lines_around,
    names_in,
    rewritten,
    unbound,
)
from mcp_hub.code.steps import CodeError
from mcp_hub.code.tool import python_names


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x = 1", "x = 1"),
        ("\ufeffx = 1\r\ny = 2\r\n", "x = 1\ny = 2\n"),
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```\n", "x = 1\n"),
        ("Here it is:\n\n~~~py\nx = 1\n~~~\nDone.", "x = 1\n"),
        ("Some.\n```json\n{}\n```\n```python\nx = 1\ny = 2\n```\n```py\nz = 1\n```", "x = 1\ny = 2\n"),
        ("s = '''\n```python\ny\n```\n'''", "s = '''\n```python\ny\n```\n'''"),
        ("  x = 1\n  y = 2", "x = 1\ny = 2"),
        ("if x:\n\ty = 1", "if x:\n\ty = 1"),
        ("if x:\n\ty = 1\n    z = 2", "if x:\n    y = 1\n    z = 2"),
        ("if x:\n        y = 1\n\tz = 2", "if x:\n        y = 1\n        z = 2"),
    ],
)
def test_script_is_taken_out_of_its_text(text: str, code: str) -> None:
    assert cleaned(text) == code


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("```python\n```", "empty"),
        ("x = '\0'", "control characters"),
        ("x = '\ud800'", "control characters"),
        ("#" * (MOST_BYTES + 1), "longer than 64 kB"),
    ],
)
def test_text_without_a_script_is_refused(text: str, message: str) -> None:
    with pytest.raises(CodeError, match=message) as caught:
        cleaned(text)
    assert caught.value.kind == "syntax"


@pytest.mark.parametrize(
    "text", ["```x\n" * 6000, "~~~x\n" * 6000, "```x\n~~~\n" * 3000, "`" * 65000, "~~~~\n~~~\n" * 2000]
)
def test_fences_without_an_end_take_no_time(text: str) -> None:
    begun = process_time()
    with suppress(CodeError):
        cleaned(text)
    assert process_time() - begun < 1  # a search back and forth takes a minute


def test_script_of_signs_alone_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(CodeError, match="more than 24000 words and signs"):
        cleaned("a;" * 32000)


def test_script_may_have_so_many_words_and_not_one_more() -> None:
    words = "x " * 24_000
    assert cleaned(words).split() == ["x"] * 24_000
    with pytest.raises(CodeError, match="more than 24000 words and signs"):
        cleaned(f"{words}y")
    assert len(cleaned("n" * 60_000)) == 60_000, "a long word is one"


def test_fence_after_one_without_an_end_is_found() -> None:
    assert cleaned("````\nSo:\n```python\nx = 1\n```\n") == "x = 1\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("````python\nx = 1\n```\ny = 2\n````", "x = 1\n```\ny = 2\n"),
        ("```python\nx = 1\n`````", "x = 1\n"),
        ("~~~python\nx = 1\n```\n~~~", "x = 1\n```\n"),
        ("So:\n  ```python\nx = 1\n  ```", "x = 1\n"),
        ("So:\n```json\n```python\n```\n```python\nx = 1\n```", "x = 1\n"),
        ("So:\n```Python3 title=a\nx = 1\n```", "x = 1\n"),
    ],
)
def test_fence_ends_at_as_many_of_the_same_signs(text: str, code: str) -> None:
    assert cleaned(text) == code


def test_fence_after_a_few_without_an_end_is_found_but_not_after_many() -> None:
    block, without_end = "So:\n```python\nx = 1\n```\n", "`````py\n"
    assert cleaned(without_end * 19 + block) == "x = 1\n"
    assert cleaned(without_end * 20 + block) == without_end * 20 + block


def test_names_are_those_that_are_read() -> None:
    code = "f = tool_a\nawait f(x=tool_b(y=1))\ntool_c = 1\nobj.tool_d\n'tool_e'"
    assert names_in(code) == {"tool_a", "f", "tool_b", "obj"}
    assert names_in("tool_a(\n'x") >= {"tool_a"}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("e.tool", "hub_tool(e)"),
        ("[é.code, e.arguments['x']]", "[hub_code(é), hub_arguments(e)['x']]"),
        ("é = 1; type(é).__name__ + type(e).__name__", "é = 1; hub_class_name(é) + hub_class_name(e)"),
        ("e.tool = 1\nx.tools\nf().code\n'e.tool'", "e.tool = 1\nx.tools\nf().code\n'e.tool'"),
        ("f'é {e.tool} {type(e).__name__}'", "f'é {hub_tool(e)} {hub_class_name(e)}'"),
        ("x = (", "x = ("),
    ],
)
def test_attributes_of_exceptions_are_read_by_functions(code: str, expected: str) -> None:
    assert rewritten(code) == expected


def test_deeply_nested_functions_are_refused_with_their_line() -> None:
    nested = "".join(f"{' ' * depth}def f():\n" for depth in range(11)) + " " * 11 + "pass"
    with pytest.raises(CodeError) as caught:
        rewritten(nested)
    assert (caught.value.kind, caught.value.line) == ("syntax", 11)
    assert caught.value.problems == ((11, str(caught.value)),)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 1\nreturn x", "x = 1\nx"),
        ("result = await a()", "result = await a()\nresult"),
        ("print(1)\nresult = 1", "print(1)\nresult = 1"),
        ("async def main():\n    return 1", "async def main():\n    return 1\nawait main()"),
        ("def main():\n    return 1", "def main():\n    return 1"),
        ("async def main():\n    return 1\nmain()", "async def main():\n    return 1\nmain()"),
        ("[id for id, row in rows]", "id = id\n[id for id, row in rows]"),
        ("json.loads(asyncio)", "import json\njson.loads(asyncio)"),
        ("import json\njson.loads('1')", "import json\njson.loads('1')"),
        ("del a['é'][b[0]]", "a['é'].pop(b[0])"),
        ("del a[1:2]\ndel a", "del a[1:2]\ndel a"),
        ("max(d, key=d.get)", "max(d, key=(lambda hub_key: d.get(hub_key)))"),
        ("gather(x, return_exceptions=True)", "hub_gather(x, return_exceptions=True)"),
        (
            "if a:\n  return 1\nb",
            "async def hub_script(begin=go()):\n    if a:\n      return 1\n    b\n\nawait hub_script()",
        ),
    ],
)
def test_what_other_hosts_take_is_written_as_the_engine_takes_it(code: str, expected: str) -> None:
    assert rewritten(code, "go()").removeprefix("go()\n").removeprefix("go(); ") == expected


def test_warnings_about_a_script_are_not_ours() -> None:
    code = "x = '\\d'\nx is 1"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert rewritten(cleaned(code)) == code
    assert caught == []


def test_lines_are_shown_around_one() -> None:
    code = "\n".join(f"x{number} = {number}" for number in range(1, 11))
    assert lines_around(code, 9, 1) == "   8 x8 = 8\n>  9 x9 = 9\n  10 x10 = 10"
    assert lines_around(code, 1, 1) == "> 1 x1 = 1\n  2 x2 = 2"
    assert line_of("é\né", len("é\n".encode())) == 2


def test_line_has_nothing_of_a_secret_of_several_lines() -> None:
    masking.learn(["-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nzq7w\n-----END KEY-----"])
    code = 'key = """-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nzq7w\n-----END KEY-----"""\nsend(key)'
    assert line_at(code, 3) == masking.MASK and "zq7w" not in lines_around(code, 3)
    assert "zq7w" in lines_around("a = 1\nzq7w", 2), "as the short line alone, it may be anything"
    assert (line_at(code, 5), line_at(code, 6), line_at(code, 0)) == ("send(key)", "", "")


def test_reserved_names_are_those_of_our_texts() -> None:
    names = {
        name
        for node in (*ast.parse(PRELUDE).body, *ast.parse(DECLARATIONS).body)
        for name in (
            [alias.asname or alias.name for alias in node.names]
            if isinstance(node, ast.Import | ast.ImportFrom)
            else [node.name]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            else []
        )
    }
    assert names - set(dir(builtins)) - {"_t"} == RESERVED


def test_unbound_names_are_those_that_a_tool_may_have() -> None:
    code = """\
import asyncio as a, json
from datetime import datetime

async def f(path, *, most=1):
    try:
        for i in range(3):
            await git_log(path=path)
    except ToolError as problem:
        print(problem, i, most)

rows = [row for row in await fs_list()]
await a.gather(f(1))
json.dumps(rows, default=datetime)
"""
    assert unbound(code) == {"git_log", "fs_list"}
    assert unbound("no Python:") == {"no", "Python"}


def test_no_tool_has_a_name_that_the_hub_needs_in_a_script() -> None:
    assert {name for name, python in python_names(RESERVED).items() if name == python} == set()
