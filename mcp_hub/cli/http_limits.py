"""What the HTTP fronts are told of `hub.http`: how much they let in."""

from typing import TypedDict

import structlog

from mcp_hub.clock import SystemClock
from mcp_hub.config.hub import HttpSettings
from mcp_hub.fronts.admission import Admission, AdmissionLimits
from mcp_hub.fronts.connections import ConnectionLimits, affordable

__all__ = ["Shared", "admission_of", "connections_of", "sessions_of"]

log = structlog.get_logger(__name__)


class Shared(TypedDict):
    """Arguments that both fronts with sessions have."""

    max_body: int
    max_sessions: int
    sessions_per_principal: int
    admission: Admission


def admission_of(http: HttpSettings) -> Admission:
    """What each principal may have under way, on all HTTP fronts together."""
    limits = AdmissionLimits(
        requests_per_principal=http.requests_per_principal,
        bodies_per_principal=http.bodies_per_principal,
        request_rate=http.request_rate,
        session_rate=http.session_rate,
    )
    return Admission(limits, SystemClock())


def sessions_of(http: HttpSettings, admission: Admission) -> Shared:
    """What a front with sessions is told."""
    return {
        "max_body": http.max_body,
        "max_sessions": http.max_sessions,
        "sessions_per_principal": http.sessions_per_principal,
        "admission": admission,
    }


def connections_of(http: HttpSettings) -> ConnectionLimits:
    """The bounds of connections, as far as this process may open files."""
    most = affordable(http.max_connections)
    if most < http.max_connections:
        log.info("connections_bounded", by="open files (ulimit -n)", wanted=http.max_connections, most=most)
    return ConnectionLimits(most, http.max_headers, http.header_timeout, http.body_timeout)
