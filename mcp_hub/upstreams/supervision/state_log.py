"""Logs each change of a server's state; repeated failures are counted."""

import re
from typing import Final

from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.types import LAST_OUTPUT, UpstreamState
from mcp_hub.upstreams.peer.state import PeerInfo
from mcp_hub.upstreams.process.stdio import exception_of
from mcp_hub.upstreams.supervision.lifecycle import GAVE_UP, Life

log = get_logger(__name__)

LONGEST: Final = 200
"""Characters of a reason in the log; `mcp-hub list` and `doctor` show all of it."""
_BAD: Final = frozenset({UpstreamState.BACKING_OFF, UpstreamState.FAILED, UpstreamState.INCOMPATIBLE})
_NUMBERS: Final = re.compile(r"\d+")


def log_failure(server: str, before: Life, life: Life) -> None:
    """Logs a bad state. A repeated failure is logged only as the 10th, 100th, … in a row."""
    if life.state not in _BAD:
        return
    reason = brief(life.reason)
    repeats = (life.code, _NUMBERS.sub("", reason)) == (before.code, _NUMBERS.sub("", brief(before.reason)))
    if life.state is UpstreamState.BACKING_OFF and repeats and str(life.streak).strip("0") != "1":
        return
    state = life.state.value
    log.warning("upstream_state", upstream=server, state=state, code=life.code, reason=reason, **_count(life))


def log_ready(server: str, life: Life, info: PeerInfo) -> None:
    log.info("upstream_ready", upstream=server, era=info.era.value, version=info.version, **_count(life))


def _count(life: Life) -> dict[str, int]:
    return {"failures": life.streak} if life.streak > 1 else {}


def brief(reason: str | None) -> str:
    """A reason on one line, with the last line of output if that adds something."""
    text = " ".join((reason or "").split())
    at = text.rfind(GAVE_UP)
    text, end = (text[:at], text[at:]) if at >= 0 else (text, "")
    summary, _, output = text.partition(LAST_OUTPUT)
    last = output.rpartition(" | ")[2]
    if last and last not in summary and exception_of([summary]) is None:
        summary = f"{summary}{LAST_OUTPUT}{last}"
    return hide_head(summary, LONGEST - len(end), "…") + end
