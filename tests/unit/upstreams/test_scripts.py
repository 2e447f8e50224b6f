"""Scripts of a folder as tools: what becomes of a file, hints, the text of a run, changes."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from mcp_hub.call import Call, CallChannel
from mcp_hub.errors import InvalidParams, UnknownEntry, UpstreamUnavailable
from mcp_hub.events import Completed
from mcp_hub.ids import new_call_id
from mcp_hub.notices import Notices
from mcp_hub.types import Era, Kind, RawJson, UpstreamState
from mcp_hub.upstreams.scripts import upstream as module
from mcp_hub.upstreams.scripts.source import LARGEST, MOST_SCRIPTS, findings_of, read_folder, read_script
from mcp_hub.upstreams.scripts.upstream import script_upstream
from tests.unit.fakes import Channel
from tests.upstreams.child import WAIT

WEEKLY = '''"""Reports."""
from typing import Literal, Optional

DAYS = 7

async def count(label: str) -> int:
    return len(await list_issues(label=label))

async def main(
    labels: list[str], days: int = 7, state: Literal["open", "closed"] = "open", note: Optional[str] = None,
    *, limit: float | None = 2.5, more: dict[str, int] = {},
) -> dict[str, int]:
    """Counts the issues
    of each label.

    It is slow.

    Args:
        labels: which ones,
            all of them
        days (int): how far back
    """
    try:
        return {label: await count(label) for label in labels}
    except ToolError as error:
        print(error)
        raise
'''


def schema_of(parameters: str, returns: str = "") -> Any:
    script = read_script("one", f"async def main({parameters}){returns}: pass")
    assert not script.fault, script.fault
    return script.definition


def test_main_is_the_tool() -> None:
    script = read_script("weekly", WEEKLY)
    assert script.definition == {
        "name": "weekly",
        "description": "Counts the issues of each label.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "labels": {"type": "array", "items": {"type": "string"}, "description": "which ones, all of them"},
                "days": {"type": "integer", "description": "how far back", "default": 7},
                "state": {"type": "string", "enum": ["open", "closed"], "default": "open"},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                "limit": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": 2.5},
                "more": {"type": "object", "additionalProperties": {"type": "integer"}, "default": {}},
            },
            "additionalProperties": False,
            "required": ["labels"],
        },
        "outputSchema": {"type": "object", "additionalProperties": {"type": "integer"}},
    }
    assert script.names == {"list_issues": 7}


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        ("str", {"type": "string"}),
        ("'int'", {"type": "integer"}),
        ("bool", {"type": "boolean"}),
        ("list", {"type": "array"}),
        ("typing.List[dict]", {"type": "array", "items": {"type": "object"}}),
        ("Any", {}),
        ("list[Any]", {"type": "array"}),
        ("str | int | None", {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}),
        ("Union[str, Optional[int]]", {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}),
        ("Literal[1, 'a', None]", {"enum": [1, "a", None]}),
        ("Annotated[str, 'a city']", {"type": "string", "description": "a city"}),
    ],
)
def test_annotation_is_a_schema(annotation: str, schema: object) -> None:
    assert schema_of(f"a: {annotation}")["inputSchema"]["properties"] == {"a": schema}


def test_parameter_without_annotation_takes_anything() -> None:
    assert schema_of("a, b=None")["inputSchema"] == {
        "type": "object", "properties": {"a": {}, "b": {"default": None}}, "additionalProperties": False,
        "required": ["a"],
    }  # fmt: skip
    assert "required" not in schema_of("")["inputSchema"]


@pytest.mark.parametrize("returns", ["", " -> str", " -> list[int]", " -> dict[str, int] | None", " -> Row"])
def test_result_that_is_no_object_has_no_schema(returns: str) -> None:
    assert "outputSchema" not in schema_of("", returns)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("async def main(:", 1, "it is not Python: "),
        ("x = 1\n", 1, "it needs one async def main(…), and has none"),
        ("\ndef main(): pass", 2, "write async def main(…)"),
        ("async def main(): pass\nasync def main(): pass", 2, "has 2"),
        ("async def main(*a): pass", 1, "'a': tools are called with named arguments"),
        ("async def main(**a): pass", 1, "named arguments"),
        ("async def main(a, /): pass", 1, "named arguments"),
        ("async def main(\n  a: set[int]): pass", 2, "a: its type set[int] is not one of str, int"),
        ("async def main(a: dict[int, int]): pass", 1, "its type dict[int, int]"),
        ("async def main(a: 'int['): pass", 1, "its type cannot be read"),
        ("async def main(a: " + "list[" * 40 + "int" + "]" * 40 + "): pass", 1, "nested too deep"),
        ("async def main(a: int = f()): pass", 1, "its default is not a value of JSON"),
        ("async def main(a=b'x' * 2): pass", 1, "its default is not a value of JSON"),
        ("async def main(): return " + "(" * 5000 + ")" * 5000, 1, "it is not Python"),
        ("async def main(): pass\0", 1, "it is not Python"),
    ],
)
def test_script_that_is_no_tool_says_why_and_where(text: str, line: int, reason: str) -> None:
    script = read_script("one", text)
    assert (script.line, script.definition) == (line, {}) and reason in script.fault, script.fault


def test_call_is_the_script_and_its_arguments_as_text_of_python() -> None:
    script = read_script("one", "async def main(a, b=1):\n    return a\n\n\n")
    value = {"a": ["'; import os  # \\", 'ä"', True, None, 1.5, -(2**70)], "b": {"c": {}}}
    code = script.call(value)
    assert code.startswith("async def main(a, b=1):\n    return a\n\nawait main(a=[") and code.isascii()
    called: dict[str, Any] = {}
    exec(f"def main(**given): return given\ngiven = {code.rpartition('await ')[2]}", called)
    assert called["given"] == value


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "- a: required, but missing"),
        ({"a": 1, "b) or print(1": 2}, "- b) or print(1: unknown argument"),
        ({"a": float("inf")}, "a number is too large"),
        ({"a": {"b": [float("nan")]}}, "a number is too large"),
        ({"a": 10**5000}, "a number is too large"),
    ],
)
def test_arguments_that_no_call_can_have_are_refused(arguments: dict[str, object], reason: str) -> None:
    script = read_script("one", "async def main(a): pass")
    with pytest.raises(InvalidParams) as refused:
        script.call(arguments)
    assert reason in str(refused.value)


def test_folder_has_its_own_regular_python_files_only(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("async def main(): pass")
    for name in (".hidden.py", "_part.py", "notes.txt", ".py"):
        (tmp_path / name).write_text("async def main(): pass")
    (tmp_path / "folder.py").mkdir()
    os.symlink(tmp_path / "one.py", tmp_path / "link.py")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "large.py").write_bytes(b"#" * (LARGEST + 1))
    (tmp_path / "latin.py").write_bytes(b"# \xff")
    (tmp_path / "two words.py").write_text("async def main(): pass")
    scripts = read_folder(str(tmp_path), {}, {})
    assert {name: script.fault[:30] for name, script in scripts.items()} == {
        "large": "it has more than 65536 bytes",
        "latin": "it is not UTF-8 text",
        "one": "",
        "two words": "its name may have letters, dig",
    }
    again = read_folder(str(tmp_path), {}, scripts)
    assert all(again[name] is scripts[name] for name in scripts), "what did not change is not read again"
    found = [str(finding) for finding in findings_of("s", scripts, {})]
    assert found[1] == "s/latin.py:1: it is not UTF-8 text [script_invalid]"


def test_folder_or_file_that_others_write_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("async def main(): pass")
    (tmp_path / "one.py").chmod(0o666)
    assert "who could have it call any tool" in read_folder(str(tmp_path), {}, {})["one"].fault
    assert not read_folder(str(tmp_path), {"MCP_HUB_TRUST_CONFIG": "1"}, {})["one"].fault
    tmp_path.chmod(0o777)
    with pytest.raises(OSError, match="can be written by"):
        read_folder(str(tmp_path), {}, {})


def test_folder_with_too_many_scripts_is_refused(tmp_path: Path) -> None:
    for number in range(MOST_SCRIPTS + 2):
        (tmp_path / f"s{number}.py").touch()
    with pytest.raises(OSError, match="more than 200 scripts"):
        read_folder(str(tmp_path), {}, {})


# -- the server


class Runs:
    def __init__(self) -> None:
        self.codes: list[str] = []
        self.states: list[RawJson] = []
        self.must_read: list[bool] = []

    async def run(self, call: Call, channel: CallChannel, code: str) -> Completed:
        self.codes.append(code)
        self.must_read.append(call.must_read)
        return Completed.of("ran")

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        self.states.append(state)
        self.must_read.append(call.must_read)
        return Completed.of("resumed")


class Server:
    def __init__(self, folder: Path) -> None:
        self.runs, self.changes, self.gated = Runs(), Notices(), list[str]()
        self.tools: dict[str, bool] | None = {"read_it": True, "write_it": False}
        self.upstream = script_upstream(
            "reports", str(folder), self.changes, env={}, runs=lambda: self.runs, read_only=self.read_only, gate=self
        )
        self.approved: Mapping[str, Any] = {}

    def read_only(self) -> Mapping[str, bool] | None:
        return self.tools

    def __call__(self, call: Call, compared: object, listed: object) -> None:
        self.gated.append(call.method)

    @property
    def listed(self) -> dict[str, Any]:
        snapshot = self.upstream.snapshot()
        assert snapshot is not None
        definitions = [msgspec.json.decode(raw) for raw in snapshot.lists[Kind.TOOL]]
        return {each["name"]: each.get("annotations") for each in definitions}

    async def until(self, names: set[str]) -> None:
        with anyio.fail_after(WAIT):
            while self.upstream.snapshot() is None or set(self.listed) != names:
                await self.changes.wait(self.changes.version)

    async def call(self, name: str, **arguments: object) -> Completed:
        params = {
            "name": msgspec.Raw(msgspec.json.encode(name)),
            "arguments": msgspec.Raw(msgspec.json.encode(arguments)),
        }
        call = Call(
            id=new_call_id(), upstream="reports", method="tools/call", params=params, meta={}, session="s",
            principal="p", era=Era.HANDSHAKE, capabilities={},
        )  # fmt: skip
        return await self.upstream.call(call, Channel())


def put(folder: Path, name: str, body: str) -> None:
    (folder / f"{name}.py").write_text(f"async def main(a: int = 1):\n    {body}\n")


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setattr(module, "_TTL", 0.0)
    put(tmp_path, "reading", "await read_it()")
    put(tmp_path, "writing", "await read_it(), await write_it()")
    put(tmp_path, "lost", "await nothing_like_it()")
    async with running(Server(tmp_path)) as server:
        await server.until({"reading", "writing", "lost"})
        yield server


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[Server]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.upstream.lifecycle.run)
        yield server
        tasks.cancel_scope.cancel()


async def test_script_is_read_only_if_all_that_it_uses_is(server: Server) -> None:
    reads = {"readOnlyHint": True}
    assert server.listed == {"reading": reads, "writing": None, "lost": None}
    status = server.upstream.status()
    assert status.state is UpstreamState.READY
    assert [warning.partition("lost.py")[2] for warning in status.warnings] == [
        ":2: there is no tool 'nothing_like_it' for scripts. Correct its name, or define it. [script_unknown_tool]"
    ]
    assert server.tools is not None
    server.tools |= {"nothing_like_it": True, "read_it": False}
    version = server.changes.version
    server.changes.bump()
    with anyio.fail_after(WAIT):
        while server.listed != {"reading": None, "writing": None, "lost": reads}:
            version = await server.changes.wait(version)
    assert not server.upstream.status().warnings


async def test_nothing_is_listed_before_the_tools_are_known(tmp_path: Path) -> None:
    put(tmp_path, "one", "await read_it()")
    server = Server(tmp_path)
    server.tools = None
    async with running(server):
        for _ in range(3):
            await anyio.wait_all_tasks_blocked()
        assert (server.upstream.status().state, server.upstream.snapshot()) == (UpstreamState.STARTING, None)
        server.tools = {"read_it": True}
        server.changes.bump()
        await server.until({"one"})
        assert server.listed["one"] == {"readOnlyHint": True}
        server.tools = None
        server.changes.bump()
        await anyio.wait_all_tasks_blocked()
        assert server.listed["one"] == {"readOnlyHint": True}, "a server that starts later changes nothing yet"


async def test_call_runs_the_script_as_it_is_now(server: Server, tmp_path: Path) -> None:
    await server.call("reading", a=2)
    assert server.runs.codes[-1].endswith("await read_it()\n\nawait main(a=2)\n") and not server.gated
    put(tmp_path, "reading", "await write_it()")
    await server.call("reading")
    assert server.runs.codes[-1].endswith("await write_it()\n\nawait main()\n")
    assert server.gated == ["tools/call"], "its hint has changed, so that it may have to be approved"
    assert (await server.upstream.resume(_any(), Channel(), b"{}")).result == Completed.of("resumed").result


async def test_run_of_a_script_that_is_listed_as_read_only_may_only_read(server: Server) -> None:
    """Whatever its names mean in the caller's profile."""
    await server.call("reading", a=2)
    await server.call("writing")
    params = {"name": msgspec.Raw(b'"reading"')}
    await server.upstream.resume(replace(_any(), params=params), Channel(), b"{}")
    assert server.runs.must_read == [True, False, True]


