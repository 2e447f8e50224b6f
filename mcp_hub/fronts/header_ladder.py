"""The SDK's checks of the headers of modern requests, without the rest of the SDK.

`mcp.shared.inbound` needs no more than `mcp_types`, but imported by its name it would bring all of `mcp` along: 0.3 s
of the start of a hub over HTTP. So its file is loaded by itself, under a name of its own.
"""

import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mcp.shared import inbound

__all__ = ["inbound"]

_NAME: Final = f"{__name__}.inbound"


def _by_itself() -> ModuleType:
    """The module `mcp.shared.inbound`, its packages not imported. Raises `ImportError` without the SDK."""
    package = find_spec("mcp")
    for folder in (package.submodule_search_locations if package else None) or ():
        spec = spec_from_file_location(_NAME, Path(folder, "shared", "inbound.py"))
        if spec is None or spec.loader is None:
            continue
        module = module_from_spec(spec)
        sys.modules[_NAME] = module  # where its dataclasses look for themselves
        spec.loader.exec_module(module)
        return module
    raise ModuleNotFoundError("the MCP SDK is not installed: no module named 'mcp'", name="mcp")


if not TYPE_CHECKING:
    inbound = _by_itself()
