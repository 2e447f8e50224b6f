"""Types of the providers' SDKs by name, imported by the tests that need them: it takes each process 2.5 s."""

import json
from functools import cache
from importlib import import_module
from typing import Any, Final

from pydantic import TypeAdapter

ANTHROPIC: Final = "anthropic.types"
BETA: Final = "anthropic.types.beta"
OPENAI: Final = "openai.types.chat"
RESPONSES: Final = "openai.types.responses"
RESPONSE_INPUT: Final = "openai.types.responses.response_input_param"
GEMINI: Final = "google.genai.types"
INTERACTIONS: Final = "google.genai.interactions"


class Later:
    """A module that is imported when something of it is used; mypy is shown the real one."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "pytest")):  # pytest asks everything in a file whether it is a fixture
            raise AttributeError(name)
        return getattr(import_module(self._module), name)


@cache
def sdk_type(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


@cache
def adapter_of(module: str, name: str) -> TypeAdapter[Any]:
    return TypeAdapter(sdk_type(module, name))


def fits(module: str, name: str, value: Any, *, exclude_unset: bool = False) -> bool:
    """Whether the type takes the value, and knows every member of it."""
    adapter = adapter_of(module, name)
    return bool(json.loads(adapter.dump_json(adapter.validate_python(value), exclude_unset=exclude_unset)) == value)
