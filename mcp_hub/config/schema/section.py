"""The base of all sections, and findings of their validators."""

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
"""A key that applies as soon as a reload has read it."""


class Section(BaseModel):
    """Frozen, without unknown keys; an empty `key:` counts as left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}

    def __repr__(self) -> str:
        return hide(super().__repr__())

    __str__ = __repr__


def holds_at_once(section: type[Section], key: str) -> bool:
    return _AT_ONCE in section.model_fields[key].metadata


def findings(flaws: Sequence[Flaw]) -> PydanticCustomError:
    """One finding for several keys, with the code and key of the first."""
    first, *more = flaws
    message = "; ".join((first.message, *(f"{flaw.key}: {flaw.message}" for flaw in more)))
    return finding(first.code, message, first.key)


def finding(code: str, message: str, key: str | int = "") -> PydanticCustomError:
    """A finding about `key` inside the mapping or list being validated."""
    return PydanticCustomError("finding", "{message}", {"code": code, "key": key, "message": message})
