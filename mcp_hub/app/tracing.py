"""OpenTelemetry spans and durations of both hops of a call, with context in `params._meta`. Needs the extra `otel`.

A server span covers the client's request, a client span below it the request to the server, waiting included. Context
passes unprefixed (SEP-414), `baggage` unchanged. Names: semantic-conventions-genai, gen-ai/mcp. A span never has
possible secrets: arguments, results, URIs, session and request ids, servers' messages.

SDK threads send from bounded queues: a collector never delays calls.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mcp_hub import __version__
from mcp_hub.call import Call, CallChannel, CallHandler
from mcp_hub.calls.metering import BOUNDS, Outcome, outcome_of
from mcp_hub.calls.runner import CallRecord
from mcp_hub.clock import Clock
from mcp_hub.errors import RpcError
from mcp_hub.events import Cancelled, Completed, Ending, Failed
from mcp_hub.masking import hide_head
from mcp_hub.types import OWN, RawObject, UpstreamStatus

_CONTEXT: Final = ("traceparent", "tracestate")
_LONGEST: Final = 8192
"""Bytes of a `_meta` member read as context."""
_TIMEOUT: Final = 5.0
"""Seconds per export."""
_LAST_SPANS: Final = 0.5
"""Seconds to send the queue at shutdown."""
_NAMED: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_PROPAGATOR: Final = TraceContextTextMapPropagator()

Attributes = dict[str, str | int]


def exporting(
    endpoint: str | None, headers: Mapping[str, str], resource: Mapping[str, str]
) -> tuple[TracerProvider, MeterProvider]:
    """The receivers of spans and durations, which send OTLP over HTTP; without endpoint, by `OTEL_*` variables."""
    service = Resource.create({"service.version": __version__, **resource})
    base = None if endpoint is None else endpoint.rstrip("/")
    tracers = TracerProvider(resource=service, shutdown_on_exit=False)
    spans = OTLPSpanExporter(base and f"{base}/v1/traces", headers=dict(headers) or None, timeout=_TIMEOUT)
    tracers.add_span_processor(BatchSpanProcessor(spans))
    durations = OTLPMetricExporter(base and f"{base}/v1/metrics", headers=dict(headers) or None, timeout=_TIMEOUT)
    return tracers, MeterProvider([PeriodicExportingMetricReader(durations)], service, shutdown_on_exit=False)


class Tracing:
    """The tracer of a `CallRegistry`. `address`: a remote server's URL. `is_http`: clients use HTTP."""

    def __init__(
        self, tracers: TracerProvider, meters: MeterProvider, *, clock: Clock,
        status: Callable[[str], UpstreamStatus], address: Callable[[str], str | None], is_http: bool,
    ) -> None:  # fmt: skip
        self._tracers = tracers
        self._meters = meters
        self._tracer = tracers.get_tracer("mcp_hub", __version__)
        self._clock = clock
        self._status = status
        self._address = address
        self._is_http = is_http
        self._open: dict[str, tuple[Span, Attributes]] = {}
        meter = meters.get_meter("mcp_hub", __version__)
        self._durations: dict[SpanKind, Histogram] = {
            kind: meter.create_histogram(
                f"mcp.{side}.operation.duration", "s", explicit_bucket_boundaries_advisory=BOUNDS
            )
            for kind, side in ((SpanKind.SERVER, "server"), (SpanKind.CLIENT, "client"))
        }

    def begun(self, record: CallRecord, handler: CallHandler) -> CallHandler:
        call = record.call
        attributes = {
            "mcp.method.name": call.method,
            **_target(call, call.exported_name),
            **self._of_client(call),
        }
        context = _PROPAGATOR.extract(_carrier(call.meta), Context())
        span = self._tracer.start_span(_name(attributes), context, SpanKind.SERVER, dict(attributes))
        self._open[call.id] = span, attributes
        return handler if call.upstream == OWN else partial(self._relayed, record, handler, span)

    def trace_of(self, call: str) -> str | None:
        """The trace of a running call, in hexadecimal."""
        span = self._open.get(call)
        return None if span is None else f"{span[0].get_span_context().trace_id:032x}"

    def ended(self, record: CallRecord) -> None:
        span, attributes = self._open.pop(record.call.id)
        self._end(span, SpanKind.SERVER, attributes, record.log.ending, record.times.started)

    async def _relayed(
        self, record: CallRecord, handler: CallHandler, above: Span, call: Call, channel: CallChannel
    ) -> Completed:
        attributes: Attributes = {
            "mcp.method.name": call.method,
            **_target(call, call.params.get("name", msgspec.UNSET)),
        }
        attributes |= self._of_server(call.upstream)
        context = set_span_in_context(above, Context())
        span = self._tracer.start_span(_name(attributes), context, SpanKind.CLIENT, dict(attributes))
        began = self._clock.now()
        ending: Ending | None = None
        try:
            ending = completed = await handler(msgspec.structs.replace(call, meta=_sent_on(call.meta, span)), channel)
            return completed
        except RpcError as error:
            ending = Failed(error)
            raise
        finally:
            self._end(span, SpanKind.CLIENT, attributes, ending or record.stopping or Cancelled(), began)

    def _end(self, span: Span, kind: SpanKind, attributes: Attributes, ending: Ending, began: float) -> None:
        wrong = _failure(attributes, ending)
        if wrong:
            span.set_attributes(wrong)
            span.set_status(Status(StatusCode.ERROR, _failure_text(ending)))
        span.end()
        if kind in self._durations:
            self._durations[kind].record(self._clock.now() - began, {**attributes, **wrong})

    def _of_client(self, call: Call) -> Attributes:
        version = {"mcp.protocol.version": call.version} if call.version else {}
        return {**version, "network.transport": "tcp" if self._is_http else "pipe"}

    def _of_server(self, server: str) -> Attributes:
        status = self._status(server)
        version = {"mcp.protocol.version": status.version} if status.version else {}
        attributes: Attributes = {"mcp_hub.server": server, **version}
        url = self._address(server)
        if url is not None:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            return {
                **attributes,
                "network.transport": "tcp",
                "server.address": parts.hostname or "",
                "server.port": port,
            }
        return {**attributes, "network.transport": "pipe"} if status.pid is not None else attributes

    async def close(self) -> None:
        """Sends the queue within a time limit; drops the rest."""
        with anyio.move_on_after(_LAST_SPANS, shield=True):
            await anyio.to_thread.run_sync(self._shut_down, abandon_on_cancel=True)

    def _shut_down(self) -> None:
        self._tracers.shutdown()
        self._meters.shutdown(timeout_millis=_LAST_SPANS * 1000)


