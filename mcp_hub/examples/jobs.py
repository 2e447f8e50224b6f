"""Tools to copy from: a streaming job, a plain function, a slow one.

    servers:
      jobs: {local: "mcp_hub.examples.jobs:registry"}

`mcp_hub.upstreams.functions.registry` describes the rules.
"""

from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from pydantic import Field

from mcp_hub import Context, Progress, Registry, Result

registry = Registry()

Seconds = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]


@registry.tool(title="Run a job", annotations={"readOnlyHint": True, "openWorldHint": False})
async def run_job(
    steps: Annotated[int, Field(ge=1, le=10_000)] = 20, seconds: Seconds = 2.0
) -> AsyncIterator[Progress | str | Result]:
    """Run a simulated job that reports each step while it works.

    Text is partial output; the last `Result` is what the call returns.

    Args:
        steps: into how many steps the job is divided
        seconds: how long all of them take together
    """
    for step in range(1, steps + 1):
        await anyio.sleep(seconds / steps)
        yield Progress(step, total=steps, message=f"step {step} of {steps}")
        yield f"step {step} done\n"
    yield Result({"steps": steps, "seconds": seconds, "status": "done"})


@registry.tool(annotations={"readOnlyHint": True, "openWorldHint": False}, output_schema=dict[str, int])
def count_words(text: str) -> dict[str, int]:
    """Count the words, lines and characters of a text.

    Runs in a worker thread; a dict becomes structured content.

    Args:
        text: the text to count in
    """
    return {"words": len(text.split()), "lines": len(text.splitlines()), "characters": len(text)}


@registry.tool(annotations={"readOnlyHint": True, "openWorldHint": False})
async def wait(seconds: Seconds, context: Context) -> str:
    """Wait for a given time, then report it.

    Runs on the event loop; the hub fills in `Context`.

    Args:
        seconds: how long to wait
    """
    context.log("info", {"waiting_seconds": seconds})
    await anyio.sleep(seconds)
    return f"waited {seconds:g} s"