def _any() -> Call:
    return Call(
        id=new_call_id(), upstream="reports", method="tools/call", params={}, meta={}, session="s", principal="p",
        era=Era.HANDSHAKE, capabilities={},
    )  # fmt: skip


async def test_files_that_change_are_listed_anew(server: Server, tmp_path: Path) -> None:
    put(tmp_path, "new", "pass")
    os.unlink(tmp_path / "lost.py")
    (tmp_path / "writing.py").write_text("x =")
    look = server.upstream.refresh(Kind.TOOL)
    assert look is not None and server.upstream.refresh(Kind.PROMPT) is None
    await look()
    assert set(server.listed) == {"new", "reading"}
    with pytest.raises(UnknownEntry, match=r'does not have a tool "writing": it is not Python: .*\(line 1\)'):
        await server.call("writing")
    with pytest.raises(UnknownEntry, match='"gone"$'):
        await server.call("gone")


async def test_folder_that_is_gone_fails_until_it_is_back(server: Server, tmp_path: Path) -> None:
    os.rename(tmp_path, f"{tmp_path}-elsewhere")
    with pytest.raises(UpstreamUnavailable, match="scripts .*: No such file or directory"):
        await server.call("reading")
    assert (server.upstream.status().code, server.upstream.snapshot()) == ("scripts_not_found", None)
    os.rename(f"{tmp_path}-elsewhere", tmp_path)
    await server.call("reading")
    assert server.upstream.status().state is UpstreamState.READY


async def test_other_requests_than_calls_of_its_tools_are_refused(server: Server) -> None:
    with pytest.raises(InvalidParams):
        await server.call("reading", b=1)
    assert not server.runs.codes
