"""All codes, in groups and by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mcp_hub.codes.advice import Advice
from mcp_hub.codes.commands import COMMANDS
from mcp_hub.codes.relayed import CALLS, CONFIGURATION, HTTP, OUTPUT
from mcp_hub.codes.servers import SERVERS

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
