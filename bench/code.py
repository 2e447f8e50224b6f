"""`python -m bench.code`: tokens and turns of twenty tasks, directly, by `run_tool` and by `run_code`; costs.

A scripted model does the tasks of `bench.desk` on a real hub. Its script is the same in each way: directly and by
`run_tool`, calls that do not need each other's results are one turn, which is the best case for these. Counted are the
tokens of the list of tools, of what the model writes, and of what it reads (estimated for o200k, as `mcp-hub tokens`
does); *input* is their sum over all turns, as a provider without a cache of prompts counts it.
"""

import ast
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import measure
from bench.desk import TASKS
from bench.report import machine_lines
from mcp_hub import Hub
from mcp_hub.catalog.tokens import estimate

WAYS: Final = ("direct", "run_tool", "run_code")
SCRIPT: Final = "import asyncio\nfor n in range(150):\n    await get_ticket(id=n)\n"
CALLS: Final = 150
ROUNDS: Final = 5

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]


class ToolError(Exception):
    """As scripts see it."""


@dataclass
class Talk:
    """What a model has in its context, and what it was sent in all turns."""

    context: int
    turns: int = 0
    sent: int = 0
    calls: int = 0
    pending: list[tuple[str, dict[str, Any], asyncio.Future[Any]]] = field(default_factory=list)

    def turn(self, *texts: str) -> None:
        """The model is sent its context, and writes; then results are added."""
        self.turns += 1
        self.sent += self.context
        self.context += sum(map(estimate, texts))


def config(way: str) -> dict[str, Any]:
    hub = {"expose": "full" if way == "direct" else "search", "code": "all" if way == "run_code" else "off"}
    return {"hub": {**hub, "store": "memory", "prefix": "never"}, "servers": {"desk": {"local": "bench.desk:registry"}}}


def written(name: str, arguments: dict[str, Any]) -> str:
    return json.dumps({"name": name, "input": arguments})


async def asked(client: Any, name: str, arguments: dict[str, Any]) -> tuple[str, Any, bool]:
    """The text of a result, its value, and whether it is an error."""
    result = await client.call_tool(name, arguments)
    text = "\n".join(part.text for part in result.content)
    return text, result.structured_content, result.is_error


class Model:
    """Calls tools for a script, turn by turn."""

    def __init__(self, client: Any, talk: Talk, by: str | None) -> None:
        self._client = client
        self._talk = talk
        self._by = by

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        future = asyncio.get_running_loop().create_future()
        if not self._talk.pending:
            self._flushed = asyncio.ensure_future(self._flush())
        self._talk.pending.append((name, arguments, future))
        return await future

    async def _flush(self) -> None:
        await asyncio.sleep(0)
        pending, self._talk.pending = self._talk.pending, []
        texts = []
        for name, arguments, future in pending:
            named = (self._by, {"name": name, "arguments": arguments}) if self._by else (name, arguments)
            text, value, is_error = await asked(self._client, *named)
            texts += [written(*named), text]
            self._talk.calls += 1
            if is_error:
                future.set_exception(ToolError(text))
            else:
                future.set_result(value if value is not None else json.loads(text))
        self._talk.turn(*texts)


async def played(script: str, names: list[str], model: Model) -> Any:
    """The value of a script that Python itself runs."""
    tree = ast.parse(f"async def script():\n    pass\n{script}")
    body = tree.body[1:]
    assert isinstance(body[-1], ast.Expr) and isinstance(tree.body[0], ast.AsyncFunctionDef)
    tree.body[0].body = [*body[:-1], ast.Return(body[-1].value)]
    del tree.body[1:]

    def tool(name: str) -> Callable[..., Awaitable[Any]]:
        return lambda **arguments: model.call(name, arguments)

    scope: dict[str, Any] = {"ToolError": ToolError, **{name: tool(name) for name in names}}
    exec(compile(ast.fix_missing_locations(tree), "script", "exec"), scope)  # a script of ours
    return await scope["script"]()


