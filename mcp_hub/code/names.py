"""Names of tools in Python. Pure."""

import builtins
import keyword
import re
from collections.abc import Iterable
from itertools import count
from typing import Final

_MAX_NAME: Final = 64  # characters, the limit that models set for tools
_UNFIT: Final = re.compile("[^A-Za-z0-9_]")
_ENGINE: Final = frozenset(
    "OutcomeUnknown ToolError asyncio base64 collections copy csv dataclasses datetime decimal enum functools gc "
    "hashlib inspect io itertools json logging math operator os pathlib random re statistics string subprocess sys "
    "textwrap time traceback types typing urllib uuid _Any _Literal _Mapping _NotRequired _Sequence _TypedDict".split()
)
"""Names that a script has without a call, or imports by habit, and those of the stubs."""
_TAKEN: Final = _ENGINE | frozenset(keyword.kwlist) | frozenset(dir(builtins))


def python_names(exported: Iterable[str]) -> dict[str, str]:
    """The Python name of each tool by its exported name, in the order given.

    Depends on the set of names alone. A name that Python takes stays; of others that become equal, the later ones in
    alphabetical order are numbered.
    """
    listed = list(dict.fromkeys(exported))
    names = {name: name for name in listed if _python_name(name) == name}
    taken = set(names)
    for name in sorted(set(listed) - taken):
        plain = _python_name(name)
        numbered = (f"{plain}_{number}" for number in count(2))
        names[name] = plain if plain not in taken else next(text for text in numbered if text not in taken)
        taken.add(names[name])
    return {name: names[name] for name in listed}


def _python_name(exported: str) -> str:
    name = _UNFIT.sub("_", exported[:_MAX_NAME]) or "tool"
    name = f"_{name}" if name[0].isdecimal() else name
    return f"{name}_" if name in _TAKEN else name
