"""`mcp-hub run`: where the script comes from, what is printed, and how it ends."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit.cli.command import hub

needs_engine = pytest.mark.skipif(find_spec("pydantic_monty") is None, reason="the extra code is not installed")
SCRIPT = "print('begin', 'ä')\nrows = [await made_lookup(key=key) for key in 'ab']\nrows\n"
PRINTED = 'begin ä\n["found a","found b"]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Functions, and scripts that use them."""
    (tmp_path / "code_tools.py").write_text((Path(__file__).parent / "code_tools.py").read_text())
    (tmp_path / "scripts").mkdir()
    made = {"local": "code_tools", "per_tool": {"lookup": {"annotations": {"readOnlyHint": True}}}}
    settings = {"servers": {"made": made, "reports": {"scripts": "./scripts"}}, "hub": {"code": "all"}}
    (tmp_path / "servers.yaml").write_text(json.dumps(settings))
    (tmp_path / "script.py").write_text(SCRIPT, "utf-8")
    return tmp_path


@needs_engine
@pytest.mark.parametrize(("name", "stdin"), [("script.py", ""), ("-", SCRIPT)])
def test_script_comes_from_a_file_or_stdin(folder: Path, name: str, stdin: str) -> None:
    done = hub(folder, "run", name, stdin=stdin)
    assert (done.returncode, done.stdout) == (0, PRINTED), done.stderr


@needs_engine
def test_output_has_the_forms_of_a_call(folder: Path) -> None:
    lines = [json.loads(line) for line in hub(folder, "run", "script.py", "--json", "--again").stdout.splitlines()]
    assert {line["type"] for line in lines} == {"tool-call", "tool-result", "progress", "delta", "end"}
    assert lines[-1]["result"]["content"] == [
        {"type": "text", "text": "begin ä\n"},
        {"type": "text", "text": '["found a","found b"]'},
    ]
    alone = hub(folder, "run", "script.py", "--format", "json")
    assert json.loads(alone.stdout)["content"] == lines[-1]["result"]["content"]


@needs_engine
def test_mistake_is_an_error_of_the_tool(folder: Path) -> None:
    done = hub(folder, "run", "-", stdin="await made_lookup(kye='a')")
    assert done.returncode == 1 and "kye" in done.stdout and "line 1" in done.stdout, done.stdout


def test_hub_without_scripts_says_how_to_switch_them_on(folder: Path) -> None:
    (folder / "servers.yaml").write_text('{"servers": {}}')
    done = hub(folder, "run", "script.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "hub.code" in done.stderr and "[code_off]" in done.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["none.py"], "none.py cannot be read: No such file"),
        (["."], "it is a directory"),
        (["latin.py"], "latin.py is not UTF-8 text"),
        (["large.py"], "larger than 1048576 bytes"),
        ([], "Name a script, or - for standard input."),
        (["script.py", "--detach", "--local"], "--detach leaves the call"),
    ],
)
def test_what_cannot_be_a_script_ends_with_2(folder: Path, options: list[str], reason: str) -> None:
    (folder / "latin.py").write_bytes(b"\xff")
    (folder / "large.py").write_bytes(b"#" * ((1 << 20) + 1))
    done = hub(folder, "run", *options)
    assert done.returncode == 2 and reason in done.stderr, done.stderr


# -- scripts as tools


def test_check_finds_scripts_that_are_no_tools_and_names_that_no_tool_has(folder: Path) -> None:
    (folder / "scripts" / "bad.py").write_text("x = 1\n")
    (folder / "scripts" / "lost.py").write_text("async def main():\n    return await made_lookp()\n")
    (folder / "scripts" / "good.py").write_text("async def main():\n    return await made_lookup()\n")
    at_rest = hub(folder, "check", "--no-start")
    assert at_rest.returncode == 0
    assert "scripts/bad.py:1: it needs one async def main(…), and has none [script_invalid]" in at_rest.stderr
    assert "script_unknown_tool" not in at_rest.stderr, "nobody has asked the servers"
    compared = hub(folder, "check")
    assert "scripts/bad.py:1: " in compared.stderr
    assert "scripts/lost.py:2: there is no tool 'made_lookp'" in compared.stderr
    assert "good.py" not in compared.stderr


def test_scripts_are_listed_with_hints_from_the_tools_that_they_use(folder: Path) -> None:
    (folder / "scripts" / "reading.py").write_text(
        'async def main(day: str):\n    """Reads."""\n    return await made_lookup()\n'
    )
    (folder / "scripts" / "writing.py").write_text("async def main():\n    return await made_store(text='a')\n")
    listed = {each["name"]: each for each in json.loads(hub(folder, "tools", "--json").stdout)}
    assert listed["reports_reading"]["annotations"] == {"readOnlyHint": True}
    assert listed["reports_reading"]["inputSchema"]["required"] == ["day"]
    assert "annotations" not in listed["reports_writing"]


@needs_engine
def test_script_is_called_as_a_tool_is(folder: Path) -> None:
    (folder / "scripts" / "weekly.py").write_text(
        "async def main(keys: list[str]) -> dict[str, str]:\n"
        "    print('looking')\n    return {key: await made_lookup(key=key) for key in keys}\n"
    )
    done = hub(folder, "call", "reports_weekly", 'keys=["a", "b"]', "--format", "json")
    assert json.loads(done.stdout)["structuredContent"] == {"a": "found a", "b": "found b"}, done.stderr
    wrong = hub(folder, "call", "reports_weekly", "--args-json", '{"keys": 1}')
    assert wrong.returncode == 1 and "str" in wrong.stdout, wrong.stdout
    (folder / "scripts" / "outer.py").write_text("async def main():\n    return await reports_weekly(keys=[])\n")
    outer = hub(folder, "call", "reports_outer")
    assert outer.returncode == 1 and "A script cannot call a script" in outer.stdout, outer.stdout


