"""The `hub.telemetry` section: spans and durations by OTLP over HTTP."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final, Self
from urllib.parse import urlsplit

from pydantic import SecretStr, model_validator

from mcp_hub.config.findings import Flaw
from mcp_hub.config.schema.remote import problems_of
from mcp_hub.config.schema.scalars import Text, TextLine
from mcp_hub.config.schema.section import Section, finding, findings
from mcp_hub.extras import with_extra

PLACES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")  # variables: where spans go

_SERVER, _COLLECTOR = "https://example.com/mcp", "http://127.0.0.1:4318"
"""Example URLs in errors: a server's, a collector's."""
_NEEDED: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


class TelemetrySettings(Section):
    """OpenTelemetry (extra `otel`). `endpoint`: a collector, without `/v1/traces`; None: by `OTEL_*` variables."""

    enabled: bool | None = None
    endpoint: Text | None = None
    headers: dict[TextLine, SecretStr] = {}

    @property
    def is_on(self) -> bool:
        return self.endpoint is not None if self.enabled is None else self.enabled

    def lacks_place(self, env: Mapping[str, str]) -> bool:
        """Whether it is on without an endpoint in file or environment."""
        return self.is_on and self.endpoint is None and not any(env.get(name) for name in PLACES)

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        if self.endpoint is None and self.headers:
            raise finding("missing_key", 'need an endpoint. Also set "endpoint".', "headers")
        if self.endpoint is not None:
            headers = {key: value.get_secret_value() for key, value in self.headers.items()}
            problems = [
                Flaw("endpoint" if key == "url" else key, code, message.replace(_SERVER, _COLLECTOR))
                for key, code, message in problems_of(self.endpoint, headers, None)
            ]
            has_place = all(flaw.key != "endpoint" for flaw in problems)
            if has_place and set(urlsplit(self.endpoint)[3:]) != {""}:
                problems.append(Flaw("endpoint", "invalid_url", "must have no query and no fragment"))
            if problems:
                raise findings(problems)
        if self.is_on and not all(map(_is_installed, _NEEDED)):
            message = f"needs packages that are not installed. Install them with: {with_extra('otel')}"
            raise finding("not_installed", message, "enabled" if self.endpoint is None else "endpoint")
        return self


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False
