"""The parts of the rigs of Claude Code and of declared tasks, without Claude Code."""

import json
import os
import sys
from pathlib import Path

import pytest

from rigs.clients.apps import Fault
from rigs.clients.claude import BACKGROUND, HERE, TOOLS, Worker
from rigs.clients.declared import OTHERS, PAGE, WITH_DRIVER, declared, documented
from rigs.clients.terminal import Late, Terminal
from rigs.clients.transcripts import TASK, Sent, steady, steps
from tests.e2e.scripted_models import Answer

pytestmark = pytest.mark.processes

PROGRAM = """
print("\\x1b[31mgive\\x1b[5Gme\\x1b[0m a word", end="", flush=True)
print(input().upper(), sys.stdin.isatty())
"""


def test_terminal_waits_for_words_between_codes_and_types_an_answer(tmp_path: Path) -> None:
    terminal = Terminal([sys.executable, "-c", f"import sys\n{PROGRAM}"], {**os.environ, "TERM": "xterm"}, tmp_path)
    terminal.until("give me a word")
    with pytest.raises(Late, match="give me a word"):
        terminal.until("give me a word", seconds=0.1)
    terminal.type("oak\r")
    terminal.until("OAK True")
    assert terminal.ended() == 0
    terminal.close()


def said(worker: Worker, *messages: tuple[str, object], tools: tuple[str, ...] = (TOOLS[0],)) -> object:
    """What the model says to a conversation: words, or a tool and its arguments."""
    body = {"model": "m", "tools": [{"name": name} for name in tools]}
    body["messages"] = [{"role": role, "content": content} for role, content in messages]
    answer: Answer = worker.respond("", json.dumps(body).encode())
    last = answer.body["content"][-1]
    return last.get("text") or (last["name"], last["input"])


def test_model_looks_for_a_tool_calls_it_once_and_reports_its_end() -> None:
    worker = Worker()
    wish = ("user", "please build web")
    called = {"type": "tool_use", "id": "1", "name": TOOLS[0], "input": {"target": "web"}}
    moved = [{"type": "tool_result", "tool_use_id": "1", "content": "started server-side task st_1"}]
    news = "<task-notification>\n<status>completed</status>\n<result>\n{\"result\":\"built\"}\n</result>"  # fmt: skip
    assert said(worker, wish, tools=("Bash",)) == ("ToolSearch", {"query": f"select:{TOOLS[0]}"})
    assert said(worker, wish) == (TOOLS[0], {"target": "web"})
    assert said(worker, wish, ("assistant", [called]), ("user", moved)) == BACKGROUND
    assert said(worker, wish, ("assistant", [called]), ("user", "are you there?")) == HERE
    assert said(worker, wish, ("assistant", [called]), ("user", news)) == "The task has ended: built."
    assert worker.was_asked("are you there?") and worker.heard == [news]


@pytest.mark.parametrize(
    ("capabilities", "answer"),
    [({}, "no"), ({"extensions": {"io.modelcontextprotocol/tasks": {}}}, "yes"), ({"tasks": {}}, "2025-11-25")],
)
def test_declared_tasks_are_found_in_both_eras(capabilities: object, answer: str) -> None:
    modern = {"_meta": {"io.modelcontextprotocol/clientCapabilities": capabilities}}
    for method, params in (("initialize", {"capabilities": capabilities}), ("server/discover", modern)):
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        assert declared([Sent("client", line=line)]) == answer
    with pytest.raises(Fault):
        declared([])


def test_page_has_a_row_for_each_client_that_is_measured() -> None:
    assert documented(PAGE.read_text("utf-8")).keys() == WITH_DRIVER.keys() | OTHERS.keys()


def test_steps_tell_what_was_sent_after_each_act_of_the_rig(tmp_path: Path) -> None:
    task = "st_B8890F9CW16SZDCTFQ7FJK6E0N"
    poll = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": task}})
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"taskId": task, "status": "working"}})
    sent = [Sent("rig", line="claude"), *[Sent("client", line=poll), Sent("hub", line=answer)] * 2]
    placed = steady([*sent, Sent("rig", line="quit")], tmp_path)
    assert steps(placed) == [("claude", ["tasks/get"], ["working"]), ("quit", [], [])]
    assert task not in str(placed) and TASK in placed[1].line
