import ast
import gc
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mcp_hub
from mcp_hub.syntax import parsed

TREE = ast.Module([], [])


def run(*tasks: Callable[[], object]) -> list[BaseException]:
    """The exceptions of tasks, each in a thread of its own."""
    problems: list[BaseException] = []

    def noted(task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=noted, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems


def test_one_thread_parses_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Event()
    inside, most = 0, 0

    def parse(text: str) -> ast.Module:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == 2:
            both.set()
        both.wait(0.1)  # for the other one
        inside -= 1
        return TREE

    monkeypatch.setattr("mcp_hub.syntax.ast", SimpleNamespace(parse=parse))
    before = list(warnings.filters)
    assert run(*[lambda: parsed("1")] * 4) == []
    assert most == 1 and list(warnings.filters) == before


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there no other thread runs while a tree is made")
def test_a_thread_that_parses_amid_another_one_disturbs_no_tree() -> None:
    """A collection of garbage amid the first tree lets the second thread run. At another depth of its stack, it leaves
    a count of CPython 3.11 wrong.
    """
    amid, finished = threading.Event(), threading.Event()
    first: list[int] = []

    def collected(phase: str, info: dict[str, Any]) -> None:
        if threading.get_ident() in first and not amid.is_set() and is_making_a_tree():
            amid.set()
            finished.wait(0.3)

    def is_making_a_tree() -> bool:
        return sys._getframe(2).f_code is ast.parse.__code__

    def deeper(levels: int) -> None:
        if levels:
            deeper(levels - 1)
        else:
            parsed("2")

    def second() -> None:
        amid.wait(5)
        deeper(30)
        finished.set()

    def main() -> None:
        first.append(threading.get_ident())
        parsed("x = [1, 2, 3]\n" * 200)

    before = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    try:
        problems = run(main, second)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)
    assert amid.is_set() and problems == []


def test_nothing_is_written_about_odd_texts(capfd: pytest.CaptureFixture[str]) -> None:
    assert isinstance(parsed(r'"\d" is 1', mode="eval"), ast.Expression)
    assert capfd.readouterr().err == ""


def test_no_other_module_parses() -> None:
    folder = Path(mcp_hub.__file__).parent
    texts = {file.relative_to(folder).as_posix(): file.read_text() for file in folder.rglob("*.py")}
    assert {name for name, text in texts.items() if "ast.parse(" in text or "catch_warnings(" in text} == {"syntax.py"}
