"""Loads structlog without rich, which it takes for tracebacks on consoles if it is there: a seventh of the start.

The hub's tracebacks are plain, since the rich ones show local variables. Commands with tables import rich themselves.
"""

import gc
import sys
from importlib import import_module
from typing import Final

COLLECTOR: Final = (20_000, 20, 20)
"""Thresholds of the collector in a hub that serves."""

gc.set_threshold(500_000, 20, 20)  # what imports make stays: collections find nothing, and were a tenth of the start

if "rich" not in sys.modules and "structlog" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # makes an import fail
    try:
        import_module("structlog")
    finally:
        del sys.modules["rich"]
