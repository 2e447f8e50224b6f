"""`make clients`: Claude Code in a terminal, for which a slow tool becomes a background task that survives quitting it.

The newest Claude Code of its package index runs in a home of its own, at a model on this machine, with the hub as its
server: over stdio, where it shares the background hub, and over HTTP. The hub has one server, which knows no tasks.
What both say is recorded and compared with the transcripts of the tests: `--write` replaces them. Exit code 1 for a
fault, or if Claude Code is not installed. Linux only.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rigs import report
from rigs.clients import transcripts
from rigs.clients.apps import Fault, expect
from rigs.clients.claude import WAYS, ClaudeHome, Project
from rigs.clients.install import NotInstalled, node_version
from rigs.clients.terminal import Late, until
from rigs.clients.transcripts import Transcript

FOLDER: Final = transcripts.FOLDER / "background"
CONTINUE: Final = "--continue"
TASKS: Final = "io.modelcontextprotocol/tasks"
_AWAY: Final = 2.5
"""Seconds in which a Claude Code that was quit would have asked for its task twice."""


def quit_and_continue(home: ClaudeHome, work: Project) -> None:
    """The model works on while the tool runs; after `--continue` the same task is followed, and its result is there."""
    with work.claude() as claude:
        claude.ask("please build web")
        claude.has("working")
        claude.ask("are you there?")
        until(lambda: home.model.was_asked("are you there?"), "a question to the model while the task runs")
        expect(work.statuses == ["working"], "the task did not run any more", work.statuses)
        claude.polled(2)
        claude.quit()
    away(work)
    with work.claude(CONTINUE) as claude:
        claude.polled(2)
        work.release("web")
        claude.has("completed")
        hears(home, "completed", "built web: 214 objects")
        claude.quit()
    came_to(home, work, ["working", "completed"], ["begin build web", "end build web"])


def ends_while_away(home: ClaudeHome, work: Project) -> None:
    """The terminal is closed, the tool ends while nobody is there, and `--continue` brings its result."""
    with work.claude() as claude:
        claude.ask("please build web")
        claude.has("working")
        claude.polled(1)
        claude.hang_up()
    work.release("web")
    until(lambda: "end build web" in home.calls, "the end of the call", lambda: home.calls)
    away(work)
    with work.claude(CONTINUE) as claude:
        claude.has("completed")
        hears(home, "completed", "built web: 214 objects")
        claude.quit()
    came_to(home, work, ["working", "completed"], ["begin build web", "end build web"])


def question(home: ClaudeHome, work: Project) -> None:
    """A task asks; the person answers later, quits, and is asked again by the next Claude Code."""
    with work.claude() as claude:
        claude.ask("please deploy web")
        claude.has("working")
        work.release("web")
        claude.has("input_required")
        claude.until("Deploy web to production?")
        claude.until("to toggle")
        claude.type("\x1b")  # later
        time.sleep(1)
        claude.quit()
    away(work)
    with work.claude(CONTINUE) as claude:
        claude.until("Deploy web to production?")
        claude.until("to toggle")
        claude.type(" \x1b[B\r")  # sure, then down to "Accept"
        claude.has("completed")
        hears(home, "completed", "deployed web: accept")
        claude.quit()
    came_to(home, work, ["working", "input_required", "completed"], ["begin deploy web", "end deploy web"])


def tool_error(home: ClaudeHome, work: Project) -> None:
    """The tool answers with an error of its own."""
    failing(home, work, "check", "completed", "Error executing tool check")


def crash(home: ClaudeHome, work: Project) -> None:
    """The server ends in the middle of the call."""
    failing(home, work, "crash", "failed", "exited with code 3")


def failing(home: ClaudeHome, work: Project, tool: str, status: str, words: str) -> None:
    """The call of the tool fails after Claude Code was quit, and the model hears of it after `--continue`."""
    with work.claude() as claude:
        claude.ask(f"please {tool} web")
        claude.has("working")
        claude.quit()
    with work.claude(CONTINUE) as claude:
        claude.polled(1)
        work.release("web")
        claude.has(status)
        hears(home, "failed", words)
        claude.quit()
    came_to(home, work, ["working", status], [f"begin {tool} web", f"end {tool} web"])


def hub_killed(home: ClaudeHome, work: Project) -> None:
    """The hub is killed while Claude Code follows the task: its server went with it, and the model hears of that."""
    with work.claude() as claude:
        claude.ask("please build web")
        claude.has("working")
        claude.polled(1)
        work.kill_hub()
        claude.has("failed")
        hears(home, "failed", "hub")
        claude.quit()
    came_to(home, work, ["working", "failed"], ["begin build web"])


def hub_killed_while_away(home: ClaudeHome, work: Project) -> None:
    """The hub is killed after Claude Code was quit; the next hub says how the task ended."""
    with work.claude() as claude:
        claude.ask("please build web")
        claude.has("working")
        claude.quit()
    work.kill_hub()
    with work.claude(CONTINUE) as claude:
        claude.has("failed")
        hears(home, "failed", "hub")
        claude.quit()
    came_to(home, work, ["working", "failed"], ["begin build web"])


def hub_ended_while_away(home: ClaudeHome, work: Project) -> None:
    """The tool ends, and then the hub, while nobody is there: the next hub has the result."""
    with work.claude() as claude:
        claude.ask("please build web")
        claude.has("working")
        claude.quit()
    work.release("web")
    until(lambda: "end build web" in home.calls, "the end of the call", lambda: home.calls)
    time.sleep(1)  # for the answer, which the hub keeps
    before = home.hub_pid
    work.end_hub()
    with work.claude(CONTINUE) as claude:
        claude.has("completed")
        expect(home.hub_pid != before, "it is the same hub")
        hears(home, "completed", "built web: 214 objects")
        claude.quit()
    came_to(home, work, ["working", "completed"], ["begin build web", "end build web"])


def two_sessions(home: ClaudeHome, work: Project) -> None:
    """Two sessions in two folders share a hub, and each gets the result of its own task."""
    other = Project(home, "other")
    with other.opened():
        with work.claude() as claude, other.claude() as second:
            claude.ask("please build web")
            second.ask("please build docs")
            claude.has("working")
            second.has("working")
            claude.quit()
            second.quit()
        away(work, other)
        with work.claude(CONTINUE) as claude, other.claude(CONTINUE) as second:
            claude.polled(1)
            second.polled(1)
            other.release("docs")
            second.has("completed")
            expect(work.statuses == ["working"], "the task of the other session ended, too", work.statuses)
            work.release("web")
            claude.has("completed")
            hears(home, "completed", "built web: 214 objects")
            hears(home, "completed", "built docs: 214 objects")
            claude.quit()
            second.quit()
    expect(not work.tasks & other.tasks, "both have the same task")
    for mine, theirs in (("web", "docs"), ("docs", "web")):
        talks = [str(body["messages"]) for body in home.model.requests]
        crossed = [talk for talk in talks if f"please build {mine}" in talk and f"built {theirs}" in talk]
        expect(not crossed, f"the session that built {mine} heard of {theirs}")
    calls = sorted(f"{when} build {target}" for when in ("begin", "end") for target in ("docs", "web"))
    came_to(home, work, ["working", "completed"], calls)
    came_to(home, other, ["working", "completed"], calls)


CASES: Final[Mapping[str, Callable[[ClaudeHome, Project], None]]] = {
    "quit": quit_and_continue,
    "away": ends_while_away,
    "question": question,
    "tool-error": tool_error,
    "crash": crash,
    "killed": hub_killed,
    "killed-away": hub_killed_while_away,
    "ended": hub_ended_while_away,
    "two": two_sessions,
}


def away(*projects: Project) -> None:
    """Nobody asks for the tasks while no Claude Code is there."""
    before = [len(project.sent) for project in projects]
    time.sleep(_AWAY)
    expect(before == [len(project.sent) for project in projects], "a Claude Code that was quit still asks")


def hears(home: ClaudeHome, status: str, words: str) -> None:
    """Waits until the model has heard that a task has this status, with these words."""

    def heard() -> bool:
        return any(f"<status>{status}</status>" in news and words in news for news in home.model.heard)

    until(heard, f"the model hears of a task that is {status}, with {words!r}", lambda: home.model.heard)


def came_to(home: ClaudeHome, project: Project, statuses: Sequence[str], calls: Sequence[str]) -> None:
    """Raises `Fault` unless there was one call, one task with these statuses, and nothing was cancelled."""
    for message in project.said("client", "server/discover"):
        declared = message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].get("extensions", {})
        expect(TASKS in declared, "server/discover does not declare tasks", declared)
    asked = project.said("client", "tools/call")
    expect(len(asked) == 1, "there was not one call", asked)
    expect(not project.said("client", "tasks/cancel"), "the task was cancelled")
    expect(len(project.tasks) == 1, "there was not one task", project.tasks)
    expect(project.statuses == list(statuses), "the task had other statuses", project.statuses)
    expect(sorted(home.calls) == sorted(calls), "the server had other calls", home.calls)
    failed = transcripts.errors(project.sent)
    expect(not failed, "the hub answered with an error", failed)


def play(name: str, way: str) -> tuple[Transcript, set[str]]:
    """Plays a case; what was sent, and the addresses outside that were asked for.

    Raises: `NotInstalled`, `Fault`, `Late`.
    """
    with TemporaryDirectory() as folder, ClaudeHome(Path(folder), way) as home:
        work = Project(home, "work")
        with work.opened():
            CASES[name](home, work)
        sent = transcripts.steady(work.sent, Path(folder))
        run = f"claude in a terminal, over {way}: {name}"
        return Transcript(node_version(home.package).replace(" ", "@"), run, sent), home.outside


def difference(path: Path, now: Transcript) -> str:
    """How what was recorded differs from the transcript of the tests; empty if it does not."""
    if not path.exists():
        return "there is no transcript yet"
    before = transcripts.read(path)
    then, today = _outline(before), _outline(now)
    return "" if then == today else f"it sends and gets {today}; {before.client}: {then}"


def _outline(transcript: Transcript) -> tuple[list[str], list[str], list[str]]:
    """What the rig did, and all methods and statuses: at what moment Claude Code asks for its task varies."""
    steps = transcripts.steps(transcript.sent)
    methods = {method for _, sent, _ in steps for method in sent}
    statuses = dict.fromkeys(status for _, _, seen in steps for status in seen)
    return [line for line, _, _ in steps], sorted(methods), list(statuses)


def main() -> int:
    parser = report.arguments("clients.background", __doc__)
    parser.add_argument("--only", action="append", choices=list(CASES), help="only this one")
    parser.add_argument("--way", choices=WAYS, help="only this way")
    parser.add_argument("--write", action="store_true", help="replace the transcripts of the tests")
    given = parser.parse_args()
    lines: list[str] = []
    faults: list[str] = []
    for way in [given.way] if given.way else WAYS:
        for name in given.only or CASES:
            report.say(f"{name}, over {way} …")
            begun = time.monotonic()
            try:
                now, outside = play(name, way)
            except NotInstalled as problem:
                return report.reported([*lines, f"not installed: {problem}"], faults, is_complete=False)
            except (Fault, Late) as problem:
                faults.append(f"{name}, over {way}: {problem}")
                continue
            path = FOLDER / (f"{name}.jsonl" if way == "stdio" else f"{name}-{way}.jsonl")
            seen = difference(path, now) or "as in the transcript"
            refused = f"; refused: {', '.join(sorted(outside))}" if outside else ""
            lines.append(f"{now.run}: {time.monotonic() - begun:.0f} s, {seen}{refused}")
            if given.write:
                transcripts.write(path, now)
    return report.reported(lines, faults)


if __name__ == "__main__":
    sys.exit(main())
