"""The stable code of every failure that a user can meet: what it means and how to fix it.

Programs test for codes; `mcp-hub doctor` looks its advice up here, and `docs/errors.md` is made from these tables. The
sentence beside a code is for people and may change; a code does not. `tests/unit/test_codes.py` holds the tables equal
to the codes that the package uses.

Held together by `GROUPS`, the tables in the order of the page: `relayed` has those of servers, configurations, calls,
HTTP and the output of models, `commands` those of commands. `CODES` has all of them.

Not here: where a code is raised, and the sentence beside it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mcp_hub.codes.advice import Advice
from mcp_hub.codes.commands import COMMANDS
from mcp_hub.codes.relayed import CALLS, CONFIGURATION, HTTP, OUTPUT, SERVERS

__all__ = ["CODES", "GROUPS", "SERVERS", "Advice"]

GROUPS: Final[Mapping[str, Mapping[str, Advice]]] = MappingProxyType(
    {
        **{"Servers": SERVERS, "Configuration": CONFIGURATION, "Calls": CALLS, "HTTP": HTTP},
        **{"Model output": OUTPUT, "Commands": COMMANDS},
    }
)

CODES: Final[Mapping[str, Advice]] = MappingProxyType(
    {code: advice for group in GROUPS.values() for code, advice in group.items()}
)
"""All of them."""
