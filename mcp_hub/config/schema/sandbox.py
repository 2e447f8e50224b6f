"""The `sandbox` of a local server: what its process may read, write and reach. docs/sandbox.md describes it.

`mcp_hub.sandbox` applies it. What depends on the machine (paths that do not exist, secret places) is checked there.
"""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from mcp_hub.addresses import host_rule
from mcp_hub.config.schema.scalars import TextLine
from mcp_hub.config.schema.section import Section, finding

_MOST: Final = 256


def _path(text: str) -> str:
    if any(char in text for char in "*?["):
        raise ValueError("globs are not taken: files that come later would be open, too. Name the folder")
    plain = text.rstrip("/")
    if plain in ("", "~"):
        opened = "the whole home folder" if plain else "the whole system"
        raise ValueError(f"opens {opened}. Name the folders that the server needs")
    if not text.startswith(("/", "~/")):
        raise ValueError('expected an absolute path, or one that begins with "~/"')
    if ".." in text.split("/"):
        raise ValueError('expected a path without ".."')
    return text


def _net(value: object) -> object:
    if isinstance(value, list):
        for index, host in enumerate(value):
            try:
                host_rule(host if isinstance(host, str) else "")
            except ValueError as problem:
                raise finding("invalid_value", str(problem), index) from None
        if not value:
            raise finding("out_of_range", "must not be empty. To close the network, write net: none")
    elif value not in ("none", "any"):
        raise finding("invalid_value", 'expected none, any, or a list of hosts, such as ["api.example.com"]')
    return value


_Path = Annotated[TextLine, AfterValidator(_path)]
_Paths = Annotated[list[_Path], Field(max_length=_MOST)]


class SandboxSettings(Section):
    """The rule. `mode: prefer` starts the server without a sandbox where the system has none.

    `read` None: the working directory and the paths among `args`. `write` None: the paths among `args`. System
    folders, the interpreter and a private home folder are always there. `sockets` are Unix sockets by path.
    """

    mode: Literal["off", "on", "prefer"] = "on"
    read: _Paths | None = None
    write: _Paths | None = None
    net: Annotated[Literal["none", "any"] | Annotated[list[str], Field(max_length=_MOST)], BeforeValidator(_net)] = (
        "any"
    )
    sockets: _Paths = []

    @model_validator(mode="before")
    @classmethod
    def _is_word(cls, data: object) -> object:
        """YAML reads bare `on` and `off` as true and false."""
        if isinstance(data, bool):
            return {"mode": "on" if data else "off"}
        if isinstance(data, str):
            if data not in ("off", "on", "prefer"):
                raise finding("invalid_value", "expected off, on, prefer, or a mapping with read, write, net, sockets")
            return {"mode": data}
        if isinstance(data, dict) and isinstance(mode := data.get("mode"), bool):
            return {**data, "mode": "on" if mode else "off"}
        return data
