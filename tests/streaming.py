"""The modules of examples/streaming, by path: `examples` is a module of the tests in this process."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from examples.streaming import follower, server
else:

    def _loaded(name: str) -> ModuleType:
        path = Path(__file__).parents[1] / "examples/streaming" / f"{name}.py"
        spec = spec_from_file_location(f"streaming_{name}", path)
        sys.modules[spec.name] = module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    follower, server = _loaded("follower"), _loaded("server")

__all__ = ["follower", "server"]
