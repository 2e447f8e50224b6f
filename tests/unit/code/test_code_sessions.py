"""Runs of scripts: steps, answers, snapshots, errors."""

import time

import anyio
import msgspec
import pytest

from mcp_hub.code.source import MODULES
from mcp_hub.code.steps import CodeError, CodeLimits, CodeRaise, engine_version
from tests.unit.code.scripts import NAMES, STUBS, echoed, engine, failure, output, run

pytestmark = pytest.mark.processes
GATHER = "import asyncio\nprint('begun')\nawait asyncio.gather(echo(value=1), echo(value=2), asyncio.sleep(60))"


async def test_last_expression_is_the_output_and_prints_go_to_the_callback(capfd: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []
    async with engine() as code_engine:
        code = "import sys\nprint('a')\nr = await echo(value={'x': [1, None]})\nprint(r, file=sys.stderr)\nr['x']"
        assert await run(code_engine, code, printed=printed) == [1, None]
    assert "".join(printed) == "a\n{'x': [1, None]}\n"
    assert capfd.readouterr() == ("", "")


async def test_step_has_every_call_that_can_be_made_and_takes_some_answers() -> None:
    async with engine() as code_engine:
        session = code_engine.session()
        step = await session.start(GATHER, STUBS, NAMES, CodeLimits(), lambda text: None)
        calls = [(call.name, msgspec.json.decode(call.arguments), call.line) for call in step.calls]
        assert calls == [("echo", {"value": 1}, 3), ("echo", {"value": 2}, 3), ("asyncio.sleep", {"seconds": 60.0}, 3)]
        assert step.pending == tuple(call.id for call in step.calls)
        assert (step.line, step.has_ended, step.sum_of_calls) == (3, False, 3)
        step = await session.feed({step.pending[1]: b'"b"'})
        assert (step.calls, len(step.pending)) == ((), 2)
        step = await session.feed({step.pending[0]: b'"a"', step.pending[1]: b"null"})
        assert output(step) == ["a", "b", None]


async def test_answers_to_what_does_not_wait_are_ignored() -> None:
    async with engine() as code_engine:
        session = code_engine.session()
        step = await session.start("await echo(value=1)", STUBS, NAMES, CodeLimits(), lambda text: None)
        again = await session.feed({99: b"1"})
        assert (again.pending, again.calls, again.has_ended) == (step.pending, (), False)
        assert output(await session.feed({99: b"1", step.pending[0]: b"2"})) == 2


async def test_snapshot_continues_in_another_engine_and_prints_to_its_callback_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code = "import random\nx = random.random()\na = await echo(value=x)\nprint('after')\nb = await echo()\n[a == x, b]"
    async with engine() as code_engine:
        session = code_engine.session()
        first = await session.start(code, STUBS, NAMES, CodeLimits(), lambda text: None)
    printed: list[str] = []
    async with engine() as code_engine:
        session = code_engine.session()
        step = await session.load(first.snapshot, CodeLimits(), printed.append)
        assert (step.calls, step.pending, step.line, step.sum_of_calls) == ((), first.pending, 3, 1)
        step = await session.feed({step.pending[0]: echoed(first.calls[0])})
        assert (step.line, step.sum_of_calls, printed) == (5, 2, ["after\n"])
        assert output(await session.feed({step.pending[0]: b"2"})) == [True, 2]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("snapshot", [b"", b"\x93\x01", b"x" * 100])
async def test_foreign_snapshot_is_refused(snapshot: bytes) -> None:
    async with engine() as code_engine:
        with pytest.raises(CodeError) as caught:
            await code_engine.session().load(snapshot, CodeLimits(), lambda text: None)
        assert caught.value.kind == "not_resumable"


async def test_snapshot_of_another_version_names_both() -> None:
    async with engine() as code_engine:
        step = await code_engine.session().start(GATHER, STUBS, NAMES, CodeLimits(), lambda text: None)
        older = step.snapshot.replace(engine_version().encode(), b"monty 0.9.0 1")
        with pytest.raises(CodeError, match=r"begun by monty 0\.9\.0 1, and this is monty") as caught:
            await code_engine.session().load(older, CodeLimits(), lambda text: None)
        assert caught.value.kind == "not_resumable"
        broken = step.snapshot[:-200] + b"\xff" * 200
        with pytest.raises(CodeError) as caught:
            await code_engine.session().load(broken, CodeLimits(), lambda text: None)
        assert caught.value.kind in ("not_resumable", "crashed")


@pytest.mark.parametrize(
    ("handler", "raised", "expected"),
    [
        (
            "except ToolError as e:\n  r = [str(e), e.code, type(e).__name__]",
            CodeRaise("ToolError", "no"),
            ["no", None, "ToolError"],
        ),
        (
            "except ToolError as e:\n  r = [str(e), f'{e}', e.args, e.code, e.code]",
            CodeRaise("ToolError", "down", {"code": "upstream_unavailable"}),
            ["down", "down", ["down"], "upstream_unavailable", "upstream_unavailable"],
        ),
        (
            "except ToolError:\n  r = 0\nexcept OutcomeUnknown as e:\n  r = [e.tool, e.arguments, type(e).__name__]",
            CodeRaise("OutcomeUnknown", "unknown", {"tool": "echo", "arguments": {"value": 1}}),
            ["echo", {"value": 1}, "OutcomeUnknown"],
        ),
        ("except ToolError as e:\n  r = f'{e.code} {type(e).__name__}'", CodeRaise("ToolError", "a"), "None ToolError"),
        ("except PermissionError as e:\n  r = str(e)", CodeRaise("PermissionError", "mode reads"), "mode reads"),
        (
            "except ToolError:\n  e = ToolError('of its own')\n  r = [str(e), e.code]",
            CodeRaise("ToolError", "x", {"code": "y"}),
            ["of its own", None],
        ),
        (
            "except RuntimeError:\n  r = 0\nexcept Exception as e:\n  r = isinstance(e, ToolError)",
            CodeRaise("ToolError", "x"),
            True,
        ),
    ],
)
async def test_exceptions_of_calls_are_caught_by_name(handler: str, raised: CodeRaise, expected: object) -> None:
    async with engine() as code_engine:
        assert await run(code_engine, f"try:\n  r = await echo(value=1)\n{handler}\nr", lambda call: raised) == expected


async def test_exception_has_its_code_in_another_engine_too() -> None:
    code = "try:\n  await echo(value=1)\nexcept ToolError as error:\n  e = error\nawait echo()\n[str(e), e.code]"
    async with engine() as code_engine:
        session = code_engine.session()
        step = await session.start(code, STUBS, NAMES, CodeLimits(), lambda text: None)
        step = await session.feed({step.pending[0]: CodeRaise("ToolError", "down", {"code": "busy", "number": 1})})
        snapshot, pending = step.snapshot, step.pending
    async with engine() as code_engine:
        session = code_engine.session()
        await session.load(snapshot, CodeLimits(), lambda text: None)
        assert output(await session.feed({pending[0]: b"null"})) == ["down", "busy"]


async def test_uncaught_exception_of_a_call_has_its_name_and_line() -> None:
    async with engine() as code_engine:
        error = await failure(code_engine, "x = 1\nawait echo(value=x)", lambda call: CodeRaise("ToolError", "no disk"))
        assert (error.kind, error.exception, str(error), error.line) == ("raised", "ToolError", "no disk", 2)
        assert error.source == "await echo(value=x)"
        error = await failure(code_engine, "def f(x):\n  return {}[x]\n\nf('a')")
        assert (error.exception, str(error), error.line, error.source) == ("KeyError", "'a'", 2, "return {}[x]")


@pytest.mark.parametrize(
    ("code", "kind", "line", "message"),
    [
        ("x = 1\nawait get_issue(number='a')", "types", 2, "Expected `int`"),
        ("await get_issue(nummer=1)", "types", 1, "`number`"),
        ("r = await get_issue(number=1)\nr['titel']", "types", 2, "titel"),
        ("get_issue(number=1)\n1", "types", 1, "not awaited"),
        ("await get_isue(number=1)", "types", 1, "`get_isue`"),
        ("import requests", "types", 1, "`requests`"),
        ("def f(:\n  pass", "syntax", 1, "."),
        ("x = 1\nclass A(Exception):\n  pass", "syntax", 2, "class inheritance"),
        ("x = 1\ndel x", "syntax", 2, "'del' statement cannot be used in these scripts"),
    ],
)
async def test_mistake_is_named_before_anything_runs(code: str, kind: str, line: int, message: str) -> None:
    printed: list[str] = []
    async with engine() as code_engine:
        with pytest.raises(CodeError, match=message) as caught:
            await run(code_engine, code if code.startswith("def") else code + "\nprint(1)", printed=printed)
        assert (caught.value.kind, caught.value.line, printed) == (kind, line, [])
        assert caught.value.source == code.split("\n")[line - 1].strip()
        with pytest.raises(CodeError, match=message) as checked:
            await code_engine.session().check(code, STUBS, NAMES)
        assert (checked.value.kind, checked.value.line) == (kind, line)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("format = 'csv'\nfilter = {'a': 1}\n[format, filter]", ["csv", {"a": 1}]),
        ("def format(x):\n  return x + 1\nformat(1)", 2),
        ("list(map(str, filter(None, [0, 1])))", ["1"]),
        ("[id for id in [1, 2]] + [max(max for max in [3])]", [1, 2, 3]),
        ("next((x for x in [1, 2] if x > 1), None)", 2),
        ("counts = {'a': 1, 'b': 2}\nsorted(counts, key=counts.get, reverse=True)", ["b", "a"]),
        ("sorted(['b', 'A'], key=str.lower)", ["A", "b"]),
        ("x = {'a': 1, 'b': [1, 2]}\ndel x['a']\ndel x['b'][0]\nx", {"b": [2]}),
        (
            "async def f(x):\n  return 1 / x\n"
            "r = await asyncio.gather(f(1), f(0), return_exceptions=True)\nlist(map(str, r))",
            ["1.0", "division by zero"],
        ),
        ("task = asyncio.create_task(echo(value=3))\nawait task", 3),
        ("if await echo(value=1):\n  return json.dumps({'a': 1})\nreturn 'b'", '{"a": 1}'),
        ("async def main():\n  return await echo(value=4)", 4),
        ("result = await echo(value=5)", 5),
        ("echo = await echo(value=[6])\necho[0]", 6),
        ("x = {'a': 1}\n[getattr(1, 'a', 5), hasattr(1, 'b'), format(3, '03d')]", [5, False, "003"]),
        (
            "try:\n  {}['a']\nexcept (PermissionError, KeyError, ImportError) as e:\n  r = type(e).__name__\nr",
            "KeyError",
        ),
        ("from typing import Any\nx: dict[str, Any] = {}\nasync def main() -> int:\n  return len(x)\nawait main()", 0),
    ],
)
async def test_ordinary_python_passes_the_check(code: str, expected: object) -> None:
    async with engine() as code_engine:
        assert await run(code_engine, code) == expected