async def talked(way: str, task: str, client: Any, listed: int, names: list[str]) -> tuple[Talk, Any]:
    talk, script = Talk(listed + estimate(task)), TASKS[task].strip()
    if way != "direct":
        text, _, _ = await asked(client, "find_tools", query := {"query": task})
        talk.turn(written("find_tools", query), text)
    if way == "run_code":
        text, _, is_error = await asked(client, "run_code", call := {"code": script, "again": True})
        assert not is_error, text
        talk.turn(written("run_code", {"code": call["code"]}), text)
        value = json.loads(text) if text[:1] in "[{0123456789" else text
    else:
        value = await played(script, names, Model(client, talk, None if way == "direct" else "run_tool"))
    talk.turn(json.dumps(value))
    return talk, value


async def tokens() -> dict[str, dict[str, Talk]]:
    talks: dict[str, dict[str, Talk]] = {task: {} for task in TASKS}
    values: dict[str, Any] = {}
    for way in WAYS:
        async with Hub.from_config(config(way)) as hub, hub.connect() as client:
            names = [tool.name for tool in await hub.list_tools() if tool.name != "run_code"]
            tools = (await client.list_tools()).tools
            texts = {tool.name: json.dumps(tool.model_dump(by_alias=True, exclude_none=True)) for tool in tools}
            listed = sum(map(estimate, texts.values()))
            print(f"{way}: {len(tools)} tools in the list, {listed} tokens")
            if "run_code" in texts:
                print(f"run_code in the list: {estimate(texts['run_code'])} tokens (goal: 180)")
            for task in TASKS:
                talks[task][way], value = await talked(way, task, client, listed, names)
                values.setdefault(task, value)
                assert json.dumps(values[task]) == json.dumps(value), (task, way, value)
    return talks


def table(talks: dict[str, dict[str, Talk]]) -> None:
    print("\n| task | calls | turns | context | input |\n| --- | --- | --- | --- | --- |")
    for task, ways in talks.items():
        cells = [[getattr(ways[way], name) for way in WAYS] for name in ("turns", "context", "sent")]
        print(
            f"| {task} | {ways['direct'].calls} | {' | '.join(' / '.join(f'{n:,}' for n in cell) for cell in cells)} |"
        )
    sums = [
        [sum(getattr(ways[way], name) for ways in talks.values()) for way in WAYS]
        for name in ("turns", "context", "sent")
    ]
    calls = sum(ways["direct"].calls for ways in talks.values())
    print(f"| **sum** | {calls} | {' | '.join(' / '.join(f'{n:,}' for n in cell) for cell in sums)} |")
    captured(sums[0][0])


def captured(turns: int) -> None:
    """What the lists of public servers add to each direct turn."""
    files = sorted((Path(os.environ.get("MCP_HUB_EVAL_DATA") or "nowhere") / "tool-lists").glob("*.json"))
    lists = {file.stem: [json.dumps(tool) for tool in json.loads(file.read_bytes())["tools"]] for file in files}
    if lists:
        added = sum(estimate(text) for texts in lists.values() for text in texts)
        print(
            f"\nWith the {sum(map(len, lists.values()))} tools of {len(lists)} public servers in the list, too, each",
            end=" ",
        )
        print(f"direct turn has {added:,} tokens more: {added * turns:,} in all. The other lists stay.")


async def costs() -> None:
    """CPU of this process, which runs the hub and its tools, and times."""
    async with Hub.from_config(config("run_code")) as hub:
        await hub.list_tools()
        await hub.run_code("1", again=True)
        direct, inner, nothing = [], [], []
        for _ in range(ROUNDS):
            begun = time.process_time()
            for n in range(CALLS):
                await hub.call_tool("get_ticket", {"id": n}, raw=True)
            direct.append((time.process_time() - begun) / CALLS * 1e6)
            empty = time.process_time(), time.perf_counter()
            await hub.run_code("1", again=True, raw=True)
            nothing.append((time.perf_counter() - empty[1]) * 1e3)
            base, begun = time.process_time() - empty[0], time.process_time()
            await hub.run_code(SCRIPT, again=True, raw=True)
            inner.append((time.process_time() - begun - base) / CALLS * 1e6)
    bound = 1.5 * median(direct) + 300
    print(f"\nCPU of a direct call: {median(direct):.0f} µs, in a script: {median(inner):.0f} µs (goal: {bound:.0f})")
    print(f"a script of nothing, warm: {median(nothing):.1f} ms (goal: 30)")


def main() -> None:
    table(asyncio.run(tokens()))
    asyncio.run(costs())
    print("\n" + "\n".join(machine_lines(measure.machine())))


if __name__ == "__main__":
    main()
