"""List, search, call, stream and resume: `python examples/library_calls.py [servers.yaml]`.

By default it needs `uvx`.
"""

import sys

import anyio

from mcp_hub import Completed, Delta, Hub, HubError, Progressed, UnknownEntry

CONFIG = {
    "servers": {
        "time": {"command": "uvx", "args": ["mcp-server-time"]},
        "mine": {"local": "mcp_hub.examples.tools"},
    }
}


async def find(hub: Hub) -> None:
    """Lists all tools, and searches."""
    print("tools:", ", ".join(tool.name for tool in await hub.list_tools()))
    (best, hit), *_ = await hub.search("what time is it in another city")
    print("best hit:", best.name, "(weak)" if hit.weak else "")


async def call(hub: Hub) -> None:
    """One call; errors of the tool are results, others exceptions."""
    result = await hub.call_tool("time_convert_time", {
        "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo",
    })  # fmt: skip
    print("12:00 UTC in Tokyo:", result.content[0].model_dump()["text"])
    try:
        await hub.call_tool("time_convert_tim")
    except UnknownEntry as error:
        print("refused:", error)


async def stream_and_resume(hub: Hub) -> None:
    """Follows a call, stops, and resumes without gap or repeat."""
    async with hub.stream_tool("mine_count_down", {"start": 5}) as stream:
        async for event in stream:
            print(f"event {stream.cursor}: {event.message if isinstance(event, Progressed) else type(event).__name__}")
            if stream.cursor >= 4:
                break
    assert stream.id is not None
    async with hub.resume(stream.id, after=stream.cursor) as resumed:
        async for event in resumed:
            match event:
                case Delta():
                    print(f"event {resumed.cursor}: text {event.text!r}")
                case Completed():
                    print(f"event {resumed.cursor}: the result")
        print("structured:", (await resumed.result()).structured_content)


async def main() -> None:
    """Runs the example."""
    async with Hub.from_config(sys.argv[1] if len(sys.argv) > 1 else CONFIG) as hub:
        await find(hub)
        await call(hub)
        await stream_and_resume(hub)


if __name__ == "__main__":
    try:
        anyio.run(main)
    except HubError as problem:
        sys.exit(f"{type(problem).__name__}: {problem}")
