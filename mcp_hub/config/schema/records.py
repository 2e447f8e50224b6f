"""The `hub.history` and `hub.audit` sections: what is kept of calls."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mcp_hub.config.schema.fields import Count, KiB, MiB, NoFlag, PositiveDuration, Section, Size, TextLine, finding


class HistorySettings(Section):
    """The call history; `off` is `enabled: false`. `keep` in seconds, `size` in bytes. `arguments` None: `full` for one
    user, `none` with tokens.
    """

    enabled: bool = True
    keep: PositiveDuration = 7 * 86400.0
    calls: Count = 100_000
    size: Annotated[Size, Field(ge=1 * MiB)] = 64 * MiB
    arguments: Literal["none", "hash", "full"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_word(cls, data: object) -> object:
        if data is False or data == "off":  # YAML reads a bare `off` as false
            return {"enabled": False}
        if isinstance(data, str | bool):
            raise finding("invalid_value", "is not a history. Write off, or keys such as {keep: 7d, arguments: none}")
        return data


class AuditSettings(Section):
    """The audit: a line for each call and change, at `path`, on `stderr`, or sent by `otlp`; None: nothing.

    A file of `size` bytes is followed by a new one; `files` older ones are kept. `arguments`: what a line has of them.
    """

    path: TextLine | None = None
    stderr: bool = False
    otlp: bool = False
    arguments: Literal["hash", "full", "none"] = "hash"
    size: Annotated[Size, Field(ge=64 * KiB)] = 64 * MiB
    files: Annotated[int, Field(ge=1, le=1000), NoFlag] = 10

    @model_validator(mode="before")
    @classmethod
    def _read_word(cls, data: object) -> object:
        if data in ("stderr", "otlp"):
            return {data: True}
        if isinstance(data, str | bool):
            message = "is not an audit. Write stderr, otlp, or keys such as {path: audit.jsonl, arguments: hash}"
            raise finding("invalid_value", message)
        return data

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        places = [key for key in ("path", "stderr", "otlp") if getattr(self, key)]
        if not places:
            raise finding("missing_key", 'needs a place for its lines. Set "path", or "stderr: true" or "otlp: true".')
        if len(places) > 1:
            raise finding("conflicting_keys", f"its lines go to one place. Keep {places[0]} or {places[1]}.", places[1])
        for key in ("size", "files"):
            if self.path is None and key in self.model_fields_set:
                raise finding("misplaced_key", "belongs to a path: only files are followed by new ones", key)
        return self
