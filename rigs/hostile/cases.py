"""The rows of the matrix: how a server misbehaves, the call that meets it, and what that call may come to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rigs.client import Answer

MB = 1_000_000
STDIO, HTTP = ("stdio",), ("http",)
BOTH = (*STDIO, *HTTP)
HANDSHAKE, MODERN = ("handshake",), ("modern",)
ERAS = (*HANDSHAKE, *MODERN)

Check = Callable[[Answer, list[dict[str, Any]]], str | None]
"""What else is wrong, given the answer and the definitions that the hub then lists of the server; None if nothing."""


@dataclass(frozen=True)
class Case:
    """One row. `options` are those of the fixture server, `ends` what the call of `tool` may come to.

    `is_listed`: the server gets ready, so that its tools are there. `comes_back`: a call after the fault gets a result.
    `memory` in MiB bounds the hub's peak. `own` are settings of the server. The call is made `times` times at once;
    `after` is one that follows and may come to anything. `child_dies` says when the process whose id the call answered
    with has to be gone: with its server, or with the hub. `floods`: it takes much of the machine.
    """

    name: str
    options: tuple[str, ...]
    ends: frozenset[str]
    tool: str = "env"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    is_listed: bool = True
    comes_back: bool = True
    memory: int = 128
    transports: tuple[str, ...] = BOTH
    eras: tuple[str, ...] = ERAS
    own: Mapping[str, Any] = field(default_factory=dict)
    check: Check | None = None
    seconds: float = 5.0
    times: int = 1
    after: str | None = None
    child_dies: str = ""
    only_all: bool = False
    floods: bool = False

    @property
    def is_heavy(self) -> bool:
        """Whether two such rows share no hub."""
        return self.floods or self.memory > 128


def _case(name: str, ends: str, *options: str, **more: Any) -> Case:
    return Case(name, tuple(options), frozenset(ends.split()), **more)


def _mode(mode: str, ends: str, *options: str, name: str = "", **more: Any) -> Case:
    """A mode that strikes the calls of `env`."""
    return _case(name or mode, ends, "--mode", mode, "--on", "env", *options, **more)


def _garbage(variant: str, ends: str = "lost", **more: Any) -> Case:
    return _case(f"answer: {variant}", ends, "--mode", "garbage-answer", tool="garble",
                 arguments={"variant": variant}, **more)  # fmt: skip


def _raw(name: str, text: str, ends: str = "result", **more: Any) -> Case:
    return _case(f"result: {name}", ends, tool="raw", arguments={"json": text}, **more)


def _lists(least: int, most: int = 1_000_000) -> Check:
    def check(answer: Answer, definitions: list[dict[str, Any]]) -> str | None:
        return None if least <= len(definitions) <= most else f"{len(definitions)} tools are listed"

    return check


def _says(text: str) -> Check:
    def check(answer: Answer, definitions: list[dict[str, Any]]) -> str | None:
        said = str(answer.message.get("error", {}).get("message", ""))
        return None if text in said else f"the error does not say {text!r}: {said[:200]}"

    return check


def _progress(*expected: float) -> Check:
    def check(answer: Answer, definitions: list[dict[str, Any]]) -> str | None:
        found = [round(value, 6) for value in answer.progress]
        return None if found == list(expected) else f"progress {found}"

    return check


def _progress_ends_at(last: float) -> Check:
    def check(answer: Answer, definitions: list[dict[str, Any]]) -> str | None:
        return None if answer.progress[-1:] == [last] else f"the last progress is {answer.progress[-1:]}"

    return check


def _odd_tools(answer: Answer, definitions: list[dict[str, Any]]) -> str | None:
    wanted = {"twice", "twin2", "run_tool"}
    keys = {definition["name"] for definition in definitions}
    missing = [name for name in wanted if not any(name in key for key in keys)]
    return f"not listed: {missing}" if missing else None


def _shows_change(answer: Answer, definitions: list[dict[str, Any]]) -> str | None:
    shown = [one.get("description", "") for one in definitions if one["name"].endswith("_echo")]
    return None if any("example.com" in text for text in shown) else f"the list still shows {shown}"


WHOSE = ("float-id", "no-id", "null-id")
LINES = [
    _mode("noise", "result", transports=STDIO),
    _mode("no-newline-noise", "result", transports=STDIO),
    _mode("bad-utf8", "result", transports=STDIO),
    _mode("late", "result", name="answers twice", transports=STDIO),
    _mode("unknown-id", "result", name="answers nobody too", transports=STDIO),
    _mode("noisy-answer", "result", name="noise like answers", transports=STDIO),
    _case("answers too late", "overdue", tool="slow", arguments={"seconds": 2.3}),
    *(_garbage(variant) for variant in ("malformed", "truncated", "null-result", "number-result", "neither", "deep")),
    _garbage("not-json", "overdue lost"),
    _garbage("float-id", "result", transports=STDIO),  # 7.0 is 7 (relay.md)
    _garbage("no-id", "lost overdue", transports=STDIO),
    _garbage("null-id", "error", transports=STDIO),  # of the only call in flight
    # the connection that an answer comes on says whose it is
    *(_garbage(variant, "lost result error", transports=HTTP, only_all=True) for variant in WHOSE),
    _garbage("both", "result error"),
    _garbage("string-error", "error lost"),
    *(_garbage(variant, "lost result overdue") for variant in ("other-type-id", "duplicate-id", "no-jsonrpc", "array")),
    *(_garbage(variant, "lost result") for variant in ("surrogate", "nan", "huge-integer", "bad-utf8", "nul", "bom")),
    _mode("long-line", "result", "--bytes", str(30 * MB), name="line of 30 MB", memory=448),
    _mode("long-line", "lost", "--bytes", str(100 * MB), name="line of 100 MB", memory=256),
    _mode("endless-line", "lost overdue", "--bytes", str(60 * MB), name="60 MB without newline", memory=256,
          transports=STDIO, comes_back=False),
]  # fmt: skip
LISTS = [
    _case("10,000 tools", "result", "--tools", "9900", check=_lists(9_900), memory=256),
    _case("10,001 tools and more", "result", "--tools", "12000", check=_lists(10_000, 10_000), memory=256,
          only_all=True),
    _mode("odd-tools", "result", name="bad definitions and names", check=_odd_tools),
    _mode("odd-schemas", "result", name="schemas that are traps", check=_lists(10),
          own={"compact": True}),
    _case("the same cursor again", "result", "--page-loop", check=_lists(5)),
    _mode("endless-pages", "result", name="endless nextCursor", check=_lists(90, 300)),
    _mode("huge-list", "unknown unavailable", "--bytes", str(40 * MB), name="list over the line limit",
          is_listed=False, comes_back=False, memory=256),
    _mode("huge-instructions", "result", "--bytes", str(5 * MB), memory=160),
    _mode("rug-pull", "result", name="definition changes after listing", check=_shows_change),
    _mode("flapping-list", "result", name="every list is another one"),
    _mode("hang-list", "unknown", name="never answers tools/list", is_listed=False, comes_back=False),
    _mode("hang-start", "unknown", name="never answers initialize", is_listed=False, comes_back=False),
]  # fmt: skip
PROCESSES = [
    _mode("crash-start", "unknown", name="exits at start", is_listed=False, comes_back=False, transports=STDIO),
    _case("exits on server/discover", "result", "--discover", "exit", eras=HANDSHAKE, transports=STDIO),
    _case("ignores server/discover", "result", "--discover", "silent", eras=HANDSHAKE),
    _mode("killed", "lost", name="killed mid-call", check=_says("SIGKILL"), transports=STDIO),
    _mode("crash-after", "lost", "--exit-code", "0", name="exits 0 mid-call", check=_says("code 0"),
          transports=STDIO),
    _mode("crash-after", "lost", "--exit-code", "3", name="exits 3 mid-call", check=_says("code 3"),
          transports=STDIO),
    _mode("close-stdout", "lost", name="closes stdout, lives on", transports=STDIO),
    _mode("stop-reading", "overdue lost busy unavailable", name="stops reading stdin", transports=STDIO),
    _mode("freeze", "overdue", name="freezes", transports=STDIO),
    _mode("stop-reading", "overdue lost busy unavailable", name="stops reading large requests", transports=STDIO,
          arguments={"x": "x" * (4 * MB)}, times=20, memory=320, seconds=8.0),
    _mode("ignore-eof", "result", name="ignores EOF", transports=STDIO),
    _mode("ignore-term", "result", name="ignores EOF and SIGTERM", transports=STDIO),
    _case("child in its group", "result", tool="spawn", transports=STDIO, child_dies="hub"),
    _case("child in its group, then a crash", "result", tool="spawn", after="crash", transports=STDIO,
          child_dies="server"),
    _case("child holds stdout, then a crash", "result", tool="spawn", arguments={"keeps_stdout": True},
          after="crash", transports=STDIO, child_dies="server"),
    _case("child with setsid", "result", tool="spawn", arguments={"new_session": True}, transports=STDIO,
          child_dies="hub"),
]  # fmt: skip
FLOODS = [
    _mode("odd-progress", "result", name="progress of every sort",
          check=_progress(-5, 7, 7.000001, 7.000002, 8, 9, 9.000001, 9.000002)),
    _mode("flood-progress", "result", name="200,000 progress", check=_progress_ends_at(199_999), seconds=20.0,
          floods=True),
    _mode("flood-pings", "result", name="20,000 pings", eras=HANDSHAKE, floods=True),
    _mode("flood-logs", "result", name="100,000 logs", seconds=15.0, floods=True),
    _mode("flood-changes", "result", name="20,000 list_changed", floods=True),
    _mode("flood-strays", "result lost", name="20,000 strays", floods=True),
    _mode("flood-questions", "result error", name="1,000 questions"),
    _mode("flood-stderr", "result", "--bytes", str(40 * MB), name="40 MB of stderr", transports=STDIO, floods=True),
]  # fmt: skip
RESULTS = [
    _raw("unknown content type", '{"content":[{"type":"hologram","x":1}]}'),
    _raw("no content", '{"structuredContent":{"a":1}}'),
    _raw("content is not a list", '{"content":7}'),
    _raw("lone surrogate", '{"content":[{"type":"text","text":"\\ud83d"}]}'),
    _raw("10,000 items", '{"content":[' + ",".join(['{"type":"text","text":""}'] * 10_000) + "]}"),
    _raw("asks for nothing", '{"resultType":"input_required"}', "result error lost", eras=MODERN),
    _raw("asks for the impossible", '{"resultType":"input_required","inputRequests":{"a":{"method":"x/y"}}}',
         "result error lost", eras=MODERN),
    _raw("unknown result type", '{"resultType":"banana"}', "result error lost", eras=MODERN),
    _mode("task-nameless", "error lost", eras=MODERN),
    _mode("task-injected", "error lost unknown", eras=MODERN),
    _mode("task-endless", "overdue", eras=MODERN, own={"max_duration": "2s"}),
    _mode("task-odd-status", "error lost overdue", eras=MODERN),
    _mode("task-odd-numbers", "overdue error lost result", eras=MODERN, own={"max_duration": "2s"}),
    _mode("task-no-result", "error lost result", eras=MODERN),
    _mode("task-asks-nothing", "error lost overdue", eras=MODERN, own={"max_duration": "2s"}),
    _mode("task-other", "error lost overdue result", eras=MODERN, own={"max_duration": "2s"}),
]  # fmt: skip


def _http(mode: str, ends: str = "lost", *options: str, **more: Any) -> Case:
    return _mode(f"http-{mode}", ends, *options, transports=HTTP, **more)


REMOTE = [
    _http("wrong-type", "result"), _http("no-type", "result"), _http("500"), _http("500-answer"), _http("503"),
    _http("429"), _http("202"), _http("204"), _http("empty"), _http("not-json"),
    _http("redirect", check=_says("not followed")), _http("redirect-303", check=_says("not followed")),
    _http("odd-headers", "result"),
    _http("header-flood"),
    _http("slow-head", "overdue"), _http("slow-body", "overdue"), _http("never", "overdue"),
    _http("endless-comments", "overdue"), _http("comment-flood", "overdue", floods=True),
    _http("huge-event", "result", "--bytes", str(30 * MB), memory=448),
    _http("huge-event", "lost", "--bytes", str(40 * MB), name="http event over the limit", memory=256),
    _http("endless-event", "lost overdue", "--bytes", str(60 * MB), memory=256),
    _http("empty-stream"), _http("endless-resume", "lost overdue"), _http("foreign-answers", "overdue lost"),
    _http("gzip-bomb", memory=144), _http("gzip-twice", memory=144), _http("gzip-garbage"),
    _http("gzip-honest", "result"), _http("odd-encoding", check=_says("content-encoding")),
    _http("reset"), _http("truncated"), _http("chunk-garbage"), _http("huge-chunk-size", "lost overdue"),
    _http("endless-body", "lost", "--bytes", str(60 * MB), memory=256),
    _http("no-http"), _http("two-lengths"),
    _case("line break in a mirrored argument", "result", tool="region", transports=HTTP, eras=MODERN,
          arguments={"region": "x\r\nX-Injected: yes"}),
    _http("odd-session", "unknown unavailable", eras=HANDSHAKE, is_listed=False, comes_back=False),
    _http("long-session", "unknown unavailable", eras=HANDSHAKE, is_listed=False, comes_back=False),
]  # fmt: skip

CASES: tuple[Case, ...] = (*LINES, *LISTS, *PROCESSES, *FLOODS, *RESULTS, *REMOTE)
