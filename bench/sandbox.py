"""The measurements of sandboxes: what one adds to the start of a server, and to a call."""

import os
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from bench.attach import calls as echo_calls
from bench.cases import Figures, Result, Run, merged, share
from bench.relays import SANDBOXED, Setup
from mcp_hub.addresses import host_rule
from mcp_hub.clock import SystemClock
from mcp_hub.errors import StartFailed
from mcp_hub.sandbox.confinement import Unsupported, support
from mcp_hub.sandbox.network.proxy import HostProxy
from mcp_hub.sandbox.rules import Rule, Surroundings
from mcp_hub.sandbox.server import ServerSandbox
from mcp_hub.upstreams.process.watchdog import Watchdog

START, CALLS = "sandbox-start", "sandbox-calls"
CASES = (START, CALLS)
VARIANT = "a program that writes a line"
PLAIN, USUAL, HOSTS = "off", "on", "net: [hosts]"
_STARTS = 20
"""Starts in a round."""
_LIMIT = 60.0


async def _started(watchdog: Watchdog, sandbox: ServerSandbox | None) -> float:
    """Seconds from the decision to start a program to its first output."""
    argv, env = [shutil.which("echo") or "/bin/echo", "x"], {"PATH": os.environ["PATH"]}
    async with anyio.create_task_group() as tasks:
        begun = time.perf_counter()
        if sandbox is None or (start := await sandbox.begin(argv, env, "/", is_spare=False)) is None:
            child = watchdog.spawn(argv, env, "/")
        else:
            with start.launch as launch:
                child = watchdog.spawn(launch.argv, launch.env, "/", launch.descriptors)
            await start.begin(tasks)
        await anyio.wait_readable(child.stdout)
        took = time.perf_counter() - begun
        await child.wait()
        await child.close(0, 0)
        tasks.cancel_scope.cancel()
    return took


async def _starts(rounds: int) -> dict[str, list[Figures]]:
    """Starts without a sandbox and with each rule, by turns; the first of each, which compiles, does not count."""
    samples: dict[str, list[Figures]] = {PLAIN: [], USUAL: [], HOSTS: []}
    with anyio.fail_after(_LIMIT * rounds), TemporaryDirectory() as folder:
        around = Surroundings(str(Path.home()), (folder,))
        rules = {USUAL: Rule(), HOSTS: Rule(net="hosts", hosts=(host_rule("example.com"),))}
        sandboxes = {
            side: ServerSandbox(side, rule, f"{folder}/{number}", around, HostProxy)
            for number, (side, rule) in enumerate(rules.items())
        }
        async with Watchdog(SystemClock()) as watchdog, anyio.create_task_group() as tasks:
            tasks.start_soon(watchdog.run)
            for number in range(1 + rounds * _STARTS):
                for side, found in samples.items():
                    took = await _started(watchdog, sandboxes.get(side))
                    if number:
                        found.append({"start_ms": took * 1e3})
            tasks.cancel_scope.cancel()
    return samples


def measure_sandbox(run: Run) -> None:
    """The wanted ones of these cases."""
    try:
        support("hosts")
        if run.wants(START):
            run.say(f"  {START}: {VARIANT}")
            samples = anyio.run(_starts, run.options.rounds)
            run.results += [Result(START, VARIANT, side, merged(found)) for side, found in samples.items()]
    except (Unsupported, StartFailed, OSError) as problem:
        run.absent(START, {USUAL: str(problem)})
        return
    share(run, Setup("stdio"), {CALLS: lambda sides: echo_calls(run, sides, CALLS)}, ("limit", "hub", SANDBOXED))
