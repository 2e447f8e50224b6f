"""Ways out of a script: each ends within limits, by a typed error or a harmless value, and the hub's memory stays."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from mcp_hub.code.engine import CodeEngine
from mcp_hub.code.steps import CodeError, CodeLimits
from tests.unit.code.scripts import engine, failure, run

pytestmark = pytest.mark.processes
LIMITS = CodeLimits(memory=16 << 20, seconds=0.1, calls=20)
FEW = (
    *("import", "import function", "open", "class", "globals", "format", "eval of eval", "huge power", "recursion"),
    *("string", "list in a list", "loop that catches", "calls that nobody awaits", "value of a value", "print"),
)
LONG = ("huge product", "huge text of int", "nested functions")
"""The engine does not look at its clock within one of these; the hub ends its process after three seconds more."""

ATTACKS = {
    "import": "import os\nos.system('id')",
    "import of a program's module": "import subprocess\nsubprocess.run(['id'])",
    "import of the package": "import pydantic_monty",
    "import function": "__import__('os').system('id')",
    "importlib": "import importlib\nimportlib.import_module('os')",
    "sys.modules": "import sys\nsys.modules['os']",
    "environment": "import os\nos.environ['HOME']",
    "getenv": "import os\nos.getenv('HOME')",
    "open": "open('/etc/passwd').read()",
    "open to write": "open('/tmp/code-escape', 'w').write('x')",
    "pathlib": "import pathlib\npathlib.Path('/etc/passwd').read_text()",
    "list folder": "import pathlib\nlist(pathlib.Path('/').iterdir())",
    "socket": "import socket\nsocket.create_connection(('127.0.0.1', 80))",
    "input": "input()",
    "breakpoint": "breakpoint()",
    "class": "().__class__.__base__.__subclasses__()",
    "bases": "(1).__class__.__mro__[1]",
    "type and bases": "type(1).__bases__",
    "getattr": "getattr((), '__cl' + 'ass__')",
    "globals": "(lambda: 0).__globals__",
    "code object": "(lambda: 0).__code__.co_consts",
    "builtins": "__builtins__['open']",
    "builtins of print": "print.__self__",
    "frame": "try:\n  1/0\nexcept Exception as e:\n  e.__traceback__.tb_frame",
    "globals()": "globals()['x']",
    "vars": "vars()",
    "format": "'{0.__class__.__mro__}'.format(1)",
    "f-string": "f'{().__class__}'",
    "format map": "'{x.__init__.__globals__}'.format(x=print)",
    "format width": "'{:>1000000000}'.format(1)",
    "f-string width": "n = 10 ** 9\nf'{1:>{n}}'",
    "percent width": "'%1000000000d' % 1",
    "ljust": "'a'.ljust(10 ** 9)",
    "zfill": "'a'.zfill(10 ** 9)",
    "join": "('a' * 1000).join(['b'] * 10000000)",
    "replace": "('a' * 100000).replace('a', 'b' * 100000)",
    "eval": "eval('().__class__')",
    "exec": "exec('import os')",
    "compile": "compile('1', 'x', 'eval')",
    "eval of eval": "eval('eval(' * 500 + '1' + ')' * 500)",
    "huge power": "9 ** 9 ** 9",
    "huge shift": "1 << (10 ** 10)",
    "huge product": "x = 10 ** 100000\nwhile True:\n  x = x * x",
    "huge text of int": "str(10 ** 2000000)",
    "factorial": "import math\nmath.factorial(10 ** 7)",
    "recursion": "def f(n):\n  return f(n + 1)\nf(0)",
    "recursion of two": "def f():\n  return g()\ndef g():\n  return f()\nf()",
    "recursion of a lambda": "f = lambda g: g(g)\nf(f)",
    "recursion of repr": "x = []\nx.append(x)\nrepr(x)",
    "recursive value": "x = []\nx.append(x)\nx",
    "recursive comparison": "x = []\nx.append(x)\ny = []\ny.append(y)\nx == y",
    "recursion of sort": "x = [1, 2]\nx.sort(key=lambda a: x.sort())",
    "deep value": "x = []\nfor i in range(100000):\n  x = [x]\nx",
    "deep tuple": "x = ()\nfor i in range(100000):\n  x = (x,)\nstr(x)",
    "deep json": "import json\njson.loads('[' * 100000)",
    "string": "'a' * 10 ** 10",
    "list": "[0] * 10 ** 10",
    "tuple": "(0,) * 10 ** 10",
    "bytes": "bytes(10 ** 10)",
    "range": "list(range(10 ** 10))",
    "set": "set(range(10 ** 9))",
    "dict": "d = {}\ni = 0\nwhile True:\n  d[i] = 'a' * 1000\n  i += 1",
    "doubling": "x = 'a'\nwhile True:\n  x += x",
    "list in a list": "x = [1]\nwhile True:\n  x.extend(x)",
    "growth while read": "x = [1]\nfor i in x:\n  x.append(i)",
    "concat": "x = ['a' * 1000] * 1000\nwhile True:\n  x = x + x",
    "itertools": "import itertools\nlist(itertools.product(range(1000), repeat=5))",
    "repeat": "import itertools\nlist(itertools.repeat(1))",
    "counter": "import collections\ncollections.Counter(range(10 ** 9))",
    "deque": "import collections\ncollections.deque([0] * 1000) * 10 ** 8",
    "loop": "while True:\n  pass",
    "loop that catches": "while True:\n  try:\n    while True:\n      pass\n  except BaseException:\n    pass",
    "loop in finally": "try:\n  1 / 0\nfinally:\n  while True:\n    pass",
    "loop in sort": "[1, 2].sort(key=lambda x: [0 for i in range(10 ** 9)])",
    "any": "any(False for i in range(10 ** 10))",
    "regex": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "regex of a regex": "import re\nre.compile('(' * 10000 + ')' * 10000)",
    "exception with an object": "raise ValueError({'a': object()})",
    "exception with much": "raise ValueError('a' * (6 << 20))",
    "exception in exceptions": "def f():\n  try:\n    raise ValueError\n  except ValueError:\n    f()\nf()",
    "system exit": "raise SystemExit",
    "keyboard interrupt": "raise KeyboardInterrupt",
    "catch of everything": "try:\n  raise KeyboardInterrupt\nexcept BaseException:\n  r = 1\nr",
    "gather": "import asyncio\nawait asyncio.gather(*[echo(value=i) for i in range(10000)])",
    "calls that nobody awaits": "x = [echo(value=i) for i in range(10000)]\nlen(x)",
    "sleeps": "import asyncio\nwhile True:\n  await asyncio.sleep(0)",
    "sleep of minus": "import asyncio\nawait asyncio.sleep(-1)\nawait asyncio.sleep(float('nan'))",
    "blocking sleep": "import time\ntime.sleep(10 ** 6)",
    "print": "print('a' * (6 << 20))",
    "many prints": "while True:\n  print('a')",
    "print to a name": "print('a', file='/tmp/code-escape')",
    "surrogates": "print('\\ud800')",
    "value of surrogates": "'\\ud800' * 3",
    "escape sequences": "print('\\x1b[2J')\n'\\x1b'",
    "our names": "hub_begin = 1\nhub_tool = None\nToolError = 1\n[hub_begin]",
    "call of our begin": "hub_begin()",
    "name of a function": "x = echo\nx.__class__",
    "argument that is its own": "x = []\nx.append(x)\nawait echo(value=x)",
    "arguments by the thousand": "await echo(**{'a' + str(i): i for i in range(100000)})",
    "argument that is long": "await echo(value='a' * (6 << 20))",
    "value of a value": "x = ['a' * 100000]\nfor i in range(30):\n  x = [x] * 30\nawait echo(value=x)",
    "class with a loop": "class A:\n  def __init__(self):\n    self.a = self\nA()",
    "class whose repr loops": "class A:\n  def __repr__(self):\n    return repr(self)\nrepr(A())",
    "datetime": "import datetime\ndatetime.datetime.max + datetime.timedelta(days=10 ** 9)",
    "decimal": "import decimal\ndecimal.Decimal(10) ** decimal.Decimal(10 ** 9)",
    "hash": "import hashlib\nfor i in range(10 ** 9):\n  hashlib.sha256(b'a' * 100000)",
    "base64": "import base64\nbase64.b64encode(b'a' * (15 << 20))",
    "parentheses": "(" * 20000,
    "minus": "-" * 20000 + "1",
    "attributes": "x" + ".a" * 20000,
    "sum": "1" + "+1" * 20000,
    "nested functions": "\n".join(" " * i + f"def f{i}():" for i in range(90)) + "\n" + " " * 90 + "pass",
    "lambdas": "lambda: " * 5000 + "1",
    "many names": "\n".join(f"x{i} = {i}" for i in range(2000)),
    "null": "x = '\\0'\nx",
}


def most_memory() -> int:
    """Bytes of this process, since the last reset."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) << 10


