"""The tool `run_code`, and the names of other tools in a script. Pure."""

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator
from itertools import chain, count
from typing import Final

import msgspec

from mcp_hub.types import CodeMode, JsonObject

RUN_CODE: Final = "run_code"
_SCRIPT: Final = (
    "Run a Python script over tools, to chain, loop and filter in one call. A tool is `await NAME(key=value)`; other "
    "characters of its name become _. It returns JSON as values, else text, and raises ToolError, or OutcomeUnknown if "
    "a write may have happened. asyncio.gather runs several. print() streams; the last expression is the result. "
    "A subset of Python: no packages, files or network."
)
_MAY_CALL: Final[dict[CodeMode, str]] = {
    "off": "",
    "reads": " Only read-only tools run.",
    "ask": " The user is asked before others than read-only tools run.",
    "all": "",
}
_MAX_NAME: Final = 64  # characters, the limit that models set for tools
_UNFIT: Final = re.compile("[^A-Za-z0-9_]")
_ENGINE: Final = frozenset(
    "OutcomeUnknown ToolError asyncio base64 collections copy csv dataclasses datetime decimal enum functools gc "
    "hashlib inspect io itertools json logging math operator os pathlib random re statistics string subprocess "
    "sys textwrap time traceback types typing urllib uuid hub_arguments hub_asyncio hub_begin hub_caught "
    "hub_class_name hub_code hub_data hub_gather hub_key hub_member hub_next hub_script hub_task hub_tool "
    "_t _T _Any _Literal _Mapping _NotRequired _Sequence _TypedDict".split()
)
"""Names that a script has without a call, or imports by habit, and those of the stubs."""
_TAKEN: Final = _ENGINE | frozenset(keyword.kwlist) | frozenset(dir(builtins))


def definition(mode: CodeMode) -> bytes:
    """`run_code`, at most 180 tokens; the same bytes for a mode always. It only reads if its scripts do."""
    code, again = {"type": "string"}, {"type": "boolean", "description": "Run the same code again"}
    tool: JsonObject = {
        "name": RUN_CODE,
        "description": _SCRIPT + _MAY_CALL[mode],
        "inputSchema": {"type": "object", "properties": {"code": code, "again": again}, "required": ["code"]},
    }
    hints = {"annotations": {"readOnlyHint": True}} if mode == "reads" else {}
    return msgspec.json.encode({**tool, **hints})


def python_names(exported: Iterable[str]) -> dict[str, str]:
    """The Python name of each tool by its exported name, in the order given.

    Depends on the set of names alone. A name that Python takes stays; of others that become equal, the later ones in
    alphabetical order are numbered.
    """
    listed = list(dict.fromkeys(exported))
    names = {name: name for name in listed if _python_name(name) == name}
    taken = set(names)
    numbered: dict[str, Iterator[str]] = {}
    for name in sorted(set(listed) - taken):
        plain = _python_name(name)
        candidates = numbered.setdefault(plain, chain([plain], map(f"{plain}_{{}}".format, count(2))))
        names[name] = next(text for text in candidates if text not in taken)
        taken.add(names[name])
    return {name: names[name] for name in listed}


def _python_name(exported: str) -> str:
    name = _UNFIT.sub("_", exported[:_MAX_NAME]) or "tool"
    name = f"_{name}" if name[0].isdecimal() else name
    return f"{name}_" if name in _TAKEN else name