def _target(call: Call, name: msgspec.Raw | msgspec.UnsetType) -> Attributes:
    """Only names that the server has listed."""
    key = _NAMED.get(call.method)
    if key is None or name is msgspec.UNSET:
        return {}
    attributes: Attributes = {key: msgspec.json.decode(name, type=str)}
    return {**attributes, "gen_ai.operation.name": "execute_tool"} if call.method == "tools/call" else attributes


def _name(attributes: Attributes) -> str:
    target = attributes.get("gen_ai.tool.name", attributes.get("gen_ai.prompt.name"))
    return f"{attributes['mcp.method.name']}" if target is None else f"{attributes['mcp.method.name']} {target}"


def _failure(attributes: Attributes, ending: Ending) -> Attributes:
    if isinstance(ending, Completed):
        is_error = attributes["mcp.method.name"] == "tools/call" and outcome_of(ending) is Outcome.TOOL_ERROR
        return {"error.type": "tool_error"} if is_error else {}
    if isinstance(ending, Failed):
        code = str(ending.error.code)
        is_late = outcome_of(ending) is Outcome.TIMED_OUT
        return {"error.type": "timeout" if is_late else code, "rpc.response.status_code": code}
    return {"error.type": "cancelled"}


def _failure_text(ending: Ending) -> str | None:
    """Only the hub's words: a server's may be secret."""
    if isinstance(ending, Failed) and ending.error.raw is None:
        return hide_head(ending.error.message, 500)
    return None


def _carrier(meta: RawObject) -> dict[str, str]:
    carrier = {}
    for key in _CONTEXT:
        raw = meta.get(key)
        if raw is not None and len(bytes(raw)) <= _LONGEST:
            try:
                carrier[key] = msgspec.json.decode(raw, type=str)
            except msgspec.DecodeError:
                continue
    return carrier


def _sent_on(meta: RawObject, span: Span) -> RawObject:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, set_span_in_context(span, Context()))
    if not carrier:
        return meta  # the SDK is switched off (OTEL_SDK_DISABLED)
    remaining = {key: value for key, value in meta.items() if key not in _CONTEXT}
    return {**remaining, **{key: msgspec.Raw(msgspec.json.encode(value)) for key, value in carrier.items()}}