async def test_modules_of_the_hint_can_be_imported() -> None:
    async with engine() as code_engine:
        await run(code_engine, f"import {MODULES}")


async def test_check_runs_nothing() -> None:
    async with engine() as code_engine:
        with anyio.fail_after(20):
            await code_engine.session().check("while True:\n  pass", STUBS, NAMES)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("{1, 2}", "echo(): value is of type set"),
        ("[b'x']", "echo(): value[0] is of type bytes"),
        ("{'a': lambda: 1}", "echo(): value['a'] is a function"),
        ("{1: 2}", "echo(): value has a key of type int"),
        ("float('nan')", "echo(): value is nan"),
        ("print", "is of type"),
        ("ValueError('x')", "is of type ValueError"),
    ],
)
async def test_argument_that_is_not_json_raises_in_the_script(argument: str, reason: str) -> None:
    async with engine() as code_engine:
        code = f"try:\n  await echo(value={argument})\nexcept TypeError as e:\n  r = str(e)\nr"
        assert reason in str(await run(code_engine, code))


async def test_call_without_a_tool_or_by_position_raises_in_the_script() -> None:
    async with engine() as code_engine:
        error = await failure(code_engine, "exec('ecko(value=1)')")
        assert (error.exception, str(error)) == ("NameError", "name 'ecko' is not defined; did you mean echo?")
        error = await failure(code_engine, "exec('echo(1)')")
        assert (error.exception, str(error)) == ("TypeError", "echo() takes keyword arguments only")
        error = await failure(code_engine, "import time\ntime.sleep(1)")
        assert "await asyncio.sleep" in str(error)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 1\nprint(x)", None),
        ("(1, {2}, b'x', float('inf'), {1: None})", [1, [2], "x", "inf", {"1": None}]),
        ("class P:\n  def __init__(self):\n    self.x = [1]\nP()", {"x": [1]}),
        (
            "import datetime\n[datetime.date(2020, 1, 2), ValueError('no'), print]",
            ["2020-01-02", "ValueError: no", "<MontyStdTypeProxy>"],
        ),
        ("10 ** 30", 10**30),
    ],
)
async def test_output_that_is_not_json_comes_near_to_it(code: str, expected: object) -> None:
    async with engine() as code_engine:
        assert await run(code_engine, code) == expected


