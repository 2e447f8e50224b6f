"""Numbers of the settings, wherever they stand: a flag is none, though Python takes true for 1."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest

from mcp_hub.config.findings import DataPath
from mcp_hub.config.load.load import parse
from mcp_hub.config.schema.fields import Section
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError


def numbers(kind: Any, path: DataPath = ()) -> Iterator[DataPath]:
    """Where a number may stand below `path`; entries of mappings are called `a` there."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Section):
        for key, described in kind.model_fields.items():
            yield from numbers(described.annotation, (*path, key))
    elif kind in (int, float):
        yield path
    elif origin is Annotated:
        yield from numbers(arguments[0], path)
    elif origin in (Union, UnionType):
        for one in arguments:
            yield from numbers(one, path)
    elif origin is dict:
        yield from numbers(arguments[1], (*path, "a"))
    elif origin is list:
        yield from numbers(arguments[0], (*path, 0))


PATHS = sorted(set(numbers(Settings)), key=str)


def with_flag(path: DataPath) -> Any:
    tree: Any = True
    for part in reversed(path):
        tree = [tree] if part == 0 else {part: tree}
    if path[0] == "servers":
        tree["servers"]["a"] |= {"url": "https://example.com/mcp"} if "oauth" in path else {"command": "x"}
    return tree


def test_numbers_are_found_where_they_stand() -> None:
    keys = {".".join(map(str, path)) for path in PATHS}
    assert {"hub.http.port", "hub.limits.line", "defaults.timeout", "servers.a.restart.intensity"} <= keys
    assert {"hub.clients.a.soft_deadline", "servers.a.oauth.redirect_port", "profiles.a.budget"} <= keys
    assert len(keys) > 60


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_flag_is_no_number(path: DataPath) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(json.dumps(with_flag(path)), "c.json", {}, Path("/base"))
    (said,) = (line for line in str(caught.value).split("\n") if f"{path[-1]}: expected " in line)
    assert said.split(": expected ")[1].startswith(("a whole number", "a duration such as", "a size such as"))
