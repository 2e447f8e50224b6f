"""What the HTTP front of a hub says of itself: health and metrics."""

from mcp_hub import __version__
from mcp_hub.app import App
from mcp_hub.fronts.admission import Admission
from mcp_hub.fronts.health import Health
from mcp_hub.fronts.legacy_sse import LegacySse
from mcp_hub.fronts.metrics import Metrics
from mcp_hub.fronts.streamable_http import StreamableHttp

__all__ = ["monitoring_of"]


def monitoring_of(app: App, mcp: StreamableHttp, legacy: LegacySse, admission: Admission) -> tuple[Health, Metrics]:
    """Both, over the hub and the fronts that it is served by."""
    watch = app.operations.watch
    health, metrics = Health(watch, __version__), Metrics(watch, __version__)
    metrics.measure("ready", "Whether /readyz says that the hub is.", lambda: not health.reasons())
    metrics.measure("http_sessions", "Handshake sessions.", lambda: mcp.sessions)
    metrics.measure("sse_sessions", "Event streams of the old HTTP+SSE transport.", lambda: legacy.sessions)
    metrics.measure("http_requests", "HTTP requests that are being answered.", lambda: admission.under_way)
    metrics.measure("listens", "Open subscriptions/listen streams.", lambda: len(app.binding.streams))
    return health, metrics
