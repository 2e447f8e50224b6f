"""The sections `hub.history` and `hub.audit`, what is kept of calls, and `hub.ask_webhook`, where some are reported."""

import base64
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, SecretStr, model_validator

from mcp_hub.addresses import normal_host, refused_webhook
from mcp_hub.config.findings import Flaw
from mcp_hub.config.schema.fields import (
    Count,
    KiB,
    MiB,
    NoFlag,
    PositiveDuration,
    Section,
    Size,
    TextLine,
    finding,
    findings,
    problems_of_headers,
)


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


def webhook_key(secret: str) -> bytes:
    """The key of a secret by standardwebhooks.com (`whsec_` and Base64), or as it is. Raises `ValueError`."""
    return (
        base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        if secret.startswith("whsec_")
        else secret.encode()
    )


class AskWebhookSettings(Section):
    """The receiver of links to calls that wait for a yes, by a signed POST.

    `body`: a text, or a mapping sent as JSON, with `{{link}}` and others filled in; None: all of them. `private`: hosts
    and addresses of inner networks that it may reach. `arguments: full` adds them.
    """

    url: Annotated[SecretStr, Field(min_length=1)]
    secret: Annotated[SecretStr, Field(min_length=16)]
    headers: dict[TextLine, SecretStr] = {}
    body: JsonValue = None
    arguments: Literal["none", "full"] = "none"
    private: Annotated[list[TextLine], Field(max_length=100)] = []

    @model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        headers = {name: value.get_secret_value() for name, value in self.headers.items()}
        if flaws := [Flaw("headers", flaw.code, flaw.message) for _, flaw in problems_of_headers(headers)]:
            raise findings(flaws)
        for index, name in enumerate(self.private):
            if normal_host(name) != name:
                message = f"expected a host or an address in its usual form, such as {normal_host(name) or 'ntfy.lan'}"
                raise finding("invalid_value", message, ("private", index))
        try:
            webhook_key(self.secret.get_secret_value())
        except ValueError:
            raise finding("invalid_value", "expected Base64 behind whsec_", "secret") from None
        if (problem := refused_webhook(self.url.get_secret_value(), self.private)) is not None:
            raise finding("invalid_url", problem, "url")
        if not (self.body is None or (isinstance(self.body, str | dict) and self.body)):
            raise finding("wrong_type", "expected a text, or a mapping that is sent as JSON", "body")
        return self