@pytest.mark.parametrize(
    ("code", "key", "limit"),
    [
        ("while True:\n  pass", "seconds", {"seconds": 0.1}),
        ("try:\n  while True:\n    pass\nexcept Exception:\n  pass", "seconds", {"seconds": 0.1}),
        ("x = []\nwhile True:\n  x.append('a' * 100000)", "memory", {"memory": 4 << 20}),
        ("try:\n  'a' * (100 << 20)\nexcept MemoryError:\n  pass", "memory", {"memory": 4 << 20}),
        ("import asyncio\nawait asyncio.gather(*[echo(value=i) for i in range(10000)])", "calls", {}),
        ("while True:\n  await echo(value=1)", "calls", {"calls": 3}),
        ("while True:\n  try:\n    exec('nothing()')\n  except NameError:\n    pass", "calls", {"calls": 3}),
        ("while True:\n  print('a' * 1000)", "printed", {"printed": 10000}),
        ("'a' * 2000", "output", {"output": 1000}),
        ("x: list = ['a']\nfor i in range(20):\n  x = [x] * 10\nx", "output", {}),
        ("x = 'abc' * 3000\nawait echo()\nx", "snapshot", {"snapshot": 10000}),
    ],
)
async def test_limit_ends_the_run_by_its_key(code: str, key: str, limit: dict[str, float]) -> None:
    async with engine() as code_engine:
        error = await failure(code_engine, code, limits=msgspec.convert(limit, CodeLimits))
        assert (error.kind, error.key) == ("limit", key)
        assert f"hub.code_limits.{key}" in str(error)


