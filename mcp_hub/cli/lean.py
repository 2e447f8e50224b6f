"""Loads structlog without rich, whose tracebacks show local variables, and pydantic without plugins."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Final

COLLECTOR: Final = (20_000, 20, 20)
"""Thresholds of the collector in a hub that serves."""
_PLUGINS: Final = "pydantic.plugin._loader"

if "rich" not in sys.modules and "structlog" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # makes an import fail
    try:
        import_module("structlog")
    finally:
        del sys.modules["rich"]

if "pydantic" not in sys.modules:
    sys.modules[_PLUGINS] = ModuleType(_PLUGINS)
    sys.modules[_PLUGINS].__dict__["get_plugins"] = tuple
