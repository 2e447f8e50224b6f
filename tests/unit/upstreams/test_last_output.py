"""What is said of a server that died: the line of its output, and what the log has of its states."""

from typing import Any

import pytest
import structlog
from msgspec.structs import replace

from mcp_hub.app.readiness import summary
from mcp_hub.types import Cause, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.process.commands import package_problem
from mcp_hub.upstreams.process.stdio import exception_of, with_output
from mcp_hub.upstreams.supervision import lifecycle
from mcp_hub.upstreams.supervision.lifecycle import Life, RestartRule
from mcp_hub.upstreams.supervision.server import brief, log_failure

PYTHON = """INFO starting
Traceback (most recent call last):
  File "<string>", line 1, in <module>
    import foo
    ^^^^^^^^^^
ModuleNotFoundError: No module named 'foo'"""
CHAINED = f"""{PYTHON}

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 2, in <module>
my.package.Unusual: it ended
bye"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 3, in <module>
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "a.py", line 4, in main
    | KeyError: 'TOKEN'
    +------------------------------------"""
NODE = """node:internal/modules/cjs/loader:1147
  throw err;
  ^

Error: Cannot find module '/x/index.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1144:15)
    at Module._load (node:internal/modules/cjs/loader:985:27) {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v20.11.0"""
NPM = """npm error code E404
npm error 404 Not Found - GET https://npm.example/nope - Not found
npm error A complete log of this run can be found in: /home/alice/.npm/_logs/debug-0.log"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (PYTHON, "ModuleNotFoundError: No module named 'foo'"),
        ("\n".join(f"stdout: {line}" for line in PYTHON.splitlines()), "ModuleNotFoundError: No module named 'foo'"),
        (CHAINED, "my.package.Unusual: it ended"),
        (GROUP, "KeyError: 'TOKEN'"),
        (NODE, "Error: Cannot find module '/x/index.js'"),
        ("TypeError [ERR_X]: bad\n    at f (a.js:1:1)", "TypeError [ERR_X]: bad"),
        (
            "panic: runtime error: index out of range\n\ngoroutine 1 [running]:",
            "panic: runtime error: index out of range",
        ),
        ("thread 'main' panicked at src/main.rs:2:5: no token", "thread 'main' panicked at src/main.rs:2:5: no token"),
        (
            'Exception in thread "main" java.lang.X: no\n\tat A.main(A.java:1)',
            'Exception in thread "main" java.lang.X: no',
        ),
        ("error: unexpected argument '--x'\n\nUsage: y", "error: unexpected argument '--x'"),
        (NPM, "npm error code E404"),
        ("listening on port 8080\nbye", None),
        ("the error was small", None),
        ("Traceback (most recent call last):\n  File", None),
        ("", None),
    ],
)
def test_the_line_of_the_last_exception_is_found(output: str, line: str | None) -> None:
    assert exception_of(output.splitlines()) == line


def test_the_exception_stands_before_the_exit_and_the_last_lines_behind_it() -> None:
    said = with_output("exited with code 1", NODE.splitlines())
    assert said.startswith("Error: Cannot find module '/x/index.js' (exited with code 1). Last output: ")
    assert said.endswith(" | Node.js v20.11.0") and said.count(" | ") == 4
    assert with_output("exited with code 3", ["a", "b"]) == "exited with code 3. Last output: a | b"
    assert with_output("exited with code 3", []) == "exited with code 3"


REFUSED = Cause("connection_refused", "cannot connect to http://x: Connection refused")
CRASHED = Cause("start_crashed", "KeyError: 'TOKEN' (exited with code 1). Last output: a | KeyError: 'TOKEN'")


def failures(count: int, cause: Cause, rule: RestartRule, life: Life | None = None) -> Life:
    """So many failures in a row, as a supervisor goes through them."""
    life = Life() if life is None else life
    for number in range(count):
        before, life = life, lifecycle.died(life, rule, float(number), cause, 0.0)
        if life != before:
            log_failure("s", before, life)
        life = lifecycle.starting(life)
    return life


def logged(work: Any) -> list[tuple[str, str, int]]:
    """State, reason and count of each line."""
    with structlog.testing.capture_logs() as logs:
        work()
    return [(line["state"], line["reason"], line.get("failures", 1)) for line in logs]


def test_failures_that_repeat_are_counted_and_the_end_has_the_number() -> None:
    lines = logged(lambda: failures(6, CRASHED, RestartRule(5, 60.0)))
    said = "KeyError: 'TOKEN' (exited with code 1)"
    assert lines == [("backing_off", said, 1), ("failed", f"{said} (gave up after 6 failures in 60 s)", 6)]


def test_a_server_that_is_never_given_up_is_mentioned_ever_more_seldom() -> None:
    lines = logged(lambda: failures(1000, REFUSED, RestartRule(None)))
    assert [count for _, _, count in lines] == [1, 10, 100, 1000]


def test_another_failure_and_a_number_that_is_another_one() -> None:
    rule = RestartRule(None)

    def work() -> None:
        one = failures(2, Cause("crashed", "at 10:31 exit 4"), rule)
        two = failures(2, Cause("crashed", "at 10:32 exit 4"), rule, one)
        failures(2, REFUSED, rule, two)

    assert [(reason, count) for _, reason, count in logged(work)] == [("at 10:31 exit 4", 1), (REFUSED.reason, 5)]


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (None, ""),
        ("exited with code 3. Last output: a | the last", "exited with code 3. Last output: the last"),
        ("exited. Last output: a (gave up after 6 failures in 60 s)",) * 2,
        ("X: a (exited with code 1). Last output: b | X: a", "X: a (exited with code 1)"),
        ("KeyError: a (exited with code 1). Last output: b | bye", "KeyError: a (exited with code 1)"),
        ("two\nlines", "two lines"),
    ],
)
def test_a_reason_in_the_log_is_one_line(reason: str | None, said: str) -> None:
    assert brief(reason) == said


def test_a_long_reason_is_cut_and_keeps_its_end() -> None:
    cut = brief(f"{'x' * 500}{lifecycle.GAVE_UP}6 failures in 60 s)")
    assert len(cut) == 200 and cut.endswith("x… (gave up after 6 failures in 60 s)")


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (f"{NPM}\nnpm error 404  'nope@*' is not in this registry.", "The package nope does not exist"),
        (
            "npm error 404 | npm error 404  The requested resource '@a/b@1.2' could not be found or you do not have it",
            "The package @a/b does not exist, or is private",
        ),
        (NPM, "The package does not exist"),
        (
            "× No solution found when resolving tool dependencies: | ╰─▶ Because mcp-nope was not found in the package"
            " |     registry and you require mcp-nope, we can conclude that your requirements are unsatisfiable.",
            "The package mcp-nope does not exist",
        ),
        ("HTTP 404: the file was not found", None),
        ("", None),
    ],
)
def test_a_package_that_does_not_exist_is_named(output: str, problem: str | None) -> None:
    assert package_problem(output) == problem


def status(server: str, state: UpstreamState = UpstreamState.READY, reason: str | None = None) -> UpstreamStatus:
    return UpstreamStatus(server, state, reason)


def test_the_start_ends_with_the_number_of_servers_and_why_others_are_not_ready() -> None:
    ready = [status(name) for name in "abc"]
    assert summary(ready) == "3 of 3 servers ready"
    failed = status("time", UpstreamState.FAILED, "command not found: uvx")
    assert summary([*ready, failed]) == "3 of 4 servers ready; time failed: command not found: uvx"
    lazy = replace(status("lazy", UpstreamState.STOPPED, "it is started when it is needed"), rests=True)
    assert summary([*ready, lazy]) == "3 of 4 servers ready, 1 when needed"


def test_the_summary_of_many_failures_is_short() -> None:
    long = "-".join(["long"] * 30)
    many = [status(f"server-{number}{long}", UpstreamState.BACKING_OFF, "x" * 300) for number in range(50)]
    said = summary([status("a"), *many])
    assert said.startswith("1 of 51 servers ready; server-0long") and said.endswith("…; and 47 more failed")
    assert len(said) <= 200