def test_scripts_that_nobody_may_run_are_a_finding(folder: Path) -> None:
    settings = json.loads((folder / "servers.yaml").read_text())
    del settings["hub"]["code"]
    (folder / "servers.yaml").write_text(json.dumps(settings))
    assert "servers.reports.scripts: the scripts can call no tool" in hub(folder, "check", "--no-start").stderr
    settings["profiles"] = {"reader": {"code": "reads"}}
    (folder / "servers.yaml").write_text(json.dumps(settings))
    assert "[code_off]" not in hub(folder, "check", "--no-start").stderr


def test_folder_that_does_not_exist_is_a_finding_and_a_reason(folder: Path) -> None:
    (folder / "scripts").rmdir()
    assert "[scripts_not_found]" in hub(folder, "check", "--no-start").stderr
    assert "[scripts_not_found]" in hub(folder, "list").stdout


# -- without servers

MAIN = """async def main(labels: list[str], limit: int = 2):
    counts = {}
    for label in labels:
        try:
            counts[label] = len(await tracker_list_issues(label=label, limit=limit))
        except ToolError as error:
            print("skipped", label, error)
    return counts
"""
RECORDS = [
    {"tool": "tracker_list.issues", "arguments": {"label": "bug", "limit": 2}, "result": [{"id": 1}, {"id": 2}]},
    {
        "tool": "tracker_list.issues",
        "arguments": {"label": "old", "limit": 2},
        "result": {"content": [{"type": "text", "text": "no such label"}], "isError": True},
    },
]


@pytest.fixture
def dry(tmp_path: Path) -> Path:
    """A script and records, beside a configuration whose server must not start."""
    (tmp_path / "servers.yaml").write_text('{"servers": {"gone": {"command": "no-such-program-anywhere"}}}')
    (tmp_path / "weekly.py").write_text(MAIN)
    (tmp_path / "calls.jsonl").write_text("\n\n".join(map(json.dumps, RECORDS)))
    return tmp_path


def run_dry(folder: Path, *options: str, stdin: str = "") -> tuple[int, str, str]:
    done = hub(folder, "run", *options, "--dry", "calls.jsonl", stdin=stdin)
    return done.returncode, done.stdout, done.stderr


@needs_engine
def test_script_is_answered_by_records(dry: Path) -> None:
    code, printed, called = run_dry(dry, "weekly.py", 'labels=["bug", "old"]')
    assert (code, printed) == (0, 'skipped old no such label\n{"bug":2}\n')
    assert called == (
        'line 5: tracker_list_issues {"label":"bug","limit":2}\nline 5: tracker_list_issues {"label":"old","limit":2}\n'
    )
    code, lines, _ = run_dry(dry, "weekly.py", 'labels=["bug"]', "--json")
    assert [json.loads(line)["type"] for line in lines.splitlines()] == ["tool-call", "tool-result", "end"]


@needs_engine
def test_call_without_a_record_ends_the_script(dry: Path) -> None:
    code, printed, called = run_dry(dry, "weekly.py", 'labels=["bug", "new"]')
    assert (code, printed) == (1, "")
    assert 'no record has this call: line 5: tracker_list_issues {"label":"new","limit":2}\n' in called


@needs_engine
def test_equal_calls_take_their_records_in_order(dry: Path) -> None:
    states = [{"tool": "state", "result": value} for value in ("starting", "done")]
    (dry / "calls.jsonl").write_text("\n".join(map(json.dumps, states)))
    script = "import asyncio\nseen = [await state(job=n) for n in range(2)]\nawait asyncio.sleep(3600)\n"
    code, printed, called = run_dry(dry, "-", stdin=f"{script}seen + [await state(job=3)]")
    assert (code, json.loads(printed)) == (0, ["starting", "done", "done"])
    assert 'asyncio.sleep {"seconds":3600' in called


@needs_engine
@pytest.mark.parametrize(
    ("script", "reason"),
    [("1 +", "line 1: "), ("await other()", "other"), ("1 / 0", "ZeroDivisionError"), ("print(len(5))\nx", "line 2: ")],
)
def test_mistake_of_a_script_is_shown_with_its_line(dry: Path, script: str, reason: str) -> None:
    code, printed, said = run_dry(dry, "-", stdin=script)
    assert (code, printed) == (1, "") and reason in said, said


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["weekly.py"], "labels: required, but missing"),
        (["weekly.py", "x=1"], "x: unknown argument"),
        (["-", "x=1"], "which the script does not have"),
        (["weekly.py", "labels=[]", "--detach"], "--dry makes no call"),
    ],
)
def test_options_that_fit_no_dry_run_end_with_2(dry: Path, options: list[str], reason: str) -> None:
    code, _, said = run_dry(dry, *options, stdin="1")
    assert code == 2 and reason in said, said


@pytest.mark.parametrize("line", ['{"tool": 1}', "[]", "{"])
def test_line_that_is_no_record_is_named(dry: Path, line: str) -> None:
    (dry / "calls.jsonl").write_text(f"{json.dumps(RECORDS[0])}\n{line}\n")
    code, _, said = run_dry(dry, "weekly.py", "labels=[]")
    assert code == 2 and "calls.jsonl:2 is not" in said
