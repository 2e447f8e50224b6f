"""Which line of a server's output says why it died."""

import pytest

from mcp_hub.upstreams.process.last_output import exception_of, with_output

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
