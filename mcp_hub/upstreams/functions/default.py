"""The default registry: what plain `tool` decorates, kept by the module that defines it.

    from mcp_hub import tool

    @tool
    def add(a: int, b: int) -> int:
        \"""Add two numbers.\"""
        return a + b

`servers.yaml` names the module alone (`local: my_tools`). It serves the tools of that module and, if it is a package,
of the modules in it that it has imported; tools of other modules belong to other servers.
"""

from collections.abc import Callable
from typing import Final, TypeVar, Unpack, overload

from mcp_hub.upstreams.functions.registry import Registry, ToolOptions
from mcp_hub.upstreams.functions.schemas import ToolFunction

F = TypeVar("F", bound=ToolFunction)

_by_module: Final[dict[str, Registry]] = {}


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[F], F]: ...


def tool(function: F | None = None, /, **options: Unpack[ToolOptions]) -> F | Callable[[F], F]:
    """Make a tool of a function, as `Registry.tool` does, for the server that names the function's module.

    Raises: `TypeError` for a function that cannot be a tool, `ValueError` for a bad or taken name.
    """

    def register(function: F) -> F:
        registry = _by_module.setdefault(function.__module__, Registry())
        return registry.tool(**options)(function)

    return register if function is None else register(function)


def default_registry(module: str) -> Registry:
    """The tools of a module and of the modules in it. Raises: `ValueError` if two of them have the same name."""
    found = [own for name, own in _by_module.items() if f"{name}.".startswith(f"{module}.")]
    return found[0] if len(found) == 1 else Registry.joined(found)
