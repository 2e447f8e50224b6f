"""The hub's OpenTelemetry tracer, its audit, and observers of ended calls; each loaded only if configured."""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from mcp_hub.app.dashboard.past_calls import history_key, keeping_of
from mcp_hub.app.dashboard.seen import Seen
from mcp_hub.app.limits import Current
from mcp_hub.calls.history.batches import ToolKeeping
from mcp_hub.calls.history.journal import CallJournal
from mcp_hub.calls.metering import CallObserver, Outcome
from mcp_hub.calls.runner import CallRecord
from mcp_hub.clock import Clock
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.trust import state_dir
from mcp_hub.logs import teed
from mcp_hub.masking import learn
from mcp_hub.stores.base import EventStore
from mcp_hub.types import CallId, UpstreamStatus

if TYPE_CHECKING:
    from mcp_hub.app.tracing import Tracing
    from mcp_hub.calls.history.audit import AuditPlace, AuditTrail

_COLLECTOR: Final = "http://localhost:4318"
"""The collector that OpenTelemetry assumes."""
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


def audit_of(
    loaded: Loaded,
    env: Mapping[str, str],
    store: EventStore,
    current: Current,
    trace_of: Callable[[CallId], str | None],
) -> "AuditTrail | None":
    """The audit, if configured. A relative path is below the configuration's folder."""
    settings = loaded.settings
    chosen = settings.hub.audit
    if chosen is None:
        return None
    from mcp_hub.calls.history.audit import AuditTrail
    from mcp_hub.calls.history.audit_lines import LineRules
    from mcp_hub.stores.audit import to_collector, to_stderr
    from mcp_hub.stores.audit_file import AuditFile, LinePlace

    if chosen.path is not None:
        output: AuditPlace = AuditFile(audit_path(loaded), chosen.size, chosen.files, state_dir(env))
    elif chosen.stderr:
        output = LinePlace("stderr", to_stderr)
    else:
        headers = {name: value.get_secret_value() for name, value in settings.hub.telemetry.headers.items()}
        url = _logs_url(settings, env)
        learn(_sent_by_environment(env))
        output = LinePlace(url, to_collector(url, headers or _environment_headers(env), settings.hub.name))

    def keeping(server: str, tool: str) -> ToolKeeping:
        return keeping_of(current.settings, server, tool)

    rules = LineRules(chosen.arguments, keeping, history_key(env, store))
    return AuditTrail(output, rules, store.log.instance, trace_of if settings.hub.telemetry.is_on else None)


def audit_path(loaded: Loaded) -> Path:
    """The file of the audit that the settings name."""
    chosen = loaded.settings.hub.audit
    assert chosen is not None
    return loaded.path.absolute().parent / os.path.expanduser(chosen.path or "")


def recording(audit: "AuditTrail | None") -> AbstractContextManager[None]:
    """Takes log events into the audit."""
    if audit is None:
        return nullcontext()
    audit.claim()
    return teed(audit.event)


def call_observer(journal: CallJournal, seen: Seen, audit: "AuditTrail | None", *, is_watched: bool) -> CallObserver:
    """An observer of ended calls for the history, the audit, and the dashboard if there is one."""
    keep, show = journal.ended if audit is None else audit.observing(journal.ended), seen.recent.ended

    def both(record: CallRecord, outcome: Outcome, now: float) -> None:
        keep(record, outcome, now)
        show(record, outcome, now)

    return both if is_watched else keep


def _logs_url(settings: Settings, env: Mapping[str, str]) -> str:
    if settings.hub.telemetry.endpoint is not None:
        return f"{settings.hub.telemetry.endpoint.rstrip('/')}/v1/logs"
    whole = env.get("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT")
    return whole or f"{(env.get('OTEL_EXPORTER_OTLP_ENDPOINT') or _COLLECTOR).rstrip('/')}/v1/logs"


def _environment_headers(env: Mapping[str, str]) -> dict[str, str]:
    pairs = [pair.partition("=") for name in _HEADERS[:1] for pair in env.get(name, "").split(",")]
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs if name.strip()}


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
