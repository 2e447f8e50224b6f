"""Lists that are read again when somebody asks for them: servers do not announce every change of skills."""

from collections.abc import Awaitable, Callable, Iterable, Mapping

import anyio

from mcp_hub.call import Upstream
from mcp_hub.types import Kind


def outdated(upstreams: Iterable[Upstream], kind: Kind) -> bool:
    """Whether some list of this kind is older than its server lets it be kept."""
    return any(upstream.refresh(kind) is not None for upstream in upstreams)


async def refreshed(upstreams: Iterable[Upstream], kind: Kind) -> None:
    """Has all those read, side by side; each of them is bounded in time."""
    async with anyio.create_task_group() as tasks:
        for upstream in upstreams:
            if (job := upstream.refresh(kind)) is not None:
                tasks.start_soon(_run, job)


def renew(upstreams: Mapping[str, Upstream], servers: Iterable[str], kind: Kind, *, is_new: bool = False) -> None:
    """A client is listed this kind of these servers: what is old of it is read again, which nobody waits for."""
    if kind is not Kind.SKILL:  # those are waited for
        for server in servers:
            if server in upstreams:
                upstreams[server].refresh(kind, is_new=is_new)


async def _run(job: Callable[[], Awaitable[None]]) -> None:
    await job()
