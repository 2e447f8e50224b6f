"""What a client of docs/specification/streams.md knows of one call, without a connection: copy `Follower`.

Hand it what comes, and do what `next` says. It is tested by docs/specification/vectors/clients.
"""

from typing import Any, Final, Literal

EXTENSION: Final = "dev.mcp-hub/streams"
ENDINGS: Final = ("end", "error")
MOST_TEXT: Final = 1 << 24
"""Characters that are joined."""
AGAIN: Final = (None, 200, 429, 502, 503, 504)
"""HTTP statuses, without a JSON-RPC error, after which a read is tried again; None: the response did not come."""
_RUNNING: Final = ("working", "input_required")

Json = dict[str, Any]
Next = Literal["wait", "read", "new session", "done"]
"""Wait for messages; read from `cursor`, after `pause` seconds; begin a new session, and read; nothing more."""


class Follower:
    """One call. `is_handshake`: 404 is about the session. `has_token`: of progress. `outcome` is set once."""

    def __init__(
        self, *, is_handshake: bool = True, has_token: bool = True, stream: str | None = None, cursor: int = 0
    ) -> None:
        self.stream = stream
        self.outcome: Json | None = None
        self.may_repeat = False
        """The call had no effect, and may be made again."""
        self.is_whole = cursor == 0
        """The joined text has no gap."""
        self.progress: float | None = None
        self.log: list[Json] = []
        self.pause: float = 0
        self._is_handshake = is_handshake
        self._has_token = has_token
        self._last = cursor
        self._is_open = stream is None
        self._is_behind = stream is not None
        self._is_new_session = False
        self._is_relayed = False
        """By an intermediary that cannot be read from."""
        self._is_again = False
        """The ending is read once more."""
        self._deltas: list[tuple[int, int, str, str]] = []
        self._repeated: Json | None = None
        """The event `log` that may come again, as MCP has it."""
        self._last_resort: Json = {"unknown": True}

    @property
    def cursor(self) -> str:
        """Stands after the last event."""
        return str(self._last)

    @property
    def next(self) -> Next:
        if self._is_new_session:
            return "new session"
        if self._is_behind or (self.outcome is None and not self._is_open):
            return "read"
        return "wait" if self.outcome is None else "done"

    def text(self, index: int = 0, channel: str = "content") -> str:
        """The text so far. The result is right where they differ."""
        return "".join(text for _, of, its, text in self._deltas if (of, its) == (index, channel))

    def notified(self, method: str, params: Json) -> None:
        """A notification of the call."""
        if method == "notifications/message":
            shown = {name: value for name, value in params.items() if name != "_meta"}
            if shown != self._repeated:
                self.log.append(shown)
        self._repeated = None
        part = (params.get("_meta") or {}).get(EXTENSION)
        if part is not None and not self._is_relayed:
            newest = part["events"][-1]
            self._repeated = newest["data"] if newest["type"] == "log" else None
            self._belongs_to(part["stream"])
            self._last = self._last or 1  # the start is not sent
            self._is_behind = not self._take(part["events"]) or self._is_behind

    def answered(self, result: Json) -> None:
        """The result of the request."""
        if self.outcome is not None:  # from the log, or none
            return
        kind = result.get("resultType", "complete")
        mark = (result.get("_meta") or {}).get(EXTENSION)
        is_early = mark is not None and mark["status"] in _RUNNING
        if self._is_relayed and is_early and kind != "input_required":
            self.give_up()
            return
        mark = None if self._is_relayed else mark
        if kind == "task":
            self._belongs_to(result["taskId"])
        elif mark is not None:
            self._belongs_to(mark["stream"])
            if self._last == 0 and is_early:
                self._last = int(mark["cursor"])
                self.is_whole = self._last == 0
        if kind == "input_required":
            return  # to be answered; the repeated request follows
        self._is_open = False
        if kind == "task" or is_early:
            return  # not the result
        self._end({"result": result})
        if mark is not None and self._has_token:
            self._last = self._last or 1  # the start is not sent
            self._is_behind = self._last < int(mark["cursor"]) - 1

    def failed(self, error: Json) -> None:
        """The JSON-RPC error of the request."""
        data: Json = found if isinstance(found := error.get("data"), dict) else {}
        self._is_open = False
        if data.get("code") == "unknown_state":  # an earlier copy of the repeated request was taken
            self.lost()
        elif data.get("code") == "cancelled" and self.stream is None:
            self._end({"cancelled": True})
        elif data.get("code") == "cancelled":  # unless the log ends with an error
            self._last_resort = {"cancelled": True}
        else:
            self._end({"error": error})

    def lost(self) -> None:
        """The response will not come."""
        self._is_open = False
        if self.stream is None:
            self._end({"unknown": True})

    def page(self, page: Json) -> None:
        """The result of a read from `cursor`."""
        self.pause, self._is_new_session = 0, False
        events = page["events"]
        if page["truncated"] and events:
            self.is_whole = False
            self._last = max(self._last, events[0]["seq"] - 1)
        if not self._take(events):
            self.outcome = {"broken": True}  # also if the response is there
            self._is_behind = self._is_open = False
            return
        self._is_behind = False if page["closed"] else self._is_behind and bool(events)
        if page["closed"] and not self._is_open and self.outcome is None:
            if events or self._last == 0 or self._is_again:
                self._end(self._last_resort)
            else:  # the ending is the event at the cursor
                self._is_again = True
                self._last -= 1

    def refused(self, status: int | None, error: Json | None) -> None:
        """A read that failed: the HTTP status, the JSON-RPC error, or neither."""
        after = ((error or {}).get("data") or {}).get("retryAfter")
        self._is_new_session = self._is_handshake and status == 404
        if self._is_new_session or after is not None or (error is None and status in AGAIN):
            self.pause = after if after is not None else min(5, self.pause * 2 or 0.1)
            return
        if self._is_open and (error or {}).get("code") == -32601:  # relayed by somebody who does not know the extension
            self._is_behind = self.is_whole = False
            self._is_relayed = True
            return
        self.give_up()

    def give_up(self) -> None:
        """No more tries."""
        self._is_behind = self._is_open = False
        self.is_whole = False
        self._end(self._last_resort)

    # -- events

    def _belongs_to(self, stream: str) -> None:
        """A repeated request may be a call of its own, with a log of its own."""
        if self.stream not in (None, stream):
            self._last, self._deltas, self.is_whole, self._is_behind = 0, [], True, False
        self.stream = stream

    def _take(self, events: list[Json]) -> bool:
        """Whether they follow what is there; repeats are dropped."""
        for event in events:
            if event["seq"] <= self._last:
                continue
            if event["seq"] != self._last + 1:
                return False
            self._last = event["seq"]
            self._apply(event["seq"], event["type"], event["data"])
        return True

    def _apply(self, seq: int, kind: str, data: Json) -> None:
        if kind == "delta":
            text = "".join(block["text"] for block in data["content"] if block["type"] == "text")
            if sum(len(piece[3]) for piece in self._deltas) + len(text) > MOST_TEXT:
                self.is_whole = False
            else:
                self._deltas.append((seq, data["index"], data["channel"], text))
        elif kind == "reset":
            self._deltas = [piece for piece in self._deltas if piece[0] < data["discard_from"]]
        elif kind == "progress":
            own = (data.get("_meta") or {}).get("dev.mcp-hub/progress")
            self.progress = data["progress"] if own is None else own["server"]
        elif kind == "log":
            self.log.append(data)
        elif kind in ENDINGS:
            self._ended(kind, data)

    def _ended(self, kind: str, data: Json) -> None:
        self._is_behind = False
        if self._is_open and data.get("result", {}).get("resultType") == "input_required":
            return  # the response is to be answered
        self._is_open = False
        if kind == "error":
            self._end({"error": data["jsonrpc"]})
            self.may_repeat = data["retryable"] and self.outcome == {"error": data["jsonrpc"]}
        elif data["outcome"] == "cancelled" or "cancelled" in self._last_resort:
            self._end({"cancelled": True})
        elif data["result"].get("resultType") == "input_required":  # only the response could be answered
            self._end({"unknown": True})
        else:
            self._end({"result": data["result"]})

    def _end(self, outcome: Json) -> None:
        """The first one counts."""
        if self.outcome is None:
            self.outcome = outcome