async def attempt(code_engine: CodeEngine, attack: str) -> str:
    """The kind of the error, or `value`."""
    try:
        await run(code_engine, attack, limits=LIMITS)
    except CodeError as error:
        assert len(str(error)) < 2500
        assert "/root" not in str(error)
        return error.kind
    return "value"


async def kinds_of(code_engine: CodeEngine, attacks: Iterable[str], form: str) -> dict[str, str]:
    return {name: await attempt(code_engine, form.format(ATTACKS[name], repr(ATTACKS[name]))) for name in attacks}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_memory_of_the_hub_stays_at_the_limits_by_default() -> None:
    """The longest message, and values of all calls in flight."""
    async with engine(workers=1) as code_engine:
        assert await run(code_engine, "1") == 1
        Path("/proc/self/clear_refs").write_text("5")  # noqa: ASYNC240
        before = most_memory()
        for size in (22, 30):
            error = await failure(code_engine, f"raise ValueError('a' * ({size} << 20))")
            assert (error.kind, error.key) in (("raised", ""), ("limit", "memory"))
        assert most_memory() - before < 100_000_000
        before = most_memory()
        much = b"[" + b"[]," * 300_000 + b"[]]"
        code = "import asyncio\nr = await asyncio.gather(*[echo() for i in range(8)])\nlen(r)"
        error = await failure(code_engine, code, lambda call: much)
        assert (error.kind, error.key) == ("limit", "memory")
        assert most_memory() - before < 100_000_000
        error = await failure(code_engine, "await echo()", lambda call: b"[1e400," + b"1," * 40_000 + b"1]")
        assert "a number that is too large" in str(error)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("attacks", "form"),
    [
        (FEW, "exec({1})"),
        pytest.param(ATTACKS.keys() - LONG, "exec({1})", marks=pytest.mark.proof),
        pytest.param(ATTACKS.keys() - LONG, "{0}", marks=pytest.mark.proof),
        pytest.param(LONG, "{0}", marks=pytest.mark.proof),
        pytest.param(LONG, "exec({1})", marks=pytest.mark.proof),
    ],
    ids=["few", "by exec", "checked", "long", "long by exec"],
)
async def test_attacks_end_within_limits(attacks: Iterable[str], form: str, capfd: pytest.CaptureFixture[str]) -> None:
    """By `exec`, too, where no check of types refuses them before they run."""
    Path("/proc/self/clear_refs").write_text("5")  # noqa: ASYNC240  # of memory
    before = most_memory()
    async with engine(workers=1) as code_engine:
        kinds = await kinds_of(code_engine, attacks, form)
        assert await run(code_engine, "1") == 1
    expected = ("syntax", "types", "raised", "limit", "value")
    assert {name: kind for name, kind in kinds.items() if kind not in expected} == {}
    assert most_memory() - before < 100 << 20
    assert capfd.readouterr() == ("", "")
