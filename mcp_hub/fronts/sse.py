"""Server-Sent Events: the frames a front writes. Pure. Source: WHATWG HTML, "Server-sent events"."""

__all__ = ["COMMENT", "message"]

COMMENT = b": keep-alive\n\n"
"""Keeps proxies and idle time-outs away; clients ignore it."""


def message(frame: bytes, event_id: str | None = None) -> bytes:
    """One JSON-RPC message, which holds no line break but its last."""
    head = b"" if event_id is None else b"id: %s\n" % event_id.encode()
    return b"%sevent: message\ndata: %s\n\n" % (head, frame.rstrip(b"\n"))
