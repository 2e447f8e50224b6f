"""Server-Sent Events: the frames a front writes. Pure. Source: WHATWG HTML, "Server-sent events"."""

COMMENT = b": keep-alive\n\n"
"""Keeps proxies and idle time-outs away; clients ignore it."""


def message(frame: bytes, event_id: str | None = None) -> bytes:
    """One JSON-RPC message, which holds no line feed but its last; a carriage return between tokens ends a line too."""
    if b"\r" in frame:
        frame = frame.replace(b"\r", b" ")
    head = b"" if event_id is None else b"id: %s\n" % event_id.encode()
    return b"%sevent: message\ndata: %s\n\n" % (head, frame.rstrip(b"\n"))


def priming(event_id: str, retry: int) -> bytes:
    """An event without a message: the id from which a client may resume, and after how many milliseconds."""
    return b"id: %s\nretry: %d\ndata:\n\n" % (event_id.encode(), retry)
