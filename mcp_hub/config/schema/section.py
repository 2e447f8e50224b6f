"""The base of every section of the configuration, and the findings that its validators report."""

from collections.abc import Sequence
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from mcp_hub.config.findings import Flaw
from mcp_hub.masking import hide

_T = TypeVar("_T")


class _Mark:
    """The mark of `AtOnce` among the metadata of a field."""


_AT_ONCE: Final = _Mark()
AtOnce = Annotated[_T, _AT_ONCE]
"""The type of a key that holds as soon as a reload has read it (`config.plan`)."""


class Section(BaseModel):
    """A section: frozen, without unknown keys. `key:` with nothing behind it counts as left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}

    def __repr__(self) -> str:
        """The settings with known secrets masked."""
        return hide(super().__repr__())

    __str__ = __repr__


def holds_at_once(section: type[Section], key: str) -> bool:
    """Whether the key is marked by `AtOnce`."""
    return _AT_ONCE in section.model_fields[key].metadata


def findings(flaws: Sequence[Flaw]) -> PydanticCustomError:
    """One finding for several keys of the mapping being validated; it points at the first and has its code."""
    first, *more = flaws
    message = "; ".join((first.message, *(f"{other.key}: {other.message}" for other in more)))
    return finding(first.code, message, first.key)


def finding(code: str, message: str, key: str | int = "") -> PydanticCustomError:
    """A finding about `key` of the mapping or list being validated; pydantic itself can only point at the mapping."""
    return PydanticCustomError("finding", "{message}", {"code": code, "key": key, "message": message})
