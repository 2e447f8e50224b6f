"""The hub's OpenTelemetry tracer; imports `tracing` only if configured."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from mcp_hub.clock import Clock
from mcp_hub.config.schema.settings import Settings
from mcp_hub.masking import learn
from mcp_hub.types import UpstreamStatus

if TYPE_CHECKING:
    from mcp_hub.app.tracing import Tracing

_HEADERS: Final = [f"OTEL_EXPORTER_OTLP_{kind}HEADERS" for kind in ("", "TRACES_", "METRICS_")]
_SHORTEST: Final = 6
"""Characters of a header that may be secret."""


def tracing_of(
    settings: Settings, env: Mapping[str, str], clock: Clock, status: Callable[[str], UpstreamStatus], *, is_http: bool
) -> "Tracing | None":
    """The call tracer, if configured. `is_http`: clients use HTTP."""
    chosen = settings.hub.telemetry
    if not chosen.is_on:
        return None
    learn(_sent_by_environment(env))
    from mcp_hub.app.tracing import Tracing, exporting

    headers = {name: value.get_secret_value() for name, value in chosen.headers.items()}
    receivers = exporting(chosen.endpoint, headers, _resource(settings, env))
    return Tracing(*receivers, clock=clock, status=status, address=_addresses(settings), is_http=is_http)


def _addresses(settings: Settings) -> Callable[[str], str | None]:
    urls = {name: server.url for name, server in settings.servers.items()}
    return urls.get


def _resource(settings: Settings, env: Mapping[str, str]) -> dict[str, str]:
    is_named = env.get("OTEL_SERVICE_NAME") or "service.name=" in env.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return {} if is_named else {"service.name": settings.hub.name}


def _sent_by_environment(env: Mapping[str, str]) -> set[str]:
    pairs = [pair for name in _HEADERS for pair in env.get(name, "").split(",")]
    values = {form for pair in pairs for value in [pair.partition("=")[2].strip()] for form in (value, unquote(value))}
    return {value for value in values if len(value) >= _SHORTEST}