async def test_arguments_are_bounded_over_the_calls_of_a_step() -> None:
    async with engine() as code_engine:
        code = "import asyncio\nx = 'a' * 400\nawait asyncio.gather(echo(value=x), echo(value=x), echo(value=x))"
        error = await failure(code_engine, code, limits=CodeLimits(output=1000))
        assert (error.exception, error.kind) == ("TypeError", "raised")
        assert "longer than 1000 bytes" in str(error)


async def test_time_and_calls_are_counted_over_loads() -> None:
    code = "i = 0\nwhile True:\n  for n in range(20000):\n    i += 1\n  await echo(value=i)"
    limits = CodeLimits(calls=3)
    async with engine() as code_engine:
        step = await code_engine.session().start(code, STUBS, NAMES, limits, lambda text: None)
        seconds = [step.seconds]
        for _ in range(2):
            session = code_engine.session()
            loaded = await session.load(step.snapshot, limits, lambda text: None)
            assert loaded.seconds == step.seconds
            step = await session.feed({step.pending[0]: b"0"})
            seconds.append(step.seconds)
        assert seconds == sorted(set(seconds))
        session = code_engine.session()
        await session.load(step.snapshot, limits, lambda text: None)
        with pytest.raises(CodeError, match="more than 3 calls"):
            await session.feed({step.pending[0]: b"0"})
        spent = CodeLimits(seconds=step.seconds / 2)
        session = code_engine.session()
        await session.load(step.snapshot, spent, lambda text: None)
        with pytest.raises(CodeError, match="computes longer"):
            await session.feed({step.pending[0]: b"0"})


async def test_clock_and_random_are_of_the_engine() -> None:
    async with engine() as code_engine:
        before = time.time()
        code = "import time, random, datetime\n[time.time(), random.random(), datetime.datetime.now().year]"
        result = await run(code_engine, code)
        assert isinstance(result, list)
        assert before - 1 <= result[0] <= time.time() + 1
        assert 0 <= result[1] < 1
